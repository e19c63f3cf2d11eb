/**
 * How the work of each command grows with the state. A record is applied in one turn of the event loop on every replica, so a command whose work grows with the
 * state delays every client. Counted in steps, not in time.
 */
import { expect, test } from 'vitest'
import type { Command } from '../../src/kernel/command.ts'
import { COMMAND_TABLE } from '../../src/kernel/command-table.ts'
import { timerId } from '../../src/kernel/state/timers.ts'
import { TERM } from '../../src/kernel/state.ts'
import { World } from '../support/kernel/world.ts'
import { StepCounter } from '../support/steps.ts'

interface Bound {
  /** `constant`: the work does not grow with the state. `leases`: it may visit every lease, for the reason given. */
  readonly grows: 'constant' | 'leases'
  readonly why?: string
  command(world: World): Command
}

const HASH = 'a'.repeat(64)
const lease = (world: World) => world.state.resources.get('one')!.grants[0]!.lease.id

/** Every command has a row. */
const BOUNDS: { readonly [K in Command['kind']]: Bound } = {
  acquire: { grows: 'constant', command: () => ({ kind: 'acquire', holder: 'w', ttl: 1_000, wants: [{ resource: 'queue' }], wait: true }) },
  renew: { grows: 'constant', command: world => ({ kind: 'renew', leases: [lease(world)] }) },
  release: { grows: 'constant', command: world => ({ kind: 'release', lease: world.state.resources.get('queue')!.grants[0]!.lease.id }) },
  due: {
    grows: 'constant',
    command: world => {
      const last = world.state.resources.get('queue')!.queue.at(-1)!
      return { kind: 'due', timer: timerId(last, TERM), epoch: last.epoch }
    },
  },
  aged: { grows: 'constant', command: world => ({ kind: 'aged', marks: [{ timer: 8 * lease(world), epoch: 1, ms: 5 }] }) },
  'aged-together': { grows: 'constant', command: () => ({ kind: 'aged-together', run: 1, ms: 5 }) },
  run: {
    grows: 'leases',
    why: 'an owner begins a run when it starts, before it serves',
    command: world => {
      world.do({ kind: 'run', owned: true })
      world.do({ kind: 'aged-together', run: world.state.run.number, ms: 5 })
      return { kind: 'run', owned: true }
    },
  },
  put: { grows: 'constant', command: world => ({ kind: 'put', lease: lease(world), key: 'k', value: '1' }) },
  delete: { grows: 'constant', command: () => ({ kind: 'delete', key: 'e/1' }) },
  transaction: { grows: 'constant', command: () => ({ kind: 'transaction', success: [{ key: 'kv/x', value: '1' }] }) },
  // A replica writes those by holder or prefix with `among`.
  revoke: { grows: 'constant', command: world => ({ kind: 'revoke', target: { prefix: '' }, among: [lease(world)] }) },
  transfer: { grows: 'constant', command: world => ({ kind: 'transfer', lease: lease(world), to: 'bob', stopped: true }) },
  break: { grows: 'constant', command: () => ({ kind: 'break', resource: 'queue' }) },
  recall: { grows: 'constant', command: () => ({ kind: 'recall', resource: 'queue' }) },
  policy: {
    grows: 'leases',
    why: 'an operator changes the rules of all names; each waiter is judged again',
    command: () => ({ kind: 'policy', prefix: 'other', rules: { capacity: 2 } }),
  },
  key: { grows: 'constant', command: () => ({ kind: 'key', name: 'k2', hash: HASH, allow: [] }) },
  limit: { grows: 'constant', command: () => ({ kind: 'limit', group: 'g', limits: { leases: 5 } }) },
  rotate: { grows: 'constant', command: () => ({ kind: 'rotate', id: 1, hash: 'b'.repeat(64) }) },
  unkey: { grows: 'leases', why: 'an operator ends the waiters of a key', command: () => ({ kind: 'unkey', id: 1 }) },
  fence: { grows: 'constant', command: () => ({ kind: 'fence', resource: 'f', token: 1 }) },
  tick: { grows: 'constant', command: world => ({ kind: 'tick', n: world.state.tick + 1, elapsed: 1_000 }) },
  upgrade: { grows: 'constant', command: () => ({ kind: 'upgrade', rules: 99 }) },
  generation: {
    grows: 'leases',
    why: 'after a log has lost records, every term begins again',
    command: () => ({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 1_000 }),
  },
  move: { grows: 'constant', command: () => ({ kind: 'move', prepare: true, to: 'file:elsewhere' }) },
  widen: { grows: 'constant', command: world => ({ kind: 'widen', lease: lease(world), wants: [{ resource: 'two' }] }) },
  claim: { grows: 'constant', command: world => ({ kind: 'claim', lease: lease(world), incarnation: 1 }) },
  extend: { grows: 'constant', command: world => ({ kind: 'extend', lease: lease(world), by: 1_000 }) },
}

/** Leases, waiters for one name and entries, `size` of each. */
function stateOf(size: number): World {
  const world = new World({ strict: false })
  world.do({ kind: 'policy', prefix: 'kv', rules: { freeEntries: 10 } })
  world.do({ kind: 'key', name: 'k', hash: HASH, allow: [{ verb: 'admin', prefix: '' }] })
  for (let i = 0; i < size; i++) world.acquire(`h${i % 7}`, `jobs/${i}`, { entries: [{ key: `e/${i}`, value: '1' }] })
  world.acquire('holder', 'queue')
  for (let i = 0; i < size; i++) world.queue(`w${i}`, 'queue')
  world.acquire('ann', 'one')
  return world
}

const [SMALL, LARGE] = [100, 1_600]
/** Searches in ordered lists take a few steps more in a longer one. */
const SLACK = 60

test('every command of the table has a bound', () => {
  expect(Object.keys(BOUNDS).sort()).toEqual(Object.keys(COMMAND_TABLE).sort())
})

test('the work of a command grows with the state only where the table says so', async () => {
  await using counter = await StepCounter.open('kernel')
  const grown: string[] = []
  for (const [kind, { grows, command }] of Object.entries(BOUNDS)) {
    const steps: number[] = []
    for (const size of [SMALL, LARGE]) {
      const world = stateOf(size)
      const asked = command(world)
      steps.push(await counter.during(() => world.do(asked)))
    }
    const [small, large] = steps as [number, number]
    expect(small, kind).toBeGreaterThan(0)
    if (large > small + SLACK !== (grows === 'leases')) grown.push(`${kind}: ${small} steps with ${SMALL} leases, ${large} with ${LARGE}`)
    if (grows === 'leases') expect(large, `${kind} is more than linear`).toBeLessThan(2 * (LARGE / SMALL) * small)
  }
  expect(grown).toEqual([])
})

/** Commands beside many claims below one name, with a covering waiter or holder above them. */
const COVERED: Readonly<Record<string, (world: World) => Command>> = {
  'a covering request that is refused': () => covering('c', 'tree'),
  'a covering request that waits': () => ({ ...covering('c', 'tree'), wait: true }),
  'a covering request that waits and keeps a claim': world => ({
    ...covering('h0', 'tree'),
    ...{ wait: true, holding: [world.state.resources.get('alone')!.grants[0]!.lease.id] },
  }),
  'a covering request of another name': () => covering('c', 'listed'),
  'a plain request below a covering waiter': () => ({
    kind: 'acquire',
    holder: 'c',
    ttl: 1_000,
    wants: [{ resource: 'tree/new' }],
    wait: true,
  }),
  'a release below a covering waiter': world => ({ kind: 'release', lease: world.state.resources.get('tree/1')!.grants[0]!.lease.id }),
  'a release of a waiter below a covering waiter': world => ({ kind: 'release', lease: world.state.resources.get('tree/0')!.queue[0]!.id }),
  'a release of a covering claim, with a covering waiter behind it': world => ({
    kind: 'release',
    lease: world.state.resources.get('held')!.grants[0]!.lease.id,
  }),
  'a recall of a covered name': () => ({ kind: 'recall', resource: 'held/0' }),
}

function covering(holder: string, resource: string): Extract<Command, { readonly kind: 'acquire' }> {
  return { kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }], covers: true }
}

test('beside many claims below a name, the work of commands does not grow with them', async () => {
  await using counter = await StepCounter.open('kernel')
  const grown: string[] = []
  for (const [name, command] of Object.entries(COVERED)) {
    const steps: number[] = []
    for (const size of [SMALL, LARGE]) {
      const world = new World({ strict: false })
      for (let i = 0; i < size; i++) world.acquire(`h${i % 7}`, `tree/${i}`)
      world.queue('early', 'tree/0')
      world.queue('covering', 'tree', { covers: true })
      for (let i = 0; i < size; i++) world.queue(`w${i}`, `tree/${i}`)
      world.acquire('h0', 'alone')
      world.acquire('holder', 'held', { covers: true })
      world.queue('next', 'held', { covers: true })
      for (let i = 0; i < size; i++) world.queue(`w${i}`, `held/${i}`)
      world.release(world.acquire('former', 'listed', { covers: true }).lease)
      const asked = command(world)
      steps.push(await counter.during(() => world.do(asked)))
    }
    const [small, large] = steps as [number, number]
    expect(small, name).toBeGreaterThan(0)
    if (large > small + SLACK) grown.push(`${name}: ${small} steps with ${SMALL} claims, ${large} with ${LARGE}`)
  }
  expect(grown).toEqual([])
})

test('the first covering request for a segment looks at each name once, and in detail only at those that begin with it', async () => {
  await using counter = await StepCounter.open('kernel')
  const steps: number[] = []
  for (const size of [SMALL, LARGE]) {
    const world = new World({ strict: false })
    for (let i = 0; i < size; i++) world.acquire('holder', `tree/${i}`)
    steps.push(await counter.during(() => world.do(covering('c', 'elsewhere'))))
  }
  expect((steps[1]! - steps[0]!) / (LARGE - SMALL)).toBeLessThan(4)
})

const shared = (resource: string) => ({ kind: 'acquire', ttl: 1_000, wants: [{ resource, shared: true }] }) as const

/** The largest commands that policies allow, each linear in what a limit bounds. */
const EXTREMES: Readonly<Record<string, (size: number) => { readonly world: World; readonly command: Command }>> = {
  'grants to all waiters for a shared resource (the rule `waiters`)': size => {
    const world = new World({ strict: false })
    const { lease: held } = world.acquire('holder', 'queue')
    for (let i = 0; i < size; i++) world.do({ ...shared('queue'), holder: `w${i}`, wait: true })
    return { world, command: { kind: 'release', lease: held } }
  },
  'the end of a family (10,000 leases)': size => {
    const world = new World({ strict: false })
    const { lease: parent } = world.acquire('parent', 'p')
    for (let i = 0; i < size; i++) world.acquire('child', `c/${i}`, { parent })
    return { world, command: { kind: 'release', lease: parent } }
  },
  'grants to all waiters for permits, each with another number of them': size => {
    const world = new World({ strict: false })
    const { lease: held } = world.acquire('holder', 'queue', { permits: 1 })
    for (let i = 0; i < size; i++) world.queue(`w${i}`, 'queue', { permits: 2 * size - i })
    return { world, command: { kind: 'release', lease: held } }
  },
  'grants to all waiters below a covering claim': size => {
    const world = new World({ strict: false })
    const { lease: held } = world.acquire('holder', 'tree', { covers: true })
    for (let i = 0; i < size; i++) world.queue(`w${i}`, `tree/${i}`)
    return { world, command: { kind: 'release', lease: held } }
  },
  'a covering steal of all below a name': size => {
    const world = new World({ strict: false })
    world.acquire('a', 'other', { covers: true })
    for (let i = 0; i < size; i++) world.acquire('b', `tree/${i}`)
    const wants = [{ resource: 'tree' }]
    return { world, command: { kind: 'acquire', holder: 'thief', ttl: 1_000, wants, covers: true, wait: true, steal: 'force' } }
  },
  'a break of a shared resource': size => {
    const world = new World({ strict: false })
    for (let i = 0; i < size; i++) world.do({ ...shared('shared'), holder: `s${i}` })
    return { world, command: { kind: 'break', resource: 'shared' } }
  },
  'a turn of a pool whose waiters are over a quota for the week or for a kind': size => {
    const world = new World({ strict: false })
    const labels = { kind: 'h' }
    const entries = [0, 1].map(i => ({ key: `pool/g/m${i}`, value: JSON.stringify({ units: 1, labels }) }))
    world.acquire('host', [], { entries })
    world.policy('g/accounts/week', { quotaWeek: 1 })
    world.policy('g/kinds/h/accounts/kind', { quotaUnits: 1 })
    const accounts = ['week', 'kind'] as const
    for (const account of accounts) world.acquire(`holder of ${account}`, [], { pool: { pool: 'g', account } })
    for (let i = 0; i < size; i++) {
      const pool = { pool: 'g', account: accounts[i % 2]! }
      world.do({ kind: 'acquire', holder: `w${i}`, ttl: 1_000, wants: [], wait: true, pool })
    }
    return { world, command: { kind: 'tick', n: world.state.tick + 1, elapsed: 10 } }
  },
  'a renewal of many leases': size => {
    const world = new World({ strict: false })
    const leases = Array.from({ length: size }, (_, i) => world.acquire('h', `j/${i}`).lease)
    return { world, command: { kind: 'renew', leases } }
  },
}

test('the largest commands take a bounded number of steps for each lease', async () => {
  await using counter = await StepCounter.open('kernel')
  for (const [name, make] of Object.entries(EXTREMES)) {
    const { world, command } = make(LARGE)
    const steps = await counter.during(() => world.do(command))
    expect(steps, name).toBeGreaterThan(LARGE)
    expect(steps / LARGE, name).toBeLessThan(400)
  }
})
