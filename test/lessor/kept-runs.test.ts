/** Runs that are kept beyond the history of the log, and what a reader sees of both. */
import { describe, expect, test } from 'vitest'
import { keepRun, RUN_RULES, RUNS } from '../../src/lessor/kept-runs.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const DAY = 86_400_000

async function place() {
  const clock = new ManualClock()
  const replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  /** Acquires, runs with this exit code, releases, and keeps the run. */
  const run = async (name: string, exit: number) => {
    const granted = await propose(replica, { kind: 'acquire', holder: 'ann', ttl: 1_000, wants: [{ resource: name }] })
    if (granted.kind !== 'granted') throw new Error(granted.kind)
    await propose(replica, { kind: 'release', lease: granted.lease })
    const until = clock.wall()
    const kept = { lease: granted.lease, holder: 'ann', since: until - 5, until, cause: 'released', exit, ran: 5, command: 'sh' }
    return keepRun(replica, { [name]: granted.tokens[0]! }, kept)
  }
  const history = async (name: string) => (await replica.read({ kind: 'history', resource: name })).value
  const policy = (rules: object, prefix = RUNS) => propose(replica, { kind: 'policy', prefix, rules })
  return { clock, replica, run, history, policy, [Symbol.asyncDispose]: () => replica[Symbol.asyncDispose]() }
}

describe('kept runs', () => {
  test('the history has the exit code, duration and command of each run, also of those that the log has forgotten', async () => {
    await using here = await place()
    for (let exit = 0; exit < 20; exit++) expect(await here.run('jobs/a', exit)).toBe('kept')
    const past = await here.history('jobs/a')
    expect(past.map(({ exit }) => exit)).toEqual(Array.from({ length: 20 }, (_, i) => i))
    expect(past.map(({ revision }) => revision > 0)).toEqual([...Array<boolean>(12).fill(false), ...Array<boolean>(8).fill(true)])
    expect(past[0]).toMatchObject({ holder: 'ann', ran: 5, command: 'sh', cause: 'released' })
    expect(past.map(({ token }) => token)).toEqual([...past.map(({ token }) => token)].sort((a, b) => a - b))
    expect(await here.history('jobs')).toEqual([])
    const newest = async (limit: number) =>
      (await here.replica.read({ kind: 'history', resource: 'jobs/a', limit })).value.map(({ exit }) => exit)
    expect([await newest(1), await newest(3), await newest(10), (await newest(100)).length]).toEqual([
      [19],
      [17, 18, 19],
      expect.arrayContaining([10, 19]),
      20,
    ])
    expect(await newest(10)).toHaveLength(10)
  })

  test('the first run sets the policy, and a policy of an operator stays', async () => {
    await using here = await place()
    await here.run('a', 0)
    const { value } = await here.replica.read({ kind: 'policies' })
    expect(value).toEqual([{ prefix: RUNS, rules: RUN_RULES }])
    await here.policy({ freeEntries: 0 })
    expect(await here.run('b', 1)).toBe('off')
    expect((await here.replica.read({ kind: 'policies' })).value).toEqual([{ prefix: RUNS, rules: { freeEntries: 0 } }])
    expect((await here.history('b'))[0]).not.toHaveProperty('exit')
  })

  test('a run is kept for as long as the policy says: shown no longer, and removed by later runs', async () => {
    await using here = await place()
    await here.policy({ freeEntries: 100, maxLife: 2 * DAY })
    for (let exit = 0; exit < 10; exit++) await here.run('a', exit)
    await here.clock.advance(1.5 * DAY)
    await here.run('a', 10)
    expect((await here.history('a')).filter(({ exit }) => exit !== undefined)).toHaveLength(11)
    await here.clock.advance(DAY)
    // The wall time of the log is that of its last record.
    await here.run('b', 0)
    expect((await here.history('a')).flatMap(({ exit }) => (exit === undefined ? [] : [exit]))).toEqual([10])
    for (let exit = 11; exit < 16; exit++) await here.run('a', exit)
    const { value } = await here.replica.read({ kind: 'entries', prefix: `${RUNS}/a` })
    expect(value).toHaveLength(7) // one for the numbers, and 10 to 15
  })

  test('of each name the last 1,000 are kept, and the oldest of all go when a policy allows no more', async () => {
    await using here = await place()
    await here.policy({ freeEntries: 1_200 })
    for (let exit = 0; exit < 1_010; exit++) await here.run('a', exit % 256)
    const past = await here.history('a')
    expect([past.length, past[0]!.exit]).toEqual([1_000, 10])
    for (let exit = 0; exit < 250; exit++) expect(await here.run('b', exit)).toBe('kept')
    const [a, b] = [await here.history('a'), await here.history('b')]
    expect(b.map(({ exit }) => exit)).toEqual(Array.from({ length: 250 }, (_, i) => i))
    expect(a.length).toBeLessThan(1_000)
    expect(a.at(-1)).toMatchObject({ exit: 1_009 % 256 })
    const { value } = await here.replica.read({ kind: 'entries', prefix: RUNS })
    expect(value.length).toBeLessThanOrEqual(1_200)
  })

  test('two runs of one name that end at the same time are both kept', async () => {
    await using here = await place()
    await here.policy({ freeEntries: 100, capacity: 2 })
    expect(await Promise.all([here.run('a', 1), here.run('b', 2), here.run('c', 3)])).toEqual(['kept', 'kept', 'kept'])
    const run = (exit: number) => {
      const until = here.clock.wall()
      return keepRun(
        here.replica,
        { a: 100 + exit },
        { lease: exit, holder: 'x', since: 0, until, cause: 'released', exit, ran: 1, command: 'sh' },
      )
    }
    expect(await Promise.all([run(11), run(12), run(13)])).toEqual(['kept', 'kept', 'kept'])
    expect((await here.history('a')).map(({ exit }) => exit).sort()).toEqual([1, 11, 12, 13])
  })

  test('entries that are no runs are ignored', async () => {
    await using here = await place()
    await here.run('a', 0)
    const put = (key: string, value: string) => propose(here.replica, { kind: 'transaction', success: [{ key: `${RUNS}/${key}`, value }] })
    for (const [i, value] of ['', '[]', 'null', '{"exit":"1"}', '{"token":-1}', '}'.repeat(1_000)].entries()) await put(`b/~${i}`, value)
    await put('b/~', '{"first":0,"next":6}')
    expect(await here.history('b')).toEqual([])
    await put('b/~', '{"first":0,"next":9007199254740991}')
    expect(await here.history('b')).toEqual([])
    await put('b/~', '{"first":5,"next":1}')
    expect(await here.history('b')).toEqual([])
  })
})
