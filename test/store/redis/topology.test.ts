/** Redis behind a Sentinel and in a cluster: what is refused says so, and what is supported follows the log when it moves. */
import { Cluster, Redis } from 'ioredis'
import { createCluster, createSentinel } from 'redis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { AnyRedis } from '../../../src/store/redis/driver.ts'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { type Position, START, type Store } from '../../../src/store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'
import { tell } from '../../support/redis-command.ts'
import { type Sentinel, sentinel } from '../../support/sentinel.ts'

/** Appends until it is answered, as a replica does. A record may be there twice then. */
async function appended(store: Store, after: Position): Promise<Position> {
  return eventually(async () => {
    const answer = await store.append(Uint8Array.of(1), after)
    if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
    return answer.position
  })
}

describeEngine('redis', 'Redis behind a Sentinel', () => {
  let primary: Engine
  let replica: Engine
  let watcher: Sentinel
  beforeAll(async () => {
    primary = await engine('redis')
    replica = await engine('redis', { args: ['--replicaof', '127.0.0.1', String(primary.port)] })
    watcher = await sentinel(primary.port)
  })
  afterAll(async () => {
    await watcher?.[Symbol.asyncDispose]()
    await replica?.[Symbol.asyncDispose]()
    await primary?.[Symbol.asyncDispose]()
  })

  test('a URL that names a Sentinel is refused with a sentence', async () => {
    await using store = new RedisStore({ url: `redis://127.0.0.1:${watcher.port}`, timeout: EVENT_TIMEOUT })
    await expect(store.open()).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(/is a Sentinel.*ioredis/) })
  })

  test('createSentinel of redis is refused with a sentence', () => {
    const client = createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: watcher.port }] })
    expect(() => new RedisStore({ client: client as unknown as AnyRedis })).toThrow(/ioredis \(Redis, also with sentinels/)
  })

  test('a client of ioredis with sentinels follows the primary, and the former primary gets no record', async () => {
    const client = new Redis({ sentinels: [{ host: '127.0.0.1', port: watcher.port }], name: 'main', lazyConnect: true })
    await using store = new RedisStore({ client, timeout: EVENT_TIMEOUT })
    await store.open()
    let after = await appended(store, START)
    // A Sentinel promotes only a replica that it knows, and that is connected.
    await eventually(async () => expect(String(await tell(primary, 'INFO', 'replication'))).toMatch(/state=online/))
    await eventually(async () => expect(String(await watcher.send('SENTINEL', 'REPLICAS', 'main'))).toMatch(/master-link-status,ok/))
    await eventually(() => watcher.send('SENTINEL', 'FAILOVER', 'main'))
    await eventually(async () => expect(String(await tell(primary, 'INFO', 'replication'))).toMatch(/role:slave/))
    after = await appended(store, after)
    expect(after.index).toBe(2)
    expect(await tell(replica, 'XLEN', '{leasehold}:log')).toBe(2)
    client.disconnect()
  })
})

describeEngine('redis', 'a cluster of Redis', () => {
  const nodes: Engine[] = []
  beforeAll(async () => {
    const args = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1']
    nodes.push(...(await Promise.all([engine('redis', { args }), engine('redis', { args })])))
    const [first, second] = nodes as [Engine, Engine]
    await tell(first, 'CLUSTER', 'ADDSLOTS', ...Array.from({ length: 16_384 }, (_, slot) => String(slot)))
    await tell(second, 'CLUSTER', 'MEET', '127.0.0.1', String(first.port))
    for (const node of nodes)
      await eventually(async () =>
        expect(String(await tell(node, 'CLUSTER', 'INFO'))).toMatch(/cluster_state:ok(.|\s)*cluster_known_nodes:2/),
      )
  })
  afterAll(async () => {
    for (const node of nodes) await node[Symbol.asyncDispose]()
  })

  test('a URL that names a node without the log is refused with a sentence', async () => {
    await using store = new RedisStore({ url: nodes[1]!.url, timeout: EVENT_TIMEOUT })
    await expect(store.open()).rejects.toMatchObject({
      ...{ code: 'UNAVAILABLE', reason: 'cluster' },
      message: expect.stringMatching(/the log is on another node: hand in a cluster client/),
    })
  })

  /** Moves the slot of a log, key by key, as `redis-cli --cluster reshard` does. */
  async function move(name: string, from: Engine, to: Engine, between: () => Promise<unknown>): Promise<void> {
    const [old, now] = [String(await tell(from, 'CLUSTER', 'MYID')), String(await tell(to, 'CLUSTER', 'MYID'))]
    const slot = String(await tell(from, 'CLUSTER', 'KEYSLOT', `{${name}}`))
    await tell(to, 'CLUSTER', 'SETSLOT', slot, 'IMPORTING', old)
    await tell(from, 'CLUSTER', 'SETSLOT', slot, 'MIGRATING', now)
    const keys = (await tell(from, 'CLUSTER', 'GETKEYSINSLOT', slot, '100')) as string[]
    expect(keys.length).toBeGreaterThan(1)
    for (const key of keys) {
      await tell(from, 'MIGRATE', '127.0.0.1', String(to.port), key, '0', '5000')
      await between()
    }
    for (const node of [to, from]) await tell(node, 'CLUSTER', 'SETSLOT', slot, 'NODE', now)
  }

  const clients: readonly (readonly [string, (port: number) => AnyRedis & { destroy?(): void; disconnect?(): void }])[] = [
    ['redis', port => createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] })],
    ['ioredis', port => new Cluster([{ host: '127.0.0.1', port }], { lazyConnect: true })],
  ]
  test.each(clients)('a log that moves to another node loses no record and diverges for no store (%s)', async (name, made) => {
    const [first, second] = nodes as [Engine, Engine]
    const client = made(first.port)
    await using store = new RedisStore({ client, name, timeout: EVENT_TIMEOUT })
    await store.open()
    let after = await appended(store, START)
    expect(await store.snapshot(after, (async function* () {})())).toBe('kept')
    after = await appended(store, after)
    // A script needs all keys on one node. Meanwhile calls fail; a client that is redirected too often does not know whether they had an effect.
    const codes = new Set<string>()
    await move(name, first, second, () => store.append(Uint8Array.of(9), after).catch(error => codes.add(error.code)))
    for (const code of codes) expect(['UNAVAILABLE', 'UNKNOWN']).toContain(code)
    const read = await eventually(() => store.read(after))
    const { records } = read as { records: readonly { position: Position }[] }
    const last = records.at(-1)?.position ?? after
    expect(await eventually(() => appended(store, last))).toMatchObject({ index: last.index + 1 })
    await using late = new RedisStore({ client, name, timeout: EVENT_TIMEOUT })
    expect(await late.open()).toMatchObject({ head: { index: last.index + 1 } })
  })
})
