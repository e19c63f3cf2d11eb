/** Random programs of keys with limits, alone and in a group: the kernel refuses what the naive count says, and nothing else. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Command, KeyLimits } from '../../src/kernel/command.ts'
import { type LeaseState, LIVE, WAITING } from '../../src/kernel/state.ts'
import { KeyLimitModel, said } from '../support/kernel/key-limit-model.ts'
import { reload, World } from '../support/kernel/world.ts'

const GROUP = 'g'
const pick = fc.nat(1_000)
const key = fc.constantFrom(1, 2, 3)
const limits = fc.record(
  {
    leases: fc.integer({ min: 0, max: 4 }),
    waiters: fc.integer({ min: 0, max: 2 }),
    entries: fc.nat(3),
    bytes: fc.integer({ min: 0, max: 30 }),
  },
  { requiredKeys: [] },
)
const entry = fc.record({ key: fc.constantFrom('e/1', 'e/2', 'e/3'), value: fc.constantFrom('', 'v', '123456789') })
const name = fc.constantFrom('x', 'y', 'z')

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('acquire' as const),
      key,
      name,
      wait: fc.boolean(),
      entries: fc.array(entry, { maxLength: 2 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('put' as const), key, lease: pick, entry }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), key, entry }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('write' as const), key, entry, gone: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release' as const), lease: pick }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('lapse' as const), lease: pick }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('revoke' as const), lease: pick }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('transfer' as const), lease: pick, to: key, named: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('claim' as const), key, lease: pick }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('renew' as const), key, lease: pick }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('limit' as const), key, limits, ofGroup: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

class Player {
  readonly world = new World()
  readonly model = new KeyLimitModel()
  readonly answers = new Set<string>()

  constructor() {
    const allow = (['acquire', 'register', 'read'] as const).map(verb => ({ verb, prefix: '' }))
    this.world.policy('kv', { freeEntries: 100 })
    // Keys 2 and 3 are a group.
    for (const id of [1, 2, 3]) {
      const group = id === 1 ? {} : { group: GROUP }
      expect(this.world.do({ kind: 'key', name: `k${id}`, hash: `${id}`.repeat(64), allow, ...group })).toMatchObject({ id })
      this.model.limits.set(id, {})
    }
    this.model.groups.set(GROUP, { keys: new Set([2, 3]), limits: {} })
  }

  play(next: Step): void {
    if (next.do === 'restart') {
      this.world.state = reload(this.world.state)
      return
    }
    if (next.do === 'limit') return this.#limit(next.ofGroup ? GROUP : next.key, next.limits)
    const asked = this.#command(next)
    if (asked === undefined) return
    const { command, by } = asked
    const expected = this.model.expected(this.world.state, command, by)
    const answer = said(this.world.do(command, { key: by }))
    expect(answer, JSON.stringify(next)).toBe(expected)
    this.answers.add(`${next.do} ${answer.split(' ')[0]}`)
  }

  #limit(of: number | string, limits: KeyLimits): void {
    const { world, model } = this
    if (typeof of === 'string') {
      world.do({ kind: 'limit', group: of, limits })
      model.groups.get(of)!.limits = limits
    } else {
      world.do({ kind: 'limit', id: of, limits })
      model.limits.set(of, limits)
    }
  }

  #lease(n: number, fits: (lease: LeaseState) => boolean = () => true): LeaseState | undefined {
    const there = [...this.world.state.leases.values()].filter(fits)
    return there[n % Math.max(1, there.length)]
  }

  /** The command, and the key that sends it. Undefined: there is no lease for it. */
  #command(next: Exclude<Step, { readonly do: 'restart' | 'limit' }>): { readonly command: Command; readonly by: number } | undefined {
    switch (next.do) {
      case 'acquire': {
        const entries = next.entries.filter((one, i) => next.entries.findIndex(({ key }) => key === one.key) === i)
        const wants = [{ resource: next.name }]
        const command: Command = { kind: 'acquire', holder: `h${next.key}`, ttl: 10_000, wants, wait: next.wait, entries }
        return { command, by: next.key }
      }
      case 'delete':
        return { command: { kind: 'delete', key: next.entry.key }, by: next.key }
      case 'write': {
        const written = { key: `kv/${next.entry.key}`, value: next.entry.value }
        return { command: { kind: 'transaction', success: [next.gone ? { key: written.key, delete: true } : written] }, by: next.key }
      }
      default:
        return this.#onLease(next)
    }
  }

  #onLease(next: Extract<Step, { readonly lease: number }>): { readonly command: Command; readonly by: number } | undefined {
    const isOpen = (lease: LeaseState) => lease.extras?.open === true
    const lease =
      next.do === 'claim'
        ? this.#lease(next.lease, isOpen)
        : next.do === 'transfer' || next.do === 'put'
          ? this.#lease(next.lease, ({ status }) => status === LIVE)
          : this.#lease(next.lease)
    if (lease === undefined) return undefined
    const { id } = lease
    switch (next.do) {
      case 'put':
        return { command: { kind: 'put', lease: id, ...next.entry }, by: next.key }
      case 'release':
        return { command: { kind: 'release', lease: id }, by: 0 }
      case 'lapse':
        if (lease.status !== WAITING) this.world.due(id)
        return undefined
      case 'revoke':
        return { command: { kind: 'revoke', target: { lease: id }, force: true }, by: 0 }
      case 'transfer': {
        const other = this.#lease(next.lease, ({ holder }) => holder.name === `h${next.to}`)
        const incarnation = next.named && other !== undefined ? { incarnation: other.incarnation } : {}
        return { command: { kind: 'transfer', lease: id, to: `h${next.to}`, stopped: true, ...incarnation }, by: 0 }
      }
      case 'claim':
        return { command: { kind: 'claim', lease: id }, by: next.key }
      case 'renew':
        return { command: { kind: 'renew', leases: [id] }, by: next.key }
    }
  }
}

test('in random programs, exactly what is beyond a limit is refused, counted anew after each command', { timeout: 300_000 }, () => {
  const answers = new Set<string>()
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 40, size: 'max' }), steps => {
      const player = new Player()
      for (const next of steps) player.play(next)
      for (const answer of player.answers) answers.add(answer)
    }),
    { numRuns: 150 },
  )
  if (process.env.LEASEHOLD_PROPERTY_SEED !== undefined) return
  const reached = ['acquire granted', 'acquire queued', 'acquire LIMIT', 'put done', 'put LIMIT', 'write transacted', 'write LIMIT']
  expect([...reached, 'transfer done', 'claim done', 'claim LIMIT'].filter(answer => !answers.has(answer))).toEqual([])
})
