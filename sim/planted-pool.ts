/** Mistakes in the rules of pools. */
import type { Planted } from './planted-mistake.ts'

export const POOL_BUGS: readonly Planted[] = [
  {
    name: 'a waiter behind the first one of a pool overtakes it',
    file: 'src/kernel/rule/pool/turn.js',
    find: 'this.#at = Number.POSITIVE_INFINITY;',
    put: 'this.#at++;',
    expected: ['S14'],
    profiles: ['pool'],
  },
  {
    name: 'a newcomer to a pool overtakes those that wait',
    file: 'src/kernel/rule/pool/turn.js',
    find: 'if (!isPassedOver(state, pool, waiter))\n            return false;',
    put: '',
    expected: ['S14'],
    profiles: ['pool'],
  },
  {
    name: 'a member that has become free is not offered to the waiters of its pool',
    file: 'src/kernel/rule/pool/member.js',
    find: 'if (member.room > before)',
    put: 'if (false)',
    expected: ['L1'],
    profiles: ['pool'],
  },
  {
    name: 'a lease keeps a member whose host has died',
    file: 'src/kernel/rule/end.js',
    find: 'if (vanishes && member !== undefined',
    put: 'if (false && member !== undefined',
    expected: ['S8'],
    profiles: ['pool'],
  },
  {
    name: 'a member that is taken still counts as free',
    file: 'src/kernel/rule/pool/member.js',
    find: 'Math.max(0, capacity - resource.used)',
    put: 'capacity',
    expected: ['S15', 'S1'],
    profiles: ['pool'],
  },
]
