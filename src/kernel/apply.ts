/**
 * The kernel: the rules of leasing as one pure function, `apply(state, proposal) → outcome + events`, the same on every replica. No clock, no randomness,
 * no I/O, no await, and no import from outside this folder.
 *
 * command.ts, outcome.ts and event.ts are its vocabulary, state.ts and state/ its data. rule/ has one file for each group of rules, codec/ turns
 * commands, outcomes and states into bytes. A command is checked completely before it changes anything, so a bad command can never poison a log.
 */

import type { Command, Proposal } from './command.ts'
import type { Outcome, Refused } from './outcome.ts'
import { acquire, planAcquire } from './rule/acquire.ts'
import { claim } from './rule/claim.ts'
import type { Effects } from './rule/effects.ts'
import { put, remove } from './rule/entry.ts'
import { fence } from './rule/fence.ts'
import { generation, policy, upgrade } from './rule/govern.ts'
import { createKey, limitKey, revokeKey, rotateKey } from './rule/keys.ts'
import { move, refusalOfMovedLog } from './rule/move.ts'
import { breakHold, recallHolders, revoke } from './rule/operate.ts'
import { extend } from './rule/pool/extend.ts'
import { release, releaseRefusal } from './rule/release.ts'
import { renew } from './rule/renew.ts'
import { aged, agedTogether, due, run, tick } from './rule/time.ts'
import { planTransaction, transaction } from './rule/transaction.ts'
import { transfer } from './rule/transfer.ts'
import { widen } from './rule/widen.ts'
import type { State } from './state.ts'

type RuleOf<C extends Command> = (state: State, effects: Effects, command: C, key: number) => Outcome

const RULE_OF: { readonly [K in Command['kind']]: RuleOf<Extract<Command, { readonly kind: K }>> } = {
  acquire,
  claim,
  extend,
  widen,
  renew,
  release,
  due,
  aged,
  'aged-together': agedTogether,
  run,
  put,
  delete: remove,
  transaction,
  revoke,
  transfer,
  break: breakHold,
  recall: recallHolders,
  policy,
  key: createKey,
  rotate: rotateKey,
  limit: limitKey,
  unkey: revokeKey,
  fence: (state, _effects, command, key) => fence(state, command, key),
  tick,
  upgrade: (state, _effects, command, key) => upgrade(state, command, key),
  generation,
  move,
}

/** Applies one command. The revision grows by one if and only if the command caused events. */
export function apply(state: State, { command, key = 0 }: Proposal, effects: Effects): Outcome {
  const before = effects.events.length
  const refused = state.moved === undefined ? undefined : refusalOfMovedLog(state, state.moved, command)
  const outcome: { revision: number } & Outcome = refused ?? (RULE_OF[command.kind] as RuleOf<Command>)(state, effects, command, key)
  if (effects.events.length > before) state.revision++
  outcome.revision = state.revision
  return outcome
}

/**
 * Why a command would be refused in this state, or undefined. Such a command need not be written to the log; the caller first reads to the end of the log,
 * so that the answer is true there.
 */
export function refusal(state: State, proposal: Proposal): Refused | undefined {
  const { command } = proposal
  if (state.moved !== undefined) {
    const refused = refusalOfMovedLog(state, state.moved, command)
    return refused?.kind === 'refused' ? refused : undefined
  }
  if (command.kind === 'acquire') {
    const plan = planAcquire(state, command, proposal.key)
    return 'kind' in plan ? plan : undefined
  }
  if (command.kind === 'release') return releaseRefusal(state, command, proposal.key ?? 0)
  if (command.kind === 'transaction') {
    const plan = planTransaction(state, command, proposal.key ?? 0)
    return 'kind' in plan ? plan : undefined
  }
  return undefined
}

/** Returns whether only replicas write this command, never clients. */
export function isInternal(command: Command): boolean {
  return (
    command.kind === 'due' ||
    command.kind === 'aged' ||
    command.kind === 'aged-together' ||
    command.kind === 'run' ||
    command.kind === 'tick' ||
    (command.kind === 'move' && command.into !== undefined)
  )
}
