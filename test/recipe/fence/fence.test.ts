import { fork } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { createClient } from 'redis'
import { describe, expect, test } from 'vitest'
import {
  FileGuard,
  fenced,
  fencedHono,
  type Guard,
  HEADER,
  MemoryGuard,
  POSTGRES_FENCE,
  POSTGRES_TABLE,
  PostgresGuard,
  setFenced,
} from '../../../src/recipe/fence/fence.ts'
import { loadEngine } from '../../../src/store/file/engine.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { describeEngine, engine } from '../../support/engine.ts'

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-fence-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

interface GuardProcess {
  ask(call: string, ...args: unknown[]): Promise<unknown>
  send(request: unknown[]): void
  /** Resolves when this many were acknowledged. */
  acknowledged(count: number): Promise<void>
  readonly last: number
  readonly gone: Promise<unknown>
  kill(signal: NodeJS.Signals): void
}

/** A second process with a guard on the same file. */
function guardProcess(path: string): GuardProcess {
  const child = fork(fileURLToPath(new URL('../../support/fence-child.mjs', import.meta.url)), [path], { execArgv: [] })
  const tokens: number[] = []
  let acknowledged = () => {}
  child.on('message', (message: { readonly token?: number }) => {
    if (message.token !== undefined) tokens.push(message.token)
    acknowledged()
  })
  return {
    async ask(...request) {
      child.send(request)
      return ((await once(child, 'message'))[0] as { answer: unknown }).answer
    },
    send: request => void child.send(request),
    acknowledged: count =>
      new Promise(resolve => {
        acknowledged = () => {
          if (tokens.length >= count) resolve()
        }
        acknowledged()
      }),
    get last() {
      return tokens.at(-1)!
    },
    gone: once(child, 'exit'),
    kill: signal => void child.kill(signal),
  }
}

async function refusesOlder(guard: Guard) {
  await guard.admit('a', 5)
  await guard.admit('a', 5)
  await guard.admit('a', 179_471_282_160_801)
  await expect(guard.admit('a', 179_471_282_160_800)).rejects.toMatchObject({ code: 'STALE', facts: { resource: 'a' } })
  await guard.admit('b', 1)
  for (const wrong of [0, -1, 1.5, Number.NaN]) await expect(guard.admit('a', wrong)).rejects.toMatchObject({ code: 'INVALID' })
}

test('in memory', () => refusesOlder(new MemoryGuard()))

test('in a file, which remembers over a restart', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  await refusesOlder(new FileGuard(path))
  await expect(new FileGuard(path).admit('a', 7)).rejects.toMatchObject({ code: 'STALE', facts: { highest: 179_471_282_160_801 } })
  await new FileGuard(path).admit('b', 2)
})

test('in a file that two guards share, neither admits a token older than the other has seen', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  const [one, two] = [new FileGuard(path), new FileGuard(path)]
  await one.admit('a', 5)
  await two.admit('a', 9)
  await expect(one.admit('a', 6)).rejects.toMatchObject({ code: 'STALE', facts: { highest: 9 } })
  await two.admit('b', 1)
  await one.admit('a', 10)
  expect(new Map(JSON.parse(readFileSync(path, 'utf8')))).toEqual(
    new Map([
      ['a', 10],
      ['b', 1],
    ]),
  ) // prettier-ignore
})

test('in a file that several processes share, tokens are admitted in one order, and the highest stays', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  const children = [1, 2, 3].map(() => guardProcess(path))
  const [first, second] = children as [GuardProcess, GuardProcess, GuardProcess]
  try {
    expect(await first.ask('admit', 'a', 5)).toBe('admitted')
    expect(await second.ask('admit', 'a', 9)).toBe('admitted')
    expect(await first.ask('admit', 'a', 6)).toBe('STALE')
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual([['a', 9]])
    // Each process writes its admitted tokens to a file, as a store behind the guard would.
    const runs = await Promise.all(children.map(child => child.ask('race', 'b', join(here.path, 'written'), 60)))
    const admitted = runs.flatMap(run => run as number[])
    const written = readFileSync(join(here.path, 'written'), 'utf8').trim().split('\n').map(Number) // prettier-ignore
    expect(admitted.length).toBeGreaterThan(0)
    expect(Math.max(...admitted)).toBe(new Map<string, number>(JSON.parse(readFileSync(path, 'utf8'))).get('b'))
    expect(written.toSorted((x, y) => x - y)).toEqual(admitted.toSorted((x, y) => x - y))
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
})

test('a process that is killed inside the guard leaves no lock, and no half of a file', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  const guard = new FileGuard(path)
  let highest = 0
  for (let round = 0; round < 5; round++) {
    const child = guardProcess(path)
    await child.ask('admit', 'warm', 1)
    child.send(['pour', 'a', highest + 1])
    await child.acknowledged(5)
    child.kill('SIGKILL')
    await child.gone
    const acknowledged = child.last
    await guard.admit('b', round + 1)
    highest = new Map<string, number>(JSON.parse(readFileSync(path, 'utf8'))).get('a')!
    expect(highest).toBeGreaterThanOrEqual(acknowledged)
    await expect(guard.admit('a', acknowledged - 1)).rejects.toMatchObject({ code: 'STALE' })
  }
})

test('admit waits for a process that stalls inside the guard, then rejects with UNAVAILABLE', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  await new FileGuard(path).admit('a', 5)
  const { DatabaseSync } = await loadEngine()
  const lock = new DatabaseSync(`${path}-lock`, { timeout: 0 })
  lock.exec('begin exclusive')
  await expect(new FileGuard(path, { timeout: 50 }).admit('a', 6)).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    reason: 'busy',
  })
  lock.exec('rollback')
  lock.close()
  await new FileGuard(path, { timeout: 50 }).admit('a', 6)
})

test('a token file that is damaged, a link, or open to other users admits no token', async () => {
  using here = folder()
  const path = join(here.path, 'fence.json')
  for (const text of ['', '[["a",', '{}', '[["a","5"]]', '[["a",-1]]']) {
    writeFileSync(path, text, { mode: 0o600 })
    await expect(new FileGuard(path).admit('a', 7)).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'damaged' })
    expect(readFileSync(path, 'utf8')).toBe(text)
  }
  rmSync(path)
  await new FileGuard(path).admit('a', 7)
  chmodSync(path, 0o644)
  await expect(new FileGuard(path).admit('a', 8)).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'mode' })
  rmSync(path)
  writeFileSync(join(here.path, 'precious'), '[]', { mode: 0o600 })
  for (const link of [path, `${path}-lock`, `${path}.new`]) {
    rmSync(link, { force: true })
    symlinkSync(join(here.path, 'precious'), link)
    await new FileGuard(path).admit('a', 8).catch(error => expect(error).toMatchObject({ reason: 'link' }))
    rmSync(link, { force: true })
    expect(readFileSync(join(here.path, 'precious'), 'utf8')).toBe('[]')
  }
})

test('a file that cannot be written admits no token', async () => {
  using here = folder()
  const guard = new FileGuard(join(here.path, 'missing', 'fence.json'))
  await expect(guard.admit('a', 1)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await expect(guard.admit('a', 2)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a holder that returns too late is refused', async () => {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  const guard = new MemoryGuard()
  const late = await a.leases.acquire('k', { ttl: 1_000 })
  a.lessor.stopAnswering()
  await a.clock.advance(1_100)
  const next = await b.leases.acquire('k')
  await guard.admit('k', next.token)
  await expect(guard.admit('k', late.token)).rejects.toMatchObject({ code: 'STALE' })
  a.lessor.answer()
})

describe('over HTTP', () => {
  const ask = async (url: string, token?: string) => {
    const response = await fetch(url, { method: 'PUT', headers: token === undefined ? {} : { [HEADER]: token } })
    return { status: response.status, body: await response.text() }
  }

  test('node:http: stale tokens get 409, requests without one 428', async () => {
    using here = folder()
    const check = fenced(new FileGuard(join(here.path, 'fence.json')), (request: IncomingMessage) => request.url!.slice(1))
    const server = createServer((request, response) => {
      void check(request, response, error => response.writeHead(error === undefined ? 200 : 500).end('written'))
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/jobs`
      expect(await ask(url, '7')).toEqual({ status: 200, body: 'written' })
      expect(await ask(url, '8')).toMatchObject({ status: 200 })
      const refused = await ask(url, '7')
      expect(refused.status).toBe(409)
      expect(JSON.parse(refused.body)).toMatchObject({ error: { code: 'STALE', highest: 8, token: 7 } })
      expect(await ask(url)).toMatchObject({ status: 428 })
      expect(await ask(url, 'x')).toMatchObject({ status: 400 })
      expect(await ask(url, '1e3')).toMatchObject({ status: 400 })
    } finally {
      server.close()
      server.closeAllConnections()
    }
  })

  test('Hono: the same, by the shape of its context', async () => {
    const check = fencedHono(new MemoryGuard(), () => 'jobs')
    const call = async (token: string | undefined) => {
      let passed = false
      const context = {
        req: { header: (name: string) => (name === HEADER ? token : undefined) },
        json: (body: object, status: number) => new Response(JSON.stringify(body), { status }),
      }
      const response = await check(context, async () => {
        passed = true
      })
      return passed ? 200 : response?.status
    }
    expect([await call('3'), await call('2'), await call(undefined), await call('4')]).toEqual([200, 409, 428, 200])
  })
})

describeEngine('postgres', 'in Postgres', () => {
  test('the fence is in the transaction of the write', async () => {
    await using running = await engine('postgres')
    const clients = [new pg.Client(running.url), new pg.Client(running.url)] as const
    for (const client of clients) await client.connect()
    try {
      const [client, other] = clients
      await client.query(POSTGRES_TABLE)
      await client.query('create table account (id text primary key, balance int)')
      await refusesOlder(new PostgresGuard(client))
      const write = (to: pg.Client, token: number, balance: number) =>
        new PostgresGuard(to).write({ tokens: { x: token } }, within =>
          within.query('insert into account values ($1, $2) on conflict (id) do update set balance = excluded.balance', ['x', balance]),
        )
      await write(client, 10, 100)
      // Either transaction waits for the other: they never interleave.
      const [older, younger] = await Promise.allSettled([write(client, 11, 111), write(other, 12, 112)])
      expect(younger.status).toBe('fulfilled')
      await expect(write(client, 11, 999)).rejects.toMatchObject({ code: 'STALE' })
      expect((await client.query('select balance from account')).rows).toEqual([{ balance: 112 }])
      expect(['fulfilled', 'rejected']).toContain(older.status)
      expect((await client.query(POSTGRES_FENCE, ['x', 3])).rows).toEqual([])
    } finally {
      for (const client of clients) await client.end()
    }
  })
})

describeEngine('redis', 'in Redis', () => {
  test('the fence is in the script of the write', async () => {
    await using running = await engine('redis')
    const client = createClient({ url: running.url })
    await client.connect()
    try {
      const run = (script: string, keys: string[], args: string[]) => client.eval(script, { keys, arguments: args })
      const newest = 179_471_282_160_801
      await setFenced(run, 'doc', 'one', { token: 5 })
      await setFenced(run, 'doc', 'two', { token: newest })
      await expect(setFenced(run, 'doc', 'late', { token: newest - 1 })).rejects.toMatchObject({ code: 'STALE' })
      expect(await client.get('doc')).toBe('two')
    } finally {
      client.destroy()
    }
  })
})
