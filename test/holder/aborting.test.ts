/** A signal ends every call that takes one: before it begins, while no answer comes, and while it waits. */
import { describe, expect, test } from 'vitest'
import type { Leases } from '../../src/leases.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

const address = 'http://10.0.0.7:8080'
const mine = new Error('not any more')

/** A call throws the signal's reason; an iteration ends. */
const calls: Readonly<Record<string, (leases: Leases, signal: AbortSignal) => Promise<unknown>>> = {
  acquire: (leases, signal) => leases.acquire('held', { signal }),
  request: (leases, signal) => leases.request('held', { signal }, () => {}),
  grant: (leases, signal) => leases.grant({ signal }),
  'lock.run': (leases, signal) => leases.lock(['held', 'free']).run(() => {}, { signal }),
  'lock.acquire': (leases, signal) => leases.lock('held').acquire({ signal }),
  'pool.take, of nothing': (leases, signal) => leases.pool('empty').take(1, { patient: true, signal }),
  'pool.take, of what is taken': (leases, signal) => leases.pool('taken').take(1, { signal }),
  'registry.register': (leases, signal) => leases.registry.register({ service: 's', instance: '1', address, wait: '1m', signal }),
}
const iterations: Readonly<Record<string, (leases: Leases, signal: AbortSignal) => AsyncIterable<unknown>>> = {
  watch: (leases, signal) => leases.watch('', { signal }),
  'election.terms': (leases, signal) => leases.election('e').terms({ signal }),
  'election.observe': (leases, signal) => leases.election('e').observe({ signal }),
  'discovery.changes': (leases, signal) => leases.registry.discover({ service: 'none' }).changes({ signal }),
}

async function world() {
  const other = silentLessor({ holder: 'other' })
  const { clock, log } = other
  const { leases, lessor } = silentLessor({ holder: 'mine', clock, log })
  await other.leases.acquire(['held', 'taken/one', 'election/e'])
  await other.leases.pool('taken').offer('one')
  await other.leases.registry.register({ service: 's', instance: '1', address })
  return {
    ...{ leases, lessor, clock },
    /** This client holds nothing, waits for nothing and lists nothing. */
    async nothingLeft() {
      await clock.advance(100)
      const { held, pending } = await other.leases.query()
      expect([...held, ...pending].filter(({ holder }) => holder === 'mine')).toEqual([])
      const { value } = await other.leases.read({ kind: 'entries', prefix: '' }, { consistent: true })
      expect(value.filter(({ holder }) => holder === 'mine')).toEqual([])
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([leases[Symbol.asyncDispose](), other.leases[Symbol.asyncDispose]()])
    },
  }
}

async function all(events: AsyncIterable<unknown>): Promise<string> {
  for await (const _ of events);
  return 'ended'
}

const cases = [
  ...Object.entries(calls).map(([name, call]) => [name, call, mine] as const),
  ...Object.entries(iterations).map(
    ([name, begin]) => [name, async (...of: Parameters<typeof begin>) => all(begin(...of)), 'ended'] as const,
  ),
]

describe.each(cases)('%s', (name, call, expected) => {
  const settled = (answer: Promise<unknown>) => answer.catch((error: unknown) => error)

  test('with a signal that has fired', async () => {
    await using there = await world()
    expect(await settled(call(there.leases, AbortSignal.abort(mine)))).toBe(expected)
    await there.nothingLeft()
  })

  // A lease without resources never waits.
  test.each(name === 'grant' ? ['while no answer comes'] : ['while it waits', 'while no answer comes'])('ended %s', async when => {
    await using there = await world()
    const { leases, lessor, clock } = there
    const ending = new AbortController()
    await leases.read({ kind: 'summary' })
    if (when === 'while no answer comes') lessor.stopAnswering()
    let answer: unknown
    void settled(call(leases, ending.signal)).then(it => (answer = it))
    await clock.settle()
    expect(answer).toBe(undefined)
    ending.abort(mine)
    await clock.settle()
    expect(answer).toBe(expected)
    lessor.answer()
    await there.nothingLeft()
  })
})
