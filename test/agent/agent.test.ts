/** Agents: claims without handles, three clocks, and notices. */
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import type { SilentLessor } from '../../src/testing/in-memory.ts'
import { AgentTown } from '../support/agents.ts'

const MINUTE = 60_000

async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    await call
    return 'no error'
  } catch (error) {
    return error instanceof LeaseError ? error.code : String(error)
  }
}

/** Counts how often `work` waits for answers to all that it has asked, 20 times at most. */
async function turnsOf(lessor: SilentLessor, work: Promise<unknown>): Promise<number> {
  let turns = 0
  let isDone = false
  const done = work.then(() => (isDone = true))
  for (; turns < 20; turns++) {
    for (let i = 0; i < 50; i++) await new Promise(setImmediate)
    if (isDone) break
    lessor.answer()
    // Let the requests that waited go on, and stop those that their answers lead to.
    for (let i = 0; i < 3; i++) await undefined
    lessor.stopAnswering()
  }
  lessor.answer()
  await done
  return turns
}

describe('claim', () => {
  test('asks in two turns for a new claim, and in one for a claim that is held', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('planner')
    await agent.claim(['src/a.ts'])
    lessor.stopAnswering()
    expect(await turnsOf(lessor, agent.claim(['src/a.ts']))).toBe(1)
    lessor.stopAnswering()
    expect(await turnsOf(lessor, agent.claim(['src/b.ts']))).toBe(2)
  })

  test('renews sub-agents and what they hold in the same turn', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('planner')
    const child = await agent.child('tests')
    await child.claim(['test/a.ts'])
    await agent.mine()
    const proposed = lessor.proposals.length
    lessor.stopAnswering()
    expect(await turnsOf(lessor, agent.claim(['src/a.ts']))).toBe(3) // the claims of the child are read below its session
    const [renewal] = lessor.proposals.slice(proposed)
    expect(renewal).toMatchObject({ kind: 'renew' })
    expect(renewal?.kind === 'renew' && renewal.leases).toHaveLength(3)
  })

  test('renews a claim that waits only after it was read: the agent must see a grant before a renewal confirms it', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two, lessor } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a'])
    const proposed = lessor.proposals.length
    await two.mine()
    const renewals = lessor.proposals.slice(proposed).flatMap(command => (command.kind === 'renew' ? [command.leases] : []))
    expect(renewals[0]).toEqual([two.session])
    expect(renewals[1]).toHaveLength(1)
  })

  test('answers with tokens, and the same names again are the same claim', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('planner')
    const first = await agent.claim(['src/a.ts', 'src/b.ts'], { purpose: 'add a route' })
    expect(first).toMatchObject({ status: 'held', names: ['src/a.ts', 'src/b.ts'], purpose: 'add a route' })
    const again = await agent.claim(['src/b.ts', 'src/a.ts'])
    expect(again.tokens).toEqual(first.tokens)
    expect((await agent.mine()).held).toHaveLength(1)
  })

  test('of names that another agent holds is queued, with who holds them and why', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('planner')
    const { agent: two } = await town.begin('tester')
    await one.claim(['src/a.ts'], { purpose: 'add a route', expectMinutes: 10 })
    await town.clock.advance(2 * MINUTE)
    const queued = await two.claim(['src/a.ts', 'src/b.ts'], { purpose: 'write tests' })
    expect(queued).toMatchObject({ status: 'queued', position: 0 })
    expect(queued.waitsFor?.[0]?.holders[0]).toMatchObject({
      holder: 'planner',
      purpose: 'add a route',
      forSeconds: 120,
      expectSeconds: 480,
    })
    expect((await two.claim(['src/a.ts', 'src/b.ts'])).status).toBe('queued')
    expect((await two.mine()).queued).toHaveLength(1)
  })

  test('is all or nothing: a queued claim keeps none of its names', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    const { agent: three } = await town.begin('three')
    await one.claim(['a'])
    await two.claim(['a', 'b'])
    await two.release()
    expect((await three.claim(['b'])).status).toBe('held')
  })

  test('waits for the grant as long as it is told, and is held when its turn comes', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    const waiting = two.claim(['a'], { waitSeconds: 30 })
    await town.clock.advance(10_000)
    await one.release(['a'])
    await town.clock.advance(1_000)
    expect((await waiting).status).toBe('held')
    expect((await two.mine()).held[0]?.names).toEqual(['a'])
  })

  test('keeps its place after the wait is over, and a notice says when it is granted', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    const waiting = two.claim(['a'], { waitSeconds: 5 })
    await town.clock.advance(6_000)
    expect((await waiting).status).toBe('queued')
    await town.clock.advance(5 * MINUTE)
    await one.release()
    await town.clock.advance(MINUTE)
    const mine = await two.mine()
    expect(mine.held[0]?.names).toEqual(['a'])
    expect((await two.notices()).map(({ kind }) => kind)).toContain('granted')
  })

  test('of some names that the agent holds already asks only for the others', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const { tokens } = await agent.claim(['a', 'b'])
    const more = await agent.claim(['b', 'c'])
    expect(more.status).toBe('held')
    expect(more.tokens.b).toBe(tokens.b)
  })

  test('of a name that is held shared by the same agent says to release it first', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    await agent.claim(['a'], { mode: 'shared' })
    expect(await codeOf(agent.claim(['a']))).toBe('INVALID')
  })

  test('that overlaps a queued claim of the same agent is refused, and a part of it is the same place', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a', 'b'])
    expect(await codeOf(two.claim(['b', 'c']))).toBe('INVALID')
    expect((await two.claim(['a'])).names).toEqual(['a', 'b'])
  })

  test('that would wait for ever is refused as DEADLOCK', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['b'])
    await one.claim(['b'])
    expect(await codeOf(two.claim(['a']))).toBe('DEADLOCK')
  })

  test('made twice at the same moment by two processes of one agent is one claim', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const { agent: hook } = await town.join('one')
    const [a, b] = await Promise.all([agent.claim(['a', 'b']), hook.claim(['a', 'b'])])
    expect([a.status, b.status]).toEqual(['held', 'held'])
    expect(a.tokens).toEqual(b.tokens)
    expect((await agent.mine()).held).toHaveLength(1)
  })

  test('waited for twice at the same moment by two processes of one agent is one place', async () => {
    await using town = new AgentTown()
    const { agent: other } = await town.begin('other')
    await other.claim(['a'])
    const { agent } = await town.begin('one')
    const { agent: hook } = await town.join('one')
    await Promise.all([agent.claim(['a']), hook.claim(['a'])])
    expect((await agent.mine()).queued).toHaveLength(1)
    expect((await other.look('a')).names[0]?.waiters).toHaveLength(1)
  })

  test('by two sub-agents at once is held by one, and the other is queued', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const [x, y] = await Promise.all([agent.child('x'), agent.child('y')])
    const answers = await Promise.all([x.claim(['a']), y.claim(['a'])])
    expect(answers.map(({ status }) => status).sort()).toEqual(['held', 'queued'])
  })

  test('by a sub-agent of a name that its parent holds is refused: they would wait for each other', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const child = await agent.child('x')
    await agent.claim(['a'])
    expect(await codeOf(child.claim(['a']))).toBe('HELD')
    expect((await child.mine()).queued).toEqual([])
  })

  test('of 10,000 names, of none, and with wrong numbers is refused with a code', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const many = Array.from({ length: 10_000 }, (_, i) => `f${i}`)
    expect(await codeOf(agent.claim(many))).toBe('LIMIT')
    expect(await codeOf(agent.claim([]))).toBe('INVALID')
    expect(await codeOf(agent.claim(['a'], { waitSeconds: 46 }))).toBe('INVALID')
    expect(await codeOf(agent.claim(['a'], { expectMinutes: -1 }))).toBe('INVALID')
  })
})

describe('the alive clock', () => {
  test('keeps claims while the process runs, and frees them within 65 s of its death', async () => {
    await using town = new AgentTown()
    const { agent: one, leases } = await town.begin('one', { idle: '4h' })
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await town.clock.advance(60 * MINUTE)
    await two.claim(['a'])
    expect((await two.mine()).queued).toHaveLength(1)
    one.detach() // the process is killed: nothing renews any more
    void leases
    await town.clock.advance(65_000)
    expect((await two.mine()).held).toHaveLength(1)
  })

  test('ends within 2 s when the bound process is gone', async () => {
    await using town = new AgentTown()
    let alive = true
    const { agent: one } = await town.begin('one', { process: { pid: 77, started: '123' }, isAlive: () => alive })
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a'])
    await town.clock.advance(10_000)
    alive = false
    await town.clock.advance(2_000)
    expect((await two.mine()).held).toHaveLength(1)
    expect(one.signal.aborted).toBe(true)
  })

  test('of an agent without a process is its calls: 15 minutes after the last one its claims are free', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.join('one')
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await two.claim(['a'])
    for (let i = 0; i < 4; i++) {
      await town.clock.advance(14 * MINUTE)
      await one.look('x') // any call renews everything
    }
    expect((await two.mine()).queued).toHaveLength(1)
    await town.clock.advance(15 * MINUTE + 1_000)
    expect((await two.mine()).held).toHaveLength(1)
  })

  test('end frees everything at once, of sub-agents too', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    const child = await one.child('x')
    await one.claim(['a'])
    await child.claim(['b'])
    await one.end()
    expect((await two.claim(['a', 'b'])).status).toBe('held')
  })

  test('of a sub-agent is that of its parent, and its own end frees only its own claims', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '4h' })
    const { agent: two } = await town.begin('two')
    const child = await one.child('x')
    await one.claim(['a'])
    await child.claim(['b'])
    await town.clock.advance(30 * MINUTE)
    expect((await two.look('b')).names[0]?.holders[0]?.holder).toBe('one/x')
    await child.end()
    expect((await two.claim(['b'])).status).toBe('held')
    expect((await two.claim(['a'])).status).toBe('queued')
  })
})

describe('the active clock', () => {
  test('lets an idle agent keep a claim that no other agent wants', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one', { idle: '20m' })
    await agent.claim(['a'])
    await town.clock.advance(60 * MINUTE)
    expect((await agent.mine()).held).toHaveLength(1)
  })

  test('gives the claims of an idle agent to a waiter, and tells the agent', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '20m' })
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a', 'b'])
    await one.claim(['c'])
    await two.claim(['a'])
    await town.clock.advance(19 * MINUTE)
    expect((await two.mine()).queued).toHaveLength(1)
    await town.clock.advance(2 * MINUTE)
    expect((await two.mine()).held).toHaveLength(1)
    const mine = await one.mine()
    expect(mine.held.flatMap(({ names }) => names)).toEqual(['c'])
    expect(mine.lost[0]).toMatchObject({ names: ['a', 'b'], cause: 'idle', by: 'two' })
    expect((await one.notices()).map(({ kind }) => kind)).toContain('lost')
  })

  test('keeps the other claims of an agent that becomes active while one of them is ended', async () => {
    await using town = new AgentTown()
    const { agent: one, lessor } = await town.begin('one', { idle: '20m' })
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await one.claim(['b'])
    await two.claim(['a'])
    await two.claim(['b'])
    const submit = lessor.submit.bind(lessor)
    lessor.submit = (command, options, completion) => {
      if (command.kind === 'revoke') void one.noteActivity()
      submit(command, options, completion)
    }
    await town.clock.advance(21 * MINUTE)
    expect((await one.mine()).held).toHaveLength(1)
    expect((await two.mine()).held).toHaveLength(1)
  })

  test('counts events that a hook reports in another process', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '20m' })
    const { agent: hook } = await town.join('one')
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await two.claim(['a'])
    for (let i = 0; i < 6; i++) {
      await town.clock.advance(10 * MINUTE)
      await hook.noteActivity()
    }
    expect((await two.mine()).queued).toHaveLength(1)
  })

  test('counts a tool call that is under way, for an hour at most', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '20m' })
    const { agent: hook } = await town.join('one')
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await two.claim(['a'])
    await hook.noteActivity({ underWay: true })
    await town.clock.advance(55 * MINUTE)
    expect((await two.mine()).queued).toHaveLength(1)
    await town.clock.advance(10 * MINUTE)
    expect((await two.mine()).held).toHaveLength(1)
  })
})

describe('the cap', () => {
  test('ends a claim after its longest life, however active its agent is, with a warning before', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    await agent.claim(['a'])
    for (let i = 0; i < 23; i++) {
      await town.clock.advance(10 * MINUTE)
      await agent.look()
    }
    await town.clock.advance(MINUTE)
    await agent.look()
    expect((await agent.notices()).map(({ kind }) => kind)).toContain('expiring')
    await town.clock.advance(10 * MINUTE)
    expect((await agent.mine()).lost[0]).toMatchObject({ names: ['a'], cause: 'cap' })
  })

  test('is shorter where a policy says so', async () => {
    await using town = new AgentTown()
    const { agent, leases } = await town.begin('one')
    await leases.setPolicy('short', { maxLife: 5 * MINUTE })
    await agent.claim(['short/a'])
    await town.clock.advance(6 * MINUTE)
    expect((await agent.mine()).held).toEqual([])
  })
})

describe('after an outage', () => {
  test('of a minute and a half, a claim that no other holder was granted is resumed under a new token', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('one')
    const { tokens } = await agent.claim(['a'], { purpose: 'edit' })
    lessor.stopAnswering()
    await town.clock.advance(90_000)
    lessor.answer()
    await town.clock.advance(30_000)
    const mine = await agent.mine()
    expect(mine.held[0]).toMatchObject({ names: ['a'], purpose: 'edit' })
    expect(mine.held[0]!.tokens.a).toBeGreaterThan(tokens.a!)
    expect(mine.lost).toEqual([])
    expect((await agent.notices()).find(({ kind }) => kind === 'resumed')?.text).toContain('new token')
  })

  test('a claim that another agent was granted meanwhile is lost, even if that agent has released it', async () => {
    await using town = new AgentTown()
    const { agent: one, lessor } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a'])
    lessor.stopAnswering()
    await town.clock.advance(70_000)
    expect((await two.mine()).held).toHaveLength(1)
    await two.release()
    lessor.answer()
    await town.clock.advance(30_000)
    const mine = await one.mine()
    expect(mine.held).toEqual([])
    expect(mine.lost[0]).toMatchObject({ names: ['a'], cause: 'lapsed', by: 'two' })
  })

  test('the call that finds such a loss does not say that the claim is held, although it was held again for a moment', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.join('one')
    await one.claim(['a'])
    await town.clock.advance(16 * 60_000)
    const { agent: two } = await town.begin('two')
    expect((await two.claim(['a'])).status).toBe('held')
    await two.release()
    const mine = await one.mine()
    expect(mine.held).toEqual([])
    expect(mine.lost[0]).toMatchObject({ names: ['a'], cause: 'lapsed', by: 'two' })
  })

  test('a call that waits is activity until it ends', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '60s' })
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['b'])
    await town.clock.advance(30_000)
    const waiting = one.claim(['b'], { waitSeconds: 45 })
    await town.clock.advance(46_000)
    expect((await waiting).status).toBe('queued')
    await two.claim(['c'])
    const asking = town.begin('three').then(({ agent }) => agent.claim(['a']))
    expect((await asking).status).toBe('queued')
    // 86 s after that call began, and 41 s after it ended.
    await town.clock.advance(40_000)
    expect((await one.mine()).held.flatMap(({ names }) => names)).toEqual(['a'])
  })

  test('a call of a sub-agent that waits is activity until it ends, also for the process that keeps its session', async () => {
    await using town = new AgentTown()
    const { agent: parent } = await town.begin('one', { idle: '60s' })
    const sub = await parent.child('sub')
    const { agent: two } = await town.begin('two')
    await sub.claim(['a'])
    await two.claim(['b'])
    await town.clock.advance(30_000)
    const waiting = sub.claim(['b'], { waitSeconds: 45 })
    await town.clock.advance(46_000)
    expect((await waiting).status).toBe('queued')
    const asking = town.begin('three').then(({ agent }) => agent.claim(['a']))
    expect((await asking).status).toBe('queued')
    // The parent calls nothing. 70 s after the waiting call began, and 24 s after it ended.
    await town.clock.advance(24_000)
    expect((await sub.mine()).held.flatMap(({ names }) => names)).toEqual(['a'])
  })

  test('a place in a queue that was lost is taken again, and a notice says so', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one', { idle: '4h' })
    const { agent: two, lessor } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a'])
    lessor.stopAnswering()
    await town.clock.advance(50_000)
    lessor.answer()
    await town.clock.advance(30_000)
    expect((await two.mine()).queued).toHaveLength(1)
    expect((await two.notices()).map(({ kind }) => kind)).toContain('queued')
  })

  test('an operator that revoked a claim is respected: it is lost and not resumed', async () => {
    await using town = new AgentTown()
    const { agent, leases } = await town.begin('one')
    await agent.claim(['a'])
    await leases.revoke({ prefix: 'a' }, { by: 'ops', force: true })
    const mine = await agent.mine()
    expect(mine.held).toEqual([])
    expect(mine.lost[0]).toMatchObject({ names: ['a'], cause: 'revoked', by: 'ops' })
  })

  test('the agent counts as active: what a hook reported in the session that has ended may not have been seen', async () => {
    await using town = new AgentTown()
    const { agent: one, lessor } = await town.begin('one', { idle: '20m' })
    const { agent: hook } = await town.join('one')
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await town.clock.advance(25 * MINUTE)
    lessor.stopAnswering()
    await hook.noteActivity()
    await town.clock.advance(90_000)
    lessor.answer()
    await town.clock.advance(30_000)
    await two.claim(['a'])
    await town.clock.advance(5 * MINUTE)
    expect((await two.mine()).queued).toHaveLength(1)
    await town.clock.advance(20 * MINUTE)
    expect((await two.mine()).held).toHaveLength(1)
  })

  test('a session that an operator revoked is opened again without its claims', async () => {
    await using town = new AgentTown()
    const { agent, leases } = await town.begin('one')
    await agent.claim(['a'])
    await leases.revoke({ holder: 'one' }, { by: 'ops', force: true })
    const mine = await agent.mine()
    expect(mine.held).toEqual([])
    expect(mine.lost[0]).toMatchObject({ names: ['a'], by: 'ops' })
    expect((await agent.claim(['b'])).status).toBe('held')
  })

  test('a machine that slept for an hour resumes what no other holder was granted', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('laptop')
    await agent.claim(['a'])
    lessor.stopAnswering()
    await town.clock.advance(60 * MINUTE)
    lessor.answer()
    expect((await agent.mine()).held[0]?.names).toEqual(['a'])
    expect((await agent.notices()).map(({ kind }) => kind)).toContain('resumed')
  })
})

describe('names of agents', () => {
  test('two live agents with one name get two names, and the second is told', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('planner')
    const { agent: two } = await town.begin('planner')
    expect([one.name, two.name]).toEqual(['planner', 'planner-2'])
    expect((await two.notices())[0]).toMatchObject({ kind: 'renamed', by: 'planner' })
    await one.claim(['a'])
    expect((await two.claim(['a'])).status).toBe('queued')
    expect((await two.mine()).held).toEqual([])
  })

  test('an agent of the same bound process is the same agent, whose server was started again', async () => {
    await using town = new AgentTown()
    const bound = { process: { pid: 77, started: '123' }, isAlive: () => true }
    const { agent: one } = await town.begin('planner', bound)
    await one.claim(['a'])
    one.detach() // its MCP server was killed, not the agent
    const { agent: again } = await town.begin('planner', bound)
    expect(again.name).toBe('planner')
    expect((await again.mine()).held[0]?.names).toEqual(['a'])
  })

  test('a name with a slash, a dot first, a control character or nothing in it is refused', async () => {
    await using town = new AgentTown()
    for (const name of ['', '../x', '.x', 'a\u0000b', 'a'.repeat(65), '~x', 'a//b', '<b>'])
      expect(await codeOf(town.begin(name)), name).toBe('INVALID')
  })
})

describe('release', () => {
  test('of one name of a claim keeps the others, and names the ones that were not held', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    await agent.claim(['a', 'b'])
    expect(await agent.release(['b', 'z'])).toEqual({ released: ['b'], notHeld: ['z'] })
    expect((await agent.mine()).held[0]?.names).toEqual(['a'])
    expect((await agent.release()).released).toEqual(['a'])
  })

  test('by another process of the agent is not reported as a loss', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    const { agent: hook } = await town.join('one')
    await agent.claim(['a'])
    await hook.release()
    const mine = await agent.mine()
    expect([mine.held, mine.lost]).toEqual([[], []])
  })
})

describe('ask', () => {
  test('shows the words to the holder once, in its next result, as words and not as an instruction', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    expect(await two.ask('a', 'a hotfix\u0007 <b>needs</b> it\nnow')).toEqual(['one'])
    await one.mine()
    const [asked] = await one.notices()
    expect(asked).toMatchObject({ kind: 'asked', names: ['a'], by: 'two' })
    expect(asked?.text).toContain('a hotfix <b>needs</b> it now')
    await one.mine()
    expect(await one.notices()).toEqual([])
  })

  test('of a free name says that it is free, of an own name that it is held', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('one')
    await agent.claim(['a'])
    expect(await codeOf(agent.ask('b', 'please'))).toBe('NOT_FOUND')
    expect(await codeOf(agent.ask('a', 'please'))).toBe('INVALID')
    expect(await codeOf(agent.ask('a', ' '))).toBe('INVALID')
  })

  test('is not needed to be noticed: a waiter appears in the next result with its purpose', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await two.claim(['a'], { purpose: 'fix the build' })
    await one.mine()
    expect((await one.notices())[0]).toMatchObject({ kind: 'wanted', by: 'two', text: expect.stringContaining('fix the build') })
  })
})

describe('look', () => {
  test('shows holder, purpose, idle time and waiters under a prefix', async () => {
    await using town = new AgentTown()
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    await one.claim(['src/a.ts'], { purpose: 'edit' })
    await two.claim(['src/a.ts'], { purpose: 'test' })
    await town.clock.advance(5 * MINUTE)
    const { names } = await two.look('src')
    expect(names).toHaveLength(1)
    expect(names[0]?.holders[0]).toMatchObject({ holder: 'one', purpose: 'edit', idleSeconds: 300 })
    expect(names[0]?.waiters[0]).toMatchObject({ holder: 'two', purpose: 'test', position: 0 })
  })
})

describe('take', () => {
  test('gives free members, the same ones when asked again, and more when count grows', async () => {
    await using town = new AgentTown()
    const { agent, leases } = await town.begin('one')
    const pool = leases.pool('gpu')
    const offers = await Promise.all([0, 1].map(i => pool.offer(`gpu-${i}`, { labels: { model: 'A100' }, ttl: '5h' })))
    const first = await agent.take({ pool: 'gpu', match: { model: 'A100' } })
    expect(first).toHaveLength(1)
    expect(await agent.take({ pool: 'gpu', match: { model: 'A100' } })).toEqual(first)
    expect(await agent.take({ pool: 'gpu', match: { model: 'A100' }, count: 2 })).toHaveLength(2)
    const { agent: two } = await town.begin('two')
    expect(await codeOf(two.take({ pool: 'gpu' }))).toBe('HELD')
    expect(await codeOf(two.take({ pool: 'gpu', match: { model: 'H100' } }))).toBe('NOT_FOUND')
    expect(offers.every(({ held }) => held)).toBe(true)
  })
})
