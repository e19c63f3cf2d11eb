/** Refusals: outcomes that changed nothing. */
import type { Verb } from '../command.ts'
import { boundedFacts } from '../fact.ts'
import type { Refused } from '../outcome.ts'
import { type Facts, type FactsByReason, type Flaw, REASONS, type Reason, shown } from '../reason.ts'
import { COUNTER_LIMIT, type State } from '../state.ts'

export function refuse<R extends Reason>(state: Pick<State, 'revision'>, reason: R, facts: FactsByReason[R]): Refused {
  return { kind: 'refused', revision: state.revision, code: REASONS[reason].code, reason, facts: boundedFacts(facts as Facts) }
}

/** Refuses a command for what is wrong with it. */
export function refuseFlaw(state: Pick<State, 'revision'>, { reason, facts }: Flaw): Refused {
  return refuse(state, reason, facts as never)
}

export function gone(state: State, lease: number): Refused {
  if (!Number.isSafeInteger(lease) || lease < 1) return refuse(state, 'not-a-lease', { given: shown(lease) })
  return refuse(state, 'gone', { lease })
}

/** `verb`: the scope that the key lacks, for the name. */
export function forbidden(state: State, verb: Verb, name: string, action: string = verb): Refused {
  return refuse(state, 'forbidden', { action, name, verb })
}

export function forbiddenAdmin(state: State, action: string): Refused {
  return refuse(state, 'forbidden-admin', { action, verb: 'admin' })
}

/** Refuses commands that create a lease when the counters are exhausted: ids are never reused. */
export function exhausted(state: State): Refused | undefined {
  const isOver = state.nextLease >= COUNTER_LIMIT || state.nextToken >= COUNTER_LIMIT || state.revision >= COUNTER_LIMIT
  return isOver ? countersExhausted(state) : undefined
}

/** As `exhausted`, for commands that only need a revision. */
export function revisionsExhausted(state: State): Refused | undefined {
  return state.revision >= COUNTER_LIMIT ? countersExhausted(state) : undefined
}

export function countersExhausted(state: State): Refused {
  return refuse(state, 'counters-exhausted', { limit: COUNTER_LIMIT })
}
