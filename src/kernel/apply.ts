/**
 * The kernel: the rules of leasing as one pure function, `apply(state, proposal) → outcome + events`, the same on every replica. No clock, no randomness,
 * no I/O, no await, and no import from outside this folder.
 *
 * command.ts, outcome.ts and event.ts are its vocabulary, state.ts and state/ its data. rule/ has one file for each group of rules, codec/ turns
 * commands, outcomes and states into bytes. A command is checked completely before it changes anything, so a bad command can never poison a log.
 */

import type { Acquire, Command, Proposal } from './command.ts'
import type { Outcome, Refused } from './outcome.ts'
import { acquire, planAcquire } from './rule/acquire.ts'
import { claim } from './rule/claim.ts'
import type { Effects } from './rule/effects.ts'
import { put, remove } from './rule/entry.ts'
import { fence } from './rule/fence.ts'
import { createKey, generation, policy, revokeKey, upgrade } from './rule/govern.ts'
import { move, refusalOfMovedLog } from './rule/move.ts'
import { breakHold, recallHolders, revoke } from './rule/operate.ts'
import { extend } from './rule/pool/extend.ts'
import { release, releaseRefusal } from './rule/release.ts'
import { renew } from './rule/renew.ts'
import { aged, agedTogether, due, run, tick } from './rule/time.ts'
import { planTransaction, transaction } from './rule/transaction.ts'
import { transfer } from './rule/transfer.ts'
import { widen } from './rule/widen.ts'
import { RULES, type State } from './state.ts'

/** Applies one command. The revision grows by one if and only if the command caused events. */
export function apply(state: State, proposal: Proposal, effects: Effects): Outcome {
  const before = effects.events.length
  const outcome: { revision: number } & Outcome = dispatch(state, proposal, effects)
  if (effects.events.length > before) state.revision++
  outcome.revision = state.revision
  return outcome
}

function dispatch(state: State, proposal: Proposal, effects: Effects): Outcome {
  const { command, key = 0 } = proposal
  if (state.moved !== undefined) {
    const refused = refusalOfMovedLog(state, state.moved, command)
    if (refused !== undefined) return refused
  }
  switch (command.kind) {
    case 'acquire':
      return acquire(state, effects, proposal as Proposal & { readonly command: Acquire })
    case 'claim':
      return claim(state, effects, command, key)
    case 'extend':
      return extend(state, effects, command, key)
    case 'widen':
      return widen(state, effects, command, key)
    case 'renew':
      return renew(state, effects, command, key)
    case 'release':
      return release(state, effects, command, key)
    case 'due':
      return due(state, effects, command)
    case 'aged':
      return aged(state, effects, command)
    case 'aged-together':
      return agedTogether(state, effects, command)
    case 'run':
      return run(state, effects, command)
    case 'put':
      return put(state, effects, command, key)
    case 'delete':
      return remove(state, effects, command, key)
    case 'transaction':
      return transaction(state, effects, command, key)
    case 'revoke':
      return revoke(state, effects, command, key)
    case 'transfer':
      return transfer(state, effects, command, key)
    case 'break':
      return breakHold(state, effects, command, key)
    case 'recall':
      return recallHolders(state, effects, command, key)
    case 'policy':
      return policy(state, effects, command, key)
    case 'key':
      return createKey(state, effects, command, key)
    case 'unkey':
      return revokeKey(state, effects, command, key)
    case 'fence':
      return fence(state, command, key)
    case 'tick':
      return tick(state, effects, command)
    case 'upgrade':
      return upgrade(state, command, key)
    case 'generation':
      return generation(state, effects, command, key)
    case 'move':
      return move(state, effects, command, key)
  }
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
    const plan = planAcquire(state, proposal as Proposal & { readonly command: Acquire })
    return 'kind' in plan ? plan : undefined
  }
  if (command.kind === 'release') return releaseRefusal(state, command, proposal.key ?? 0)
  if (command.kind === 'transaction') {
    const plan = planTransaction(state, command, proposal.key ?? 0)
    return 'kind' in plan ? plan : undefined
  }
  return undefined
}

/** Whether only replicas write this command, never clients. */
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

/** Whether this code knows the rules version of the log. */
export function understands(state: State): boolean {
  return state.rules <= RULES
}
