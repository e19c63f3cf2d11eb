/** TTLMIN, TTLMAX and REUSE of LEASE.ACQUIRE: a ttl that is adjusted instead of refused, and a holder that is answered with the lease it has. */
import { expect, test } from 'vitest'
import { propose } from '../../../src/lessor/propose.ts'
import { ReplyError } from '../../../src/wire/resp/reply-parser.ts'
import { command, place, Raw } from '../../support/resp-place.ts'

async function world() {
  const here = await place()
  const client = new Raw(here.port)
  await client.ask('HELLO', 3)
  await propose(here.lessor, { kind: 'policy', prefix: 'jobs', rules: { ttlMin: 5_000, ttlMax: 20_000 } })
  const ask = async (...words: (string | number)[]): Promise<Record<string, unknown> | string> => {
    const reply = await client.ask(...words)
    if (reply instanceof Map) return Object.fromEntries(reply as ReadonlyMap<string, unknown>)
    return reply instanceof ReplyError ? reply.message : String(reply)
  }
  const lease = async (...words: (string | number)[]) => {
    const answer = await ask('LEASE.ACQUIRE', ...words)
    if (typeof answer === 'string') throw new Error(answer)
    return answer
  }
  const close = async () => {
    client[Symbol.dispose]()
    await here[Symbol.asyncDispose]()
  }
  return { here, client, ask, lease, [Symbol.asyncDispose]: close }
}

test('a ttl with TTLMIN or TTLMAX is a preference, and the nearest one that policies allow is granted', async () => {
  await using at = await world()
  const ttlOf = async (...words: (string | number)[]) => (await at.lease(...words)).ttl
  expect(await ttlOf('jobs/a', 'TTL', '1m', 'TTLMIN', '10s')).toBe(20_000)
  expect(await ttlOf('jobs/b', 'TTL', 1_000, 'TTLMAX', 9_000)).toBe(5_000)
  expect(await ttlOf('jobs/c', 'TTL', 6_000, 'TTLMIN', 1, 'TTLMAX', 60_000)).toBe(6_000)
  expect(await ttlOf('other', 'TTL', 1_000, 'TTLMAX', 9_000)).toBe(1_000)
  expect(await ttlOf('jobs/d', 'TTL', 60_000, 'TTLMIN', 1_000, 'WAIT', 1_000)).toBe(20_000)
  const granted = await at.ask('LEASE.GRANT', 'TTL', 1_000, 'TTLMAX', 9_000)
  expect(granted).toMatchObject({ ttl: 1_000, token: 0 })
})

test('a ttl is refused when no ttl fits, when its limits are in the wrong order, and without limits as before', async () => {
  await using at = await world()
  expect(await at.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 40_000, 'TTLMIN', 30_000)).toMatch(
    /^INVALID no ttl fits: at least 30000 ms were asked for, and policies allow 5000 to 20000 ms for jobs\/a/,
  )
  expect(await at.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 4_000, 'TTLMIN', 6_000)).toMatch(/^INVALID ttl must have min ≤ preferred ≤ max/)
  expect(await at.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 4_000, 'TTLMAX')).toMatch(/^INVALID TTLMAX is missing/)
  expect(await at.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 40_000)).toMatch(/^INVALID/)
})

test('a preference can wait in the queue, and its answer comes before those of the commands behind it', async () => {
  await using at = await world()
  const first = await at.lease('jobs/a', 'TTL', 6_000, 'HOLDER', 'ann')
  at.client.send(command('LEASE.ACQUIRE', 'jobs/a', 'TTL', 60_000, 'TTLMIN', 1_000, 'HOLDER', 'bob', 'QUEUE', 'OP', 'q'))
  at.client.send(command('PING'))
  expect(await at.client.next()).toBeInstanceOf(Map)
  expect(await at.client.next()).toBe('PONG')
  at.client.send(command('LEASE.RELEASE', first.lease as number))
  const replies = [await at.client.next(), await at.client.next()]
  expect(replies).toContain('OK')
  expect(replies.some(reply => typeof reply === 'object' && reply !== null && 'items' in reply && reply.items[0] === 'lease.granted')).toBe(
    true,
  )
})

test('a preference that is repeated under its operation gets its first answer, also after the policy has changed', async () => {
  await using at = await world()
  const words = ['jobs/a', 'TTL', 60_000, 'TTLMIN', 1_000, 'HOLDER', 'ann', 'OP', 'once'] as const
  const first = await at.lease(...words)
  await propose(at.here.lessor, { kind: 'policy', prefix: 'jobs', rules: { ttlMin: 1_000, ttlMax: 9_000 } })
  expect(await at.lease(...words)).toEqual(first)
})

test('REUSE answers the same holder and incarnation with the lease that it has, renewed', async () => {
  await using at = await world()
  const first = await at.lease('a', 'b', 'TTL', 6_000, 'HOLDER', 'ann')
  const again = ['TTL', 6_000, 'HOLDER', 'ann', 'INCARNATION', first.lease as number, 'REUSE'] as const
  expect(await at.lease('b', 'a', ...again, 'QUEUE')).toMatchObject({ lease: first.lease, ttl: 6_000, reused: 1 })
  const { tokens } = await at.lease('a', 'b', ...again)
  expect(tokens).toEqual(first.tokens)
  expect(await at.ask('LEASE.RELEASE', first.lease as number)).toBe('OK')
  const anew = await at.lease('a', 'b', ...again)
  expect(anew.lease).not.toBe(first.lease)
  expect(anew).not.toHaveProperty('reused')
})

test('REUSE needs the incarnation, and another incarnation, other resources and another mode are refused as without it', async () => {
  await using at = await world()
  const first = await at.lease('a', 'TTL', 6_000, 'HOLDER', 'ann')
  const other = await at.lease('x', 'TTL', 6_000, 'HOLDER', 'ann')
  const refusal = (...words: (string | number)[]) => at.ask('LEASE.ACQUIRE', ...words)
  expect(await refusal('a', 'TTL', 6_000, 'HOLDER', 'ann', 'REUSE')).toMatch(/^INVALID reuse needs resources and the incarnation/)
  const own = ['TTL', 6_000, 'HOLDER', 'ann', 'REUSE', 'INCARNATION', first.lease as number] as const
  expect(await refusal('a', 'TTL', 6_000, 'HOLDER', 'ann', 'REUSE', 'INCARNATION', other.lease as number)).toMatch(/^HELD/)
  expect(await refusal('a', 'TTL', 6_000, 'HOLDER', 'bob', 'REUSE', 'INCARNATION', first.lease as number)).toMatch(/^(HELD|STALE|INVALID)/)
  expect(await refusal('a', 'c', ...own)).toMatch(/^HELD/)
  expect(await refusal('a', ...own, 'SHARED')).toMatch(/^HELD/)
  expect(await refusal('a', ...own, 'ANY', 1)).toMatch(/^INVALID/)
  expect(await at.ask('LEASE.GRANT', ...own)).toMatch(/^INVALID REUSE is not known here/)
})
