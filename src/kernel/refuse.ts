/** Refusals: answers that changed nothing. */
import type { RefusalCode, Refused } from './outcome.ts'
import type { State } from './state.ts'

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

/** With `facts`: because of what it met, and not of the key alone. */
export function forbidden(state: State, what: string, facts?: Refused['facts']): Refused {
  return refuse(state, 'FORBIDDEN', `this key may not ${what}: ask whoever administers keys for the scope`, facts)
}
