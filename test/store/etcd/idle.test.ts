/** What processes that only hold leases cost their etcd. */
import { once } from 'node:events'
import { type AddressInfo, connect as connectTo, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import type { Lease } from '../../../src/lease.ts'
import type { Leases } from '../../../src/leases.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'

/** A renewal comes after half of it. */
const TTL = 60_000

/** A way to etcd that knows its connections and the requests on them. */
async function passage(port: number) {
  const open = new Set<Socket>()
  const asked: string[] = []
  const server = createServer(near => {
    const far = connectTo(port, '127.0.0.1')
    open.add(near)
    near.on('data', bytes => asked.push(...(bytes.toString('latin1').match(/(?<=^POST )\S+/gm) ?? [])))
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.pipe(to)
      from.on('error', () => to.destroy())
      from.on('close', () => {
        open.delete(near)
        to.destroy()
      })
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    /** The number of connections. */
    open: () => open.size,
    asked: (path: string) => asked.filter(each => each.endsWith(path)).length,
    cut: () => {
      for (const socket of open) socket.destroy()
    },
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy()
      const closed = once(server, 'close')
      server.close()
      await closed
    },
  }
}

describeEngine('etcd', 'processes that only hold leases on etcd', () => {
  let etcd: Engine
  beforeAll(async () => {
    etcd = await engine('etcd')
  })
  afterAll(() => etcd?.[Symbol.asyncDispose]())

  test('a process has one connection between its renewals, which cost two requests each', async () => {
    await using way = await passage(etcd.port)
    await using leases = await connect(`etcd://127.0.0.1:${way.port}/?name=idle/few`, { holder: 'one' })
    await using other = await connect(`etcd://127.0.0.1:${etcd.port}/?name=idle/few`, { holder: 'two' })
    const [lease, its] = [await leases.acquire('a', { ttl: TTL }), await other.acquire('b', { ttl: TTL })]
    await eventually(() => expect(way.open()).toBe(1))
    const before = { requests: way.asked('/kv/txn'), watches: way.asked('/watch') }
    for (let i = 0; i < 3; i++) await its.renew()
    await lease.renew()
    // A read and an append. An append that another process was before reads again.
    expect(way.asked('/kv/txn') - before.requests).toBeLessThanOrEqual(3)
    await eventually(() => expect(way.open()).toBe(1))
    expect(way.asked('/watch')).toBe(before.watches)
    expect(lease.held).toBe(true)
  })

  test('the renewals of others are not read: one process reads for all', async () => {
    await using way = await passage(etcd.port)
    const processes: Leases[] = []
    const leases: Lease[] = []
    try {
      for (let i = 0; i < 3; i++) {
        processes.push(await connect(`etcd://127.0.0.1:${way.port}/?name=idle/passing`, { holder: `process-${i}` }))
        leases.push(await processes[i]!.acquire(`job/${i}`, { ttl: 10 * TTL }))
      }
      const renewed = async (times: number) => {
        for (let i = 0; i < times; i++) for (const lease of leases) await lease.renew()
      }
      await renewed(4)
      const before = { transactions: way.asked('/kv/txn'), records: way.asked('/kv/range') }
      await renewed(20)
      // Two of three count what came, read the last record and append behind it. The third reads the log, and appends.
      expect(way.asked('/kv/range') - before.records).toBe(2 * 20)
      expect(way.asked('/kv/txn') - before.transactions).toBe(2 * 3 * 20)
      expect(leases.every(lease => lease.held)).toBe(true)
    } finally {
      await Promise.all(processes.map(each => each.close()))
    }
  })

  test('a process is told at once that its lease was revoked, also after its connection was lost', async () => {
    await using way = await passage(etcd.port)
    await using holder = await connect(`etcd://127.0.0.1:${way.port}/?name=idle/told`, { holder: 'holder' })
    await using operator = await connect(`etcd://127.0.0.1:${etcd.port}/?name=idle/told`, { holder: 'operator' })
    for (const name of ['one', 'two']) {
      const lease = await holder.acquire(name, { ttl: 120_000, ifAvailable: true })
      const watches = way.asked('/watch')
      if (name === 'two') {
        way.cut()
        await eventually(() => expect(way.asked('/watch')).toBeGreaterThan(watches))
      }
      const ended = new Promise<void>(resolve => lease!.signal.addEventListener('abort', () => resolve()))
      await operator.revoke({ lease: lease!.id })
      await ended // long before its next renewal, which is due after a minute
      expect(lease!.held).toBe(false)
    }
  })

  test('a request that waits beside processes that only hold is granted when an abandoned lease ends', async () => {
    const url = `etcd://127.0.0.1:${etcd.port}/?name=idle/dead`
    await using holder = await connect(url, { holder: 'holder' })
    await holder.acquire('other', { ttl: TTL, ifAvailable: true })
    await using dead = await connect(url, { holder: 'dead' })
    expect(await dead.acquire('wanted', { ttl: 1_000, ifAvailable: true, renew: 'never' })).toBeDefined()
    await using waiter = await connect(url, { holder: 'waiter' })
    expect(await waiter.acquire('wanted', { ttl: TTL })).toBeDefined()
  })
})
