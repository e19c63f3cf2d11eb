/** What a transfer carries on: notices, rank, priority, labels and the time of holding. And a lease that was told to make room and gives back its member. */
import { expect, test } from 'vitest'
import type { PolicyRules } from '../../../src/kernel/command.ts'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { LIVE, PREEMPT } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

const NOTICE = 30_000

/** A pool `g` with these members. */
function poolWorld(rules: PolicyRules, ...members: readonly string[]): World {
  const world = new World()
  world.policy('g', rules)
  world.acquire('host', [], { ttl: 86_400_000, entries: members.map(member => ({ key: `pool/g/${member}`, value: '{}' })) })
  return world
}

/** The events that the next command causes, as `TYPE HOLDER`. */
function eventsOf(world: World, command: () => void): string[] {
  const { length } = world.events
  command()
  return world.events.slice(length).map(({ type, holder }) => `${type} ${holder}`)
}

function transfer(world: World, lease: number, to: string): number {
  const outcome = world.do({ kind: 'transfer', lease, to, stopped: true })
  expect(outcome).toMatchObject({ kind: 'done' })
  return (outcome as { id: number }).id
}

/** The victim of the waiter, which was told that it has 30 s. */
function noticed({
  victim = 0,
  waiter = 5,
  rules,
}: {
  readonly victim?: number
  readonly waiter?: number
  readonly rules?: PolicyRules
} = {}) {
  const world = poolWorld({ preempt: 'marked', preemptNotice: NOTICE, ...rules }, 'a')
  const { lease } = world.acquire('victim', [], { priority: victim, pool: { pool: 'g', preemptible: true } })
  const { lease: waits } = world.queue('urgent', [], { priority: waiter, pool: { pool: 'g' } })
  expect(timerOf(world.lease(lease)!, PREEMPT)).toMatchObject({ duration: NOTICE })
  return { world, victim: lease, waiter: waits }
}

test('a transferred lease has the time that was left of its notice', () => {
  const { world, victim } = noticed()
  const { epoch } = timerOf(world.lease(victim)!, PREEMPT)!
  world.do({ kind: 'aged', marks: [{ timer: timerId(world.lease(victim)!, PREEMPT), epoch, ms: 29_000 }] })
  expect(timerOf(world.lease(victim)!, PREEMPT)).toMatchObject({ aged: 29_000 })
  const heir = transfer(world, victim, 'heir')
  const { duration, aged } = timerOf(world.lease(heir)!, PREEMPT)!
  expect(duration - aged).toBe(1_000)
})

test('a transferred lease is kept when the waiter that its notice is for goes away', () => {
  const { world, victim, waiter } = noticed({ victim: -1, waiter: 0 })
  const heir = transfer(world, victim, 'heir')
  world.renew(heir)
  world.release(waiter)
  expect(world.lease(waiter)).toBeUndefined()
  const timer = timerOf(world.lease(heir)!, PREEMPT)
  expect(timer).toBeUndefined()
})

/** The notice of a lease that was passed on, and waits until the giver has stopped. The waiter that the notice is for goes away meanwhile. */
function noticedHeir(rules: PolicyRules = {}) {
  const { world, victim, waiter } = noticed({ victim: -1, waiter: 0, rules })
  const passedOn = world.do({ kind: 'transfer', lease: victim, to: 'heir' })
  const heir = (passedOn as { id: number }).id
  expect(timerOf(world.lease(heir)!, PREEMPT)).toBeDefined()
  world.release(waiter)
  return { world, giver: victim, heir }
}

test.each(['fifo', 'fit', 'backfill', 'fair'] as const)(
  'a transferred lease is kept when the waiter that its notice is for has gone before the giver stops (%s)',
  queue => {
    const { world, giver, heir } = noticedHeir({ queue })
    const events = eventsOf(world, () => world.release(giver))
    expect(events).toContain('kept heir')
    expect(world.lease(heir)).toMatchObject({ status: LIVE })
    expect(timerOf(world.lease(heir)!, PREEMPT)).toBeUndefined()
  },
)

test('a lease that waits for its giver to stop does not end by a notice whose waiter has gone', () => {
  const { world, giver, heir } = noticedHeir()
  world.due(heir, PREEMPT)
  expect(timerOf(world.lease(heir)!, PREEMPT)).toBeUndefined()
  world.release(giver)
  expect(world.lease(heir)).toMatchObject({ status: LIVE })
})

test('a lease that overtook a waiter makes room for it, also after a transfer', () => {
  const told = (transferred: boolean): string[] => {
    const world = poolWorld({ queue: 'backfill', preemptNotice: 1_000 }, 'a', 'b')
    const first = world.acquire('first', [], { pool: { pool: 'g' } })
    world.do({ kind: 'tick', n: 1, elapsed: 5_000 })
    world.queue('head', [], { pool: { pool: 'g', count: 2 } })
    const overtaker = world.acquire('overtaker', [], { wait: true, pool: { pool: 'g', preemptible: true } })
    if (transferred) transfer(world, overtaker.lease, 'heir')
    return eventsOf(world, () => world.release(first.lease))
  }
  expect(told(false)).toContain('recalled overtaker')
  const events = told(true)
  expect(events).toContain('recalled heir')
})

test('a waiter of lower priority does not preempt a lease of higher priority that was transferred', () => {
  const told = (transferred: boolean): string[] => {
    const world = poolWorld({ preempt: 'marked', preemptNotice: 1_000 }, 'a')
    const { lease } = world.acquire('important', [], { priority: 5, pool: { pool: 'g', preemptible: true } })
    if (transferred) transfer(world, lease, 'heir')
    return eventsOf(world, () => void world.queue('waiter', [], { priority: 1, pool: { pool: 'g' } }))
  }
  expect(told(false)).toEqual(['queued waiter'])
  const events = told(true)
  expect(events).toEqual(['queued waiter'])
})

test('a transferred lease keeps its labels and the start of its holding', () => {
  const world = new World()
  const at = (wall: number, command: Parameters<World['do']>[0]) => world.entry([command], { wall })
  const labels = [['learn', 'jobs']] as const
  at(1_000, { kind: 'acquire', holder: 'a', ttl: 10_000, wants: [{ resource: 'x' }], labels })
  const [given] = world.state.resources.get('x')!.grants
  expect(given!.lease.extras).toMatchObject({ labels })
  const { since } = given!.lease
  at(6_000, { kind: 'transfer', lease: given!.lease.id, to: 'b', stopped: true })
  const [received] = world.state.resources.get('x')!.grants
  expect(received!.lease.holder.name).toBe('b')
  expect({ since: received!.lease.since, labels: received!.lease.extras?.labels }).toEqual({ since, labels })
})

test('a holder that gave back the member it was asked for keeps its lease', () => {
  const world = poolWorld({ preempt: 'marked', preemptNotice: NOTICE }, 'a')
  const { lease } = world.acquire('v', [], {
    entries: [{ key: 'jobs/v', value: 'running' }],
    pool: { pool: 'g', preemptible: true },
  })
  world.acquire('v', 'db', { parent: lease })
  world.queue('urgent', [], { priority: 5, pool: { pool: 'g' } })
  expect(timerOf(world.lease(lease)!, PREEMPT)).toBeDefined()
  expect(eventsOf(world, () => world.release(lease, 'g/a'))).toEqual(['released v', 'granted urgent'])
  const timer = timerOf(world.lease(lease)!, PREEMPT)
  expect(timer).toBeUndefined()
})

test('a lease that was passed on gives back its advance on the usage of its account once', () => {
  const usage = (isPassedOn: boolean) => {
    const world = poolWorld({ queue: 'fair', sharePenalty: 60_000 }, 'a', 'b')
    world.do({ kind: 'tick', n: 1, elapsed: 1_000 })
    world.acquire('keeps', [], { ttl: 86_400_000, pool: { pool: 'g', account: 'team' } })
    const { lease } = world.acquire('gives', [], { ttl: 86_400_000, pool: { pool: 'g', account: 'team' } })
    const given = isPassedOn ? world.do({ kind: 'transfer', lease, to: 'heir', stopped: true }) : undefined
    world.release(given?.kind === 'done' ? given.id! : lease)
    const account = world.state.pools.get('g')!.accounts.get('team')!
    expect(account.held).toBe(1)
    return account.usage
  }
  const expected = usage(false)
  expect(expected).toBeGreaterThan(0)
  const passedOn = usage(true)
  expect(passedOn).toBe(expected)
})
