/** The log's own time: reservations of members of a pool depend on it. */
import { expect, test } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { granted, Line, queued, Rig } from '../support/replica/rig.ts'

const offer = { kind: 'acquire', holder: 'host', ttl: 86_400_000, wants: [], entries: [{ key: 'pool/g/a', value: '{}' }] } as const

test('a reservation is granted at its window and not withdrawn before, however long the store takes for an append', async () => {
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
  expect(types[0]).toBe('granted')
})

test('a reservation outlives a downtime longer than its show-up time', async () => {
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
  expect(value).toMatchObject({ holder: 'ann' })
})
