import { describe, expect, test } from 'vitest'
import { answered, applyBatch, decodeBatch, encodeBatch, WINDOW } from '../../../src/kernel/codec/batch.ts'
import { digestOf, operationNamed } from '../../../src/kernel/codec/digest.ts'
import { malformedAsker } from '../../../src/kernel/codec/form.ts'
import { stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { Acquire, Command } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { ANSWERS } from '../../../src/kernel/state/answers.ts'
import { RULES, SLOTS } from '../../../src/kernel/state.ts'
import { random } from '../../support/kernel/stream.ts'
import { reload, World, wants } from '../../support/kernel/world.ts'

const take = (resource: string): Acquire => ({ kind: 'acquire', holder: 'a', ttl: 1_000, wants: wants(resource) })

function ask(world: World, command: Command, seq: number, { session = 's', acked = 0, key = 0, asked = 0 } = {}): Outcome {
  const applied = world.entry([command], { op: { session, seq, acked, asked }, key })
  if (applied.kind !== 'applied') throw new Error(applied.kind)
  return applied.outcomes[0]!
}

describe('a repeated operation', () => {
  test('has one effect and the same answer, also after a restart from a snapshot', () => {
    const world = new World()
    const first = ask(world, take('x'), 1)
    expect(first).toMatchObject({ kind: 'granted', lease: 1 })
    expect(ask(world, take('x'), 1)).toEqual(first)
    expect(world.state.leases.size).toBe(1)
    world.state = reload(world.state)
    expect(ask(world, take('x'), 1)).toEqual(first)
    expect(answered(world.state, { command: take('x'), op: { session: 's', seq: 1, acked: 0 } })).toEqual(first)
  })

  test('a refusal is an answer like any other, even when it would be granted now', () => {
    const world = new World()
    const { lease } = world.acquire('b', 'x')
    const refused = ask(world, take('x'), 1)
    expect(refused).toMatchObject({ code: 'HELD' })
    world.release(lease)
    expect(ask(world, take('x'), 1)).toEqual(refused)
    expect(ask(world, take('x'), 2)).toMatchObject({ kind: 'granted' })
  })

  test('a repeated renewal is just another renewal: no answer is kept', () => {
    const world = new World()
    const { lease } = world.acquire('b', 'x')
    ask(world, { kind: 'renew', leases: [lease] }, 1)
    ask(world, { kind: 'renew', leases: [lease] }, 1)
    expect(world.lease(lease)!.epoch).toBe(3)
    expect(world.state.answers.size).toBe(0)
  })

  test('sessions are scoped to their key and their name', () => {
    const world = new World()
    const [one, two] = [world.key('one', 'acquire:'), world.key('two', 'acquire:')]
    const outcomes = [
      ask(world, take('x'), 1, { key: one }),
      ask(world, take('y'), 1, { key: two }),
      ask(world, take('z'), 1, { key: one, session: 't' }),
    ]
    expect(outcomes.map(outcome => outcome.kind)).toEqual(['granted', 'granted', 'granted'])
    expect(answered(world.state, { command: take('x'), key: two, op: { session: 't', seq: 1, acked: 0 } })).toBeUndefined()
  })

  test('answers that the client has acknowledged are dropped, and a repetition is STALE, not done again', () => {
    const world = new World()
    ask(world, take('x'), 1)
    ask(world, take('y'), 2, { acked: 1 })
    expect(world.state.answers.size).toBe(1)
    expect(ask(world, take('x'), 1)).toMatchObject({ kind: 'refused', code: 'STALE' })
    expect(ask(world, take('x'), 0)).toMatchObject({ code: 'STALE' })
    expect(ask(world, take('y'), 2)).toMatchObject({ kind: 'granted' })
  })

  test('operations may overtake each other', () => {
    const world = new World()
    const third = ask(world, take('c'), 3)
    const first = ask(world, take('a'), 1)
    expect([ask(world, take('c'), 3), ask(world, take('a'), 1)]).toEqual([third, first])
    ask(world, take('d'), 4, { acked: 3 })
    expect(ask(world, take('b'), 2)).toMatchObject({ code: 'STALE' })
  })

  test('a client cannot acknowledge the answer that it is just requesting', () => {
    const world = new World()
    const first = ask(world, take('x'), 1, { acked: 9 })
    expect(ask(world, take('x'), 1, { acked: 9 })).toEqual(first)
  })

  test('a bounded number of answers is kept, and the sessions that were silent longest lose theirs first', () => {
    const world = new World({ strict: false })
    const unheld: Command = { kind: 'recall', resource: 'x' }
    ask(world, unheld, 1, { session: 'old' })
    for (let i = 1; i < ANSWERS; i++) ask(world, unheld, i, { session: `s${i % 100}` })
    expect(answered(world.state, { command: unheld, op: { session: 'old', seq: 1, acked: 0 } })).toBeDefined()
    ask(world, unheld, ANSWERS, { session: 's7' })
    expect(answered(world.state, { command: unheld, op: { session: 'old', seq: 1, acked: 0 } })).toBeUndefined()
    expect(world.state.answers.size).toBeLessThanOrEqual(ANSWERS)
  })

  test('a single client that never acknowledges is kept within the same bound', () => {
    const world = new World({ strict: false })
    const unheld: Command = { kind: 'recall', resource: 'x' }
    for (let i = 1; i <= ANSWERS + 5; i++) ask(world, unheld, i)
    expect(world.state.answers.size).toBe(ANSWERS)
    expect(ask(world, unheld, 5)).toMatchObject({ code: 'STALE' })
    expect(ask(world, unheld, 6)).toMatchObject({ code: 'NOT_FOUND' })
  })

  test('an operation that is still under way when later answers are dropped is done when it arrives, also after a snapshot', () => {
    const world = new World({ strict: false })
    const unheld: Command = { kind: 'recall', resource: 'x' }
    for (let seq = 2; seq < 10; seq++) ask(world, unheld, seq)
    for (let i = 1; i < ANSWERS - 3; i++) ask(world, unheld, i, { session: 'others' })
    expect(world.state.answers.session(0, 's')!.size).toBe(4)
    world.state = reload(world.state)
    expect(ask(world, unheld, 3)).toMatchObject({ code: 'STALE' })
    expect(ask(world, take('x'), 1)).toMatchObject({ kind: 'granted' })
    expect([...world.state.answers.session(0, 's')!.dropped]).toEqual([2, 3, 4, 5])
    ask(world, unheld, 10, { acked: 1 })
    expect(world.state.answers.session(0, 's')).toMatchObject({ seq: 5, dropped: new Set() })
  })
})

describe('an operation with a digest of its command', () => {
  test('is refused when the same op is used for another command, also after a restart, and answered when it is repeated', () => {
    const world = new World()
    const [x, y] = [digestOf(take('x')), digestOf(take('y'))]
    const first = ask(world, take('x'), 1, { asked: x })
    for (let i = 0; i < 2; i++) {
      world.refused(ask(world, take('y'), 1, { asked: y }), 'INVALID', 'op-reused')
      world.refused(ask(world, take('y'), 1), 'INVALID', 'op-reused')
      expect(ask(world, take('x'), 1, { asked: x })).toEqual(first)
      expect(answered(world.state, { command: take('y'), op: { session: 's', seq: 1, acked: 0, asked: y } })).toMatchObject({
        code: 'INVALID',
      })
      world.state = reload(world.state)
    }
    expect(world.holders('y')).toEqual([])
  })

  test('has the same flags after encoding and decoding', () => {
    const header = { proposer: 1, seq: 1, applied: 5, decisionHash: [0, 0] as const, wall: 0, proposals: [] }
    for (const flags of [{}, { carried: true }, { unread: true }, { reads: true }, { unread: true, reads: true }] as const) {
      const { carried, unread, reads } = decodeBatch(encodeBatch({ ...header, ...flags }))
      expect(JSON.parse(JSON.stringify({ carried, unread, reads }))).toEqual(flags)
    }
  })

  test('has the same digest after encoding and decoding', () => {
    const op = { session: 's', seq: 1, acked: 0, asked: digestOf(take('x')) }
    const batch = {
      proposer: 1,
      seq: 1,
      applied: 0,
      decisionHash: [0, 0] as const,
      wall: 0,
      proposals: [{ command: take('x'), key: 3, op }],
    }
    expect(decodeBatch(encodeBatch(batch)).proposals[0]).toMatchObject({ key: 3, op })
    expect(malformedAsker(0, { ...op, asked: 0.5 })).toMatchObject({ reason: 'not-whole', facts: { field: 'op.asked' } })
  })

  test('has another digest for every difference that matters, and for no other', () => {
    const commands: Command[] = [
      take('x'),
      take('y'),
      { ...take('x'), ttl: 1_001 },
      { ...take('x'), holder: 'b' },
      { ...take('x'), priority: 1 },
      { ...take('x'), wait: true },
      { kind: 'break', resource: 'x' },
      { kind: 'recall', resource: 'x' },
      { kind: 'release', lease: 1 },
      { kind: 'release', lease: 2 },
    ]
    const digests = commands.map(digestOf)
    expect(new Set(digests).size).toBe(commands.length)
    expect(digests.every(digest => Number.isSafeInteger(digest) && digest > 0)).toBe(true)
    expect(digestOf({ wants: [{ units: 1, resource: 'x' }], ttl: 1_000, holder: 'a', kind: 'acquire' })).toBe(digests[0])
    expect(digestOf({ ...take('x'), ttl: -1 })).toBe(0)
    expect(operationNamed('o', commands[6]!).session).not.toBe(operationNamed('o', commands[7]!).session)
  })
})

describe('the kept answers of one key', () => {
  const unheld: Command = { kind: 'recall', resource: 'x' }
  const op = (session: string, seq = 1) => ({ session, seq, acked: 0 })

  test('are not displaced by another key: the key with the most answers makes room, its longest silent session first', () => {
    const world = new World({ strict: false })
    const [mine, flood] = [world.key('mine', 'acquire:'), world.key('flood', 'acquire:')]
    ask(world, unheld, 1, { session: 'pay', key: mine })
    for (let i = 0; i < ANSWERS + 10; i++) ask(world, unheld, 1, { session: `z${i}`, key: flood })
    expect(world.state.answers.size).toBe(ANSWERS)
    expect(answered(world.state, { command: unheld, key: mine, op: op('pay') })).toBeDefined()
    for (const [i, is] of [
      [0, false],
      [10, false],
      [11, true],
      [ANSWERS + 9, true],
    ] as const)
      expect(answered(world.state, { command: unheld, key: flood, op: op(`z${i}`) }) !== undefined, `z${i}`).toBe(is)
    // Another one's question costs the one that keeps the most one answer, and not a whole session of them.
    ask(world, unheld, 1, { session: 'pay-2', key: mine })
    expect(world.state.answers.size).toBe(ANSWERS)
    expect(answered(world.state, { command: unheld, key: flood, op: op('z12') })).toBeDefined()
  })

  test('are the same on a replica that began with a snapshot, whichever key has to make room', () => {
    const world = new World({ strict: false })
    const keys = Array.from({ length: 7 }, (_, i) => world.key(`k${i}`, 'acquire:'))
    const pick = random(11)
    const question = (): [Command, number, object] => {
      const session = `s${pick(9_000)}`
      const key = keys[pick(keys.length)]!
      const seq = (world.state.answers.session(key, session)?.seq ?? 0) + 1 + pick(4)
      return [unheld, seq, { session, key, acked: pick(3) === 0 ? seq - 1 : 0 }]
    }
    while (world.state.answers.size < ANSWERS) ask(world, ...question())
    for (let i = 0; i < 2_000; i++) ask(world, ...question())
    const whole = world.state
    const begun = reload(whole)
    const asks = Array.from({ length: 3_000 }, question)
    const answers = [whole, begun].map(state => {
      world.state = state
      return asks.map(asked => ask(world, ...asked))
    })
    expect(answers[1]).toEqual(answers[0])
    const [hash, other] = [whole, begun].map(state => stateHash({ ...state, proposers: new Map() }))
    expect(other).toBe(hash)
    expect(whole.answers.size).toBeGreaterThan(ANSWERS - 3_000)
  })

  test('leave out refusals that depend on the key alone: a repetition gets the same', () => {
    const world = new World()
    const [none, victim, breaker] = [world.key('none'), world.key('v', 'acquire:'), world.key('b', 'break:shared')]
    world.refused(ask(world, take('x'), 1, { key: none }), 'FORBIDDEN')
    world.refused(ask(world, take('x'), 1, { key: none }), 'FORBIDDEN')
    expect(world.state.answers.size).toBe(0)
    // What depends on what it met could be another answer later: a first copy that is still on its way must meet this one.
    const { lease } = world.acquire('a', ['shared/x', 'y'], { key: victim })
    const refused = ask(world, { kind: 'break', resource: 'shared/x' }, 1, { key: breaker })
    world.refused(refused, 'FORBIDDEN')
    world.release(lease, 'y')
    expect(ask(world, { kind: 'break', resource: 'shared/x' }, 1, { key: breaker })).toEqual(refused)
    expect(ask(world, { kind: 'break', resource: 'shared/x' }, 2, { key: breaker })).toMatchObject({ kind: 'done' })
  })
})

describe('a log record', () => {
  test('that is in the log twice is applied once', () => {
    const world = new World()
    world.entry([take('x')], { proposer: 7, seq: 1 })
    const hash = stateHash({ ...world.state, index: 0 })
    expect(world.entry([take('y')], { proposer: 7, seq: 1 })).toEqual({ kind: 'again' })
    expect(stateHash({ ...world.state, index: 0 }), 'only the index has grown').toBe(hash)
    expect(world.entry([take('y')], { proposer: 7, seq: 2 })).toMatchObject({ kind: 'applied' })
    expect(world.entry([take('z')], { proposer: 7, seq: 1 })).toEqual({ kind: 'again' })
    expect(world.entry([take('z')], { proposer: 8, seq: 1 })).toMatchObject({ kind: 'applied' })
  })

  test('that is more than WINDOW records out of date is void, to the exact record', () => {
    for (const [late, kind] of [
      [WINDOW, 'applied'],
      [WINDOW + 1, 'void'],
    ] as const) {
      const world = new World({ strict: false, empty: true })
      for (let i = 1; i < late; i++) world.entry([], { proposer: 1, seq: i })
      expect(world.entry([take('x')], { proposer: 7, seq: 1, applied: 0 }).kind).toBe(kind)
      expect(world.state.leases.size).toBe(kind === 'applied' ? 1 : 0)
    }
  })

  test('that claims to have applied itself, or a later record, is void', () => {
    const world = new World({ empty: true })
    expect(world.entry([take('x')], { applied: 1 })).toEqual({ kind: 'void' })
    expect(world.entry([take('x')], { applied: 99 })).toEqual({ kind: 'void' })
  })

  test('of a proposer that was silent for WINDOW records is void when it comes again: nothing is applied twice', () => {
    const world = new World({ strict: false, empty: true })
    const entry = { proposer: 7, seq: 1, applied: 0 }
    world.entry([take('x')], entry)
    for (let i = 1; i < WINDOW; i++) world.entry([], { proposer: 1, seq: i })
    expect(world.state.proposers.has(7)).toBe(true)
    expect(world.entry([take('x')], entry)).toEqual({ kind: 'again' })
    expect(world.entry([take('x')], entry)).toEqual({ kind: 'void' })
    expect(world.state.proposers.has(7)).toBe(false)
    expect(world.state.leases.size).toBe(1)
    expect(world.state.proposers.size).toBe(1)
  })

  test('must be the next one', () => {
    const world = new World({ empty: true })
    world.entry([])
    const batch = { proposer: 1, seq: 9, applied: 0, decisionHash: [0, 0], wall: 0, rules: RULES, proposals: [] } as const
    for (const index of [0, 1, 3]) expect(() => applyBatch(world.state, index, batch, world.effects)).toThrow(/record-out-of-order/)
  })

  test('starts the counters at its wall time if it is the first, so that they grow even after everything was lost', () => {
    const world = new World({ empty: true })
    world.entry([take('x')], { wall: 1_700_000_000_000 })
    expect(world.state).toMatchObject({ origin: 170_000_000_000_000, nextLease: 170_000_000_000_002, nextToken: 170_000_000_000_002 })
    expect(world.lease(170_000_000_000_001)).toBeDefined()
  })

  test('with a clock that is wrong by centuries leaves room for safe integers', () => {
    const world = new World({ empty: true })
    world.entry([take('x')], { wall: 2 ** 53 - 1 })
    expect(Number.isSafeInteger(world.state.nextLease * SLOTS * 2)).toBe(true)
    expect(world.lease(world.state.nextLease - 1)).toBeDefined()
  })

  test('never sets the displayed time back', () => {
    const world = new World()
    world.entry([], { wall: 5_000 })
    world.entry([], { wall: 4_000 })
    expect(world.state.wall).toBe(5_000)
  })

  test('changes the decision hash: another decision, another decision hash', () => {
    const decisions: Command[] = [
      take('x'),
      take('y'), // HELD
      { ...take('y'), wait: true },
      { ...take('x'), ttl: 1 }, // INVALID
      { kind: 'recall', resource: 'x' }, // NOT_FOUND
      { kind: 'recall', resource: 'y' },
      { kind: 'release', lease: 1 },
      { kind: 'release', lease: 2 }, // GONE
      { kind: 'revoke', target: { lease: 1 } },
      { kind: 'renew', leases: [1] },
      { kind: 'due', timer: 8, epoch: 1 },
      { kind: 'due', timer: 8, epoch: 2 }, // nothing
      { kind: 'fence', resource: 'y', token: 1 },
    ]
    const hashes = decisions.map(command => {
      const world = new World()
      world.acquire('z', 'y')
      world.entry([command])
      return `${world.state.decisionHashA}/${world.state.decisionHashB}`
    })
    expect(new Set(hashes).size).toBe(decisions.length)
  })
})
