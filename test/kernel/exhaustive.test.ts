import { describe, expect, test } from 'vitest'
import { apply } from '../../src/kernel/apply.ts'
import { saveState, stateHash } from '../../src/kernel/codec/snapshot.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Event } from '../../src/kernel/event.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { timerOf } from '../../src/kernel/state/timers.ts'
import { createState, SLOTS, type State } from '../../src/kernel/state.ts'
import { violations, withinCapacity } from '../support/kernel/invariant.ts'
import { loaded, wants } from '../support/kernel/world.ts'

/**
 * Every sequence of a given length of commands over a small alphabet. What can follow depends on the state alone, so a state reached in two ways is
 * looked at once; each step starts from a copy that went through bytes, so every snapshot on the way is tried as well.
 */

type Letter = (state: State) => Command | undefined

const take = (holder: string, names: readonly string[], more: object = {}): Letter => {
  const command = { kind: 'acquire', holder, ttl: 1_000, wants: wants(...names), ...more } as const
  return () => command
}

const due =
  (id: number, slot: number): Letter =>
  state => {
    const lease = findLease(state, id)
    const timer = lease === undefined ? undefined : timerOf(lease, slot as 0)
    return timer === undefined ? undefined : { kind: 'due', timer: id * SLOTS + slot, epoch: timer.epoch }
  }

const on = (command: Command): Letter => {
  return () => command
}

interface Setting {
  readonly before: readonly Command[]
  readonly letters: Readonly<Record<string, Letter>>
  readonly length: number
}

const common: Record<string, Letter> = {
  'renew 1 and 2': on({ kind: 'renew', leases: [1, 2] }),
  'release 1': on({ kind: 'release', lease: 1 }),
  'release 2': on({ kind: 'release', lease: 2 }),
  'due 1': due(1, 0),
  'due 2': due(2, 0),
  'due 3': due(3, 0),
  'revoke 1': on({ kind: 'revoke', target: { lease: 1 } }),
}

const settings: Record<string, Setting> = {
  'two locks': {
    before: [],
    length: 5,
    letters: {
      ...common,
      'A x': take('A', ['x']),
      'B x wait': take('B', ['x'], { wait: true }),
      'B y x wait': take('B', ['y', 'x'], { wait: true, holding: [1] }),
      'B y under 1': take('B', ['y'], { parent: 1 }),
      'release 1 of x': on({ kind: 'release', lease: 1, resource: 'x' }),
      'transfer 1': on({ kind: 'transfer', lease: 1, to: 'B', stopped: true }),
      'break x': on({ kind: 'break', resource: 'x' }),
    },
  },
  'every kind of end': {
    before: [{ kind: 'policy', prefix: '', rules: { lockDelay: 50, maxHold: 70 } }],
    length: 5,
    letters: {
      ...common,
      'A x y': take('A', ['x', 'y'], { grace: 60, maxLife: 900 }),
      'B x wait': take('B', ['x'], { wait: true }),
      'B steals x': take('B', ['x'], { wait: true, steal: 'after' }),
      'A forces y': take('A', ['y'], { wait: true, steal: 'force', parent: 2 }),
      'C steals any of x y': take('C', ['x', 'y'], { wait: true, any: 1, steal: 'after' }),
      'cap 1': due(1, 1),
      'hold 1': due(1, 2),
      'break x later': on({ kind: 'break', resource: 'x', after: 40 }),
      'break due 1': due(1, 3),
      'force all of A': on({ kind: 'revoke', target: { holder: 'A' }, force: true }),
      'give 1': on({ kind: 'transfer', lease: 1, to: 'C' }),
    },
  },
  'a pool and sharers': {
    before: [{ kind: 'policy', prefix: 'x', rules: { capacity: 3, queue: 'fit' } }],
    length: 5,
    letters: {
      'release 1': common['release 1']!,
      'release 2': common['release 2']!,
      'due 1': common['due 1']!,
      'due 3': common['due 3']!,
      'revoke 1': common['revoke 1']!,
      'A two of x': take('A', ['x:2']),
      'B three of x wait': take('B', ['x:3'], { wait: true }),
      'A one of x, y wait': take('A', ['x', 'y'], { wait: true }),
      'B shares y wait': take('B', ['y~'], { wait: true }),
      'A any of y x wait': take('A', ['y', 'x'], { any: 1, wait: true }),
      'B y': take('B', ['y']),
      'one of x only': on({ kind: 'policy', prefix: 'x', rules: { capacity: 1 } }),
      'four of x': on({ kind: 'policy', prefix: 'x', rules: { capacity: 4 } }),
    },
  },
  // Two of three are suspect already: one more, and the service is preserved.
  registrations: {
    before: [
      { kind: 'policy', prefix: 'services', rules: { preserveLeast: 1, preserveMost: 2_000, flapSuppress: 1_000, sweepShare: 1 } },
      ...[1, 2, 3].map(n => {
        const entries = [{ key: `services/s/${n}`, value: '' }]
        return { kind: 'acquire' as const, holder: n === 3 ? 'A' : `H${n}`, ttl: 1_000, wants: [], grace: 50, entries }
      }),
      ...[1, 2].map(n => ({ kind: 'due' as const, timer: n * SLOTS, epoch: 1 })),
    ],
    length: 4,
    letters: {
      'A 3': take('A', [], { entries: [{ key: 'services/s/3', value: '' }] }),
      'B 1 newer': take('B', [], { entries: [{ key: 'services/s/1', value: '', generation: 1 }] }),
      'A 1 and x': take('A', ['x'], { wait: true, entries: [{ key: 'services/s/1', value: '' }] }),
      'A 3 as 3': take('A', [], { incarnation: 3, entries: [{ key: 'services/s/3', value: '' }] }),
      'state of 3': on({ kind: 'put', lease: 3, key: 'services/s/3/state', value: 'busy' }),
      'delete 1': on({ kind: 'delete', key: 'services/s/1' }),
      'due 1': due(1, 0),
      'due 2': due(2, 0),
      'due 3': due(3, 0),
      'due 4': due(4, 0),
      'renew 1, 3 and 4': on({ kind: 'renew', leases: [1, 3, 4] }),
      'release 3': on({ kind: 'release', lease: 3 }),
      tick: state => ({ kind: 'tick', n: state.tick + 1, elapsed: 60_000 }),
    },
  },
  'entries and incarnations': {
    before: [],
    length: 6,
    letters: {
      'A e': take('A', [], { entries: [{ key: 'e', value: '1' }] }),
      'A e as 1': take('A', [], { incarnation: 1, entries: [{ key: 'e', value: '2' }] }),
      'B e x': take('B', ['x'], { entries: [{ key: 'e', value: '3' }] }),
      'A x under 1': take('A', ['x'], { parent: 1, entries: [{ key: 'f', value: '4' }], grace: 50 }),
      'put e on 1': on({ kind: 'put', lease: 1, key: 'e', value: '5' }),
      'put f on 2': on({ kind: 'put', lease: 2, key: 'f', value: '6' }),
      'delete e': on({ kind: 'delete', key: 'e' }),
      'delete e of 2': on({ kind: 'delete', key: 'e', lease: 2 }),
      'revoke e': on({ kind: 'revoke', target: { prefix: 'e' } }),
      'release 1': on({ kind: 'release', lease: 1 }),
      'due 1': due(1, 0),
      'due 2': due(2, 0),
      'renew 2': on({ kind: 'renew', leases: [2] }),
      'revoke A': on({ kind: 'revoke', target: { holder: 'A' } }),
    },
  },
  'entries without a lease': {
    before: [{ kind: 'policy', prefix: 'e', rules: { freeEntries: 2 } }],
    length: 5,
    letters: {
      'A x': take('A', ['x']),
      'B x wait, with e/1': take('B', ['x'], { wait: true, entries: [{ key: 'e/1', value: 'b' }] }),
      'put e/1 on 1': on({ kind: 'put', lease: 1, key: 'e/1', value: 'a' }),
      'delete e/1': on({ kind: 'delete', key: 'e/1' }),
      'free e/1 and e/2': on({ kind: 'transaction', success: [{ key: 'e/1', value: '1' }, { key: 'e/2' }] }),
      'free e/3 if new': on({
        kind: 'transaction',
        compare: [{ key: 'e/3', field: 'created', is: 'equal' }],
        success: [{ key: 'e/3', value: '3' }],
        failure: [{ key: 'e/3', delete: true }],
      }),
      'e/1 to 1 if it hangs on none': on({
        kind: 'transaction',
        compare: [{ key: 'e/1', field: 'lease', is: 'equal' }],
        success: [{ key: 'e/1', value: '4', lease: 1 }],
        failure: [{ key: 'e/1', value: '5' }],
      }),
      'e/2 to 2, without e/1': on({
        kind: 'transaction',
        success: [
          { key: 'e/2', lease: 2 },
          { key: 'e/1', delete: true },
        ],
      }),
      'B x with its e/1, if new': take('B', ['x'], {
        compare: [{ key: 'e/1', field: 'created', is: 'equal' }],
        changes: [{ key: 'e/1', value: '6', own: true }, { key: 'e/3' }],
      }),
      'release 1 with e/1': on({ kind: 'release', lease: 1, changes: [{ key: 'e/1', value: '7' }] }),
      'nothing outside': on({ kind: 'transaction', success: [{ key: 'f', value: '' }] }),
      'release 1': on({ kind: 'release', lease: 1 }),
      'due 1': due(1, 0),
      'due 2': due(2, 0),
      'revoke 2': on({ kind: 'revoke', target: { lease: 2 } }),
      'no policy': on({ kind: 'policy', prefix: 'e' }),
    },
  },
}

/** The holder of each exclusive resource according to events alone: from granted until released, lapsed, transferred or thawed. */
function follow(known: ReadonlyMap<string, string>, events: readonly Event[], path: string): Map<string, string> {
  const now = new Map(known)
  const frozen = new Set(events.filter(event => event.type === 'frozen').map(event => `${event.lease}/${event.resource}`))
  for (const { type, resource, lease } of events) {
    const hold = `${lease}/${resource}`
    if (resource === undefined) continue
    if (type === 'granted') {
      if (now.has(hold)) throw new Error(`${path}: ${hold} is granted twice`)
      now.set(hold, resource)
    }
    if (type === 'thawed' || (['released', 'lapsed', 'revoked', 'transferred'].includes(type) && !frozen.has(hold))) {
      if (!now.has(hold)) throw new Error(`${path}: ${hold} ended without being held`)
      now.delete(hold)
    }
  }
  return now
}

describe('every sequence of commands', { timeout: 900_000 }, () => {
  test.each(Object.entries(settings))('%s', (name, { before, letters, length }) => {
    const start = createState(0)
    for (const command of before) apply(start, { command }, { events: [], timer: () => undefined })
    let level = [{ state: start, path: '', known: new Map<string, string>() }]
    const seen = new Set([stateHash(start)])
    let steps = 0
    for (let depth = 1; depth <= length; depth++) {
      const next: typeof level = []
      for (const { state: from, path, known } of level) {
        const hash = stateHash(from)
        const saved = [...saveState(from)]
        for (const [letter, make] of Object.entries(letters)) {
          const command = make(from)
          if (command === undefined) continue
          const state = loaded(saved)
          const events: Event[] = []
          const outcome = apply(state, { command }, { events, timer: () => undefined })
          const here = `${path} | ${letter}`
          steps++
          const after = stateHash(state)
          if (outcome.kind === 'refused' && after !== hash) throw new Error(`${here}: refused, and something changed`)
          if (state.revision - from.revision !== (events.length > 0 ? 1 : 0)) throw new Error(`${here}: revision ${state.revision}`)
          if (seen.has(after)) continue
          seen.add(after)
          const broken = violations(state)
          if (broken.length > 0) throw new Error(`${here}: ${broken.join('; ')}`)
          if (name !== 'a pool and sharers') withinCapacity(state)
          const tokens = events.filter(event => event.type === 'granted' && event.token !== undefined).map(event => event.token!)
          if (tokens.some((token, i) => token !== from.nextToken + i)) throw new Error(`${here}: tokens ${tokens}`)
          const holds = follow(known, events, here)
          const held = [...state.leases.values()].flatMap(lease => lease.grants.map(grant => `${lease.id}/${grant.resource.name}`))
          if (held.length !== holds.size || held.some(hold => !holds.has(hold)))
            throw new Error(`${here}: held is ${held}, events say ${[...holds.keys()]}`)
          next.push({ state, path: here, known: holds })
        }
      }
      level = next
    }
    expect(steps).toBeGreaterThan(10_000)
  })
})
