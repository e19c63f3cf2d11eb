/** `connect`: the URLs, stores and lessors that it takes, and the mistakes that it refuses. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { connect, open, openInPlace } from '../../src/connect/connect.ts'
import { storeOf } from '../../src/connect/store-of.ts'
import { defaultUrl } from '../../src/connect/url.ts'
import * as leasehold from '../../src/index.ts'
import { moveLeases } from '../../src/replica/move-leases.ts'
import { Replica } from '../../src/replica/replica.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { serve } from '../../src/server/serve.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { START } from '../../src/store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-open-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('the package exports exactly Lease, LeaseError, Leases, connect and parseDuration', () => {
  expect(Object.keys(leasehold).sort()).toEqual(['Lease', 'LeaseError', 'Leases', 'connect', 'parseDuration'])
})

test('options that are not an object are refused', async () => {
  for (const options of [null, 'holder', 5])
    await expect(connect('memory:', options as never)).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('an object'),
    })
})

test('memory: is one log for the whole process, and another name is another log', async () => {
  const clock = new ManualClock()
  await using a = await connect('memory:', { holder: 'a', clock })
  await using b = await connect('memory:', { holder: 'b', clock })
  await using elsewhere = await connect('memory:elsewhere', { clock })
  await using _lease = await a.acquire('k')
  expect(await b.tryAcquire('k')).toBeUndefined()
  expect((await b.query()).held.map(({ holder }) => holder)).toEqual(['a'])
  expect(await elsewhere.tryAcquire('k')).toBeDefined()
})

test('memory: forgets its leases when the last replica closes it, and its tokens still increase', async () => {
  const first = await connect('memory:short')
  const { token } = await first.acquire('k')
  await first[Symbol.asyncDispose]()
  await using second = await connect('memory:short')
  await using lease = await second.acquire('k', { ifAvailable: true })
  expect(lease.token).toBeGreaterThan(token)
})

test('file:PATH is shared by all replicas that open it, and outlives them', async () => {
  using here = folder()
  const url = `file:${join(here.path, 'deep', 'leases.db')}`
  let token = 0
  {
    await using a = await connect(url, { holder: 'a' })
    await using b = await connect(`file://${join(here.path, 'deep', 'leases.db')}`, { holder: 'b' })
    await using lease = await a.acquire('k')
    token = lease.token
    expect(await b.tryAcquire('k')).toBeUndefined()
    const waiting = b.acquire('k', { wait: '10s' })
    await lease.release()
    await using next = await waiting
    expect(next.token).toBeGreaterThan(token)
  }
  await using again = await connect(url)
  await using lease = await again.acquire('k', { advanced: { require: ['durable'] } })
  expect(lease.token).toBeGreaterThan(token)
})

test('the error for a file that another process owns names the address to connect to', async () => {
  using here = folder()
  const path = join(here.path, 'leases.db')
  await using store = new FileStore({ path, own: { name: 'a server', address: '127.0.0.1:7420' } })
  await store.open()
  await expect(connect(`file:${path}`)).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringMatching(/127\.0\.0\.1:7420: connect there/),
    facts: { address: '127.0.0.1:7420' },
  })
})

describe('a store that is passed in', () => {
  test('is opened, used, and closed with the leases', async () => {
    const log = new MemoryLog()
    const store = new MemoryStore({ log })
    {
      await using leases = await connect(store, { holder: 'a' })
      await using other = await connect(new MemoryStore({ log }), { holder: 'b' })
      await using _lease = await leases.acquire('k')
      expect(await other.tryAcquire('k')).toBeUndefined()
    }
    await expect(store.read(START)).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'the store was closed' })
  })

  test('is owned if its profile says that it is not shared', async () => {
    using here = folder()
    const path = join(here.path, 'leases.db')
    await using leases = await connect(new FileStore({ path, own: { name: 'the first' } }))
    await using _lease = await leases.acquire('k', { advanced: { require: ['durable'] } })
    await expect(connect(new FileStore({ path }))).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'owned' })
  })

  test('is closed if it cannot be opened', async () => {
    const log = new MemoryLog()
    await using owner = new MemoryStore({ log, own: { name: 'the first' } })
    await owner.open()
    const store = new MemoryStore({ log })
    await expect(connect(store)).rejects.toMatchObject({ facts: { owner: 'the first' } })
    await expect(store.open()).rejects.toMatchObject({ message: 'the store was closed' })
  })

  test('follows the leases that move to another store', async () => {
    using here = folder()
    const [from, to] = ['from.db', 'to.db'].map(name => `file:${join(here.path, name)}`) as [string, string]
    await using leases = await connect(new FileStore({ path: join(here.path, 'from.db') }), { holder: 'a' })
    await using lease = await leases.acquire('k')
    {
      await using source = await openInPlace(from)
      await moveLeases(source, { place: to, open: () => storeOf(to) })
    }
    await using there = await connect(to, { holder: 'b' })
    expect((await there.query()).held).toMatchObject([{ holder: 'a', token: lease.token }])
    await leases.acquire('another')
    expect((await there.query()).held).toHaveLength(2)
  })
})

test('a lessor that is passed in is used as it is, and closed with the leases', async () => {
  const lessor = await open('memory:passed-in')
  {
    await using leases = await connect(lessor, { holder: 'a' })
    expect(leases.lessor).toBe(lessor)
    await using _lease = await leases.acquire('k')
  }
  expect(lessor.signal.aborted).toBe(true)
})

test("heartbeat: 'worker' is refused for a store or a lessor, which no other thread can open", async () => {
  await using store = new MemoryStore()
  await using lessor = await open('memory:worker')
  for (const where of [store, lessor])
    await expect(connect(where, { heartbeat: 'worker' })).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('needs its URL'),
    })
})

test('the default URL is a file in the state folder of the user', () => {
  expect(defaultUrl({ XDG_STATE_HOME: '/var/state' })).toBe('file:/var/state/leasehold/leasehold.db')
  expect(defaultUrl({})).toBe(`file:${homedir()}/.local/state/leasehold/leasehold.db`)
  expect(defaultUrl({ XDG_STATE_HOME: 'relative' })).toBe(defaultUrl({}))
})

test('connect() without a URL opens that file', async () => {
  using here = folder()
  const { XDG_STATE_HOME: before, LEASEHOLD_URL: url } = process.env
  process.env.XDG_STATE_HOME = here.path
  delete process.env.LEASEHOLD_URL
  try {
    await using leases = await connect()
    await using _lease = await leases.acquire('k')
    expect(existsSync(join(here.path, 'leasehold', 'leasehold.db'))).toBe(true)
  } finally {
    if (before === undefined) delete process.env.XDG_STATE_HOME
    else process.env.XDG_STATE_HOME = before
    if (url !== undefined) process.env.LEASEHOLD_URL = url
  }
})

test('connect() without a URL opens LEASEHOLD_URL, as under leasehold run; connect also takes a URL object', async () => {
  using here = folder()
  const { LEASEHOLD_URL: before } = process.env
  const there = join(here.path, 'there.db')
  process.env.LEASEHOLD_URL = `file:${there}`
  try {
    await using leases = await connect()
    await using _lease = await leases.acquire('k')
    expect(existsSync(there)).toBe(true)
    await using other = await connect(new URL(`file://${there}`))
    expect(await other.tryAcquire('k')).toBeUndefined()
    for (const nothing of [7, null, {}]) await expect(connect(nothing as never)).rejects.toMatchObject({ code: 'INVALID' })
  } finally {
    if (before === undefined) delete process.env.LEASEHOLD_URL
    else process.env.LEASEHOLD_URL = before
  }
})

test('an unknown setting in a redis:// URL is refused, not ignored', async () => {
  await expect(open('redis://127.0.0.1:1/?nam=other')).rejects.toMatchObject({ code: 'INVALID', message: expect.stringContaining('nam') })
})

test('the error for an invalid URL lists the valid ones', async () => {
  await expect(open('ftp://somewhere')).rejects.toMatchObject({ code: 'INVALID', message: expect.stringMatching(/memory: or file:PATH/) })
  await expect(open('leases.db')).rejects.toThrow(/did you mean file:leases\.db\?/)
  await expect(open('file:')).rejects.toThrow(/needs a path/)
  await expect(open('')).rejects.toMatchObject({ code: 'INVALID' })
})

test('an empty LEASEHOLD_API_KEY names no key', async () => {
  await using replica = await Replica.open(new MemoryStore())
  await using server = await serve({ lessor: replica, listen: '127.0.0.1:0', http: httpListener() })
  vi.stubEnv('LEASEHOLD_API_KEY', '')
  try {
    for (const scheme of ['leasehold', 'http']) {
      await using leases = await connect(`${scheme}://${server.addresses[0]}`)
      await using _lease = await leases.acquire(scheme)
    }
  } finally {
    vi.unstubAllEnvs()
  }
})
