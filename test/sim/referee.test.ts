/**
 * The referee of the simulator accepts unusual but correct histories, and names the invariant that a wrong history violates. Histories are real
 * records applied by the real kernel. To violate an invariant, a test changes the result of the kernel before the referee sees it.
 */
import { describe, expect, test } from 'vitest'
import type { ObservedBelief } from '../../sim/beliefs.ts'
import { Referee } from '../../sim/referee.ts'
import { RHO, World } from '../../sim/world.ts'
import { applyBatch, encodeBatch } from '../../src/kernel/codec/batch.ts'
import { StateLoader, saveState, stateHash } from '../../src/kernel/codec/snapshot.ts'
import type { Acquire, Command, Operation, PolicyRules, Proposal } from '../../src/kernel/command.ts'
import type { Event } from '../../src/kernel/event.ts'
import type { Outcome, Refused } from '../../src/kernel/outcome.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { timerId, timerOf } from '../../src/kernel/state/timers.ts'
import { BREAK, QUIET, RULES, type Slot, type State, TERM } from '../../src/kernel/state.ts'

type Tamper = (state: State, events: Event[], outcome: Outcome, command: Command) => Outcome | undefined

class RefereedWorld extends World {
  readonly violations: string[] = []
  readonly referee: Referee
  /** Called after each command, before the referee sees its result. */
  tamper: Tamper = () => undefined
  #index = 0
  #seq = 0
  #last: Uint8Array = new Uint8Array()

  constructor() {
    super(1)
    const apply: typeof applyBatch = (state, index, batch, effects, each) => {
      let at = 0
      return applyBatch(state, index, batch, effects, outcome => {
        const { command } = batch.proposals[at++]!
        each?.(this.tamper(state, effects.events, outcome, command) ?? outcome)
      })
    }
    this.referee = new Referee(this, { apply })
  }

  override violate(invariant: string): void {
    this.violations.push(invariant)
  }

  get state(): State {
    return this.referee.state
  }

  /** Appends one record with these proposals. Returns the outcome of the last. */
  propose(...proposals: Proposal[]): Outcome {
    const batch = { proposer: 1, seq: ++this.#seq, applied: this.#index, trail: [0, 0] as const, wall: Math.floor(this.now), proposals }
    this.#last = encodeBatch(batch)
    const before = this.tamper
    let last: Outcome | undefined
    this.tamper = (state, events, outcome, command) => {
      last = before(state, events, outcome, command) ?? outcome
      return last
    }
    this.append(this.#last)
    this.tamper = before
    return last!
  }

  append(bytes: Uint8Array, sentAt = this.now): void {
    this.referee.observe({ index: ++this.#index, nonce: BigInt(this.#index) }, bytes, sentAt)
  }

  /** Appends the last record once more. */
  again(): void {
    this.append(this.#last)
  }

  lose(count: number): void {
    this.referee.lose(count)
    this.#index -= count
  }

  do(command: Command, sender: { readonly key?: number; readonly op?: Operation } = {}): Outcome {
    return this.propose({ command, ...sender })
  }

  /** Returns the id of the granted or queued lease, 0 if it was refused. */
  acquire(
    holder: string,
    resources: string | string[],
    rest: Partial<Acquire> = {},
    sender: { key?: number; op?: Operation } = {},
  ): number {
    const wants = [resources].flat().map(resource => ({ resource }))
    const outcome = this.do({ kind: 'acquire', holder, ttl: 1_000, wants, ...rest }, sender)
    return outcome.kind === 'granted' || outcome.kind === 'queued' ? outcome.lease : 0
  }

  release(lease: number): Outcome {
    this.referee.givenUp.add(lease)
    return this.do({ kind: 'release', lease })
  }

  renew(lease: number, key = 0): Outcome {
    return this.do({ kind: 'renew', leases: [lease] }, { key })
  }

  revoke(lease: number, force = false): Outcome {
    return this.do({ kind: 'revoke', target: { lease }, force })
  }

  due(lease: number, slot: Slot = TERM): Outcome {
    const it = findLease(this.state, lease)!
    return this.do({ kind: 'due', timer: timerId(it, slot), epoch: timerOf(it, slot)!.epoch })
  }

  policy(prefix: string, rules: PolicyRules): void {
    this.do({ kind: 'policy', prefix, rules })
  }

  key(...prefixes: string[]): number {
    const allow = prefixes.map(prefix => ({ verb: 'acquire', prefix }) as const)
    return (this.do({ kind: 'key', name: 'k', hash: '0'.repeat(64), allow }) as { id: number }).id
  }

  register(holder: string, key: string, incarnation?: number): number {
    return this.acquire(holder, [], { entries: [{ key, value: 'v' }], ...(incarnation !== undefined && { incarnation }) })
  }

  token(lease: number): number {
    return findLease(this.state, lease)!.grants[0]!.token
  }

  /** A holder that uses the lease until `stop` is called. */
  belief(lease: number, { units = 1, shared = false } = {}): ObservedBelief & { stop(): void } {
    const grants = findLease(this.state, lease)!.grants.map(({ resource, token }) => ({ resource: resource.name, units, shared, token }))
    let holds = true
    return {
      who: `${lease}`,
      lease,
      grants,
      holds: () => holds,
      stop: () => {
        holds = false
      },
    }
  }
}

type History = (world: RefereedWorld) => void

/** At least five histories that the referee must accept, and the histories that it must report. */
function cases(invariant: string, accepted: Readonly<Record<string, History>>, reported: Readonly<Record<string, History>>): void {
  describe(invariant, () => {
    expect(Object.keys(accepted).length).toBeGreaterThanOrEqual(5)
    test.each(Object.entries(accepted))('accepts: %s', (_, history) => {
      const world = new RefereedWorld()
      history(world)
      world.referee.checkWhole()
      expect(world.violations).toEqual([])
    })
    test.each(Object.entries(reported))('reports: %s', (_, history) => {
      const world = new RefereedWorld()
      history(world)
      expect(world.violations[0]).toBe(invariant)
    })
  })
}

const op = (seq: number, session = 's'): Operation => ({ session, seq, acked: 0 })
const deadlock: Refused = { kind: 'refused', revision: 0, code: 'DEADLOCK', message: '', facts: {} }

/** Drops the events of one lease, as if nothing had happened to it. */
function silence(events: Event[], lease: number): void {
  const kept = events.filter(event => event.lease !== lease)
  events.splice(0, events.length, ...kept)
}

/** Two holders use one resource: the first continues after its lease was revoked by force, and the referee has no exception for it. */
function twoHolders(c: RefereedWorld, shared: boolean): void {
  const a = c.acquire('a', 'x')
  const first = c.belief(a)
  c.referee.beliefs.begins(first)
  c.do({ kind: 'revoke', target: { lease: a }, force: true })
  c.referee.beliefs.begins(c.belief(c.acquire('b', 'x'), { shared }))
}

cases(
  'S1',
  {
    'a holder stops at the moment at which the next begins': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'readers share a resource': c => {
      for (const who of ['a', 'b', 'c']) {
        const lease = c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
        c.referee.beliefs.begins(c.belief(lease, { units: 0, shared: true }))
      }
    },
    'a pool is used up to its last unit': c => {
      c.policy('p', { capacity: 3 })
      c.referee.beliefs.begins(c.belief(c.acquire('a', [], { wants: [{ resource: 'p', units: 2 }] }), { units: 2 }))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'p')))
    },
    'a lease was revoked by force': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      c.referee.beliefs.forced.add(first.lease)
      c.revoke(first.lease, true)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'a holder that steals by force uses its lease at once': c => {
      c.referee.beliefs.begins(c.belief(c.acquire('a', 'x')))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' })))
    },
    'holders from before a capacity was reduced continue': c => {
      c.policy('p', { capacity: 2 })
      const beliefs = ['a', 'b'].map(who => c.belief(c.acquire(who, 'p')))
      c.policy('p', { capacity: 1 })
      for (const belief of beliefs) c.referee.beliefs.begins(belief)
    },
    'a grant is answered after its term is over': c => {
      const first = c.belief(c.acquire('a', 'x'))
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
      c.referee.beliefs.begins(first)
    },
  },
  {
    'two holders use one resource': c => twoHolders(c, false),
    'a reader and a writer use one resource': c => twoHolders(c, true),
    'more units are used than exist': c => {
      c.policy('p', { capacity: 3 })
      for (const who of ['a', 'b'])
        c.referee.beliefs.begins(c.belief(c.acquire(who, [], { wants: [{ resource: 'p', units: 1 }] }), { units: 2 }))
    },
  },
)

cases(
  'S2',
  {
    'a late write is refused': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      const next = c.belief(c.acquire('b', 'x'))
      expect(c.referee.beliefs.writes(next, 'x', next.grants[0]!.token)).toBe(true)
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(false)
    },
    'a late write is accepted before any newer token was seen': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      c.acquire('b', 'x')
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(true)
    },
    'one token is used twice': c => {
      const belief = c.belief(c.acquire('a', 'x'))
      for (let i = 0; i < 2; i++) expect(c.referee.beliefs.writes(belief, 'x', belief.grants[0]!.token)).toBe(true)
    },
    'a holder that lost its lease by force is refused while it still uses the lease': c => {
      const first = c.belief(c.acquire('a', 'x'))
      const thief = c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' }))
      c.referee.beliefs.writes(thief, 'x', thief.grants[0]!.token)
      expect(c.referee.beliefs.writes(first, 'x', first.grants[0]!.token)).toBe(false)
    },
    'a repeated operation gets its earlier answer': c => {
      const old = c.token(c.acquire('a', 'x'))
      c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) })
      const young = c.token(c.acquire('b', 'y'))
      c.do({ kind: 'fence', resource: 'x', token: young }, { op: op(2) })
      expect(c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) }).kind).toBe('fenced')
    },
  },
  {
    'the present holder is refused': c => {
      const [a, b] = [c.belief(c.acquire('a', 'x')), c.belief(c.acquire('b', 'y'))]
      c.referee.beliefs.writes(b, 'x', b.grants[0]!.token)
      c.referee.beliefs.writes(a, 'x', a.grants[0]!.token)
    },
    'a fence accepts an older token': c => {
      const tokens = ['x', 'y'].map(resource => c.token(c.acquire('a', resource)))
      c.do({ kind: 'fence', resource: 'x', token: tokens[1]! })
      c.tamper = () => ({ kind: 'fenced', revision: 0, highest: tokens[0]! })
      c.do({ kind: 'fence', resource: 'x', token: tokens[0]! })
    },
  },
)

cases(
  'S3',
  {
    'one command grants several resources': c => void c.acquire('a', ['x', 'y', 'z']),
    'a resource is granted again after a release': c => {
      c.release(c.acquire('a', 'x'))
      c.acquire('a', 'x')
    },
    'tokens skip numbers after a generation': c => {
      c.acquire('a', 'x')
      c.do({ kind: 'generation', lease: 0, token: c.state.nextToken + 1_000_000, revision: 0, quiet: 0 })
      c.do({ kind: 'due', timer: QUIET, epoch: c.state.quiet!.epoch })
      c.acquire('a', 'y')
    },
    'the recipient of a transfer gets a new token': c => {
      const lease = c.acquire('a', 'x')
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
    'a late copy of a lost record arrives before a survivor writes a generation': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.lose(1)
      c.acquire('b', 'y')
    },
    'an old holder renews between new grants': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.renew(lease)
      c.acquire('c', 'z')
    },
  },
  {
    'a token is granted twice': c => {
      const token = c.token(c.acquire('a', 'x'))
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, token }
        return undefined
      }
      c.acquire('b', 'y')
    },
  },
)

cases(
  'S4',
  {
    'a lost lease number is granted to another holder before a survivor notices the loss': c => {
      c.acquire('first', 'y')
      const lost = c.acquire('a', 'x', { ttl: 4_000 })
      c.referee.terms.acknowledged(lost, 0, 4_000)
      c.lose(1)
      expect(c.acquire('b', 'x', { ttl: 300 })).toBe(lost)
      c.now = 400
      c.due(lost)
    },
    'a lease lapses exactly at its deadline': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO)
      c.due(lease)
    },
    'a renewal is acknowledged after the release of its lease': c => {
      const lease = c.acquire('a', 'x')
      c.renew(lease)
      c.release(lease)
      c.now = 5
      c.referee.terms.acknowledged(lease, 1, 1_000)
    },
    'a lease is revoked long before its deadline': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.revoke(lease)
    },
    'an older renewal is acknowledged after a newer one': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 100, 1_000)
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_100
      c.due(lease)
    },
    'a lease whose grant was never acknowledged lapses early': c => {
      const lease = c.acquire('a', 'x')
      c.now = 1
      c.due(lease)
    },
    'a lease is suspect after its term, and gone after its grace': c => {
      const lease = c.acquire('a', 'x', { grace: 50 })
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000
      c.due(lease)
      c.due(lease)
    },
    'a waiter without any acknowledgement is withdrawn': c => {
      c.acquire('a', 'x')
      const waiter = c.acquire('b', 'x', { wait: true })
      c.now = 1
      c.due(waiter)
    },
    'a lost renewal does not count before a survivor writes a generation': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.now = 1_010
      c.due(lease)
    },
    'the delay of a break continues when later records are lost': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 300
      c.acquire('b', 'y')
      c.lose(1)
      c.now = 400
      c.due(lease, BREAK)
    },
  },
  {
    'a lease lapses one millisecond early': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO) - 1
      c.due(lease)
    },
    'a renewal is acknowledged after its lease has lapsed early': c => {
      const lease = c.acquire('a', 'x')
      c.now = 500
      c.due(lease)
      c.referee.terms.acknowledged(lease, 100, 1_000)
    },
    'a lease is broken before the delay is over': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 390
      c.due(lease, BREAK)
    },
    'a lease with a lost renewal lapses early after a survivor wrote a generation': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 1_000 })
      c.now = 1_010
      c.due(lease)
    },
    'a lease is broken before the delay is over, when later records were lost': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 300
      c.acquire('b', 'y')
      c.lose(1)
      c.now = 390
      c.due(lease, BREAK)
    },
  },
)

cases(
  'L3',
  {
    'the holder knows that its lease lapsed': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => true })
      c.due(lease)
    },
    'the lease is revoked, and the holder learns of it later': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => true, told: () => false })
      c.revoke(lease)
    },
    'the holder released the lease itself': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.release(lease)
    },
    'the holder of another lease does not know': c => {
      const [lease, other] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.referee.beliefs.watch({ ...c.belief(other), holds: () => true, told: () => false })
      c.due(lease)
    },
    'the holder transfers its lease, and has stopped': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.referee.givenUp.add(lease)
      c.due(lease)
    },
  },
  {
    'the holder does not know that its lease lapsed': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.due(lease)
    },
  },
)

/** In a world without stalls, a lapse may be half a second late. */
function calm(history: History): History {
  return c => {
    c.referee.terms.lateness = 500
    history(c)
  }
}

cases(
  'S5',
  {
    'the latest time that is allowed': calm(c => {
      const lease = c.acquire('a', 'x')
      c.now = 1_000 * (1 + RHO) + 500
      c.due(lease)
    }),
    'each renewal begins a new term': calm(c => {
      const lease = c.acquire('a', 'x')
      for (c.now = 0; c.now < 10_000; c.now += 900) c.renew(lease)
      c.due(lease)
    }),
    'the grace is added to the term': calm(c => {
      const lease = c.acquire('a', 'x', { grace: 3_000 })
      c.now = 1_400
      c.due(lease)
      c.now = 4_800
      c.due(lease)
    }),
    'a long term follows a short first term': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 60_000 })
      c.now = 20_000
      c.renew(lease)
      c.now = 80_400
      c.due(lease)
    }),
    'the shorter of two breaks counts': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.do({ kind: 'break', resource: 'x', after: 1_000 })
      c.now = 1_400
      c.due(lease, (BREAK + 1) as Slot)
      c.now = 20_000
      c.due(lease)
      c.referee.nothingIsLeft('after its units have thawed')
    }),
    'a world with stalls has no limit for lateness': c => {
      const lease = c.acquire('a', 'x')
      c.now = 3_600_000
      c.due(lease)
      c.referee.nothingIsLeft('at last')
    },
  },
  {
    'too late': calm(c => {
      const lease = c.acquire('a', 'x')
      c.now = 1_600
      c.due(lease)
    }),
    'a second break lengthens the first': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 200 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.now = 5_000
      c.due(lease, BREAK)
    }),
    'a first term is longer than the limit': c => {
      c.tamper = (_, __, outcome) => ({ ...outcome, ttl: 60_000 }) as Outcome
      c.acquire('a', 'x', { ttl: 60_000 })
    },
    'a lease is left at the end of the run': c => {
      c.acquire('a', 'x')
      c.referee.nothingIsLeft('after a year')
    },
  },
)

cases(
  'S6',
  {
    'a late release finds no lease': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.release(lease).kind).toBe('refused')
    },
    'a late renewal is answered that its lease is gone': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.renew(lease)).toMatchObject({ ttls: [-1] })
    },
    'a revoked lease is freed when its holder releases it': c => {
      const lease = c.acquire('a', 'x')
      c.revoke(lease)
      c.now = 10
      c.release(lease)
    },
    'a replica that has not read the end of a lease renews it': c => {
      const lease = c.acquire('a', 'x')
      const known = c.referee.length
      c.due(lease)
      c.referee.renewed(lease, known, 0)
    },
    'a lease whose end was lost is renewed': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.lose(1)
      c.renew(lease)
      c.referee.renewed(lease, c.referee.length, 1)
    },
    'a waiter is granted after a renewal in the queue': c => {
      const [first, second] = [c.acquire('a', 'x'), c.acquire('b', 'x', { wait: true })]
      c.do({ kind: 'renew', leases: [second], waiting: true })
      c.release(first)
      c.renew(second)
    },
  },
  {
    'a lease is renewed after its end': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.referee.renewed(lease, c.referee.length, 0)
    },
    'a lease is granted after its end': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, lease }
        return undefined
      }
      c.acquire('b', 'x')
    },
    'ended twice': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      const other = c.acquire('b', 'x')
      c.now = 10
      c.tamper = (_, events) => {
        for (const [i, event] of events.entries()) events[i] = { ...event, lease }
        return undefined
      }
      c.due(other)
    },
  },
)

/** A lease that its holder transferred, with a key, to a name without a known process. */
function given(c: RefereedWorld, key: number): number {
  const lease = c.acquire('a', 'x', {}, { key })
  c.referee.givenUp.add(lease)
  return (c.do({ kind: 'transfer', lease, to: 'heir', stopped: true }, { key }) as { id: number }).id
}

cases(
  'S7',
  {
    'a holder releases its lease': c => void c.release(c.acquire('a', 'x')),
    'an operator revokes a lease': c => void c.revoke(c.acquire('a', 'x')),
    'a lease is renewed with its own key': c => {
      const key = c.key('x')
      expect(c.renew(c.acquire('a', 'x', {}, { key }), key)).toMatchObject({ ttls: [1_000] })
    },
    'a renewal with another key finds no lease': c => {
      const [mine, other] = [c.key('x'), c.key('x')]
      expect(c.renew(c.acquire('a', 'x', {}, { key: mine }), other)).toMatchObject({ ttls: [-1] })
    },
    'a process with the store renews the lease of a key': c => {
      const key = c.key('x')
      c.renew(c.acquire('a', 'x', {}, { key }))
    },
    'a late release arrives when another holder has the resource': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.acquire('b', 'x')
      c.release(lease)
    },
    'a lease transferred to a name is claimed with a key that allows it': c => {
      const [giver, taker] = [c.key('x'), c.key('x')]
      expect(c.renew(given(c, giver), taker)).toMatchObject({ ttls: [1_000] })
    },
    'a claim with a key that does not allow the lease is refused': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      expect(c.renew(given(c, giver), stranger)).toMatchObject({ ttls: [-1] })
    },
  },
  {
    'a lease transferred to a name is claimed with a key that does not allow it': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      const lease = given(c, giver)
      c.tamper = state => {
        findLease(state, lease)!.key = stranger
        return { kind: 'renewed', revision: 0, ttls: [1_000] }
      }
      c.renew(lease, stranger)
    },
    'another process releases a lease': c => void c.do({ kind: 'release', lease: c.acquire('a', 'x') }),
    'a lease is renewed with another key': c => {
      const lease = c.acquire('a', 'x', {}, { key: c.key('x') })
      const other = c.key('x')
      c.tamper = () => ({ kind: 'renewed', revision: 0, ttls: [1_000] })
      c.renew(lease, other)
    },
    'another holder takes an entry': c => {
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('b', 'e')
    },
  },
)

cases(
  'S8',
  {
    'parent, child and grandchild end together': c => {
      const parent = c.register('a', 'e')
      const child = c.acquire('a', 'x', { parent })
      c.acquire('a', 'y', { parent: child })
      c.due(parent)
    },
    'a child ends before its parent': c => {
      const parent = c.register('a', 'e')
      c.release(c.acquire('a', 'x', { parent }))
      c.release(parent)
    },
    'a child still waits when its parent ends': c => {
      c.acquire('b', 'x')
      const parent = c.register('a', 'e')
      c.acquire('a', 'x', { parent, wait: true })
      c.release(parent)
    },
    'an entry was taken over by another lease': c => {
      const first = c.register('a', 'e')
      c.register('a', 'e', first)
      c.release(first)
    },
    'one grant is released, and the lease continues': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.do({ kind: 'release', lease, resource: 'x' })
    },
    'frozen units outlive the entries of their lease': c => {
      const lease = c.acquire('a', 'x', { entries: [{ key: 'e', value: '' }] })
      c.revoke(lease)
    },
  },
  {
    'an entry outlives its lease': c => {
      const lease = c.register('a', 'e')
      const entry = c.state.entries.get('e')!
      c.tamper = state => {
        state.entries.set('e', entry)
        return undefined
      }
      c.release(lease)
    },
    'a child outlives its parent': c => {
      const parent = c.register('a', 'e')
      const child = c.acquire('a', 'x', { parent })
      c.tamper = (_, events) => {
        silence(events, child)
        return undefined
      }
      c.release(parent)
    },
    'a lease outlives its end': c => {
      const lease = c.acquire('a', 'x')
      const it = findLease(c.state, lease)!
      c.tamper = state => {
        state.leases.set(lease - state.origin, it)
        return undefined
      }
      c.release(lease)
    },
    'a resource is held by a lease that is gone': c => {
      const lease = c.acquire('a', 'x')
      c.state.leases.delete(lease - c.state.origin)
      c.referee.checkWhole()
    },
  },
)

cases(
  'S9',
  {
    'an answer comes from the end of the log': c => c.referee.answers.answered(c.do(plain('a', 'x')), undefined, c.referee.revision, 0),
    'answered late': c => {
      const outcome = c.do(plain('a', 'x'))
      c.acquire('b', 'y')
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'a grant is acknowledged after its lease has ended': c => {
      const outcome = c.do(plain('a', 'x'))
      c.release((outcome as { lease: number }).lease)
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'an answer comes from before a loss': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'an owner that has not noticed the loss refuses a request': c => {
      c.do(plain('a', 'x'))
      const refused = c.do(plain('b', 'x'))
      c.lose(1)
      c.referee.answers.answered({ ...refused, revision: refused.revision + 5 }, undefined, 0, 1)
    },
    'a lease without resources is granted': c => c.referee.answers.answered(c.do({ ...plain('a', 'x'), wants: [] }), undefined, 0, 0),
  },
  {
    'an answer comes from a revision that the log has not reached': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'a grant that is not in the log is acknowledged': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, lease: 7 } as Outcome, undefined, 0, 0)
    },
    'a grant is acknowledged with another token': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, tokens: [7] } as Outcome, undefined, 0, 0)
    },
  },
)

function plain(holder: string, resource: string): Acquire {
  return { kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }] }
}

cases(
  'S10',
  {
    'a request is refused as of the revision at which it was sent': c => {
      c.acquire('a', 'x')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, c.referee.revision, 0)
    },
    'a request is refused as of a later revision': c => {
      c.acquire('a', 'x')
      const asked = c.referee.revision
      c.acquire('a', 'y')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, asked, 0)
    },
    'a repeated operation gets its earlier answer': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'), { op: op(1) })
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, '0:s:1', c.referee.revision, 0)
    },
    'one of two resources is granted when one is enough': c => {
      c.acquire('a', 'x')
      expect(c.acquire('b', ['x', 'y'], { any: 1 })).not.toBe(0)
    },
    'a waiter is granted both resources at once': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.release(x)
      c.release(y)
    },
    'a request that would close a cycle is refused': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      expect(c.do({ ...plain('b', 'x'), wait: true, holding: [y] })).toMatchObject({ code: 'DEADLOCK' })
    },
    'a refusal for a cycle is repeated after the cycle is gone': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      const waiter = c.acquire('a', 'y', { wait: true, holding: [x] })
      const wish = { ...plain('b', 'x'), wait: true, holding: [y] }
      c.do(wish, { op: op(1) })
      c.release(waiter)
      expect(c.do(wish, { op: op(1) })).toMatchObject({ code: 'DEADLOCK' })
    },
  },
  {
    'a request is refused from an old state': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'))
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, undefined, c.referee.revision, 0)
    },
    'one of two resources is granted when both were requested': c => {
      c.tamper = (_, events) => {
        events.pop()
        return undefined
      }
      c.acquire('a', ['x', 'y'])
    },
    'a request is refused for a cycle that does not exist': c => {
      const y = c.acquire('b', 'y')
      c.acquire('a', 'x')
      c.tamper = () => deadlock
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)

cases(
  'S11',
  {
    'an operation gets the same answer twice': c => {
      for (let i = 0; i < 2; i++) c.do(plain('a', 'x'), { op: op(1) })
    },
    'two sessions use the same number': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'x'), { op: op(1, 't') })
    },
    'two keys use the same session': c => {
      const key = c.key('y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'y'), { op: op(1), key })
    },
    'an operation is repeated after its answer was forgotten': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('a', 'y'), { op: { ...op(2), acked: 1 } })
      expect(c.do(plain('a', 'x'), { op: op(1) })).toMatchObject({ code: 'STALE' })
    },
    'a repeated renewal is done again': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
      c.release(lease)
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
    },
    'an operation is repeated after its answer was lost with the log': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.acquire('c', 'x')
      c.do(plain('a', 'x'), { op: op(1) })
    },
    'a client receives the outcome that is in the log': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
    'a client receives a refusal that is not in the log': c => {
      c.acquire('a', 'x')
      c.referee.answers.received({ kind: 'refused', revision: c.state.revision, code: 'HELD', message: '', facts: {} }, '0:s:1', 0, 0)
    },
    'a client receives an outcome that was lost meanwhile': c => {
      c.acquire('b', 'y')
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
  },
  {
    'a client receives an outcome of an operation that is not in the log': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:2', 0, 0)
    },
    'a proposer receives the answer to another proposal': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      const other = c.do(plain('a', 'y'), { op: op(2) })
      c.referee.answers.received(other, '0:s:1', 0, 0)
    },
    'another answer': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.tamper = (_, __, outcome) => ({ ...outcome, lease: 5 }) as Outcome
      c.do(plain('a', 'x'), { op: op(1) })
    },
  },
)

cases(
  'S12',
  {
    'a failed operation never arrives': c => c.referee.answers.failed('0:s:1'),
    'a failed operation arrives and is refused': c => {
      c.acquire('a', 'x')
      c.referee.answers.failed('0:s:1')
      c.do(plain('b', 'x'), { op: op(1) })
    },
    'the next operation of the same session is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(2) })
    },
    'the operation with the same number of another key is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1), key: c.key('x') })
    },
    'an operation is done without any report': c => void c.do(plain('a', 'x'), { op: op(1) }),
    'a failed operation was done in a record that is lost': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.failed('0:s:1')
    },
  },
  {
    'an operation that was done is reported as failed': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.failed('0:s:1')
    },
    'an operation that was reported as failed is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1) })
    },
  },
)

/** Five revisions, as a watcher must see them. */
function revisions(c: RefereedWorld): Event[][] {
  const seen: Event[][] = []
  const before = c.tamper
  c.tamper = (_, events) => {
    if (events.length > 0) seen.push([...events])
    return undefined
  }
  for (const resource of ['u', 'v', 'w']) c.acquire('a', [resource, `${resource}2`])
  c.tamper = before
  return seen
}

cases(
  'S13',
  {
    'a watcher sees one revision after another': c => {
      const [first, second, third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!, 0)
      c.referee.revisions.watched(second![0]!.revision, third!, 0)
    },
    'a watcher begins before the first revision': c => c.referee.revisions.watched(0, revisions(c)[0]!, 0),
    'a watcher skips a gap after a resync': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision - 1, third!, 0)
    },
    'revisions skip numbers with a generation': c => {
      const [, , third] = revisions(c)
      const token = c.state.nextToken
      let seen: Event[] = []
      c.tamper = (_, events) => {
        seen = [...events]
        return undefined
      }
      c.do({ kind: 'generation', lease: 0, token, revision: c.state.revision + 50, quiet: 0 })
      c.referee.revisions.watched(third![0]!.revision, seen, 0)
    },
    'a watcher saw revisions that were lost': c => {
      const [first, , third] = revisions(c)
      c.lose(1)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
  },
  {
    'a watcher skips a revision': c => {
      const [first, , third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
    'a watcher sees half of a revision': c => {
      const [first, second] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!.slice(1), 0)
    },
    'a watcher sees a revision that is not in the log': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision, [{ ...third![0]!, revision: third![0]!.revision + 1 }], 0)
    },
  },
)

cases(
  'S14',
  {
    'the recipient of a transfer is granted before waiters': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'transfer', lease, to: 'heir' })
      c.due(lease)
    },
    'a waiter with higher priority is granted first': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.acquire('c', 'x', { wait: true, priority: 1 })
      c.release(lease)
    },
    'a waiter that fits overtakes a waiter that needs more': c => {
      c.policy('p', { capacity: 2, queue: 'fit' })
      c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      expect(c.acquire('c', 'p')).not.toBe(0)
    },
    'a waiter that has waited long is granted before one with higher priority': c => {
      c.policy('x', { aging: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'tick', n: 1, elapsed: 1_000 })
      c.acquire('c', 'x', { wait: true, priority: 2 })
      c.release(lease)
    },
    'a waiter whose key was revoked is skipped': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true }, { key })
      c.acquire('c', 'x', { wait: true })
      c.do({ kind: 'unkey', id: key })
      c.release(lease)
    },
    'a waiter for two resources delays a waiter for one of them': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.acquire('c', 'x', { wait: true })
      c.release(x)
      c.release(y)
    },
  },
  {
    'the second waiter is granted before the first': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      const second = c.acquire('c', 'x', { wait: true })
      const waiter = c.state.resources.get('x')!.queue[0]!
      const first = { ...waiter, rare: { ...waiter.rare! } }
      c.tamper = (state, events) => {
        state.resources.get('x')!.queue.unshift(first)
        for (const [i, event] of events.entries()) if (event.type === 'granted') events[i] = { ...event, lease: second }
        return undefined
      }
      c.release(lease)
    },
    'a waiter whose key was revoked is granted': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      const waiter = findLease(c.state, c.acquire('b', 'x', { wait: true }, { key }))!
      // As if its place in the queue had not been removed.
      waiter.key = 0
      c.do({ kind: 'unkey', id: key })
      waiter.key = key
      c.release(lease)
    },
    'a waiter that was withdrawn is granted': c => {
      c.acquire('a', 'x')
      const gone = c.acquire('b', 'x', { wait: true })
      c.release(gone)
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, lease: gone }
        return undefined
      }
      c.acquire('c', 'y')
    },
    'a waiter has a rank that does not follow from its priority': c => {
      c.acquire('a', 'x')
      c.tamper = state => {
        state.resources.get('x')!.queue[0]!.rare!.rank = 5
        return undefined
      }
      c.acquire('b', 'x', { wait: true })
    },
  },
)

cases(
  'S15',
  {
    'all units are granted': c => {
      c.policy('p', { capacity: 2 })
      for (const who of ['a', 'b']) c.acquire(who, 'p')
    },
    'grants exceed a capacity that was reduced after them': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.acquire('c', 'p', { wait: true })
      c.release(first!)
    },
    'a lease is transferred after the capacity was reduced': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.referee.givenUp.add(first!)
      c.do({ kind: 'transfer', lease: first!, to: 'c', stopped: true })
    },
    'readers take no units': c => {
      for (const who of ['a', 'b', 'c']) c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
    },
    'a larger capacity grants a waiter at once': c => {
      c.acquire('a', 'p')
      c.acquire('b', 'p', { wait: true })
      c.policy('p', { capacity: 2 })
    },
  },
  {
    'one unit too many is granted': c => {
      c.acquire('a', 'x')
      c.state.resources.get('x')!.used = 0
      c.acquire('b', 'x')
    },
    'a writer is granted beside readers': c => {
      c.policy('x', { capacity: 2 })
      c.acquire('a', [], { wants: [{ resource: 'x', shared: true }] })
      c.state.resources.get('x')!.sharers = 0
      c.acquire('b', 'x')
    },
  },
)

cases(
  'S18',
  {
    'a newer incarnation takes over an entry': c => {
      c.register('a', 'e')
      c.register('a', 'e')
    },
    'the same incarnation writes again': c => {
      const lease = c.register('a', 'e')
      c.do({ kind: 'put', lease, key: 'e', value: 'w' })
      c.register('a', 'e', lease)
    },
    'an incarnation that was replaced is refused': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      expect(c.register('a', 'e', old)).toBe(0)
    },
    'the former lease of an entry ends, and the entry stays': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.due(old)
      expect(c.state.entries.has('e')).toBe(true)
    },
    'an older incarnation registers after its successor has gone': c => {
      const old = c.register('a', 'e')
      c.release(c.register('a', 'e'))
      expect(c.register('a', 'e', old)).not.toBe(0)
    },
    'a late delete names the wrong lease and changes nothing': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      expect(c.do({ kind: 'delete', key: 'e', lease: old })).toMatchObject({ code: 'STALE' })
    },
  },
  {
    'an older incarnation overwrites the entry of a newer one': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('a', 'e', old)
    },
    'an older incarnation deletes the entry of a newer one': c => {
      c.register('a', 'e')
      const young = c.register('a', 'e')
      c.tamper = (_, events) => {
        events.push({ revision: c.state.revision, type: 'deleted', lease: young, key: 'e', at: 0 })
        return undefined
      }
      c.do({ kind: 'delete', key: 'e', lease: 1 })
    },
    'an entry ends with a lease that it does not belong to': c => {
      const old = c.register('a', 'e')
      const young = c.register('a', 'e')
      c.tamper = (_, events) => {
        events.push({ revision: c.state.revision, type: 'deleted', lease: young, key: 'e', at: 0 })
        return undefined
      }
      c.due(old)
    },
  },
)

/** A server that was stalled from 100 to 600, and a renewal that reached it at 200. */
function stalled(c: RefereedWorld, { appending = false, arrived = 200 } = {}): number {
  const lease = c.acquire('a', 'x', { ttl: 400 })
  c.referee.terms.server = {
    arrivedWhileStalled: new Map([[lease, arrived]]),
    renewals: new Map(),
    machine: { lastStall: { from: 100, to: 600, appending }, life: 1, rough: -1 },
  }
  return lease
}

/** A server that was stalled from 100 to 600, and acknowledged a renewal at 600. */
function renewedOnWaking(c: RefereedWorld, { life = 1, rough = -1, losses = 0 } = {}): number {
  const lease = stalled(c, { arrived: 50 })
  c.referee.terms.server!.renewals.set(lease, { at: 600, term: 400, life, losses })
  Object.assign(c.referee.terms.server!.machine, { rough })
  return lease
}

function lapseAt(c: RefereedWorld, lease: number, at: number, sentAt = at): void {
  c.now = at
  const it = findLease(c.state, lease)!
  const proposals = [{ command: { kind: 'due', timer: timerId(it, TERM), epoch: it.epoch } as const }]
  c.append(encodeBatch({ proposer: 2, seq: at, applied: c.state.index, trail: [0, 0], wall: 0, proposals }), sentAt)
}

cases(
  'S19',
  {
    'a lease lapses long after the renewal that waited': c => lapseAt(c, stalled(c), 700),
    'no renewal of the lease had arrived': c => {
      stalled(c)
      lapseAt(c, c.acquire('b', 'y', { ttl: 400 }), 600)
    },
    'the lapse was proposed before the stall': c => lapseAt(c, stalled(c, { arrived: 450 }), 610, 90),
    'the lapse waited behind an append in progress': c => lapseAt(c, stalled(c, { appending: true, arrived: 450 }), 610),
    'the renewal arrived before the stall': c => lapseAt(c, stalled(c, { arrived: 50 }), 610),
    'no server is judged': c => {
      const lease = stalled(c, { arrived: 450 })
      c.referee.terms.server = undefined
      lapseAt(c, lease, 610)
    },
  },
  { 'a lease lapses at the moment at which the stall ends': c => lapseAt(c, stalled(c, { arrived: 450 }), 610) },
)

cases(
  'S5',
  {
    'a lease lapses one term after the renewal': c => lapseAt(c, renewedOnWaking(c), 1_010),
    'the lapse waited behind an append that failed': c => lapseAt(c, renewedOnWaking(c, { rough: 900 }), 5_000),
    'the server was killed after the renewal': c => lapseAt(c, renewedOnWaking(c, { life: 0 }), 5_000),
    'the log lost records after the renewal': c => lapseAt(c, renewedOnWaking(c, { losses: -1 }), 5_000),
    'the lapse was proposed in time, and arrived late': c => lapseAt(c, renewedOnWaking(c), 5_000, 1_010),
    'a generation restarted the term': c => {
      const lease = renewedOnWaking(c)
      c.now = 4_000
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 400 })
      lapseAt(c, lease, 5_000)
    },
  },
  { 'a stall from before the renewal is added to its term': c => lapseAt(c, renewedOnWaking(c), 1_010 + 1_000) },
)

cases(
  'S20',
  {
    'several processes share the log': c => {
      for (const name of ['a', 'b', 'c']) c.referee.opened(name, false)
    },
    'one process after another owns the log': c => {
      c.referee.opened('a', true)
      c.referee.closed('a')
      c.referee.opened('b', true)
    },
    'a process owns the log after all others have closed it': c => {
      for (const name of ['a', 'b']) c.referee.opened(name, false)
      for (const name of ['a', 'b']) c.referee.closed(name)
      c.referee.opened('a', true)
    },
    'processes share the log after its owner has closed it': c => {
      c.referee.opened('a', true)
      c.referee.closed('a')
      for (const name of ['a', 'b']) c.referee.opened(name, false)
    },
    'an owner opens the log again after a failure': c => {
      c.referee.opened('a', true)
      c.referee.opened('a', true)
    },
  },
  {
    'two processes own the log': c => {
      c.referee.opened('a', true)
      c.referee.opened('b', true)
    },
    'a process shares a log that another owns': c => {
      c.referee.opened('a', true)
      c.referee.opened('b', false)
    },
    'a process owns a log that another uses': c => {
      c.referee.opened('a', false)
      c.referee.opened('b', true)
    },
  },
)

const machine = { name: 'm' }

cases(
  'S22',
  {
    'a replica has the same state': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, c.state.index, () => c.referee.hash())
    },
    'a replica has the same state before the first record': c => c.referee.sameState(machine, 0, () => c.referee.hash()),
    'a replica is behind': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 0, () => 'its earlier state')
    },
    'a replica is ahead of a log that lost records': c => {
      c.acquire('a', 'x')
      c.acquire('a', 'y')
      const hash = c.referee.hash()
      c.lose(1)
      c.referee.sameState(machine, 2, () => hash)
    },
    'a replica began from a snapshot': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      const loader = new StateLoader()
      for (const chunk of saveState(c.state)) loader.add(chunk.slice())
      const state = loader.finish()
      c.referee.sameState(machine, state.index, () => stateHash(state))
    },
    'a replica that does not know the newer rules stops where they were raised': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica that knows the newer rules continues': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES + 1, c.state.index)
    },
    'the rules were raised in a record that is lost': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.lose(1)
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica reads the records again after a loss': c => {
      c.acquire('a', 'x')
      const hash = c.referee.hash()
      c.acquire('a', 'y')
      c.lose(1)
      c.referee.sameState(machine, 1, () => hash)
    },
  },
  {
    'a replica that does not know the newer rules continues under them': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica has another state at the same record': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 1, () => 'other')
    },
    'a holder has no name': c => {
      const lease = findLease(c.state, c.acquire('a', 'x'))!
      Object.assign(lease.holder, { name: '' })
      c.referee.checkWhole()
    },
  },
)

cases(
  'S24',
  {
    'a record arrives twice and counts once': c => {
      c.acquire('a', 'x')
      c.again()
    },
    'a record arrives three times, with others in between': c => {
      const lease = c.acquire('a', 'x')
      c.again()
      c.again()
      c.renew(lease)
    },
    'two proposers use the same number': c => {
      c.acquire('a', 'x')
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 1, trail: [0, 0], wall: 0, proposals }))
    },
    'a record that claims to have applied later records is void': c => {
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 500, trail: [0, 0], wall: 0, proposals }))
      expect(c.state.leases.size).toBe(0)
    },
    'a copy of a lost record counts': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.lose(1)
      c.again()
    },
    'a grant is acknowledged after a loss of later records': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered(outcome, undefined, 0, 1)
    },
  },
  {
    'a record is applied twice': c => {
      c.acquire('a', 'x')
      c.state.proposers.clear()
      c.again()
    },
    'a grant that was never in the log is acknowledged after a loss': c => {
      const outcome = c.do(plain('a', 'x'))
      c.lose(1)
      c.referee.answers.answered({ ...outcome, revision: 0, lease: 5 } as Outcome, undefined, 0, 1)
    },
  },
)

cases(
  'S25',
  {
    'a key allows the resource with the name of its prefix': c => void c.acquire('a', 'x', {}, { key: c.key('x') }),
    'a key allows a resource under its prefix': c => void c.acquire('a', 'x/y/z', {}, { key: c.key('x') }),
    'a key does not allow a name that only begins with the letters of its prefix': c =>
      expect(c.acquire('a', 'xy', {}, { key: c.key('x') })).toBe(0),
    'a key with an empty prefix allows everything': c => void c.acquire('a', 'y', {}, { key: c.key('') }),
    'a process with the store needs no key': c => {
      c.key('x')
      c.acquire('a', 'y')
    },
    'a process with the store transfers the lease of a revoked key': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x', {}, { key })
      c.do({ kind: 'unkey', id: key })
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
  },
  {
    'a key allows more than its prefixes': c => {
      const key = c.key('x')
      c.state.keys.set(key, { ...c.state.keys.get(key)!, allow: [{ verb: 'acquire', prefix: '' }] })
      c.acquire('a', 'y', {}, { key })
    },
  },
)

/** A world in which entries under `kv` may hang on no lease, with the entry kv/a. */
function withEntry(c: RefereedWorld): void {
  c.policy('kv', { freeEntries: 9 })
  c.do({ kind: 'transaction', success: [{ key: 'kv/x', value: '1' }] })
}

cases(
  'S26',
  {
    'a transaction does what one of its branches says': c => {
      withEntry(c)
      const compare = [{ key: 'kv/x', field: 'version', is: 'equal', number: 1 }] as const
      const success = [
        { key: 'kv/x', value: '2' },
        { key: 'kv/y', delete: true },
      ]
      for (let i = 0; i < 2; i++) c.do({ kind: 'transaction', compare, success, failure: [{ key: 'kv/x', delete: true }] })
      c.referee.checkWhole()
    },
    'entries on a lease end with it, those on none do not': c => {
      withEntry(c)
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'transaction', success: [{ key: 'kv/y', value: '2', lease }] })
      c.due(lease)
      c.referee.checkWhole()
      expect([...c.state.free.values()].map(({ key }) => key)).toEqual(['kv/x'])
    },
    'a transaction that no policy allows is refused and changes nothing': c => {
      withEntry(c)
      c.do({ kind: 'transaction', success: [{ key: 'elsewhere/a', value: '1' }] })
      c.referee.checkWhole()
    },
    'an entry on no lease is deleted by its key': c => {
      withEntry(c)
      c.do({ kind: 'delete', key: 'kv/x' })
      c.referee.checkWhole()
    },
    'amounts move from one account to another': c => {
      c.policy('kv', { freeEntries: 9 })
      c.do({ kind: 'transaction', success: ['kv/a', 'kv/b', 'kv/c'].map(key => ({ key, value: '100' })) })
      c.do({
        kind: 'transaction',
        success: [
          { key: 'kv/a', value: '90' },
          { key: 'kv/b', value: '110' },
        ],
      })
    },
  },
  {
    'a transaction says that its comparisons were true, and they were not': c => {
      withEntry(c)
      c.tamper = (_state, _events, outcome) => (outcome.kind === 'transacted' ? { ...outcome, succeeded: true } : undefined)
      c.do({ kind: 'transaction', compare: [{ key: 'kv/x', field: 'value', is: 'equal', value: '2' }] })
    },
    'a transaction carries out only one of its changes': c => {
      withEntry(c)
      c.tamper = (_state, events) => void events.splice(1)
      c.do({
        kind: 'transaction',
        success: [
          { key: 'kv/x', value: '2' },
          { key: 'kv/y', value: '2' },
        ],
      })
    },
    'an entry on no lease ends with a lease': c => {
      withEntry(c)
      const lease = c.acquire('a', 'x')
      c.tamper = (state, events) => {
        state.free.delete('kv/x')
        const { revision, at } = events[0]!
        events.push({ revision, type: 'deleted', lease: 0, key: 'kv/x', at })
      }
      c.release(lease)
    },
    'an entry is gone, and was not deleted': c => {
      withEntry(c)
      c.state.free.delete('kv/x')
      c.referee.checkWhole()
    },
    'an entry does not have the version that follows from its writes': c => {
      withEntry(c)
      c.state.free.set({ ...c.state.free.get('kv/x')!, version: 2 })
      c.referee.checkWhole()
    },
    'an amount is lost on its way': c => {
      c.policy('kv', { freeEntries: 9 })
      c.do({ kind: 'transaction', success: ['kv/a', 'kv/b', 'kv/c'].map(key => ({ key, value: '100' })) })
      c.do({ kind: 'transaction', success: [{ key: 'kv/a', value: '90' }] })
    },
  },
)

cases(
  'L1',
  {
    'the resource is held': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
    },
    'one of two resources is free': c => {
      c.acquire('a', 'x')
      c.acquire('b', ['x', 'y'], { wait: true })
    },
    'the log is in its quiet time after a loss': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 1_000 })
      c.release(lease)
    },
    'no waiter fits since the capacity was reduced': c => {
      c.policy('p', { capacity: 2 })
      const lease = c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      c.policy('p', { capacity: 1 })
      c.release(lease)
    },
    'a frozen resource is not free': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.revoke(lease)
    },
    'a lock-delay follows a lapse': c => {
      c.policy('x', { lockDelay: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.due(lease)
    },
  },
  {
    'a free resource is not granted to its waiter': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.tamper = state => {
        state.resources.get('x')!.grants.length = 0
        return undefined
      }
      c.do({ kind: 'recall', resource: 'x' })
    },
    'two resources are free, and the first waiter for both is not granted them': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.acquire('b', ['x', 'y'], { wait: true })
      findLease(c.state, lease)!.grants = []
      for (const name of ['x', 'y']) c.state.resources.get(name)!.grants.length = 0
      c.referee.checkWhole()
    },
    'a released resource is withheld': c => {
      const lease = c.acquire('a', 'x')
      const it = findLease(c.state, lease)!
      c.tamper = state => {
        it.status = 3
        state.leases.set(lease - state.origin, it)
        return undefined
      }
      c.release(lease)
    },
    'a request closes a waiting cycle': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      const b = c.acquire('b', 'x', { wait: true })
      c.tamper = () => ({ kind: 'queued', revision: 0, lease: b, incarnation: 1, ttl: 1_000, position: 0 })
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)

cases(
  'L2',
  {
    'at once': c => c.referee.grantableAfter(0, 700, 500),
    'a resource is granted when its term is over': c => c.referee.grantableAfter(700, 700, 500),
    'a resource is granted late because clock rates differ as much as allowed': c => c.referee.grantableAfter(700 * (1 + RHO), 700, 0),
    'the latest time that is allowed': c => c.referee.grantableAfter(700 * (1 + RHO) + 500, 700, 500),
    'a resource with a long term is granted late': c => c.referee.grantableAfter(45_000, 45_000, 500),
  },
  { 'too late': c => c.referee.grantableAfter(1_300, 700, 500) },
)
