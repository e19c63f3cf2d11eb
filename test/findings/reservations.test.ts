/** Known findings: reservations of members of a pool. */
import { expect } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { World } from '../support/kernel/world.ts'
import { knownFinding } from '../support/known-finding.ts'
import { granted, Line, queued, Rig } from '../support/replica/rig.ts'

/** A pool `g` with this many members. */
function poolWorld(members: number): World {
  const world = new World()
  const entries = Array.from({ length: members }, (_, i) => ({ key: `pool/g/m${i}`, value: '{}' }))
  world.acquire('host', [], { ttl: 86_400_000, entries })
  return world
}

const offer = { kind: 'acquire', holder: 'host', ttl: 86_400_000, wants: [], entries: [{ key: 'pool/g/a', value: '{}' }] } as const

knownFinding(
  'reservation-log-time-lag',
  'a reservation is granted at its window and not withdrawn before, however long the store takes for an append',
  async claim => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    const host = granted(await propose(replica, offer))
    await propose(replica, { kind: 'renew', leases: [host.lease] })
    const { lease, revision } = queued(
      await propose(replica, {
        ...{ kind: 'acquire', holder: 'ann', ttl: 300, wants: [], wait: true, maxLife: 60_000 },
        pool: { pool: 'g', from: 30_000 },
      }),
    )
    const types: string[] = []
    const over = new AbortController()
    const watching = (async () => {
      for await (const events of replica.watch('', { after: revision, signal: over.signal }))
        for (const event of events) if (event.lease === lease) types.push(event.type)
    })()
    line.ways.append.push(...Array.from({ length: 200 }, () => 15))
    await rig.clock.advance(31_000)
    line.ways.append.length = 0
    await rig.clock.advance(100) // the append under way is answered
    over.abort()
    await watching.catch(() => {})
    expect(types.length).toBeGreaterThan(0)
    await claim(() => expect(types[0]).toBe('granted'))
  },
)

knownFinding('reservation-beyond-quota', 'a reservation beyond the quota of its account is refused', async claim => {
  const world = poolWorld(4)
  world.policy('g/accounts/ann', { quotaUnits: 1 })
  expect(world.ask('ann', [], { wait: true, pool: { pool: 'g', count: 4 } })).toMatchObject({ kind: 'refused', code: 'LIMIT' })
  const reserved = world.ask('ann', [], { wait: true, maxLife: 60_000, pool: { pool: 'g', count: 4, from: 10_000 } })
  await claim(() => expect(reserved).toMatchObject({ kind: 'refused', code: 'LIMIT' }))
})

knownFinding(
  'reservation-silences-log',
  'a log that lost its tail is quiet for the longest term that a holder relies on, not for the lead time of a reservation',
  async claim => {
    const world = poolWorld(1)
    const { lease } = world.queue('ann', [], { ttl: 5_000, maxLife: 60_000, pool: { pool: 'g', from: 36_000_000 } })
    for (let n = 1; n <= 8; n++) world.do({ kind: 'tick', n, elapsed: 5_000_000 })
    expect(world.holders('g/m0')).toEqual(['ann'])
    expect(world.renew(lease)).toBe(5_000)
    world.do({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 5_000 })
    const { duration } = world.state.quiet!
    await claim(() => expect(duration).toBeLessThanOrEqual(30_000))
  },
)

knownFinding('reservation-ended-by-downtime', 'a reservation outlives a downtime longer than its show-up time', async claim => {
  const rig = new Rig()
  const before = await rig.open()
  const host = granted(await propose(before, offer))
  await propose(before, { kind: 'renew', leases: [host.lease] })
  const { lease } = queued(
    await propose(before, {
      ...{ kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [], wait: true, maxLife: 60_000 },
      pool: { pool: 'g', from: 30_000 },
    }),
  )
  await before[Symbol.asyncDispose]()
  await rig.clock.advance(60_000)
  await using after = await rig.open()
  await rig.clock.advance(2_000)
  const { value } = await after.read({ kind: 'lease', lease })
  await claim(() => expect(value).toMatchObject({ holder: 'ann' }))
})
