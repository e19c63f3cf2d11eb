/**
 * Which features meet in a random program: the second acts while the first is in force on the same lease, or on a lease for the same resource or pool. The model
 * says what follows for all of them.
 */
import type { Feature } from '../../../sim/findings.ts'
import type { ModelRules } from './pool-model.ts'
import type { ModelLease, ProgramModel } from './program-model.ts'

/** Those of `Feature` that commands of the kernel have, and two of programs: the state goes through a snapshot, and a waiter gives up. */
export const PROGRAM_FEATURES = [
  ...([
    'wait',
    'no-wait',
    'any',
    'units',
    'permits',
    'covers',
    'shared',
    'parent',
    'session',
    'entries',
    'pool-member',
    'reservation',
    'preemptible',
  ] as const),
  ...(['quota', 'borrowed', 'transfer', 'break', 'steal', 'revoke', 'widen', 'partial-release', 'extend', 'renew-with-ttl'] as const),
  ...(['learned-term', 'grace', 'lock-delay', 'cap', 'adopt-by-name', 'restart', 'abort'] as const),
] satisfies readonly (Feature | 'restart' | 'abort')[]
export type ProgramFeature = (typeof PROGRAM_FEATURES)[number]

/** A lease has undergone this and still shows it, as far as the model does not know it. */
export type Marks = Map<number, Set<ProgramFeature>>

function hasQuota({ accounts, kinds }: ModelRules, account: string): boolean {
  const { quotaUnits = 0, quotaWeek = 0 } = accounts[account] ?? {}
  return quotaUnits + quotaWeek > 0 || Object.hasOwn(kinds, account)
}

/** Returns what is in force on a lease. */
export function featuresOf(model: ProgramModel, lease: ModelLease, marks: Marks): Set<ProgramFeature> {
  const { rules } = model
  const claim = model.pool.leases.find(({ id }) => id === lease.id)
  const named = [...lease.held, ...lease.wishes]
  const isQuota = named.some(({ resource }) => resource.startsWith(`${rules.quota.kind}/`))
  const found: (ProgramFeature | false)[] = [
    lease.status === 'waiting' && 'wait',
    lease.any > 0 && 'any',
    (named.some(({ units }) => units > 1) || (claim?.ask.units ?? 0) > 1 || (claim?.ask.total ?? 0) > 1) && 'units',
    lease.permits > 0 && !lease.covers && 'permits',
    lease.covers && 'covers',
    named.some(({ shared }) => shared) && 'shared',
    (lease.parent !== 0 || model.leases.some(({ parent }) => parent === lease.id)) && 'parent',
    (isSession(model, lease.id) || isSession(model, lease.parent)) && 'session',
    (lease.pending.length > 0 || model.entries.some(entry => entry.lease === lease.id)) && 'entries',
    lease.isPool && 'pool-member',
    (claim?.begin ?? 0) > 0 && 'reservation',
    claim?.ask.preemptible === true && 'preemptible',
    (isQuota || (claim !== undefined && hasQuota(rules.pool, claim.ask.account))) && 'quota',
    claim?.borrows === true && 'borrowed',
    lease.isHeir && 'transfer',
    lease.breaks.length > 0 && 'break',
    lease.work !== '' && 'learned-term',
    lease.grace > 0 && 'grace',
    (lease.cap !== undefined || lease.maxLife > 0) && 'cap',
  ]
  return new Set([...found.filter(feature => feature !== false), ...(marks.get(lease.id) ?? [])])
}

/** A lease without resources of its own. */
export function isSession(model: ProgramModel, id: number): boolean {
  const lease = model.find(id)
  return lease !== undefined && !lease.isPool && lease.held.length + lease.wishes.length === 0
}

export class Pairs {
  readonly counts = new Map<string, number>()

  add(first: Iterable<ProgramFeature>, second: Iterable<ProgramFeature>): void {
    const acts = [...second]
    for (const one of first) for (const other of acts) this.counts.set(`${one} ${other}`, (this.counts.get(`${one} ${other}`) ?? 0) + 1)
  }
}

const NAMED = 'the first is about names, the second about members of a pool, or the other way round'

/** The pairs that these programs cannot have, or next to never, with the reason. */
export const NOT_REACHED: Readonly<Record<string, string>> = {
  ...Object.fromEntries(PROGRAM_FEATURES.map(second => [`abort ${second}`, 'a waiter that has given up is gone'])),
  ...Object.fromEntries(
    ['any', 'permits', 'covers', 'shared', 'steal'].flatMap(first =>
      ['reservation', 'borrowed'].map(second => [`${first} ${second}`, NAMED]),
    ),
  ),
}
