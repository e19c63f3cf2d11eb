/** Refusals: outcomes that changed nothing. */
import type { RefusalCode, Refused } from '../outcome.ts'
import { COUNTER_LIMIT, type State } from '../state.ts'

export function refuse(state: State, code: RefusalCode, message: string, facts: Refused['facts'] = {}): Refused {
  return { kind: 'refused', revision: state.revision, code, message, facts }
}

export function invalid(state: State, message: string): Refused {
  return refuse(state, 'INVALID', message)
}

export function gone(state: State, lease: number): Refused {
  if (!Number.isSafeInteger(lease) || lease < 1) return invalid(state, `${String(lease)} is not a lease's number`)
  return refuse(state, 'GONE', `lease ${lease} has ended, or never was: acquire a new one`, { lease })
}

/** With `facts`: refused because of the state, not because of the key alone. */
export function forbidden(state: State, what: string, facts?: Refused['facts']): Refused {
  return refuse(state, 'FORBIDDEN', `this key may not ${what}: ask whoever administers keys for the scope`, facts)
}

/** Refuses commands that create a lease when the counters are exhausted: ids are never reused. */
export function exhausted(state: State): Refused | undefined {
  if (state.nextLease >= COUNTER_LIMIT || state.nextToken >= COUNTER_LIMIT) return spent(state)
  return revisionsExhausted(state)
}

/** As `exhausted`, for commands that only need a revision. */
export function revisionsExhausted(state: State): Refused | undefined {
  return state.revision >= COUNTER_LIMIT ? spent(state) : undefined
}

export function spent(state: State): Refused {
  return refuse(state, 'LIMIT', 'this log has no numbers left for leases, tokens, keys or revisions: begin a new log, as with ?name=NEW', {
    limit: COUNTER_LIMIT,
  })
}
