/** LEASE.GRANT, LEASE.WIDEN, LEASE.SERVICES and the options of LEASE.ACQUIRE that clients in other languages need. */
import { expect, test } from 'vitest'
import type { Reply } from '../../../src/wire/resp/reply-parser.ts'
import { type Place, place, Raw } from '../../support/resp-place.ts'

/** A client that speaks RESP 3: replies are maps, and pushes are told apart from them. */
class Client extends Raw {
  readonly pushes: Reply[][] = []

  static async open(here: Place, ...more: string[]): Promise<Client> {
    const client = new Client(here.port)
    await client.ask('HELLO', 3, ...more)
    return client
  }

  override async next(): Promise<Reply> {
    for (;;) {
      const reply = await super.next()
      if (!isPush(reply)) return reply
      this.pushes.push([...reply.items])
    }
  }

  async push(name: string): Promise<Reply[]> {
    for (;;) {
      const found = this.pushes.findIndex(items => items[0] === name)
      if (found >= 0) return this.pushes.splice(found, 1)[0]!
      const reply = await super.next()
      if (!isPush(reply)) throw new Error(`a reply where a push was expected: ${String(reply)}`)
      this.pushes.push([...reply.items])
    }
  }

  async map(...words: (string | number)[]): Promise<ReadonlyMap<string, Reply>> {
    const reply = await this.ask(...words)
    if (!(reply instanceof Map)) throw new Error(`no map: ${String(reply)}`)
    return reply as ReadonlyMap<string, Reply>
  }

  async refusal(...words: (string | number)[]): Promise<string> {
    return ((await this.ask(...words)) as Error).message
  }
}

function isPush(reply: Reply): reply is { readonly items: readonly Reply[] } & Exclude<Reply, string | number> {
  return typeof reply === 'object' && reply !== null && 'items' in reply
}

test('a resource that LEASE.ACQUIRE names twice is one resource', async () => {
  await using here = await place()
  using client = await Client.open(here)
  for (const more of [[], ['QUEUE', 'UNITSOF', 'a', 1]]) {
    const granted = await client.map('LEASE.ACQUIRE', 'a', 'b', 'a', 'TTL', 5_000, ...more)
    expect([...(granted.get('tokens') as ReadonlyMap<string, Reply>).keys()]).toEqual(['a', 'b'])
    await client.ask('LEASE.RELEASE', granted.get('lease') as number)
  }
})

test('LEASE.GRANT makes a lease on nothing, with entries, labels and a parent', async () => {
  await using here = await place()
  using client = await Client.open(here)
  const parent = (await client.map('LEASE.GRANT', 'TTL', 9_000, 'HOLDER', 'ann')).get('lease') as number
  const granted = await client.map(
    ...['LEASE.GRANT', 'TTL', 5_000, 'HOLDER', 'ann', 'PARENT', parent, 'LABEL', 'task', 'night', 'GRACE', 1_000, 'MAXLIFE', 60_000],
    ...['INCARNATION', parent, 'ENTRY', 'services/web/a', '{}', 'GENERATION', 4, 'ENTRY', 'notes/a', 'x'],
  )
  expect([granted.get('token'), granted.get('ttl')]).toEqual([0, 5_000])
  const { value: view } = await here.lessor.read({ kind: 'lease', lease: granted.get('lease') as number }, { consistent: true })
  expect(view).toMatchObject({ holder: 'ann', incarnation: parent, parent, labels: [['task', 'night']], grants: [] })
  const { value: entries } = await here.lessor.read({ kind: 'entries', prefix: '' })
  expect(entries.map(({ key, generation }) => [key, generation])).toEqual(
    expect.arrayContaining([
      ['services/web/a', 4],
      ['notes/a', 0],
    ]),
  )
  expect(await client.ask('LEASE.RELEASE', parent)).toBe('OK')
  expect(await client.ask('LEASE.RENEW', granted.get('lease') as number)).toEqual([-1])
})

test('LEASE.GRANT says what is wrong with it', async () => {
  await using here = await place()
  using client = await Client.open(here)
  expect(await client.refusal('LEASE.GRANT', 'jobs/a', 'TTL', 5_000)).toMatch(/^INVALID TTL is missing.*LEASE\.ACQUIRE/)
  expect(await client.refusal('LEASE.GRANT', 'TTL', 5_000, 'UNITS', 2)).toMatch(/^INVALID UNITS is not known here/)
  expect(await client.refusal('LEASE.GRANT', 'TTL', 5_000, 'QUEUE')).toMatch(/^INVALID QUEUE is not known here/)
  expect(await client.refusal('LEASE.GRANT', 'TTL', 5_000, 'GENERATION', 2)).toMatch(/^INVALID GENERATION follows the ENTRY/)
  expect(await client.refusal('LEASE.GRANT', 'TTL', 5_000, 'ENTRY', 'k')).toMatch(/^INVALID the value of ENTRY is missing/)
})

test('a repeated LEASE.GRANT with one OP is one lease', async () => {
  await using here = await place()
  using first = await Client.open(here)
  using second = await Client.open(here)
  const words = ['LEASE.GRANT', 'TTL', 5_000, 'HOLDER', 'ann', 'OP', 'a:1'] as const
  expect((await second.map(...words)).get('lease')).toBe((await first.map(...words)).get('lease'))
  expect(await first.refusal('LEASE.GRANT', 'TTL', 6_000, 'HOLDER', 'ann', 'OP', 'a:1')).toMatch(/^INVALID /)
})

test('an entry of a newer generation takes the key over, and ends the lease that had it', async () => {
  await using here = await place()
  using client = await Client.open(here)
  const grant = async () => (await client.map('LEASE.GRANT', 'TTL', 5_000)).get('lease') as number
  const [older, newer] = [await grant(), await grant()]
  expect(await client.ask('LEASE.PUT', older, 'services/web/a', 'old', 'GENERATION', 1)).toBe('OK')
  expect(await client.ask('LEASE.PUT', newer, 'services/web/a', 'new', 'GENERATION', 2)).toBe('OK')
  expect(await client.ask('LEASE.RENEW', older)).toEqual([-1])
  expect(await client.refusal('LEASE.GRANT', 'TTL', 5_000, 'ENTRY', 'services/web/a', 'old', 'GENERATION', 1)).toMatch(/^(STALE|HELD) /)
})

test('with ANY the answer always names what was granted', async () => {
  await using here = await place()
  using client = await Client.open(here)
  await client.ask('LEASE.ACQUIRE', 'gpu/1', 'TTL', 5_000)
  const now = await client.map('LEASE.ACQUIRE', 'gpu/1', 'gpu/2', 'TTL', 5_000, 'ANY', 1)
  expect([...(now.get('tokens') as Map<string, number>).keys()]).toEqual(['gpu/2'])
  const queued = await client.map('LEASE.ACQUIRE', 'gpu/3', 'gpu/4', 'TTL', 5_000, 'ANY', 1, 'QUEUE')
  expect([...(queued.get('tokens') as Map<string, number>).keys()]).toHaveLength(1)
  const waited = await client.map('LEASE.ACQUIRE', 'gpu/5', 'gpu/6', 'TTL', 5_000, 'ANY', 1, 'WAIT', 1_000)
  expect([...(waited.get('tokens') as Map<string, number>).keys()]).toHaveLength(1)
})

test('UNITSOF sets the units of one resource', async () => {
  await using here = await place()
  using client = await Client.open(here)
  await client.ask('LEASE.POLICY', 'SET', 'gpu', 'capacity', 4)
  const asked = ['LEASE.ACQUIRE', 'gpu/1', 'gpu/2', 'TTL', 5_000, 'UNITS', 2, 'UNITSOF', 'gpu/2', 3] as const
  const lease = (await client.map(...asked)).get('lease') as number
  const { value } = await here.lessor.read({ kind: 'lease', lease }, { consistent: true })
  expect(value?.grants.map(({ resource, units }) => [resource, units])).toEqual([
    ['gpu/1', 2],
    ['gpu/2', 3],
  ])
  expect(await client.refusal('LEASE.ACQUIRE', 'gpu/1', 'TTL', 5_000, 'UNITSOF', 'gpu/2', 1)).toMatch(/^INVALID UNITSOF names gpu\/2/)
})

test('LEASE.WIDEN lets a waiter wait for more resources', async () => {
  await using here = await place()
  using client = await Client.open(here)
  await client.ask('LEASE.ACQUIRE', 'gpu/1', 'TTL', 5_000)
  const lease = (await client.map('LEASE.ACQUIRE', 'gpu/1', 'TTL', 5_000, 'ANY', 1, 'QUEUE')).get('lease') as number
  expect(await client.refusal('LEASE.WIDEN', lease, 'UNITS', 2)).toMatch(/^INVALID UNITS follows the RESOURCE/)
  expect(await client.refusal('LEASE.WIDEN', lease, 'OP', 'w:1')).toMatch(/^INVALID RESOURCE is missing/)
  expect(await client.ask('LEASE.WIDEN', lease, 'RESOURCE', 'gpu/2', 'UNITS', 1, 'OP', 'w:2')).toBe('OK')
  const [, of, facts] = await client.push('lease.granted')
  expect(of).toBe(lease)
  expect([...((facts as Map<string, Reply>).get('tokens') as Map<string, number>).keys()]).toEqual(['gpu/2'])
})

test('HOLDING declares what a waiter keeps, so that a deadlock is refused', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const a = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  const b = (await ben.map('LEASE.ACQUIRE', 'b', 'TTL', 60_000, 'HOLDER', 'ben')).get('lease') as number
  await ann.map('LEASE.ACQUIRE', 'b', 'TTL', 60_000, 'HOLDER', 'ann', 'QUEUE', 'HOLDING', a)
  expect(await ben.refusal('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ben', 'HOLDING', b, 'QUEUE')).toMatch(/^DEADLOCK /)
  expect(await ben.refusal('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDING', 'QUEUE')).toMatch(/^INVALID HOLDING names the leases/)
})

test('a waiter with QUEUE is granted by a transfer of what it asked for', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const held = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  const waiting = (await ben.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ben', 'QUEUE')).get('lease') as number
  expect(await ann.ask('LEASE.TRANSFER', held, 'TO', 'ben', 'STOPPED')).toBe(waiting)
  const [, of, facts] = await ben.push('lease.granted')
  expect([of, (facts as Map<string, Reply>).get('lease')]).toEqual([waiting, waiting])
})

test('a waiter with QUEUE for two names of which one was transferred to it learns which lease it can adopt', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const held = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  await ann.map('LEASE.ACQUIRE', 'b', 'TTL', 60_000, 'HOLDER', 'ann')
  const waiting = (await ben.map('LEASE.ACQUIRE', 'a', 'b', 'TTL', 60_000, 'HOLDER', 'ben', 'QUEUE')).get('lease') as number
  const given = await ann.ask('LEASE.TRANSFER', held, 'TO', 'ben', 'INCARNATION', waiting, 'STOPPED')
  const [, of, facts] = await ben.push('lease.withdrawn')
  const { code, reason, lease } = Object.fromEntries(facts as Map<string, Reply>)
  expect({ of, code, reason, lease }).toEqual({ of: waiting, code: 'DEADLOCK', reason: 'waits-for-transferred', lease: given })
})

test('a waiter learns of a transfer that had to wait until the giver has stopped', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const held = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  const waiting = (await ben.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ben', 'QUEUE')).get('lease') as number
  // Without STOPPED the giver may still use it, until it says otherwise.
  const given = (await ann.ask('LEASE.TRANSFER', held, 'TO', 'ben')) as number
  expect(await ben.ask('LEASE.RENEW', waiting)).toEqual([30_000])
  expect(ben.pushes).toEqual([])
  await ann.ask('LEASE.RELEASE', held)
  const [, of, facts] = await ben.push('lease.granted')
  expect([of, (facts as Map<string, Reply>).get('lease')]).toEqual([waiting, given])
})

test('a transfer to another process of the same name does not end the wait', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const other = (await ann.map('LEASE.GRANT', 'TTL', 60_000, 'HOLDER', 'ben')).get('lease') as number
  const held = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  const waiting = (await ben.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ben', 'QUEUE')).get('lease') as number
  const given = (await ann.ask('LEASE.TRANSFER', held, 'TO', 'ben', 'STOPPED', 'INCARNATION', other)) as number
  await ann.ask('LEASE.RELEASE', given)
  const [, of, facts] = await ben.push('lease.granted')
  expect([of, (facts as Map<string, Reply>).get('lease')]).toEqual([waiting, waiting])
})

test('LEASE.CLAIM gives a lease that was transferred to a name to the first process that claims it, and to no other', async () => {
  await using here = await place()
  using ann = await Client.open(here)
  using ben = await Client.open(here)
  const held = (await ann.map('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'HOLDER', 'ann')).get('lease') as number
  expect(await ben.refusal('LEASE.CLAIM', held)).toMatch(/^HELD /)
  const given = (await ann.ask('LEASE.TRANSFER', held, 'TO', 'ben', 'STOPPED')) as number
  const mine = (await ben.map('LEASE.GRANT', 'TTL', 60_000, 'HOLDER', 'ben')).get('lease') as number
  expect(await ben.refusal('LEASE.CLAIM', given, 'INCARNATION', given + 1_000_000)).toMatch(/^INVALID incarnation/)
  expect(await ben.ask('LEASE.CLAIM', given, 'INCARNATION', mine, 'OP', 'claim-1')).toBe('OK')
  expect(await ben.ask('LEASE.CLAIM', given, 'INCARNATION', mine, 'OP', 'claim-1')).toBe('OK')
  expect(await ann.refusal('LEASE.CLAIM', given)).toMatch(/^HELD /)
  const shown = await ben.map('LEASE.INFO', given, 'CONSISTENT')
  expect([shown.get('holder'), shown.get('incarnation')]).toEqual(['ben', mine])
  expect(await ben.ask('LEASE.RENEW', given)).toEqual([60_000])
  await ben.ask('LEASE.RELEASE', given)
  expect(await ann.refusal('LEASE.CLAIM', given)).toMatch(/^GONE /)
  for (const words of [['LEASE.CLAIM'], ['LEASE.CLAIM', 'x'], ['LEASE.CLAIM', '1', 'INCARNATION'], ['LEASE.INFO', '1', 'SOON']])
    expect(await ann.refusal(...(words as [string, ...string[]]))).toMatch(/^(INVALID|ERR) /)
})

test('LEASE.SERVICES counts the instances of services', async () => {
  await using here = await place()
  using client = await Client.open(here)
  await client.map('LEASE.GRANT', 'TTL', 5_000, 'ENTRY', 'services/web/a', '{}', 'ENTRY', 'services/web/b', '{}')
  const [web] = (await client.ask('LEASE.SERVICES')) as ReadonlyMap<string, Reply>[]
  expect([web!.get('service'), web!.get('instances'), web!.get('preserving')]).toEqual(['web', 2, false])
  expect(await client.ask('LEASE.SERVICES', 'mail')).toEqual([])
  expect(await client.refusal('LEASE.SERVICES', 'web', 'mail')).toMatch(/^INVALID /)
})

test('a client that keeps witnesses has one before the reply that it covers, and a client that does not gets none', async () => {
  await using here = await place()
  using keeps = await Client.open(here, 'WITNESS', '')
  using plain = await Client.open(here)
  await plain.ask('LEASE.ACQUIRE', 'b', 'TTL', 5_000)
  expect(plain.pushes).toEqual([])
  await keeps.ask('LEASE.ACQUIRE', 'a', 'TTL', 5_000)
  const [, first] = keeps.pushes.shift()!
  await keeps.ask('LEASE.ACQUIRE', 'c', 'TTL', 5_000)
  const [name, second] = keeps.pushes.shift()!
  expect([name, keeps.pushes]).toEqual(['lease.witness', []])
  expect(second).not.toBe(first)
  expect(await here.lessor.continues(String(second))).toBe(true)
  expect(second).toBe(here.lessor.witness)
})

test('a lease and the grants of a resource are shown with when they expire', async () => {
  await using here = await place()
  using client = await Client.open(here)
  const lease = (await client.map('LEASE.ACQUIRE', 'jobs/a', 'TTL', 9_000)).get('lease') as number
  const isLater = (shown: unknown) => expect(Date.parse((shown as Map<string, string>).get('expiresAt')!)).toBeGreaterThan(0)
  isLater(await client.map('LEASE.INFO', lease))
  isLater(((await client.map('LEASE.SHOW', 'jobs/a')).get('grants') as Reply[])[0])
  isLater(((await client.ask('LEASE.LEASES', 'PREFIX', 'jobs')) as Reply[])[0])
  const [listed] = (await client.ask('LEASE.LIST', 'jobs')) as [ReadonlyMap<string, Reply[]>]
  isLater(listed.get('grants')![0])
})
