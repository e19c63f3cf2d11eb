import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { LeaseError } from '../../src/errors.ts'
import { propose } from '../../src/lessor/propose.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { everywhere } from '../support/recipe-places.ts'
import { place } from '../support/resp-place.ts'
import { intercept } from '../support/submitting.ts'

const ports = { from: 3000, to: 3099 }

everywhere('every holder gets another number of the range, and a released number is given again', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const three = { from: 1, to: 3 }
  const first = await a.slot('n', three)
  await using second = await b.slot('n', three)
  await using third = await a.slot('n', three)
  expect([first.number, second.number, third.number]).toEqual([1, 2, 3])
  expect(first.lease.resources).toEqual(['n/1'])
  await expect(b.slot('n', { ...three, ifAvailable: true })).rejects.toMatchObject({ code: 'HELD' })
  const waiting = b.slot('n', { ...three, wait: '20s' })
  await first.release()
  await using again = await waiting
  expect(again.number).toBe(1)
  expect(again.token).toBeGreaterThan(first.token)
})

everywhere('a sticky name gets its number again after a restart, although other names have started meanwhile', async ({ open }) => {
  const numbers = new Map<string, number>()
  const start = async (who: string) => {
    const process = await open(`process of ${who}`)
    return { process, slot: await process.slot('ports', { ...ports, sticky: who }) }
  }
  for (const who of ['ann', 'bob', 'cid']) {
    const { process, slot } = await start(who)
    numbers.set(who, slot.number)
    await process.close()
  }
  expect(new Set(numbers.values()).size).toBe(3)
  const others = await Promise.all(['dan', 'eve', 'fay', 'gil'].map(start))
  for (const [who, number] of numbers) {
    const { process, slot } = await start(who)
    expect(slot.number).toBe(number)
    others.push({ process, slot })
  }
  expect(new Set(others.map(({ slot }) => slot.number)).size).toBe(7)
  for (const { process } of others) await process.close()
})

describe('stickiness', () => {
  test('the number that was had last is preferred to the number that the name would prefer by itself', async () => {
    const { leases, clock, log } = silentLessor()
    const other = silentLessor({ clock, log }).leases
    const two = { from: 0, to: 1, sticky: 'ann' }
    const alone = await leases.slot('n', two)
    await alone.release()
    const inTheWay = await other.acquire(`n/${alone.number}`)
    const second = await leases.slot('n', two)
    expect(second.number).toBe(1 - alone.number)
    await second.release()
    await inTheWay.release()
    await using third = await leases.slot('n', two)
    expect(third.number).toBe(second.number)
  })

  test('a name that starts for the first time takes a number that is remembered for another name only if no other is free', async () => {
    const { leases } = silentLessor()
    const range = { from: 0, to: 3 }
    for (const who of ['a', 'b', 'c']) await (await leases.slot('n', { ...range, sticky: who })).release()
    const free = await leases.slot('n', { ...range, sticky: 'new' })
    const remembered = new Map(
      (await leases.read({ kind: 'entries', prefix: 'n/sticky' })).value.map(({ key, value }) => [key.slice(9), Number(value)]),
    )
    expect(remembered.size).toBe(4)
    expect(new Set(remembered.values()).size).toBe(4)
    expect(remembered.get('new')).toBe(free.number)
    await using taken = await leases.slot('n', range) // without a name, the lowest that is free, because all are remembered for names
    expect(taken.number).toBe(free.number === 0 ? 1 : 0)
  })

  test('a number is remembered for `remember` after its last use, even if it was held for longer, and not for ever', async () => {
    const { leases, clock, log } = silentLessor()
    const minute = 60_000
    const options = { ...ports, sticky: 'ann', ttl: minute, remember: 4 * minute }
    const remembered = async () => (await leases.read({ kind: 'entries', prefix: 'n/sticky' })).value.length
    const slot = await leases.slot('n', options)
    for (let i = 0; i < 20; i++) await clock.advance(minute / 2)
    expect(slot.held).toBe(true)
    await slot.release()
    await clock.advance(1.9 * minute)
    expect(await remembered()).toBe(1)
    const later = silentLessor({ clock, log }).leases
    await using again = await later.slot('n', options)
    expect(again.number).toBe(slot.number)
    await again.release()
    await clock.advance(4.1 * minute)
    expect(await remembered()).toBe(0)
  })

  test('two processes that use one name at once get two numbers', async () => {
    const { leases, clock, log } = silentLessor()
    const other = silentLessor({ clock, log }).leases
    const both = await Promise.all([leases, other].map(one => one.slot('n', { ...ports, sticky: 'ann' })))
    expect(both[0]!.number).not.toBe(both[1]!.number)
  })

  test('repeated use leaves one record, however often', async () => {
    const { leases } = silentLessor()
    for (let i = 0; i < 5; i++) await (await leases.slot('n', { ...ports, sticky: 'ann' })).release()
    expect((await leases.read({ kind: 'leases' })).value).toMatchObject([{ holder: 'ann', labels: [['purpose', expect.any(String)]] }])
  })

  test('a key that may acquire but not read or register gets numbers without stickiness', async () => {
    await using here = await place()
    const allow = [{ verb: 'acquire', prefix: 'n' }] as const
    await propose(here.lessor, { kind: 'key', name: 'user', hash: hashSecret('user'), allow })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    await using user = await connect(`leasehold://127.0.0.1:${here.port}`, { apiKey: 'user' })
    await using slot = await user.slot('n', { ...ports, sticky: 'ann' })
    expect(slot.held).toBe(true)
    expect((await here.lessor.read({ kind: 'entries', prefix: '' })).value).toEqual([])
  })
})

describe('bad input', () => {
  test.each([
    [{ from: 5, to: 4 }],
    [{ from: -1, to: 4 }],
    [{ from: 0.5, to: 4 }],
    [{ from: 0, to: 65_536 }],
    [{ from: '0' as unknown as number, to: 4 }],
    [{} as { from: number; to: number }],
    [{ from: 0, to: 4, sticky: '' }],
    [{ from: 0, to: 4, sticky: '../x' }],
    [{ from: 0, to: 4, sticky: 'a', remember: '400d' as const }],
    [{ from: 0, to: 4, stiky: 'a' }],
    [{ from: 0, to: 4, wait: 0 }],
  ])('%j is refused with INVALID, and nothing stays held', async options => {
    const { leases } = silentLessor()
    await expect(leases.slot('n', options)).rejects.toMatchObject({ code: 'INVALID' })
    expect((await leases.query('n')).held).toEqual([])
  })

  test('records that another program wrote are no numbers, and do no harm', async () => {
    const { leases } = silentLessor()
    await using _ = await leases.grant({ entries: { 'n/sticky/ann': '<b>', 'n/sticky/bob': '99999999999', 'n/sticky/x/y': '1' } })
    await using slot = await leases.slot('n', { from: 0, to: 1, sticky: 'zoe' })
    expect(slot.number).toBe(0)
  })
})

test('of more numbers than one request can name, free ones are asked for', async () => {
  const { leases, clock, log } = silentLessor()
  const other = silentLessor({ clock, log }).leases
  const range = { from: 0, to: 599 }
  await other.acquire(Array.from({ length: 256 }, (_, i) => `n/${i}`))
  await other.acquire(Array.from({ length: 256 }, (_, i) => `n/${256 + i}`))
  await using slot = await leases.slot('n', { ...range, sticky: 'ann', ifAvailable: true })
  expect(slot.number).toBeGreaterThan(511)
})

test('a lessor that does not answer delays a number that is granted by two seconds at most', async () => {
  const { leases, clock, lessor } = silentLessor()
  intercept(lessor, async (ask, command, options) => {
    const outcome = await ask(command, options)
    if (command.kind === 'acquire' && command.wants.length > 0) lessor.stopAnswering()
    return outcome
  })
  const taking = leases.slot('n', { ...ports, sticky: 'ann', ttl: '30s' })
  await clock.advance(2_001)
  const slot = await taking
  expect(slot.held).toBe(true)
  lessor.answer()
})

test('a slot that is called off while its record is written is given back', async () => {
  const { leases, clock, lessor } = silentLessor()
  const off = new AbortController()
  intercept(lessor, async (ask, command, options) => {
    const outcome = await ask(command, options)
    if (command.kind === 'acquire' && command.wants.length > 0) off.abort(new LeaseError('TIMEOUT', 'enough'))
    return outcome
  })
  await expect(leases.slot('n', { ...ports, sticky: 'ann', signal: off.signal })).rejects.toThrow('enough')
  await clock.settle()
  expect((await leases.query('n')).held).toEqual([])
})

test('260 simultaneous requests for one of 600 numbers get 260 numbers', async () => {
  const { leases, clock } = silentLessor()
  await using _ = leases
  const requests = Array.from({ length: 260 }, () => leases.slot('ports', { from: 0, to: 599, ttl: 60_000, wait: 2_000 }))
  const got = Promise.all(requests)
  await clock.advance(1_000)
  expect(new Set((await got).map(({ number }) => number)).size).toBe(260)
})
