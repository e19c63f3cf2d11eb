/**
 * Quotas for kinds of members (`kindOf`): how many units of a kind an account may hold, set at `POOL/kinds/KIND/accounts/ACCOUNT`.
 *
 * Before members are chosen, a request counts for each kind that its conditions let it be given, with as many units as it could get of that kind. Otherwise
 * the members that a waiter gets would depend on its account, and waiters with equal needs could not be judged together.
 */
import { kindsWithQuota } from '../../state/quota-counts.ts'
import type { Grant, KindUnits, PoolClaim, PoolMember, PoolState, State } from '../../state.ts'
import { rule, ruledBy } from '../policy.ts'
import { kindOf, matches } from './condition.ts'

const NONE: readonly KindUnits[] = []

/** The name at which the policy for a kind and an account is set. */
export function kindName(pool: PoolState, kind: string, account: string): string {
  return `${pool.name}/kinds/${kind}/accounts/${account}`
}

/** Units of this kind that the account may hold; 0: any number. What is set for all kinds together is no rule for one of them. */
export function kindQuota(state: State, pool: PoolState, kind: string, account: string): number {
  const name = kindName(pool, kind, account)
  const prefix = ruledBy(state, name, 'quotaUnits')
  return prefix?.startsWith(`${pool.name}/kinds/${kind}`) === true ? rule(state, name, 'quotaUnits') : 0
}

/** The most units of each kind with a quota that the request could be given, if all members were free. */
export function askedKinds(state: State, pool: PoolState, claim: PoolClaim): readonly KindUnits[] {
  const limited = kindsWithQuota(state, pool.name)
  if (limited === undefined) return NONE
  const { shape } = claim
  if (shape?.kinds?.version === pool.version && shape.kinds.limited === limited) return shape.kinds.asked
  const asked = countKinds(pool, claim, limited)
  if (shape !== undefined) shape.kinds = { version: pool.version, limited, asked }
  return asked
}

function countKinds({ members }: PoolState, { count, units, total, match }: PoolClaim, limited: readonly string[]): KindUnits[] {
  const found = new Map(limited.map(kind => [kind, { all: 0, largest: 0 }]))
  for (const { labels, capacity } of members.values()) {
    const kind = found.get(kindOf(labels) ?? '')
    if (kind === undefined || !matches(labels, match)) continue
    kind.all += capacity
    kind.largest = Math.max(kind.largest, capacity)
  }
  return [...found].flatMap(([kind, { all, largest }]) => {
    const most = Math.min(all, total > 0 ? total : count * (units > 0 ? units : largest))
    return most > 0 ? [{ kind, units: most }] : []
  })
}

/** A kind of which the account would hold more than its quota if it were granted what these claims ask for. */
export function kindBeyond(
  state: State,
  pool: PoolState,
  account: string,
  claims: readonly PoolClaim[],
  held: ReadonlyMap<string, number> | undefined,
): { readonly kind: string; readonly quota: number; readonly units: number } | undefined {
  const asked = new Map<string, number>()
  for (const claim of claims) for (const { kind, units } of askedKinds(state, pool, claim)) asked.set(kind, (asked.get(kind) ?? 0) + units)
  for (const [kind, units] of asked) {
    const quota = kindQuota(state, pool, kind, account)
    if (quota > 0 && (held?.get(kind) ?? 0) + units > quota) return { kind, quota, units }
  }
  return undefined
}

/** A grant on a member began (1) or ended (-1), as far as its account is concerned. */
export function countKind({ lease, units }: Grant, member: PoolMember | undefined, by: 1 | -1): void {
  const claim = lease.extras?.pool
  const kind = member && kindOf(member.labels)
  if (claim === undefined || kind === undefined || member!.pool.name !== claim.pool) return
  const account = member!.pool.accounts.get(claim.account)!
  account.kinds ??= new Map()
  const held = (account.kinds.get(kind) ?? 0) + by * units
  if (held === 0) account.kinds.delete(kind)
  else account.kinds.set(kind, held)
}
