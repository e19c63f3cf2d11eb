/** What can be asked for, and what is said of what cannot. */
import { expect, test } from 'vitest'
import type { AcquireOptions } from '../src/leases.ts'
import { silentLessor } from '../src/testing/in-memory.ts'

const wrong = (value: unknown) => value as never

test('a name that is none, or no name at all, is INVALID', async () => {
  await using leases = silentLessor().leases
  for (const names of [undefined, null, 7, {}, [], [7], ['a', undefined]]) {
    await expect(leases.acquire(wrong(names))).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.tryAcquire(wrong(names))).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.request(wrong(names), () => {})).rejects.toMatchObject({ code: 'INVALID' })
  }
})

test('an option that does not exist, or is not what it must be, is INVALID and named', async () => {
  await using leases = silentLessor().leases
  const mistakes: Record<string, unknown> = {
    mode: 'read',
    steal: 'yes',
    signal: {},
    parent: {},
    ifAvailable: 'yes',
    holding: [7],
    labels: 'x',
    entries: 7,
    units: 'all',
    onLost: true,
    tll: '30s',
  }
  for (const [option, value] of Object.entries(mistakes)) {
    const told = { code: 'INVALID', facts: { option }, message: expect.stringContaining(option) }
    await expect(leases.acquire('k', wrong({ [option]: value })), option).rejects.toMatchObject(told)
    await expect(leases.tryAcquire('k', wrong({ [option]: value })), option).rejects.toMatchObject(told)
    await expect(
      leases.request('k', wrong({ [option]: value }), () => {}),
      option,
    ).rejects.toMatchObject(told)
  }
  await expect(leases.acquire('k', wrong(null))).rejects.toMatchObject({ code: 'INVALID' })
  expect(await leases.request('k', wrong(undefined), () => 7)).toBe(7)
  expect((await leases.query()).held).toEqual([])
})

test('who waits for events or for a seat without a way to stop is told so', async () => {
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

test('a lease may hang on a session, on a term and on a registration', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const session = await leases.session()
  const work = await leases.acquire('work', { parent: session })
  const inner = await leases.session({ parent: work })
  await session.end()
  expect([work.signal.aborted, inner.signal.aborted]).toEqual([true, true])
  const stop = new AbortController()
  for await (const term of leases.election('seat').terms(stop.signal)) {
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

test('options that are made elsewhere are taken by request', async () => {
  await using leases = silentLessor().leases
  const options: AcquireOptions = { ttl: '5s', ifAvailable: true }
  expect(await leases.request('k', options, lease => lease?.held)).toBe(true)
})

test('HELD says what remains', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  await using _held = await leases.acquire('k', { ttl: '30s', renew: 'manual' })
  await clock.advance(10_000)
  const refused = await leases.acquire('k', { ifAvailable: true }).catch(error => error)
  expect(refused).toMatchObject({ code: 'HELD', facts: { resource: 'k', remaining: expect.any(Number) } })
  expect(refused.facts.remaining).toBeGreaterThan(15_000)
  expect(refused.facts.remaining).toBeLessThan(21_000)
})

test('one signal ends any number of waits, with one listener, and none is left', async () => {
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
  const told = Promise.all(waits.map(wait => expect(wait).rejects.toThrow('enough')))
  await clock.settle()
  expect(listeners).toBe(1)
  stop.abort(new Error('enough'))
  await told
  expect(listeners).toBe(0)
  await using free = await leases.acquire('other', { signal: new AbortController().signal })
  expect(free.held).toBe(true)
})
