/** Divides a renewal of many leases into commands of at most a thousand, and puts their answers together again. */
import type { Renew } from '../kernel/command.ts'
import { MAX_RENEWALS } from '../kernel/rule/renew.ts'
import type { Completion } from '../lessor.ts'

/** The most leases in one command. A command is applied in one turn of the event loop. */
const MAX_LEASES = 1_000

/** Calls `put` for each part. One operation decides one command, so only the last part carries that of the whole. */
export function divideRenewal(
  command: Renew,
  completion: Completion,
  put: (part: Renew, completion: Completion, isLast: boolean) => void,
): void {
  const { leases } = command
  // More than a request may have: the kernel refuses it.
  if (leases.length <= MAX_LEASES || leases.length > MAX_RENEWALS) return put(command, completion, true)
  const ttls: number[] = new Array(leases.length)
  let open = Math.ceil(leases.length / MAX_LEASES)
  let isSettled = false
  const once = (settle: () => void): void => {
    if (!isSettled) settle()
    isSettled = true
  }
  for (let at = 0; at < leases.length; at += MAX_LEASES)
    put(
      { ...command, leases: leases.slice(at, at + MAX_LEASES) },
      {
        settle: outcome => {
          if (outcome.kind !== 'renewed') return once(() => completion.settle(outcome))
          for (const [i, ttl] of outcome.ttls.entries()) ttls[at + i] = ttl
          if (--open === 0) once(() => completion.settle({ ...outcome, ttls }))
        },
        fail: error => once(() => completion.fail(error)),
      },
      at + MAX_LEASES >= leases.length,
    )
}
