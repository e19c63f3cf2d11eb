/** The scenes of cases.ts that need a pool. */
import { findLease } from '../src/kernel/state/leases.ts'
import { LIVE } from '../src/kernel/state.ts'
import { acquire, LONG, leaseOf } from './case-steps.ts'
import type { Crew } from './directed-crew.ts'
import { POOL } from './pools.ts'

export async function offer(crew: Crew, members: number, kinds: readonly string[] = [], ttl = 2_000): Promise<void> {
  const entries = Array.from({ length: members }, (_, i) => ({
    key: `pool/${POOL}/m${i}`,
    value: JSON.stringify({ units: 1, ...(i < kinds.length && { labels: { kind: kinds[i] } }) }),
  }))
  await leaseOf(crew, { holder: 'provider', ttl, entries })
}

/** Of two leases that are asked for their members, one gives its member back: it is not preempted when its notice is over. */
export async function givenBack(crew: Crew, which: 0 | 1): Promise<void> {
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo', preempt: 'marked', preemptNotice: 150, minHold: 0 } })
  await offer(crew, 2)
  const request = { wait: true, pool: { pool: POOL, preemptible: true } }
  const asked = [await leaseOf(crew, { holder: 'first', ...request }), await leaseOf(crew, { holder: 'second', ...request })]
  await leaseOf(crew, { holder: 'waiter', wait: true, priority: 1, pool: { pool: POOL, count: 2 } })
  const lease = asked[which]!
  const [grant] = findLease(crew.site.referee.state, lease)!.grants
  await crew.propose({ kind: 'release', lease, resource: grant!.resource.name })
  await crew.pause(400)
}

/** A lease is passed on under notice, and the waiter that the notice is for goes away before the giver has stopped: the lease is not preempted. */
export async function passedOnUnderNotice(crew: Crew): Promise<void> {
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo', preempt: 'marked', preemptNotice: 300, minHold: 0 } })
  await offer(crew, 1)
  const giver = await leaseOf(crew, { holder: 'giver', pool: { pool: POOL, preemptible: true } })
  const waiter = await leaseOf(crew, { holder: 'waiter', wait: true, priority: 1, pool: { pool: POOL } })
  await crew.propose({ kind: 'transfer', lease: giver, to: 'heir' })
  await crew.propose({ kind: 'release', lease: waiter })
  await crew.propose({ kind: 'release', lease: giver })
  await crew.pause(500)
}

/** A lease that was passed on under notice keeps it for the same waiter: when that goes away, the lease is not preempted. */
export async function noticeOfTransferred(crew: Crew): Promise<void> {
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo', preempt: 'marked', preemptNotice: 300, minHold: 0 } })
  await offer(crew, 1)
  const giver = await leaseOf(crew, { holder: 'giver', pool: { pool: POOL, preemptible: true } })
  const waiter = await leaseOf(crew, { holder: 'waiter', wait: true, priority: 1, pool: { pool: POOL } })
  await crew.propose({ kind: 'transfer', lease: giver, to: 'heir', stopped: true })
  await crew.propose({ kind: 'release', lease: waiter })
  await crew.pause(500)
}

/** An account is granted no more of a kind than its quota: the referee judges that. What it holds of another kind does not count. */
export async function quotaOfKind(crew: Crew): Promise<void> {
  const { world } = crew.site
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo' } })
  await crew.propose({ kind: 'policy', prefix: `${POOL}/kinds/h/accounts/kinds`, rules: { quotaUnits: 1 } })
  await offer(crew, 3, ['a', 'h', 'h'])
  for (const [kind, isWithin] of [
    ['a', true],
    ['h', true],
    ['h', false],
  ] as const) {
    const pool = { pool: POOL, account: 'kinds', match: [{ label: 'kind', test: 'in' as const, values: [kind] }] }
    const outcome = await acquire(crew, { pool })
    if (outcome.kind !== 'granted' && isWithin)
      world.violate('L1', `a member was refused within the quota for its kind: ${JSON.stringify(outcome)}`)
  }
}

/** An account has used up its quota for the week: it is granted nothing more after its lease has ended, as the referee judges, and others are. */
export async function weekUsedUp(crew: Crew): Promise<void> {
  const { referee } = crew.site
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo' } })
  await crew.propose({ kind: 'policy', prefix: `${POOL}/accounts/week`, rules: { quotaWeek: 200 } })
  await offer(crew, 2, [], LONG)
  const pool = { pool: POOL, account: 'week' }
  const { elapsed } = referee.state
  const leases = [await leaseOf(crew, { ttl: LONG, pool }), await leaseOf(crew, { ttl: LONG, wait: true, pool: { pool: POOL, count: 2 } })]
  // Log time passes in short steps while a client waits.
  await crew.until('the week is used up', () => referee.state.elapsed >= elapsed + 300)
  for (const lease of leases.reverse()) {
    referee.givenUp.add(lease)
    await crew.propose({ kind: 'release', lease })
  }
  await acquire(crew, { pool })
}

/** A request that does not wait is not refused what one that waits is granted at once. */
export async function withoutWaiting(crew: Crew, queue: 'fifo' | 'fit' | 'backfill' | 'fair'): Promise<void> {
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue } })
  await crew.propose({ kind: 'policy', prefix: `${POOL}/accounts/a`, rules: { quotaUnits: 1, quotaBorrow: 1 } })
  await offer(crew, 3)
  for (let i = 0; i < 2; i++) {
    const request = { pool: { pool: POOL, account: 'a' } }
    const outcome = await acquire(crew, request)
    if (outcome.kind === 'granted') continue
    const waiting = await acquire(crew, { ...request, wait: true })
    if (waiting.kind === 'granted')
      crew.site.world.violate('S10', `a request was refused (${JSON.stringify(outcome)}), and is granted at once if it waits`)
  }
}

/** A granted reservation belongs to the first process that renews it: another one of its name cannot claim it. */
export async function renewedReservation(crew: Crew): Promise<void> {
  const { world, referee } = crew.site
  await crew.propose({ kind: 'policy', prefix: POOL, rules: { queue: 'fifo' } })
  await offer(crew, 1, [], LONG)
  const lease = await leaseOf(crew, { wait: true, maxLife: 1_000, pool: { pool: POOL, from: 100 } })
  await crew.until('the window has begun', () => findLease(referee.state, lease)?.status === LIVE)
  await crew.propose({ kind: 'renew', leases: [lease] })
  const claimed = await crew.propose({ kind: 'claim', lease })
  if (claimed.kind === 'done') world.violate('S7', 'a reservation that one process had renewed was claimed by another one')
  referee.givenUp.add(lease)
  await crew.propose({ kind: 'release', lease })
}
