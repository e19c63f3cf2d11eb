/** Which rules version a command needs. Older replicas that share a log could not read it, so it is refused before it is written. */
import type { Command, PolicyRules } from '../command.ts'
import type { Refused } from '../outcome.ts'
import type { State } from '../state.ts'
import { invalid } from './refuse.ts'

/** The rules version with which pools came. */
export const POOLS = 3
/** The rules version from which on a member that was relabelled or has shrunk has its pool served again. */
export const RESHAPED_MEMBERS = 4
/** The rules version from which on reservations go first in a fair queue too, and waiters that cannot be served do not count for their accounts there. */
export const SERVABLE_SHARES = 5
/** The rules version from which on units that an account gives back have its pool served again, also those of a member that is gone. */
export const RETURNED_UNITS = 5
/** The rules version from which on no waiter overtakes one of its own account that would be over its quota then. */
export const OWN_QUOTA = 5

const POOL_RULES: readonly (keyof PolicyRules)[] = [
  'shareHalfLife',
  'sharePenalty',
  'shareWeight',
  'quotaUnits',
  'quotaBorrow',
  'preempt',
  'minHold',
  'preemptNotice',
]

function needsPools(command: Command): boolean {
  if (command.kind === 'acquire') return command.pool !== undefined
  if (command.kind !== 'policy') return command.kind === 'extend'
  const { rules } = command
  if (rules === undefined) return false
  return rules.queue === 'backfill' || rules.queue === 'fair' || POOL_RULES.some(rule => rules[rule] !== undefined)
}

/** Refuses a command that the rules version of the log does not have yet. */
export function versionRefusal(state: State, command: Command): Refused | undefined {
  if (state.rules >= POOLS || !needsPools(command)) return undefined
  return invalid(
    state,
    `pools need rules version ${POOLS}, and this log is at version ${state.rules}: upgrade every process that uses it, then let an administrator propose {"kind":"upgrade","rules":${state.rules + 1}}`,
  )
}
