import { expect, test } from 'vitest'
import { pause } from '../../src/clock.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { everywhere } from '../support/recipe-places.ts'
import { intercept } from '../support/submitting.ts'

function origin() {
  const values = new Map<string, string>([['a', 'one']])
  const seen = { loads: 0, saves: 0 }
  return {
    values,
    seen,
    load: async (key: string) => {
      seen.loads++
      return values.get(key)
    },
    save: async (key: string, value: string | undefined) => {
      seen.saves++
      values.set(key, value!)
    },
  }
}

everywhere('a value is loaded once, and loaded again after a write by any process', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const source = origin()
  await using mine = a.cache('config/', { ...source, ttl: '10s' })
  await using theirs = b.cache('config/', { ...source, ttl: '10s' })
  expect(await Promise.all([mine.get('a'), mine.get('a'), theirs.get('a')])).toEqual(['one', 'one', 'one'])
  expect(source.seen.loads).toBe(2)
  await theirs.write('a', 'two')
  expect(await mine.get('a')).toBe('two')
  expect(await theirs.get('a')).toBe('two')
  expect(source.seen).toEqual({ loads: 4, saves: 1 })
  expect(await mine.get('a')).toBe('two')
  expect(source.seen.loads).toBe(4)
})

everywhere('no read is older than the last write completed before it, while several processes read and write', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  let stored = 0
  let completed = 0
  const options = {
    load: async () => {
      const value = stored
      await Promise.resolve()
      return value
    },
    save: (_: string, value: number) => {
      stored = value
    },
    ttl: '5s' as const,
  }
  await using mine = a.cache<number>('register', options)
  await using theirs = b.cache<number>('register', options)
  let reads = 0
  let writing = true
  const reader = async (cache: typeof mine) => {
    while (writing) {
      const before = completed
      const value = await cache.get('x')
      expect(value).toBeGreaterThanOrEqual(before)
      if (++reads % 20 === 0) await new Promise(resolve => setImmediate(resolve))
    }
  }
  const writer = async () => {
    for (let i = 1; i <= 15; i++) {
      await (i % 2 ? mine : theirs).write('x', i)
      completed = i
    }
    writing = false
  }
  await Promise.all([reader(mine), reader(theirs), writer()])
  expect(await mine.get('x')).toBe(15)
  expect(reads).toBeGreaterThan(15)
})

test('a write waits for a reader that cannot be reached until its term is over, and no longer', async () => {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  const source = origin()
  const mine = a.leases.cache('config', { ...source, ttl: 10_000 })
  const theirs = b.leases.cache('config', { ...source, ttl: 10_000 })
  expect(await mine.get('a')).toBe('one')
  a.lessor.stopAnswering()
  let written = false
  const writing = theirs.write('a', 'two').then(() => (written = true))
  await a.clock.advance(9_800)
  expect(written).toBe(false)
  expect(await mine.get('a')).toBe('one') // the write is not completed yet
  await a.clock.advance(400)
  expect(written).toBe(true)
  await writing
  a.lessor.answer()
  expect(await mine.get('a')).toBe('two')
})

test('a value whose lease ran out while it was loaded is not served: a write may have been completed since', async () => {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  const source = origin()
  let arrive = () => {}
  const slow = new Promise<void>(resolve => (arrive = resolve))
  const load = async (key: string) => {
    const value = await source.load(key)
    if (source.seen.loads === 1) await slow
    return value
  }
  const mine = a.leases.cache('config', { load, ttl: 1_000 })
  const reading = mine.get('a')
  await a.clock.settle()
  a.lessor.stopAnswering()
  await a.clock.advance(1_100)
  await b.leases.cache('config', { ...source, ttl: 1_000 }).write('a', 'two')
  arrive()
  a.lessor.answer()
  expect(await reading).toBe('two')
})

test('a recall that overtakes its grant is obeyed', async () => {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  const source = origin()
  const mine = a.leases.cache('config', { ...source, ttl: 20_000 })
  await mine.get('other') // it watches from now on
  let arrive = () => {}
  const late = new Promise<void>(resolve => (arrive = resolve))
  intercept(a.lessor, async (ask, command, options) => {
    const outcome = await ask(command, options)
    if (command.kind === 'acquire') await late
    return outcome
  })
  const reading = mine.get('a')
  await a.clock.settle()
  const writing = b.leases.cache('config', { ...source, ttl: 20_000 }).write('a', 'two')
  await a.clock.settle()
  arrive()
  await writing // without waiting for the term
  expect(await reading).toBe('two')
})

test('a load that fails rejects get, and nothing is cached', async () => {
  const { leases, clock } = silentLessor()
  let fails = true
  const cache = leases.cache('c', { load: async () => (fails ? Promise.reject(new Error('down')) : 'fine') })
  await expect(cache.get('a')).rejects.toThrow('down')
  fails = false
  await clock.settle()
  expect((await leases.query()).held).toEqual([])
  expect(await cache.get('a')).toBe('fine')
})

test('the term follows the ratio of reads to writes: many reads a moderate term, many writes none', async () => {
  const { leases, clock } = silentLessor()
  const source = origin()
  const cache = leases.cache('c', { ...source, ttl: 'auto' })
  for (let i = 0; i < 100; i++) {
    await cache.get('a')
    await clock.advance(100)
  }
  expect(cache.term).toBeGreaterThanOrEqual(1_000)
  expect(cache.term).toBeLessThan(5_000)
  expect(source.seen.loads).toBeLessThan(15)
  for (let i = 0; i < 300; i++) await cache.write('a', String(i))
  expect(cache.term).toBe(0)
  expect(await cache.get('a')).toBe('299')
  await clock.settle()
  expect((await leases.query()).held).toEqual([])
})

test('no more values are kept than most allows', async () => {
  const { leases, clock } = silentLessor()
  const cache = leases.cache('c', { load: async key => key, most: 3 })
  for (const key of ['a', 'b', 'c', 'd', 'e']) await cache.get(key)
  await clock.settle()
  expect((await leases.query()).held.map(({ resource }) => resource)).toEqual(['c/c', 'c/d', 'c/e'])
})

everywhere('without save, all processes load the value anew after write, the writer too', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const { load, values, seen } = origin()
  await using mine = a.cache('config/', { load, ttl: '10s' })
  await using theirs = b.cache('config/', { load, ttl: '10s' })
  expect([await mine.get('a'), await theirs.get('a')]).toEqual(['one', 'one'])
  values.set('a', 'two') // without save, the caller writes the source
  expect(await theirs.get('a')).toBe('one')
  await mine.write('a', 'two')
  expect(await mine.get('a')).toBe('two')
  expect(seen.loads).toBe(3)
  expect(await theirs.get('a')).toBe('two')
  expect(seen.loads).toBe(4)
  await Promise.all([mine.write('a', 'three'), theirs.write('a', 'four')])
  values.set('a', 'four')
  await theirs.write('a', 'four')
  expect([await mine.get('a'), await theirs.get('a')]).toEqual(['four', 'four'])
})

everywhere('without save, readers agree although writes to the source and calls of write come in different orders', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const { load, values } = origin()
  await using mine = a.cache('config/', { load, ttl: '10s' })
  await using theirs = b.cache('config/', { load, ttl: '10s' })
  values.set('a', 'mine')
  values.set('a', 'theirs') // the source has this one last, but the caches learn of it first
  await theirs.write('a', 'theirs')
  await mine.write('a', 'mine')
  expect([await mine.get('a'), await theirs.get('a')]).toEqual(['theirs', 'theirs'])
})

test('a closed cache rejects with UNAVAILABLE', async () => {
  const { leases } = silentLessor()
  await using _ = leases
  const cache = leases.cache('config', origin())
  await cache.get('a')
  await cache[Symbol.asyncDispose]()
  await expect(cache.get('a')).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await expect(cache.write('a', 'x')).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a cache closes at once, even while a read waits for a writer, and leaves no lease behind', async () => {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  await using _a = a.leases
  await using _b = b.leases
  await using _writing = await b.leases.acquire('config/a')
  const cache = a.leases.cache('config', origin())
  const reading = cache.get('a').catch((error: unknown) => error)
  await a.clock.settle()
  await cache[Symbol.asyncDispose]()
  expect(await reading).toMatchObject({ code: 'UNAVAILABLE', message: 'the cache of config/ is closed' })
  await a.clock.settle()
  expect((await b.leases.query()).pending).toEqual([])
})

test('a value that takes longer to load than its term is loaded again, under a longer term', async () => {
  const { leases, clock } = silentLessor()
  await using _ = leases
  let loads = 0
  const load = async () => {
    loads++
    await pause(clock, 5_000)
    return 'slow'
  }
  const cache = leases.cache('config', { load, ttl: 2_000 })
  let value: unknown
  void cache.get('a').then(it => (value = it))
  await clock.advance(11_000)
  expect([value, loads]).toEqual(['slow', 2])
  expect((await leases.query()).held).toHaveLength(1)
})
