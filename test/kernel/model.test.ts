import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { FROZEN, SLOTS, type State, SUSPECT } from '../../src/kernel/state.ts'
import { Model, type Wish } from '../support/kernel/model.ts'
import { World } from '../support/kernel/world.ts'
import { runs } from '../support/runs.ts'

const resources = ['x', 'y', 'pool', 'big/pool'] as const
const capacity = { pool: 3, 'big/pool': 5 } as const

const lock = fc.record({ resource: fc.constantFrom('x', 'y'), units: fc.constant(1), shared: fc.boolean() })
const unit = fc.record({ resource: fc.constantFrom('pool', 'big/pool'), units: fc.integer({ min: 1, max: 4 }), shared: fc.constant(false) })
const wishes = fc.uniqueArray(fc.oneof(lock, unit), { selector: wish => wish.resource, maxLength: 4 })
const exclusive = fc.subarray(['x', 'y'], { minLength: 2 }).map(names => names.map(resource => ({ resource, units: 1, shared: false })))

const one = fc.nat(30)
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('acquire' as const),
      holder: fc.constantFrom('a', 'b', 'c'),
      ttl: fc.constantFrom(1_000, 60_000),
      wishes,
      wait: fc.boolean(),
      priority: fc.constantFrom(0, 0, 0, 1, -1),
      parent: fc.option(one, { freq: 4 }),
      grace: fc.constantFrom(0, 0, 500),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('any' as const), wishes: exclusive, any: fc.constantFrom(1, 2), wait: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('renew' as const), lease: one }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('release' as const),
      lease: one,
      resource: fc.option(fc.constantFrom(...resources), { freq: 3 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('due' as const), lease: one, stale: fc.constantFrom(0, 0, 0, 1) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('resize' as const), resource: fc.constantFrom(...resources), units: fc.nat(5) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('revoke' as const), lease: one, force: fc.boolean() }) },
)

function word(outcome: Outcome): string {
  return outcome.kind === 'refused' ? outcome.code : outcome.kind
}

function holds(state: State): string[] {
  return [...state.leases.values()]
    .flatMap(({ id, status, grants }) =>
      grants.map(({ resource, units }) => `${resource.name} ${id} ${units}${status === FROZEN ? '*' : status === SUSPECT ? '?' : ''}`),
    )
    .sort()
}

describe('the kernel does what a naive model of it does', { timeout: 900_000 }, () => {
  test.each([
    { lockDelay: 0, fit: [] },
    { lockDelay: 700, fit: [] },
    { lockDelay: 0, fit: ['x', 'pool', 'big/pool'] },
    { lockDelay: 0, fit: resources },
  ])('with a lock-delay of $lockDelay ms, and overtaking where it fits: $fit', ({ lockDelay, fit }) => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 60, size: 'max' }), steps => {
        const world = new World({ strict: false })
        for (const name of resources)
          world.policy(name, { capacity: { x: 1, y: 1, ...capacity }[name], queue: fit.includes(name) ? 'fit' : 'fifo' })
        if (lockDelay > 0) world.policy('', { lockDelay })
        const model = new Model({ capacity, lockDelay, fit })
        /** The nth lease that is there, or was. */
        const id = (n: number) => 1 + (n % world.state.nextLease)
        for (const [i, next] of steps.entries()) {
          const [said, expected] = play(next)
          const where = `step ${i}: ${JSON.stringify(next)}`
          expect(said, where).toBe(expected)
          expect(holds(world.state), where).toEqual(model.holds())
          for (const name of resources)
            expect(
              (world.state.resources.get(name)?.queue ?? []).map(lease => lease.id),
              `${where}, queue of ${name}`,
            ).toEqual(model.queue(name))
          expect([...world.state.leases.values()].map(lease => lease.id)).toEqual(model.leases.map(lease => lease.id))
        }

        function ask(holder: string, ttl: number, list: readonly Wish[], more: object): string {
          const wants = list.map(({ resource, units, shared }) => (shared ? { resource, shared } : { resource, units }))
          return word(world.do({ kind: 'acquire', holder, ttl, wants, ...more }))
        }

        function play(next: (typeof steps)[number]): [string | number, string | number] {
          switch (next.do) {
            case 'acquire': {
              const { holder, ttl, wishes: list, priority, grace } = next
              const more = {
                ...(next.wait && list.length > 0 && { wait: true }),
                ...(next.parent !== null && { parent: id(next.parent) }),
                ...(priority !== 0 && { priority }),
                ...(grace > 0 && { grace }),
              }
              return [ask(holder, ttl, list, more), model.acquire({ holder, ttl, wishes: list, ...more })]
            }
            case 'any': {
              const more = { any: next.any, ...(next.wait && { wait: true }) }
              return [ask('a', 1_000, next.wishes, more), model.acquire({ holder: 'a', ttl: 1_000, wishes: next.wishes, ...more })]
            }
            case 'renew':
              return [world.renew(id(next.lease)), model.renew(id(next.lease))]
            case 'release': {
              const resource = next.resource ?? undefined
              return [word(world.release(id(next.lease), resource)), model.release(id(next.lease), resource)]
            }
            case 'due': {
              const lease = id(next.lease)
              const epoch = (world.lease(lease)?.epoch ?? 1) - next.stale
              return [word(world.do({ kind: 'due', timer: lease * SLOTS, epoch })), model.due(lease, epoch)]
            }
            case 'resize': {
              const { resource, units } = next
              const queue = fit.includes(resource) ? ('fit' as const) : ('fifo' as const)
              const outcome = world.do({ kind: 'policy', prefix: resource, rules: { capacity: units, queue } })
              return [word(outcome), model.resize(resource, units)]
            }
            case 'revoke': {
              const lease = id(next.lease)
              return [word(world.do({ kind: 'revoke', target: { lease }, force: next.force })), model.revoke(lease, next.force)]
            }
          }
        }
      }),
      { numRuns: runs(800) },
    )
  })
})
