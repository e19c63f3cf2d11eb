/** The same holds for ages by the clock of each engine: as advice, and as known ages where that clock is trusted. */
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { type LogRecord, type Position, START, type Store } from '../../src/store.ts'
import { storeSuite } from '../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from './bounds.ts'
import type { Engine } from './engine.ts'

export const MINUTE = 60_000

interface ClockedOptions {
  readonly url: string
  readonly name?: string
  readonly trustEngineClock?: boolean
  readonly timeout?: number
}

export interface EngineClock {
  /** Of a test: the engine is started before the first. */
  server(): Engine
  store(options: ClockedOptions): Store
  /** As if the records and snapshots of the log had been written so many ms earlier. */
  older(name: string, ms: number): Promise<void>
  /** Deletes the last records, as in an engine that continues with older, consistent data. */
  loseTail(name: string, count: number): Promise<void>
}

export function engineClockSuite({ server, store: create, older, loseTail }: EngineClock): void {
  const opened = async (name: string, setting = ''): Promise<Store> => {
    const store = create({ url: `${server().url}?name=${name}${setting}`, timeout: EVENT_TIMEOUT })
    await store.open()
    return store
  }

  describe('trusted', () => {
    let logs = 0
    const fixture = async () => {
      const name = `trusted-${++logs}`
      return {
        store: () => create({ url: server().url, name, trustEngineClock: true, timeout: EVENT_TIMEOUT }),
        loseTail: (count: number) => loseTail(name, count),
        [Symbol.asyncDispose]: async () => {},
      }
    }
    for (const { name, run } of storeSuite(fixture)) test(name, run)
  })

  test('every record has an advisory age by that clock; its age is known only if the clock is trusted', async () => {
    await using store = await opened('ages')
    await using trusting = await opened('ages', '&clock=trusted')
    expect([store.profile.ages, trusting.profile.ages]).toEqual([false, true])
    expect(trusting.profile.notes.join()).toMatch(/clock=trusted: .*If that clock is set forward, a lease may end while its holder/)
    const a = await append(store)
    await older('ages', 9 * MINUTE)
    for (const [reader, age] of [
      [store, 0],
      [trusting, 9 * MINUTE],
    ] as const) {
      const [record] = recordsOf(await reader.read(START))
      expect(record!.advisoryAge).toBeGreaterThanOrEqual(9 * MINUTE)
      expect(record!.age).toBe(age === 0 ? 0 : record!.advisoryAge)
    }
    const answer = await trusting.append(Uint8Array.of(2), START)
    expect(answer).toMatchObject({ kind: 'appended', missed: [{ position: a, age: expect.toSatisfy(age => age >= 9 * MINUTE) }] })
  })

  test('a clock that was set back gives a negative advisory age, and no age', async () => {
    await using store = await opened('back', '&clock=trusted')
    await append(store)
    await older('back', -60 * MINUTE)
    expect(recordsOf(await store.read(START))).toMatchObject([{ age: 0, advisoryAge: expect.toSatisfy(age => age < -30 * MINUTE) }])
  })

  test('after a restart of the server, the ages of earlier records and snapshots are not known, whatever its clock says', async () => {
    const a = await (async () => {
      await using store = await opened('restart', '&clock=trusted')
      const position = await append(store)
      expect(await store.snapshot(position, once(Uint8Array.of(1)))).toBe('kept')
      await older('restart', 9 * MINUTE)
      expect((await store.newest())!.age).toBeGreaterThanOrEqual(9 * MINUTE)
      return position
    })()
    await server().restart()
    await using store = await opened('restart', '&clock=trusted')
    expect(recordsOf(await store.read(START))).toMatchObject([{ age: 0, advisoryAge: expect.toSatisfy(age => age >= 9 * MINUTE) }])
    expect((await store.newest())!.age).toBe(0)
    await append(store, a)
    await older('restart', 9 * MINUTE)
    expect(recordsOf(await store.read(a))[0]!.age).toBeGreaterThanOrEqual(9 * MINUTE)
  })

  test('a process that does not stay gets the name of a dead holder, if the clock is trusted', async () => {
    const leases = (holder: string, setting = '') => connect(`${server().url}?name=dead${setting}`, { holder })
    const dead = await leases('dead')
    const lease = await dead.acquire('nightly', { ttl: '5m', renew: 'never' })
    await older('dead', 9 * MINUTE)
    const options = { ttl: '5m', advanced: { confirm: 0 } } as const
    {
      await using job = await leases('job')
      await expect(job.tryAcquire('nightly', options)).rejects.toMatchObject({ code: 'UNCONFIRMED' })
    }
    {
      await using job = await leases('job', '&clock=trusted')
      const granted = await job.tryAcquire('nightly', options)
      expect(granted!.token).toBeGreaterThan(lease.token)
    }
    await dead.close()
  })

  test('another value of ?clock= is refused with a sentence', () => {
    expect(() => create({ url: `${server().url}?clock=quartz` })).toThrow('?clock= must be trusted, or be left out; it is "quartz"')
  })
}

export async function append(store: Store, after: Position = START): Promise<Position> {
  const answer = await store.append(Uint8Array.of(1), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

export function recordsOf(read: Awaited<ReturnType<Store['read']>>): readonly LogRecord[] {
  if (read.kind !== 'records') throw new Error(JSON.stringify(read))
  return read.records
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}
