/** The guarded lessor of a server as one caller sees it: agents that come by HTTP act with the key of their request. */
import type { Lessor } from '../lessor.ts'
import type { Caller } from './access-control.ts'
import type { GuardedLessor } from './guarded-lessor.ts'

export function callerLessor(guarded: GuardedLessor, caller: Caller): Lessor {
  return {
    profile: guarded.lessor.profile,
    signal: guarded.lessor.signal,
    propose: (command, { op, signal } = {}) => guarded.propose(caller, command, { ...(op && { op }), ...(signal && { signal }) }),
    read: (query, options) => guarded.read(caller, query, options),
    watch: (prefix, options) => guarded.watch(caller, prefix, options),
    async [Symbol.asyncDispose]() {}, // it belongs to the server
  }
}
