import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect, defaultUrl, open } from '../../src/connect/connect.ts'
import * as leasehold from '../../src/index.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-open-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('the package exports about a dozen names, and what a user needs first is among them', () => {
  expect(Object.keys(leasehold).sort()).toEqual(['Lease', 'LeaseError', 'Leases', 'connect', 'parseDuration'])
})

test('what is no object cannot be the options', async () => {
  for (const options of [null, 'holder', 5])
    await expect(connect('memory:', options as never)).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('an object'),
    })
})

test('memory: is one place for the whole process, and another name is another place', async () => {
  const clock = new ManualClock()
  await using a = await connect('memory:', { holder: 'a', clock })
  await using b = await connect('memory:', { holder: 'b', clock })
  await using elsewhere = await connect('memory:elsewhere', { clock })
  await using _lease = await a.acquire('k')
  expect(await b.tryAcquire('k')).toBeUndefined()
  expect((await b.query()).held.map(({ holder }) => holder)).toEqual(['a'])
  expect(await elsewhere.tryAcquire('k')).toBeDefined()
})

test('memory: forgets when nobody has it open, and its tokens grow all the same', async () => {
  const first = await connect('memory:short')
  const { token } = await first.acquire('k')
  await first[Symbol.asyncDispose]()
  await using second = await connect('memory:short')
  await using lease = await second.acquire('k', { ifAvailable: true })
  expect(lease.token).toBeGreaterThan(token)
})

test('file:PATH is shared by whoever opens it, and outlives them', async () => {
  using here = folder()
  const url = `file:${join(here.path, 'deep', 'leases.db')}`
  let token = 0
  {
    await using a = await connect(url, { holder: 'a' })
    await using b = await connect(`file://${join(here.path, 'deep', 'leases.db')}`, { holder: 'b' })
    await using lease = await a.acquire('k')
    token = lease.token
    expect(await b.tryAcquire('k')).toBeUndefined()
    const asked = b.acquire('k', { wait: '10s' })
    await lease.release()
    await using next = await asked
    expect(next.token).toBeGreaterThan(token)
  }
  await using again = await connect(url)
  await using lease = await again.acquire('k', { advanced: { require: ['durable'] } })
  expect(lease.token).toBeGreaterThan(token)
})

test('a file that another process owns is refused with where to go instead', async () => {
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

test('without a URL, the file in the state folder of the user', () => {
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

test('connect() without a URL goes where LEASEHOLD_URL says, as under leasehold run; a URL may be one', async () => {
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
    await expect(connect(7 as never)).rejects.toMatchObject({ code: 'INVALID' })
  } finally {
    if (before === undefined) delete process.env.LEASEHOLD_URL
    else process.env.LEASEHOLD_URL = before
  }
})

test('a setting of redis:// that does not exist is refused, and not passed over', async () => {
  await expect(open('redis://127.0.0.1:1/?nam=other')).rejects.toMatchObject({ code: 'INVALID', message: expect.stringContaining('nam') })
})

test('what names no place is refused with what does', async () => {
  await expect(open('ftp://somewhere')).rejects.toMatchObject({ code: 'INVALID', message: expect.stringMatching(/memory: or file:PATH/) })
  await expect(open('leases.db')).rejects.toThrow(/did you mean file:leases\.db\?/)
  await expect(open('file:')).rejects.toThrow(/needs a path/)
  await expect(open('')).rejects.toMatchObject({ code: 'INVALID' })
})
