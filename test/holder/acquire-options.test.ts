/** Which options and arguments the calls of the library accept, and how they refuse others. */
import { expect, expectTypeOf, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Lease } from '../../src/lease.ts'
import { type AcquireOptions, Leases } from '../../src/leases.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

const wrong = (value: unknown) => value as never

test('a wrong name, or no name at all, is INVALID', async () => {
  await using leases = silentLessor().leases
  for (const names of [undefined, null, 7, {}, [], [7], ['a', undefined]]) {
    await expect(leases.acquire(wrong(names))).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.tryAcquire(wrong(names))).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.request(wrong(names), () => {})).rejects.toMatchObject({ code: 'INVALID' })
  }
})

test('an option that does not exist or has a wrong value is INVALID, and the error names it', async () => {
  await using leases = silentLessor().leases
  const mistakes: Record<string, unknown> = {
    mode: 'read',
    steal: 'yes',
    signal: {},
    parent: {},
    ifAvailable: 'yes',
    labels: 'x',
    entries: 7,
    units: 'all',
    onLost: true,
    advanced: true,
    tll: '30s',
  }
  for (const [option, value] of Object.entries(mistakes)) {
    const expected = { code: 'INVALID', facts: { option }, message: expect.stringContaining(option) }
    await expect(leases.acquire('k', wrong({ [option]: value })), option).rejects.toMatchObject(expected)
    await expect(leases.tryAcquire('k', wrong({ [option]: value })), option).rejects.toMatchObject(expected)
    await expect(
      leases.request('k', wrong({ [option]: value }), () => {}),
      option,
    ).rejects.toMatchObject(expected)
  }
  await expect(leases.acquire('k', wrong(null))).rejects.toMatchObject({ code: 'INVALID' })
  expect(await leases.request('k', wrong(undefined), () => 7)).toBe(7)
  expect((await leases.query()).held).toEqual([])
})

test('watch, terms, observe and lead refuse a call without a signal', async () => {
  await using leases = silentLessor().leases
  const election = leases.election('seat')
  for (const wait of [
    () => leases.watch('k', wrong(undefined)),
    () => leases.watch('k', wrong({})),
    () => election.terms(wrong(undefined)),
    () => election.observe(wrong({})),
  ])
    expect(wait).toThrow(expect.objectContaining({ code: 'INVALID' }))
  await expect(election.lead(() => {}, wrong(undefined))).rejects.toMatchObject({ code: 'INVALID' })
})

test('a session, a term and a registration can be the parent of a lease', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const session = await leases.session()
  const work = await leases.acquire('work', { parent: session })
  const inner = await leases.session({ parent: work })
  await session.end()
  expect([work.signal.aborted, inner.signal.aborted]).toEqual([true, true])
  const stop = new AbortController()
  for await (const term of leases.election('seat').terms({ signal: stop.signal })) {
    const seat = await leases.acquire('seat-work', { parent: term })
    await term.lease.release()
    expect(seat.signal.reason).toMatchObject({ facts: { cause: 'parent' } })
    break
  }
  const registered = await leases.registry.register({ service: 'w', address: 'tcp://h:1' })
  const child = await leases.acquire('child', { parent: registered, ttl: '30s' })
  await clock.advance(300)
  await registered.deregister()
  await clock.settle()
  expect(child.signal.reason).toMatchObject({ facts: { cause: 'parent' } })
})

test('request takes options of the type AcquireOptions', async () => {
  await using leases = silentLessor().leases
  const options: AcquireOptions = { ttl: '5s', ifAvailable: true }
  expect(await leases.request('k', options, lease => lease?.held)).toBe(true)
})

test('request calls back with a lease, by its type as well, unless ifAvailable may be true', async () => {
  await using leases = silentLessor().leases
  for (const options of [{}, { ttl: '5s' }, { ifAvailable: false }, { ifAvailable: undefined }] as const) {
    expectTypeOf(await leases.request('k', options, lease => lease)).toEqualTypeOf<Lease>()
    expectTypeOf(await leases.request('k', lease => lease, options)).toEqualTypeOf<Lease>()
  }
  expectTypeOf(await leases.request('k', lease => lease)).toEqualTypeOf<Lease>()
  const lease = await leases.request('k', { ifAvailable: true }, lease => lease)
  expectTypeOf(lease).toEqualTypeOf<Lease | null>()
  expect(lease?.held).toBe(false)
})

test('HELD says how much time remains', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  await using _held = await leases.acquire('k', { ttl: '30s', renew: 'manual' })
  await clock.advance(10_000)
  const refused = await leases.acquire('k', { ifAvailable: true }).catch(error => error)
  expect(refused).toMatchObject({ code: 'HELD', facts: { resource: 'k', remaining: expect.any(Number) } })
  expect(refused.facts.remaining).toBeGreaterThan(15_000)
  expect(refused.facts.remaining).toBeLessThan(21_000)
})

test('one signal ends any number of waits with one listener, which is removed', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  await using _held = await leases.acquire('k')
  const stop = new AbortController()
  let listeners = 0
  const { addEventListener, removeEventListener } = stop.signal
  Object.assign(stop.signal, {
    addEventListener: (...args: Parameters<typeof addEventListener>) => {
      listeners++
      addEventListener.apply(stop.signal, args)
    },
    removeEventListener: (...args: Parameters<typeof removeEventListener>) => {
      listeners--
      removeEventListener.apply(stop.signal, args)
    },
  })
  const waits = Array.from({ length: 20 }, () => leases.acquire('k', { signal: stop.signal }))
  const rejections = Promise.all(waits.map(wait => expect(wait).rejects.toThrow('enough')))
  await clock.settle()
  expect(listeners).toBe(1)
  stop.abort(new Error('enough'))
  await rejections
  expect(listeners).toBe(0)
  await using free = await leases.acquire('other', { signal: new AbortController().signal })
  expect(free.held).toBe(true)
})

test('request takes its options before or after the callback', async () => {
  const { clock, leases } = silentLessor()
  expect(await leases.request('k', lease => lease.ttl, { ttl: '2s' })).toBe(2_000)
  expect(await leases.request('k', { ttl: '3s' }, lease => lease.ttl)).toBe(3_000)
  await using _held = await leases.acquire('k')
  expect(await leases.request('k', lease => lease, { ifAvailable: true })).toBeNull()
  const pending = expect(leases.request('k', () => {}, { wait: '1s' })).rejects.toMatchObject({ code: 'TIMEOUT' })
  await clock.advance(1_000)
  await pending
})

test('a misplaced or superfluous argument is INVALID, and the error shows the right order', async () => {
  await using leases = silentLessor().leases
  const work = () => {}
  const order = { code: 'INVALID', message: expect.stringContaining('request(names, options, callback)') }
  await expect(leases.request('k', wrong({}))).rejects.toMatchObject(order)
  await expect(leases.request('k', wrong(work), wrong(work))).rejects.toMatchObject(order)
  await expect(leases.request('k', wrong({}), wrong({}))).rejects.toMatchObject(order)
  await expect(leases.request('k', work, wrong('2s'))).rejects.toMatchObject({ code: 'INVALID' })
  await expect(leases.request('k', ...(wrong([{}, work, {}]) as [never]))).rejects.toMatchObject(order)
  for (const call of ['acquire', 'tryAcquire'] as const) {
    await expect(leases[call]('k', ...(wrong([{}, { ttl: '2s' }]) as [never]))).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases[call]('k', wrong(work))).rejects.toMatchObject({ code: 'INVALID', message: expect.stringContaining('request') })
  }
  await expect(leases.pool('p').take(wrong({ wait: '1s' }))).rejects.toMatchObject({ code: 'INVALID' })
  await expect(leases.election('e').lead(wrong({}), wrong(work))).rejects.toMatchObject({ code: 'INVALID' })
  expect((await leases.query()).held).toEqual([])
})

test('options that contradict each other, or that do not apply to a call, are INVALID', async () => {
  await using leases = silentLessor().leases
  for (const call of [
    leases.tryAcquire('k', wrong({ wait: '5s' })),
    leases.acquire('k', { ifAvailable: true, wait: '5s' }),
    leases.grant(wrong({ mode: 'shared' })),
    leases.grant(wrong({ wait: '5s' })),
  ])
    await expect(call).rejects.toMatchObject({ code: 'INVALID' })
  await using one = (await leases.tryAcquire('k', wrong({ ifAvailable: true })))!
  expect(one.held).toBe(true)
})

test('wait must be a duration above 0, and the error names ifAvailable and tryAcquire', async () => {
  await using leases = silentLessor().leases
  await using _offer = await leases.pool('p').offer('one')
  const cache = leases.cache('c/', { load: () => 1 })
  for (const wait of [0, '0s', true, false]) {
    const expected = { code: 'INVALID', facts: { option: 'wait' }, message: expect.stringMatching(/ifAvailable: true.*tryAcquire/) }
    await expect(leases.acquire('k', wrong({ wait })), String(wait)).rejects.toMatchObject(expected)
    await expect(
      leases.request('k', wrong({ wait }), () => {}),
      String(wait),
    ).rejects.toMatchObject(expected)
    await expect(leases.pool('p').take(1, wrong({ wait })), String(wait)).rejects.toMatchObject(expected)
    await expect(cache.write('a', 2, wrong({ wait })), String(wait)).rejects.toMatchObject(expected)
    await expect(leases.tryAcquire('k', wrong({ wait })), String(wait)).rejects.toMatchObject({ code: 'INVALID' })
  }
  for (const wait of ['-1s', 1.5, Number.NaN, {}])
    await expect(leases.acquire('k', wrong({ wait })), String(wait)).rejects.toMatchObject({ code: 'INVALID' })
  expect((await leases.query('k')).held).toEqual([])
})

test('an option that moved under advanced is refused with its new place, and a wrong advanced option with its name', async () => {
  await using leases = silentLessor().leases
  const moved = ['any', 'grace', 'maxLife', 'maxStall', 'recall', 'holding', 'onQueued', 'onAway', 'require']
  for (const option of moved) {
    const expected = { code: 'INVALID', facts: { option }, message: expect.stringContaining(`write { advanced: { ${option}: … } }`) }
    await expect(leases.acquire('k', wrong({ [option]: 1 })), option).rejects.toMatchObject(expected)
  }
  const mistakes = { holding: [7], recall: 'yes', onQueued: true, require: 'durable', tll: 1 }
  for (const [option, value] of Object.entries(mistakes)) {
    const expected = { code: 'INVALID', facts: { option }, message: expect.stringContaining(option) }
    await expect(leases.acquire('k', { advanced: wrong({ [option]: value }) }), option).rejects.toMatchObject(expected)
  }
  await expect(leases.grant({ advanced: wrong({ any: 1 }) })).rejects.toMatchObject({ code: 'INVALID', facts: { option: 'any' } })
  await expect(leases.adopt(1, { advanced: wrong({ grace: 1 }) })).rejects.toMatchObject({ code: 'INVALID', facts: { option: 'grace' } })
  expect((await leases.query()).held).toEqual([])
})

test('terms also takes a bare signal, as older programs pass it', async () => {
  await using leases = silentLessor().leases
  const stop = new AbortController()
  for await (const term of leases.election('seat').terms(wrong(stop.signal))) {
    expect(term.token).toBeGreaterThan(0)
    stop.abort()
  }
})

test('close is the same as leaving the block, for leases, sessions and caches', async () => {
  const { leases } = silentLessor()
  const session = await leases.session()
  await session.close()
  expect(session.active).toBe(false)
  const cache = leases.cache('c/', { load: () => 1 })
  expect(await cache.get('a')).toBe(1)
  await cache.close()
  await expect(cache.get('a')).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  const lease = await leases.acquire('k')
  await leases.close()
  expect(lease.held).toBe(false)
  await expect(leases.acquire('k')).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a policy is set and deleted', async () => {
  await using leases = silentLessor().leases
  await leases.setPolicy('gpu', { capacity: 2 })
  expect((await leases.read({ kind: 'policies' })).value).toMatchObject([{ prefix: 'gpu', rules: { capacity: 2 } }])
  await leases.deletePolicy('gpu')
  expect((await leases.read({ kind: 'policies' })).value).toEqual([])
  await expect(leases.deletePolicy('gpu')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  await expect(leases.setPolicy('gpu', wrong(undefined))).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('deletePolicy'),
  })
})

test('every call refuses an unknown option, and suggests the right one', async () => {
  const { leases } = silentLessor()
  const bad = wrong({ tll: '1s' })
  const session = await leases.session()
  const lease = await leases.acquire('mine')
  const { signal } = new AbortController()
  const cache = leases.cache('c/', { load: () => 1 })
  const calls: Readonly<Record<string, () => unknown>> = {
    acquire: () => leases.acquire('k', bad),
    grant: () => leases.grant(bad),
    adopt: () => leases.adopt(1, bad),
    lock: () => leases.lock('k', bad),
    'lock.run': () => leases.lock('k').run(() => {}, bad),
    'lock.share': () => leases.lock('k').share(() => {}, bad),
    'lock.acquire': () => leases.lock('k').acquire(bad),
    'lock.tryAcquire': () => leases.lock('k').tryAcquire(bad),
    election: () => leases.election('e', bad),
    'election.terms': () => leases.election('e').terms(wrong({ signal, tll: 1 })),
    'election.observe': () => leases.election('e').observe(wrong({ signal, tll: 1 })),
    'election.lead': () => leases.election('e').lead(() => {}, wrong({ signal, tll: 1 })),
    session: () => leases.session(bad),
    'session.begin': () => session.begin(bad),
    'session.acquire': () => session.acquire('k', bad),
    cache: () => leases.cache('c/', wrong({ load: () => 1, tll: '1s' })),
    'cache.write': () => cache.write('a', 2, bad),
    pool: () => leases.pool('p', bad),
    'pool.offer': () => leases.pool('p').offer('one', bad),
    'pool.take': () => leases.pool('p').take(1, bad),
    'pool.tryTake': () => leases.pool('p').tryTake(1, bad),
    'registry.register': () => leases.registry.register(wrong({ service: 's', address: 'http://10.0.0.7:80', tll: '1s' })),
    'registry.register, of several': () => leases.registry.register([{ service: 's', address: 'http://10.0.0.7:80' }], bad),
    'registry.discover': () => leases.registry.discover(bad),
    'discovery.pick': () => leases.registry.discover({ service: 's' }).pick(bad),
    'discovery.changes': () => leases.registry.discover({ service: 's' }).changes(bad).next(),
    watch: () => leases.watch('k', wrong({ signal, tll: 1 })),
    revoke: () => leases.revoke({ lease: lease.id }, bad),
    transfer: () => lease.transfer('other', bad),
  }
  for (const [name, call] of Object.entries(calls)) {
    const error = await (async () => call())().catch(error => error)
    expect(error, name).toMatchObject({ code: 'INVALID', message: expect.stringContaining('tll') })
  }
  await expect(leases.acquire('k', bad)).rejects.toMatchObject({ message: expect.stringContaining('Did you mean ttl?') })
  expect(() => new Leases(leases.lessor, wrong({ tll: 1 }))).toThrow(expect.objectContaining({ code: 'INVALID' }))
  await expect(connect('memory:', wrong({ tll: 1 }))).rejects.toMatchObject({ code: 'INVALID' })
  expect(lease.held).toBe(true)
  expect((await leases.query()).held.map(({ resource }) => resource)).toEqual(['mine'])
  await leases[Symbol.asyncDispose]()
})

test('more resources than one request may have are refused with what to do instead', async () => {
  await using leases = silentLessor().leases
  const names = Array.from({ length: 257 }, (_, i) => `a/${i}`)
  await expect(leases.acquire(names)).rejects.toMatchObject({ code: 'INVALID', message: expect.stringContaining('with covers: true') })
  expect((await leases.acquire([...names.slice(1), ...names.slice(1)])).held).toBe(true)
})
