/**
 * This file lists the features that a lease or a request can have or undergo. pairs.ts counts in which ordered pairs these features meet: the second acts while the first is in force
 * on the same lease, or on a lease for the same resource or pool.
 */

/** One feature. */
export interface FeatureRow {
  /** Two letters, for the table. */
  readonly code: string
  /** When it is in force on a lease. */
  readonly inForce: string
  /** This counts as its action. */
  readonly acts: string
  /** The invariants that judge its action. An action counts only when one of these judges has looked at the lease or resource afterwards. */
  readonly judges: readonly string[]
}

const ROWS = {
  wait: {
    code: 'wa',
    inForce: 'the lease waits',
    acts: 'a request queues, or a waiter is granted',
    judges: ['S14', 'L1', 'S10'],
  },
  'no-wait': {
    code: 'nw',
    inForce: 'the lease was acquired without waiting',
    acts: 'a request without `wait` is granted or refused',
    judges: ['S10', 'S15'],
  },
  any: {
    code: 'an',
    inForce: 'it asked for any of several names',
    acts: 'such a request is granted or queued',
    judges: ['S10', 'S14', 'L1'],
  },
  units: { code: 'un', inForce: 'it holds or wants several units', acts: 'such a request is granted or queued', judges: ['S15', 'S14'] },
  permits: {
    code: 'pe',
    inForce: 'it states permits',
    acts: 'such a request is granted or queued',
    judges: ['S15', 'S14', 'S10', 'L1'],
  },
  covers: {
    code: 'co',
    inForce: 'it claims the names below its own',
    acts: 'such a request is granted or queued',
    judges: ['S15', 'S14', 'S10', 'L1'],
  },
  shared: { code: 'sh', inForce: 'it holds or wants a name shared', acts: 'such a request is granted or queued', judges: ['S15', 'S14'] },
  parent: {
    code: 'pa',
    inForce: 'it ends with another lease, or another ends with it',
    acts: 'a lease is acquired under another, or a lease with descendants ends',
    judges: ['S8', 'S10', 'S14'],
  },
  session: {
    code: 'se',
    inForce: 'it is a session, or under one',
    acts: 'a session begins or ends, or acquires',
    judges: ['S8', 'S10', 'S14'],
  },
  entries: {
    code: 'en',
    inForce: 'it has entries, or will have them with its grant',
    acts: 'entries are attached, changed or deleted, also in the command of a grant or a release',
    judges: ['S18', 'S8', 'S14', 'S26'],
  },
  'pool-member': {
    code: 'pm',
    inForce: 'it offers, holds or wants members of a pool',
    acts: 'members are offered, or a pool is asked for members',
    judges: ['S10', 'S14', 'S15', 'L1'],
  },
  reservation: {
    code: 're',
    inForce: 'it reserves members, or holds them in its window',
    acts: 'members are reserved, or a window begins',
    judges: ['S14', 'S10'],
  },
  preemptible: {
    code: 'pr',
    inForce: 'it may be preempted',
    acts: 'a preemptible request is granted or queued, or a lease is told that it is preempted',
    judges: ['S14', 'S10'],
  },
  quota: { code: 'qu', inForce: 'its account has a quota', acts: 'an account with a quota asks', judges: ['S15', 'S14'] },
  borrowed: { code: 'bo', inForce: 'it is beyond its quota', acts: 'a request is granted beyond its quota', judges: ['S15', 'S14'] },
  transfer: { code: 'tr', inForce: 'it came by a transfer', acts: 'a lease is transferred', judges: ['S10', 'S14'] },
  break: { code: 'br', inForce: 'a break is announced or has ended it', acts: 'a break is announced or due', judges: ['S4', 'S5', 'S8'] },
  steal: { code: 'st', inForce: 'it steals, or was stolen from', acts: 'a request that steals is made', judges: ['S14', 'S8', 'S10'] },
  revoke: { code: 'rv', inForce: 'it is revoked, and its units are frozen', acts: 'an operator revokes a lease', judges: ['S6', 'S8'] },
  widen: { code: 'wi', inForce: 'its choice was widened', acts: 'the choice of a waiter is widened', judges: ['S14', 'S10', 'L1'] },
  'partial-release': { code: 'pl', inForce: 'it gave back a part', acts: 'a part of a lease is given back', judges: ['L1', 'S8'] },
  extend: { code: 'ex', inForce: 'its life was extended', acts: 'the life of a lease is extended', judges: ['S5'] },
  'renew-with-ttl': { code: 'rt', inForce: 'a renewal changed its ttl', acts: 'a renewal asks for a ttl', judges: ['S4', 'S5'] },
  'learned-term': {
    code: 'le',
    inForce: "it was acquired with ttl: 'auto'",
    acts: "a request with ttl: 'auto' is made",
    judges: ['S10', 'S14'],
  },
  'worker-renews': { code: 'wk', inForce: 'a second thread renews it', acts: 'that thread renews it', judges: ['S1'] },
  'renew-never': {
    code: 'ne',
    inForce: "it is held with renew: 'never' or 'manual'",
    acts: 'such a request is made, or such a lease lapses',
    judges: ['S5', 'S4', 'S10', 'S14'],
  },
  grace: {
    code: 'gr',
    inForce: 'it has a grace period',
    acts: 'such a request is made, or a lease becomes suspect',
    judges: ['S4', 'S5', 'S10', 'S14'],
  },
  'lock-delay': {
    code: 'ld',
    inForce: 'a policy delays grants after its lapse',
    acts: 'a lapsed lease withholds its units',
    judges: ['S4', 'S5'],
  },
  cap: {
    code: 'ca',
    inForce: 'its life is limited',
    acts: 'such a request is made, or the limit ends a lease',
    judges: ['S5', 'S10', 'S14'],
  },
  'adopt-by-name': {
    code: 'ad',
    inForce: 'it is open to the processes of a name, or was adopted by one',
    acts: 'a process claims a lease',
    judges: ['S7'],
  },
  restore: { code: 'rs', inForce: 'it was in a backup that was restored', acts: 'a backup is restored', judges: ['S24'] },
  rollback: { code: 'rb', inForce: 'it outlived a loss of records', acts: 'the log loses records', judges: ['S24'] },
  migration: { code: 'mi', inForce: 'it has moved from another log', acts: 'the leases move to another log', judges: ['S24'] },
  'face-lease': {
    code: 'fa',
    inForce: 'a face holds it for its client',
    acts: 'a face acquires or renews for its client',
    judges: ['S1', 'S10', 'S14'],
  },
  'short-lived': {
    code: 'sl',
    inForce: 'its process ends within a tick',
    acts: 'a process that lives shorter than a tick asks',
    judges: ['S10', 'S15', 'S14'],
  },
} as const satisfies Readonly<Record<string, FeatureRow>>

export type Feature = keyof typeof ROWS
export const FEATURE_ROWS: Readonly<Record<Feature, FeatureRow>> = ROWS
export const FEATURES = Object.keys(ROWS) as readonly Feature[]

/** The label by which a simulated program tells what the kernel cannot see of a lease: features, separated by spaces. */
export const MARKS_LABEL = 'sim'
