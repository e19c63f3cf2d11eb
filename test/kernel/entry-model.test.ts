import fc from 'fast-check'
import { expect, test } from 'vitest'
import { COMPARED, type Comparison, type EntryChange, RELATIONS } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { EntryModel } from '../support/kernel/entry-model.ts'
import { reload, World } from '../support/kernel/world.ts'

const MOST = 3
const keys = ['kv/a', 'kv/b', 'kv/c/d', 'kv/c/e', 'kv/c'] as const
const key = fc.constantFrom(...keys, ...keys, 'elsewhere')
const value = fc.constantFrom('', '1', '2')
const lease = fc.nat(5)
/** A lease, or the place of one, or none. */
const change = fc.record({ key, value, lease: fc.option(lease, { freq: 3 }), delete: fc.boolean() })
const comparison = fc.record({
  key,
  field: fc.constantFrom(...COMPARED),
  is: fc.constantFrom(...RELATIONS),
  near: fc.constantFrom(0, 0, 0, 1, -1),
  value,
})

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('transact' as const),
      compare: fc.array(comparison, { maxLength: 2 }),
      success: fc.array(change, { maxLength: 3 }),
      failure: fc.array(change, { maxLength: 2 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('begin' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('grant' as const, 'release' as const),
      lease,
      compare: fc.array(comparison, { maxLength: 1 }),
      changes: fc.array(change, { maxLength: 3 }),
      own: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('end' as const), lease }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('put' as const), lease, key, value }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete' as const), key }) },
)

type Given<A> = A extends fc.Arbitrary<infer T> ? T : never

function word(outcome: Outcome): string {
  if (outcome.kind === 'transacted') return String(outcome.succeeded)
  return outcome.kind === 'refused' ? outcome.code : outcome.kind
}

test('entries and transactions do what a naive model of them does, also after a snapshot', { timeout: 900_000 }, () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 50, size: 'max' }), steps => {
      const world = new World({ strict: false })
      world.policy('kv', { freeEntries: MOST })
      const model = new EntryModel(world.state.revision, MOST)
      const id = (n: number) => 1 + (n % Math.max(1, world.state.nextLease - 1))
      for (const [i, next] of steps.entries()) {
        const where = `step ${i}: ${JSON.stringify(next)}`
        const [said, expected] = play(next)
        expect(said, where).toBe(expected)
        expect(world.state.revision, where).toBe(model.revision)
        expect(there(), where).toEqual(model.entries.toSorted((a, b) => (a.key < b.key ? -1 : 1)))
        if (i % 10 === 9) world.state = reload(world.state)
      }

      function there(): object[] {
        const attached = [...world.state.entries.values()].map(({ generation: _, lease: on, ...entry }) => ({ ...entry, lease: on.id }))
        const free = [...world.state.free.values()].map(({ by: _, ...entry }) => ({ ...entry, lease: 0 }))
        return [...attached, ...free].sort((a, b) => (a.key < b.key ? -1 : 1))
      }

      function comparisons(compare: readonly Given<typeof comparison>[]): Comparison[] {
        return compare.map(({ key: name, field, is, near, value: text }) => {
          if (field === 'value') return { key: name, field, is: is === 'equal' ? 'equal' : 'unequal', value: text }
          const found = model.entries.find(entry => entry.key === name)?.[field] ?? 0
          return { key: name, field, is, number: Math.max(0, found + near) }
        })
      }

      function changed(list: readonly Given<typeof change>[]): EntryChange[] {
        return list.map(({ key: name, value: text, lease: on, delete: deletes }) =>
          deletes ? { key: name, delete: true } : { key: name, value: text, ...(on !== null && { lease: id(on) }) },
        )
      }

      function play(step: (typeof steps)[number]): [string, string] {
        switch (step.do) {
          case 'begin': {
            const { lease: begun } = world.acquire(`h${world.state.nextLease}`, [])
            model.begin(begun)
            return ['', '']
          }
          case 'end':
            world.release(id(step.lease))
            model.end(id(step.lease))
            return ['', '']
          case 'put': {
            const on = id(step.lease)
            const outcome = world.do({ kind: 'put', lease: on, key: step.key, value: step.value })
            return [word(outcome), model.put(on, step.key, step.value)]
          }
          case 'delete':
            return [word(world.do({ kind: 'delete', key: step.key })), model.delete(step.key)]
          case 'grant': {
            const compare = comparisons(step.compare)
            const isFree = (item: EntryChange) => item.delete !== true && item.lease === undefined
            const changes = changed(step.changes).map(item => (step.own && isFree(item) ? { ...item, own: true } : item))
            const begun = world.state.nextLease
            return [word(world.ask(`h${begun}`, [], { compare, changes })), model.grant(begun, { compare, changes })]
          }
          case 'release': {
            const on = id(step.lease)
            const more = { compare: comparisons(step.compare), changes: changed(step.changes) }
            return [word(world.do({ kind: 'release', lease: on, ...more })), model.release(on, more)]
          }
          case 'transact': {
            const compare = comparisons(step.compare)
            const transaction = { compare, success: changed(step.success), failure: changed(step.failure) }
            return [word(world.do({ kind: 'transaction', ...transaction })), model.transact(transaction)]
          }
        }
      }
    }),
    { numRuns: 500 },
  )
})
