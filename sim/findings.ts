/**
 * Known findings: mistakes of the engine, its clients and its faces that are not fixed yet. Each is shown by tests that are expected to fail. A seed of
 * the simulator or a random program that meets one reports it by its name and does not fail. A finding leaves this table in the change that fixes it.
 */

import type { Feature } from './features.ts'

export type { Feature } from './features.ts'

export interface Finding {
  /** What happens today. */
  readonly sentence: string
  /** The pairs of features that show it; a feature paired with itself shows it alone. Empty: no feature of a lease or a request shows it. */
  readonly pairs: readonly (readonly [Feature, Feature])[]
  /** The file of the tests that are expected to fail. */
  readonly test: string
}

export const findings = {
  'reservation-log-time-lag': {
    sentence: 'A reservation lapses before its window, because the window counts log time and the term counts real time.',
    pairs: [['reservation', 'reservation']],
    test: 'test/findings/reservations.test.ts',
  },
  'reservation-beyond-quota': {
    sentence: 'A reservation beyond the quota of its account is accepted, keeps members from others and is never served.',
    pairs: [['reservation', 'quota']],
    test: 'test/findings/reservations.test.ts',
  },
  'reservation-silences-log': {
    sentence: 'After a lost tail, a log that had a reservation grants nothing for the lead time of the reservation.',
    pairs: [
      ['reservation', 'rollback'],
      ['reservation', 'restore'],
    ],
    test: 'test/findings/reservations.test.ts',
  },
  'reservation-ended-by-downtime': {
    sentence: 'A reservation ends when no replica runs for longer than its show-up time.',
    pairs: [['reservation', 'short-lived']],
    test: 'test/findings/reservations.test.ts',
  },
  'fit-starved-waiter': {
    sentence: 'Under `fit`, a waiter whose member is free waits behind 256 others that do not fit.',
    pairs: [
      ['pool-member', 'wait'],
      ['pool-member', 'reservation'],
    ],
    test: 'test/findings/pools.test.ts',
  },
  'pool-no-wait-refused': {
    sentence: 'A request to a pool without `wait` is refused although the same request with `wait` is granted at once.',
    pairs: [
      ['pool-member', 'no-wait'],
      ['borrowed', 'no-wait'],
    ],
    test: 'test/findings/pools.test.ts',
  },
  'learned-grace': {
    sentence: 'The duration learned from a lapse with a grace period counts the whole term.',
    pairs: [['learned-term', 'grace']],
    test: 'test/findings/time.test.ts',
  },
  'slots-left-free': {
    sentence: 'Simultaneous requests for slots wait beside free numbers.',
    pairs: [['any', 'wait']],
    test: 'test/findings/pools.test.ts',
  },
  'backfill-forecast': {
    sentence: 'Forecasts play `backfill` as `fit`: a waiter is said to start now that starts later.',
    pairs: [['pool-member', 'wait']],
    test: 'test/findings/pools.test.ts',
  },
} as const satisfies Readonly<Record<string, Finding>>

export type FindingName = keyof typeof findings
