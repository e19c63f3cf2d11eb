import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { createClient } from 'redis'
import { describe, expect, test } from 'vitest'
import { describeEngine, type Engine, EngineUnavailable, engine, type Kind } from './engine.ts'

interface Client extends AsyncDisposable {
  put(value: string): Promise<unknown>
  get(): Promise<string | null | undefined>
}

const clients: Record<Kind, (engine: Engine) => Promise<Client>> = { redis, postgres, etcd, etcd3: etcd }

for (const kind of ['redis', 'postgres', 'etcd', 'etcd3'] as const) {
  describeEngine(kind, 'an engine', () => {
    test('answers its real client, and keeps what was written over a restart and over a crash', async () => {
      await using running = await engine(kind)
      const first = running.pids
      {
        await using client = await clients[kind](running)
        await client.put('one')
        expect(await client.get()).toBe('one')
      }
      await running.restart()
      expect(first.filter(pid => running.pids.includes(pid))).toEqual([])
      expect(first.filter(exists)).toEqual([])
      {
        await using client = await clients[kind](running)
        expect(await client.get()).toBe('one')
        await client.put('two')
      }
      await running.kill9()
      await running.restart()
      await using client = await clients[kind](running)
      expect(await client.get()).toBe('two')
    })

    test('is silent while paused and goes on when resumed', async () => {
      await using running = await engine(kind)
      await using client = await clients[kind](running)
      await client.put('one')
      running.pause()
      const answer = client.get()
      expect(await Promise.race([answer, sleep(300, 'silence')])).toBe('silence')
      running.resume()
      expect(await answer).toBe('one')
    })

    test('is gone when its block is left, even if it was paused', async () => {
      let pids: readonly number[]
      {
        await using running = await engine(kind)
        pids = running.pids
        expect(pids.filter(exists)).toEqual(pids)
        running.pause()
      }
      expect(pids.filter(exists)).toEqual([])
    })
  })
}

describeEngine('etcd3', 'a cluster', () => {
  test('goes on without one of its members', async () => {
    await using running = await engine('etcd3')
    await running.members[0]!.kill9()
    await using client = await etcd({ ports: running.ports.slice(1) })
    // It may have been the leader: until there is another, a write waits, and is told after some seconds that it timed out.
    for (let tries = 0; ; tries++) {
      try {
        await client.put('one')
        break
      } catch (error) {
        if (tries === 4) throw error
      }
    }
    expect(await client.get()).toBe('one')
    await running.members[0]!.restart()
    await running.ready()
    await using returned = await etcd({ ports: running.ports.slice(0, 1) })
    expect(await returned.get()).toBe('one')
  })
})

describe('an engine that cannot be had', () => {
  test('says which and why', () => {
    const error = new EngineUnavailable('etcd', 'etcd is not installed, and there is no apt-get')
    expect(error.message).toBe('no etcd here: etcd is not installed, and there is no apt-get')
  })
})

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function redis({ url }: Engine): Promise<Client> {
  const client = createClient({ url })
  client.on('error', () => {}) // the tests above cut it off on purpose
  await client.connect()
  return {
    put: value => client.set('k', value),
    get: () => client.get('k'),
    async [Symbol.asyncDispose]() {
      client.destroy()
    },
  }
}

async function postgres({ url }: Engine): Promise<Client> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  await client.query('create table if not exists kept (k text primary key, v text)')
  return {
    put: value => client.query(`insert into kept values ('k', $1) on conflict (k) do update set v = $1`, [value]),
    get: async () => (await client.query<{ v: string }>('select v from kept')).rows[0]?.v,
    async [Symbol.asyncDispose]() {
      await client.end()
    },
  }
}

async function etcd({ ports }: Pick<Engine, 'ports'>): Promise<Client> {
  const call = async (path: string, body: object) => {
    const response = await fetch(`http://127.0.0.1:${ports[0]}/v3/kv/${path}`, { method: 'POST', body: JSON.stringify(body) })
    if (!response.ok) throw new Error(`etcd answered ${response.status}: ${await response.text()}`)
    return (await response.json()) as { kvs?: { value: string }[] }
  }
  return {
    put: value => call('put', { key: btoa('k'), value: btoa(value) }),
    get: async () => atob((await call('range', { key: btoa('k') })).kvs?.[0]?.value ?? ''),
    async [Symbol.asyncDispose]() {},
  }
}
