import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { dialCopyOf } from '../../../src/store/redis/driver.ts'
import { RIGHTS, refusal } from '../../../src/store/redis/errors.ts'
import { RedisStore, type RedisStoreOptions } from '../../../src/store/redis/redis.ts'
import { type Position, START, type Store } from '../../../src/store.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { type LinkedStore, type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, describeWith, type Engine, engine, programs } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'
import { passLeaseBetween } from '../../support/handed-in.ts'
import { tell } from '../../support/redis-command.ts'

const run = promisify(execFile)

describeEngine('redis', 'a store in Redis', () => {
  let redis: Engine
  let cluster: Engine
  let logs = 0

  beforeAll(async () => {
    ;[redis, cluster] = await Promise.all([
      engine('redis'),
      engine('redis', { args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] }),
    ])
    await tell(cluster, 'CLUSTER', 'ADDSLOTS', ...Array.from({ length: 16_384 }, (_, slot) => String(slot)))
    await until(async () => /cluster_state:ok/.test(String(await tell(cluster, 'CLUSTER', 'INFO'))))
  })
  afterAll(async () => {
    await redis?.[Symbol.asyncDispose]()
    await cluster?.[Symbol.asyncDispose]()
  })

  const url = () => ({ url: redis.url })

  function fixture(options: () => Omit<RedisStoreOptions, 'name'>, on = () => redis, way: Way = byUrl): () => Promise<StoreFixture> {
    return async () => {
      const name = `log-${++logs}`
      return {
        store: () => new RedisStore({ timeout: EVENT_TIMEOUT, ...options(), name }),
        loseTail: count => loseTail(on(), name, count),
        linked: () => linked(on(), name, way),
        [Symbol.asyncDispose]: async () => {},
      }
    }
  }

  type Way = (link: { readonly username: string; readonly password: string; readonly port: number }) => Omit<RedisStoreOptions, 'name'>
  const byUrl: Way = ({ username, password, port }) => ({ url: `redis://${username}:${password}@127.0.0.1:${port}` })

  /** A store with its own user, whose rights can be revoked. */
  async function linked(to: Engine, name: string, way: Way): Promise<LinkedStore> {
    const user = `user-${++logs}`
    await tell(to, 'ACL', 'SETUSER', user, 'on', '>secret', '~*', '+@all')
    const cable = await Cable.to(to.port)
    const { port } = cable
    const options = way({ username: user, password: 'secret', port })
    const forbid = async () => {
      await tell(to, 'ACL', 'SETUSER', user, '-@all')
    }
    return {
      store: new RedisStore({ ...options, name, timeout: 400 }),
      fail: ({ end, ...failure }) => cable.breakDown({ ...failure, ...(end === 'forbidden' && { refuse: forbid }) }),
      async [Symbol.asyncDispose]() {
        await cable[Symbol.asyncDispose]()
        await tell(to, 'ACL', 'DELUSER', user)
      },
    }
  }

  describe('by its URL', () => {
    for (const { name, run: check } of storeSuite(fixture(url))) test(name, check)
  })

  describe('through a client of redis of the application', () => {
    let client: ReturnType<typeof createClient>
    beforeAll(async () => {
      client = createClient({ socket: { host: '127.0.0.1', port: redis.port, socketTimeout: 50, reconnectStrategy: () => 100 } })
      client.on('error', () => {}) // its own short timeout
      await client.connect()
    })
    afterAll(() => client?.destroy())
    for (const { name, run: check } of storeSuite(fixture(() => ({ client })))) test(name, check)

    test('the store uses a copy without its short timeout, and closing the store does not close the client', async () => {
      const store = await opened({ client, name: 'handed-in' })
      await store[Symbol.asyncDispose]()
      await until(async () => (await client.ping().catch(() => '')) === 'PONG')
    })
  })

  describe('through a client of ioredis of the application', () => {
    let client: Redis
    beforeAll(() => {
      client = new Redis(redis.url, { keyPrefix: 'mine:' })
    })
    afterAll(() => client?.disconnect())
    for (const { name, run: check } of storeSuite(fixture(() => ({ client })))) test(name, check)
  })

  describe('in a cluster, through redis', () => {
    let client: ReturnType<typeof createCluster>
    beforeAll(async () => {
      client = createCluster({ rootNodes: [{ url: cluster.url }] })
      await client.connect()
    })
    afterAll(() => client?.destroy())
    const on = () => cluster
    const way: Way = ({ port, ...defaults }) => {
      const nodeAddressMap = { [`127.0.0.1:${cluster.port}`]: { host: '127.0.0.1', port } }
      return { client: createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }], defaults, nodeAddressMap }) }
    }
    for (const { name, run: check } of storeSuite(fixture(() => ({ client }), on, way))) test(name, check)
  })

  describe('in a cluster, through ioredis', () => {
    let client: Cluster
    beforeAll(() => {
      client = new Cluster([{ host: '127.0.0.1', port: cluster.port }])
    })
    afterAll(() => client?.disconnect())
    const on = () => cluster
    const way: Way = ({ port, ...redisOptions }) => {
      const natMap = { [`127.0.0.1:${cluster.port}`]: { host: '127.0.0.1', port } }
      return { client: new Cluster([{ host: '127.0.0.1', port }], { natMap, redisOptions, lazyConnect: true }) }
    }
    for (const { name, run: check } of storeSuite(fixture(() => ({ client }), on, way))) test(name, check)
  })

  describe('handed to connect', () => {
    const ways: readonly (readonly [string, () => RedisStoreOptions & { readonly close?: () => void }])[] = [
      ['with a URL', () => ({ url: redis.url })],
      ['with a client of redis', () => ({ client: createClient({ url: redis.url }) })],
      ['with a cluster of redis', () => ({ client: createCluster({ rootNodes: [{ url: cluster.url }] }) })],
      ['with a client of ioredis', () => ioredis(new Redis(redis.url))],
      ['with a cluster of ioredis', () => ioredis(new Cluster([{ host: '127.0.0.1', port: cluster.port }]))],
    ]
    const ioredis = (client: Redis | Cluster) => ({ client, close: () => client.disconnect() })
    test.each(ways)('it holds leases %s', async (_, options) => {
      const { close, ...made } = options()
      const name = `log-${++logs}`
      await passLeaseBetween(() => new RedisStore({ ...made, name }))
      close?.()
    })
  })

  test('a cluster client of ioredis is configured not to resend commands after a lost connection, and to wait as long as the store', async () => {
    let given: object = {}
    const client = {
      ...{ isCluster: true, status: 'wait', callBuffer: () => {}, connect: async () => {}, disconnect: () => {}, on: () => {} },
      duplicate(_: unknown, options: object) {
        given = options
        return client
      },
    }
    await dialCopyOf(client as unknown as Cluster, '{x}', 100)()
    expect(given).toMatchObject({ retryDelayOnFailover: 0, slotsRefreshTimeout: 100 })
  })

  test('all keys of a log are in one slot of a cluster, and old snapshots leave no keys behind', async () => {
    await using store = await opened({ url: cluster.url, name: 'slots' })
    let after = START
    for (let i = 0; i < 4; i++) {
      after = await append(store, `${i}`, after)
      await store.snapshot(after, pieces('snapshot'))
    }
    const keys = ((await tell(cluster, 'KEYS', '*slots*')) as string[]).sort()
    expect(keys.slice(0, 2)).toEqual(['{slots}:log', '{slots}:snapshot'])
    expect(keys).toHaveLength(4) // and the chunks of the last two snapshots
    expect(new Set(await Promise.all(keys.map(key => tell(cluster, 'CLUSTER', 'KEYSLOT', key)))).size).toBe(1)
  })

  test('?name= separates logs, and an unusable name or URL is rejected', async () => {
    await using one = await opened({ url: `${redis.url}/0?name=one` })
    await using two = await opened({ url: `${redis.url}/0?name=two` })
    await append(one, 'a')
    expect((await two.read(START)).kind === 'records' && (await two.read(START))).toMatchObject({ records: { length: 0 } })
    for (const name of ['{x}', 'a b', '']) expect(() => new RedisStore({ url: redis.url, name })).toThrow(/cannot name a log/)
    expect(() => new RedisStore({ url: 'redis://[' })).toThrow(expect.objectContaining({ code: 'INVALID' }))
  })

  test('another database of the same Redis is another log', async () => {
    await using first = await opened({ url: `${redis.url}/1`, name: 'db' })
    await append(first, 'a')
    expect((await new RedisStore({ url: `${redis.url}/2`, name: 'db' }).open()).head).toEqual(START)
  })

  test('one answer carries at most 1,000 records', async () => {
    await using store = await opened({ ...url(), name: 'thousand' })
    let after = START
    for (let i = 0; i < 1_001; i++) after = await append(store, `${i}`, after)
    expect(await store.read(START)).toMatchObject({ records: { length: 1_000 } })
    expect((await store.append(Uint8Array.of(0), START)).kind).toBe('behind')
  })

  test('connect() accepts the URL, and its leases are durable', async () => {
    await using a = await connect(`${redis.url}?name=connected`, { holder: 'a' })
    await using b = await connect(`${redis.url}?name=connected`, { holder: 'b' })
    await using lease = await a.acquire('k', { advanced: { require: ['durable'] } })
    expect(await b.tryAcquire('k')).toBeUndefined()
    const asked = b.acquire('k', { wait: '10s' })
    await lease.release()
    await using next = await asked
    expect(next.token).toBeGreaterThan(lease.token)
    await expect(a.acquire('other', { advanced: { require: ['failover'] } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })

  describe('its profile', () => {
    let own: Engine
    beforeAll(async () => {
      own = await engine('redis')
    })
    afterAll(() => own?.[Symbol.asyncDispose]())
    const safe = {
      maxmemory: '0',
      appendonly: 'yes',
      appendfsync: 'always',
      'maxmemory-policy': 'noeviction',
      save: '',
      'no-appendfsync-on-rewrite': 'no',
    }
    const cases: readonly (readonly [what: string, settings: Record<string, string>, durable: boolean, note: RegExp])[] = [
      ['synced always', {}, true, /No replica/],
      ['synced every second', { appendfsync: 'everysec' }, false, /everysec.*up to two seconds/],
      ['synced by the operating system', { appendfsync: 'no' }, false, /appendfsync no/],
      ['without an append-only file', { appendonly: 'no', save: '60 1000' }, false, /last dump/],
      ['without any persistence', { appendonly: 'no' }, false, /the log is gone when Redis ends/],
      ['not synced while the file is rewritten', { 'no-appendfsync-on-rewrite': 'yes' }, false, /while the append-only file is rewritten/],
      ['with eviction', { 'maxmemory-policy': 'allkeys-lru', maxmemory: '1gb' }, false, /allkeys-lru.*evicts the whole log/],
      ['with eviction of volatile keys', { 'maxmemory-policy': 'volatile-ttl' }, true, /volatile-ttl.*noeviction/],
    ]
    test.each(cases)('%s', async (_, settings, durable, note) => {
      for (const [name, value] of Object.entries({ ...safe, ...settings })) await tell(own, 'CONFIG', 'SET', name, value)
      await using store = await opened({ url: own.url })
      expect(store.profile).toMatchObject({ store: 'redis', durable, failover: false, push: true, shared: true, ages: false })
      expect(store.profile.notes.join('\n')).toMatch(note)
    })

    test('is not durable where CONFIG and INFO are forbidden and says why, and the rights in the documentation suffice', async () => {
      const [, rights] = /`ACL SETUSER leasehold ([^`]+)`/.exec(await docs()) ?? []
      await tell(own, 'ACL', 'SETUSER', 'leasehold', ...rights!.replaceAll('PASSWORD', 'secret').split(' '))
      const url = own.url.replace('redis://', 'redis://leasehold:secret@')
      await using store = await opened({ url })
      const after = await append(store, 'a')
      expect(await store.snapshot(after, pieces('s'))).toBe('kept')
      expect(await store.newest()).toBeDefined()
      const waiting = store.read(after, { wait: new AbortController().signal })
      await append(store, 'b', after)
      expect(await waiting).toMatchObject({ kind: 'records', records: { length: 1 } })
      expect(store.profile.durable).toBe(false)
      expect(store.profile.notes.join('\n')).toMatch(/does not reveal its persistence settings/)
      await expect(new RedisStore({ url: own.url.replace('redis://', 'redis://leasehold:wrong@') }).open()).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        reason: 'permission',
        message: expect.not.stringMatching(/wrong@/),
      })
    })
  })

  test('an error for a right missing inside a script says what to grant; the call had no effect and succeeds once it is granted', async () => {
    await using own = await engine('redis')
    const grant = (...rights: string[]) => tell(own, 'ACL', 'SETUSER', 'app', ...rights)
    await grant('on', '>secret', 'resetchannels', '~{leasehold}:*', '-@all', ...RIGHTS.split(' '))
    await using store = await opened({ url: own.url.replace('redis://', 'redis://app:secret@') })
    const a = await append(store, 'a')
    const refused = { code: 'UNAVAILABLE', reason: 'permission', message: expect.stringContaining(`~{NAME}:* ${RIGHTS}`) }
    await grant('-xadd')
    await expect(store.append(Buffer.from('b'), a)).rejects.toMatchObject(refused)
    await grant('+xadd', '-xtrim')
    await expect(store.read(a)).rejects.toMatchObject(refused)
    await grant('+xtrim', '-hset')
    await expect(store.snapshot(a, pieces('s'))).rejects.toMatchObject(refused)
    await grant('+hset', 'resetkeys', '~{leasehold}:log')
    await expect(store.append(Buffer.from('b'), a)).rejects.toMatchObject(refused)
    await grant('~{leasehold}:*', '-evalsha')
    await expect(store.append(Buffer.from('b'), a)).rejects.toMatchObject(refused)
    await grant('+evalsha')
    await append(store, 'b', a)
    expect(await store.read(START)).toMatchObject({ records: { length: 2 } })
    expect(await docs()).toContain(`-@all ${RIGHTS}\``)
  })

  test('a waiting reader receives records of its own store without reading them from Redis, and records of other stores in order', async () => {
    await using own = await engine('redis')
    await using store = await opened({ url: own.url })
    await using other = await opened({ url: own.url })
    const seen: string[] = []
    const stop = new AbortController()
    const following = (async () => {
      for (let at = START; ; ) {
        const read = await store.read(at, { wait: stop.signal })
        if (read.kind !== 'records') throw new Error(read.kind)
        for (const { position, bytes } of read.records) {
          seen.push(Buffer.from(bytes).toString())
          at = position
        }
      }
    })()
    const ended = following.catch(error => error)
    const asked = async () => Number(/cmdstat_xread:calls=(\d+)/.exec(String(await tell(own, 'INFO', 'commandstats')))?.[1] ?? 0)
    let after = START
    const words = Array.from({ length: 200 }, (_, i) => `record ${i}`)
    for (const word of words) after = await append(store, word, after)
    await until(async () => seen.length === words.length)
    expect(seen).toEqual(words)
    expect(await asked()).toBeLessThan(50)
    await append(other, 'from another', after)
    await until(async () => seen.at(-1) === 'from another')
    stop.abort(new Error('enough'))
    expect(await ended).toMatchObject({ message: 'enough' })
  })

  test('a refusal is recognized by its code in the messages of all versions, inside a script or outside', () => {
    const called = 'ERR Error running script (call to f_76616a78bdc5542ee57c3aa0a31d56bc08e02bf7): @user_script:1: '
    const said: readonly (readonly [word: string | undefined, ...messages: string[]])[] = [
      [
        'NOPERM',
        "NOPERM this user has no permissions to run the 'xread' command",
        "@user_script: 1: The user executing the script can't run this command or subcommand",
        `${called}@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments`,
        "ERR The user executing the script can't run this command or subcommand script: 76616a78bdc5542ee57c3aa0a31d56bc08e02bf7, on @user_script:1.",
        "ERR ACL failure in script: User a has no permissions to run the 'xadd' command script: on @user_script:1.",
      ],
      [
        'OOM',
        "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
        "OOM command not allowed when used memory > 'maxmemory'.",
      ],
      ['READONLY', `${called}@user_script: 1: -READONLY You can't write against a read only replica.`],
      ['WRONGTYPE', `${called}WRONGTYPE Operation against a key holding the wrong kind of value`],
      ['ERR', `${called}something else`, 'ERR unknown command'],
      [undefined, 'Socket closed unexpectedly', 'connect ECONNREFUSED 127.0.0.1:1'],
    ]
    for (const [word, ...messages] of said) for (const message of messages) expect(refusal(new Error(message)), message).toBe(word)
  })

  describeWith([programs.openssl], 'over TLS', () => {
    test('rediss:// works over TLS and rejects an untrusted certificate', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'leasehold-tls-'))
      const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
      const subject = ['-subj', '/CN=leasehold', '-addext', 'subjectAltName=IP:127.0.0.1']
      await run('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-keyout', key, '-out', cert, ...subject])
      const port = await freePort()
      const tls = ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', cert, '--tls-auth-clients', 'no']
      await using own = await engine('redis', { args: ['--tls-port', String(port), ...tls] })
      try {
        const url = `rediss://127.0.0.1:${port}?name=tls`
        await expect(new RedisStore({ url }).open()).rejects.toMatchObject({
          code: 'UNAVAILABLE',
          message: expect.stringMatching(/self.signed/),
        })
        const module = new URL('../../../dist/store/redis/redis.js', import.meta.url)
        const script = `import(${JSON.stringify(module.href)}).then(async ({ RedisStore }) => {
          const store = new RedisStore({ url: ${JSON.stringify(url)} })
          console.log((await store.append(Uint8Array.of(1), (await store.open()).head)).kind)
        })`
        const { stdout } = await run(process.execPath, ['-e', script], { env: { ...process.env, NODE_EXTRA_CA_CERTS: cert } })
        expect(stdout).toBe('appended\n')
        await using plain = await opened({ url: own.url, name: 'tls' })
        expect(await plain.read(START)).toMatchObject({ records: { length: 1 } })
      } finally {
        await rm(folder, { recursive: true })
      }
    })
  })

  test('without the driver the error says what to install', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'leasehold-driver-'))
    try {
      await cp(fileURLToPath(new URL('../../../dist', import.meta.url)), join(folder, 'dist'), { recursive: true })
      await writeFile(join(folder, 'package.json'), '{"type":"module"}')
      const script = `import('./dist/store/redis/redis.js').then(({ RedisStore }) => new RedisStore({ url: 'redis://127.0.0.1:1' }).open()).catch(e => console.log(e.code, e.message))`
      const { stdout } = await run(process.execPath, ['-e', script], { cwd: folder })
      expect(stdout).toMatch(/^UNSUPPORTED .*npm install redis/)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test('a store left open does not keep its process alive', async () => {
    const module = new URL('../../../dist/store/redis/redis.js', import.meta.url)
    const script = `import(${JSON.stringify(module.href)}).then(async ({ RedisStore }) => {
      const store = new RedisStore({ url: ${JSON.stringify(redis.url)}, name: 'left-open' })
      const { head } = await store.open()
      const { position } = await store.append(Uint8Array.of(1), head)
      store.read(position, { wait: new AbortController().signal }).catch(() => {})
      console.log('done')
    })`
    const { stdout } = await run(process.execPath, ['-e', script], { timeout: EVENT_TIMEOUT })
    expect(stdout).toBe('done\n')
  })
})

/** Deletes the last records, as in a Redis that restarts with older, consistent data. */
/** Rewrites the stream: XDEL and XSETID would leave a trace of the deleted records. */
async function loseTail(engine: Engine, name: string, count: number): Promise<void> {
  const script = `local rows = redis.call('XRANGE', KEYS[1], '-', '+')
    redis.call('DEL', KEYS[1])
    for i = 1, #rows - ARGV[1] do redis.call('XADD', KEYS[1], rows[i][1], unpack(rows[i][2])) end`
  await tell(engine, 'EVAL', script, '1', `{${name}}:log`, String(count))
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  await new Promise(resolve => probe.close(resolve))
  return port
}

async function until(done: () => Promise<boolean>): Promise<void> {
  await eventually(async () => expect(await done()).toBe(true))
}

async function opened(options: RedisStoreOptions): Promise<RedisStore> {
  const store = new RedisStore({ timeout: EVENT_TIMEOUT, ...options })
  await store.open()
  return store
}

async function append(store: Store, word: string, after: Position = START): Promise<Position> {
  const answer = await store.append(new TextEncoder().encode(word), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

async function* pieces(...words: string[]): AsyncGenerator<Uint8Array> {
  for (const word of words) yield new TextEncoder().encode(word)
}

async function docs(): Promise<string> {
  const { readFile } = await import('node:fs/promises')
  return readFile(new URL('../../../docs/stores/redis.md', import.meta.url), 'utf8')
}
