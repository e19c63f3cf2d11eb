/**
 * The referee of the simulator: lawful but odd histories pass, unlawful ones are called by their name. Histories are real entries applied by
 * the real kernel; to break a rule, the kernel's work is tampered with before the referee sees it.
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

class Court extends World {
  readonly verdicts: string[] = []
  readonly referee: Referee
  /** Called after each command, before the referee looks. */
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
    this.verdicts.push(invariant)
  }

  get state(): State {
    return this.referee.state
  }

  /** One entry with these proposals; the outcome of the last. */
  propose(...proposals: Proposal[]): Outcome {
    const entry = { proposer: 1, seq: ++this.#seq, applied: this.#index, trail: [0, 0] as const, wall: Math.floor(this.now), proposals }
    this.#last = encodeBatch(entry)
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

  /** The last entry arrives once more. */
  again(): void {
    this.append(this.#last)
  }

  lose(count: number): void {
    this.referee.lose(count)
    this.#index -= count
  }

  do(command: Command, asker: { readonly key?: number; readonly op?: Operation } = {}): Outcome {
    return this.propose({ command, ...asker })
  }

  /** The id of a lease that asks for resources: granted or queued. */
  acquire(holder: string, resources: string | string[], rest: Partial<Acquire> = {}, asker: { key?: number; op?: Operation } = {}): number {
    const wants = [resources].flat().map(resource => ({ resource }))
    const outcome = this.do({ kind: 'acquire', holder, ttl: 1_000, wants, ...rest }, asker)
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

  /** A belief in the lease, as long as nobody calls `stop`. */
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

type History = (court: Court) => void

/** Five lawful ones, and those that must be called. */
function judged(invariant: string, lawful: Readonly<Record<string, History>>, unlawful: Readonly<Record<string, History>>): void {
  describe(invariant, () => {
    expect(Object.keys(lawful).length).toBeGreaterThanOrEqual(5)
    test.each(Object.entries(lawful))('passes: %s', (_, history) => {
      const court = new Court()
      history(court)
      court.referee.checkWhole()
      expect(court.verdicts).toEqual([])
    })
    test.each(Object.entries(unlawful))('calls: %s', (_, history) => {
      const court = new Court()
      history(court)
      expect(court.verdicts[0]).toBe(invariant)
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

/** Two hold one thing: the first by right, the second because the first one's grant was forgotten for a moment. */
function twoHolders(c: Court, shared: boolean): void {
  const a = c.acquire('a', 'x')
  const first = c.belief(a)
  c.referee.beliefs.begins(first)
  c.do({ kind: 'revoke', target: { lease: a }, force: true })
  c.referee.beliefs.begins(c.belief(c.acquire('b', 'x'), { shared }))
}

judged(
  'S1',
  {
    'one stops in the instant in which another begins': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'readers hold together': c => {
      for (const who of ['a', 'b', 'c']) {
        const lease = c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
        c.referee.beliefs.begins(c.belief(lease, { units: 0, shared: true }))
      }
    },
    'a pool is held up to its last unit': c => {
      c.policy('p', { capacity: 3 })
      c.referee.beliefs.begins(c.belief(c.acquire('a', [], { wants: [{ resource: 'p', units: 2 }] }), { units: 2 }))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'p')))
    },
    'one was overruled by force': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      c.referee.beliefs.forced.add(first.lease)
      c.revoke(first.lease, true)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'a thief by force believes at once': c => {
      c.referee.beliefs.begins(c.belief(c.acquire('a', 'x')))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' })))
    },
    'those who were there before a shrink go on': c => {
      c.policy('p', { capacity: 2 })
      const beliefs = ['a', 'b'].map(who => c.belief(c.acquire(who, 'p')))
      c.policy('p', { capacity: 1 })
      for (const belief of beliefs) c.referee.beliefs.begins(belief)
    },
    'an answer comes after its time': c => {
      const first = c.belief(c.acquire('a', 'x'))
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
      c.referee.beliefs.begins(first)
    },
  },
  {
    'two hold one thing': c => twoHolders(c, false),
    'a reader and a writer': c => twoHolders(c, true),
    'more units than there are': c => {
      c.policy('p', { capacity: 3 })
      for (const who of ['a', 'b'])
        c.referee.beliefs.begins(c.belief(c.acquire(who, [], { wants: [{ resource: 'p', units: 1 }] }), { units: 2 }))
    },
  },
)

judged(
  'S2',
  {
    'a late one is turned away': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      const next = c.belief(c.acquire('b', 'x'))
      expect(c.referee.beliefs.writes(next, 'x', next.grants[0]!.token)).toBe(true)
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(false)
    },
    'a late one gets through while nobody newer has been there': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      c.acquire('b', 'x')
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(true)
    },
    'one token is shown twice': c => {
      const belief = c.belief(c.acquire('a', 'x'))
      for (let i = 0; i < 2; i++) expect(c.referee.beliefs.writes(belief, 'x', belief.grants[0]!.token)).toBe(true)
    },
    'one who was overruled is turned away while it believes': c => {
      const first = c.belief(c.acquire('a', 'x'))
      const thief = c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' }))
      c.referee.beliefs.writes(thief, 'x', thief.grants[0]!.token)
      expect(c.referee.beliefs.writes(first, 'x', first.grants[0]!.token)).toBe(false)
    },
    'an answer of the past is given again': c => {
      const old = c.token(c.acquire('a', 'x'))
      c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) })
      const young = c.token(c.acquire('b', 'y'))
      c.do({ kind: 'fence', resource: 'x', token: young }, { op: op(2) })
      expect(c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) }).kind).toBe('fenced')
    },
  },
  {
    'a rightful holder is turned away': c => {
      const [a, b] = [c.belief(c.acquire('a', 'x')), c.belief(c.acquire('b', 'y'))]
      c.referee.beliefs.writes(b, 'x', b.grants[0]!.token)
      c.referee.beliefs.writes(a, 'x', a.grants[0]!.token)
    },
    'a register takes an older token': c => {
      const tokens = ['x', 'y'].map(resource => c.token(c.acquire('a', resource)))
      c.do({ kind: 'fence', resource: 'x', token: tokens[1]! })
      c.tamper = () => ({ kind: 'fenced', revision: 0, highest: tokens[0]! })
      c.do({ kind: 'fence', resource: 'x', token: tokens[0]! })
    },
  },
)

judged(
  'S3',
  {
    'several in one command': c => void c.acquire('a', ['x', 'y', 'z']),
    'again after a release': c => {
      c.release(c.acquire('a', 'x'))
      c.acquire('a', 'x')
    },
    'a gap after a generation': c => {
      c.acquire('a', 'x')
      c.do({ kind: 'generation', lease: 0, token: c.state.nextToken + 1_000_000, revision: 0, quiet: 0 })
      c.do({ kind: 'due', timer: QUIET, epoch: c.state.quiet!.epoch })
      c.acquire('a', 'y')
    },
    'an heir gets a new one': c => {
      const lease = c.acquire('a', 'x')
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
    'a late copy after a loss, before survivors have spoken': c => {
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
    'a token is given twice': c => {
      const token = c.token(c.acquire('a', 'x'))
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, token }
        return undefined
      }
      c.acquire('b', 'y')
    },
  },
)

judged(
  'S4',
  {
    'a number that was granted in what is lost, and to another before anyone noticed': c => {
      c.acquire('first', 'y')
      const lost = c.acquire('a', 'x', { ttl: 4_000 })
      c.referee.terms.acknowledged(lost, 0, 4_000)
      c.lose(1)
      expect(c.acquire('b', 'x', { ttl: 300 })).toBe(lost)
      c.now = 400
      c.due(lost)
    },
    'it lapses in the very instant': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO)
      c.due(lease)
    },
    'a renewal is acknowledged after the release': c => {
      const lease = c.acquire('a', 'x')
      c.renew(lease)
      c.release(lease)
      c.now = 5
      c.referee.terms.acknowledged(lease, 1, 1_000)
    },
    'it is revoked long before': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.revoke(lease)
    },
    'an older renewal is acknowledged after a younger one': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 100, 1_000)
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_100
      c.due(lease)
    },
    'nobody was ever told of it': c => {
      const lease = c.acquire('a', 'x')
      c.now = 1
      c.due(lease)
    },
    'it is suspect when its term is over, and gone after its grace': c => {
      const lease = c.acquire('a', 'x', { grace: 50 })
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000
      c.due(lease)
      c.due(lease)
    },
    'a waiter that nobody acknowledged anything to is withdrawn': c => {
      c.acquire('a', 'x')
      const waiter = c.acquire('b', 'x', { wait: true })
      c.now = 1
      c.due(waiter)
    },
    'a renewal that is lost counts for nothing until survivors have spoken': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.now = 1_010
      c.due(lease)
    },
    'the delay of a break goes on over a loss of later records': c => {
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
    'a millisecond too soon': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO) - 1
      c.due(lease)
    },
    'an acknowledgement of what is gone': c => {
      const lease = c.acquire('a', 'x')
      c.now = 500
      c.due(lease)
      c.referee.terms.acknowledged(lease, 100, 1_000)
    },
    'broken before the delay is over': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 390
      c.due(lease, BREAK)
    },
    'a renewal that is lost counts when survivors have spoken': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 1_000 })
      c.now = 1_010
      c.due(lease)
    },
    'broken before the delay is over, after a loss of later records': c => {
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

judged(
  'L3',
  {
    'it was told': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => true })
      c.due(lease)
    },
    'it is revoked, which may be told later': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => true, told: () => false })
      c.revoke(lease)
    },
    'it released the lease itself': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.release(lease)
    },
    'another that was not told has nothing to do with it': c => {
      const [lease, other] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.referee.beliefs.watch({ ...c.belief(other), holds: () => true, told: () => false })
      c.due(lease)
    },
    'it passes the lease on, and knows that it has stopped': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.referee.givenUp.add(lease)
      c.due(lease)
    },
  },
  {
    'it does not know': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.due(lease)
    },
  },
)

/** Where nothing stands still, half a second is late enough. */
function calm(history: History): History {
  return c => {
    c.referee.terms.lateness = 500
    history(c)
  }
}

judged(
  'S5',
  {
    'as late as is allowed': calm(c => {
      const lease = c.acquire('a', 'x')
      c.now = 1_000 * (1 + RHO) + 500
      c.due(lease)
    }),
    'every renewal begins a new term': calm(c => {
      const lease = c.acquire('a', 'x')
      for (c.now = 0; c.now < 10_000; c.now += 900) c.renew(lease)
      c.due(lease)
    }),
    'a grace comes on top': calm(c => {
      const lease = c.acquire('a', 'x', { grace: 3_000 })
      c.now = 1_400
      c.due(lease)
      c.now = 4_800
      c.due(lease)
    }),
    'a long term after a short first one': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 60_000 })
      c.now = 20_000
      c.renew(lease)
      c.now = 80_400
      c.due(lease)
    }),
    'of two breaks the shorter one counts': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.do({ kind: 'break', resource: 'x', after: 1_000 })
      c.now = 1_400
      c.due(lease, (BREAK + 1) as Slot)
      c.now = 20_000
      c.due(lease)
      c.referee.nothingIsLeft('after its units have thawed')
    }),
    'a stalled world may take its time': c => {
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
    'a break that was lengthened': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 200 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.now = 5_000
      c.due(lease, BREAK)
    }),
    'a first term that is not short': c => {
      c.tamper = (_, __, outcome) => ({ ...outcome, ttl: 60_000 }) as Outcome
      c.acquire('a', 'x', { ttl: 60_000 })
    },
    'something is left when all is over': c => {
      c.acquire('a', 'x')
      c.referee.nothingIsLeft('after a year')
    },
  },
)

judged(
  'S6',
  {
    'a late release finds nothing': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.release(lease).kind).toBe('refused')
    },
    'a late renewal is told that it is gone': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.renew(lease)).toMatchObject({ ttls: [-1] })
    },
    'what was revoked thaws when its holder releases it': c => {
      const lease = c.acquire('a', 'x')
      c.revoke(lease)
      c.now = 10
      c.release(lease)
    },
    'renewed by one who could not know of the end yet': c => {
      const lease = c.acquire('a', 'x')
      const known = c.referee.length
      c.due(lease)
      c.referee.renewed(lease, known, 0)
    },
    'ended in what was lost, and renewed since': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.lose(1)
      c.renew(lease)
      c.referee.renewed(lease, c.referee.length, 1)
    },
    'a waiter is granted after it was renewed as a waiter': c => {
      const [first, second] = [c.acquire('a', 'x'), c.acquire('b', 'x', { wait: true })]
      c.do({ kind: 'renew', leases: [second], waiting: true })
      c.release(first)
      c.renew(second)
    },
  },
  {
    'renewed after its end': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.referee.renewed(lease, c.referee.length, 0)
    },
    'granted after its end': c => {
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

/** Passed on by its holder, with a key, to a name that no process is known by. */
function given(c: Court, key: number): number {
  const lease = c.acquire('a', 'x', {}, { key })
  c.referee.givenUp.add(lease)
  return (c.do({ kind: 'transfer', lease, to: 'heir', stopped: true }, { key }) as { id: number }).id
}

judged(
  'S7',
  {
    'its holder releases it': c => void c.release(c.acquire('a', 'x')),
    'an operator revokes it': c => void c.revoke(c.acquire('a', 'x')),
    'its own key renews it': c => {
      const key = c.key('x')
      expect(c.renew(c.acquire('a', 'x', {}, { key }), key)).toMatchObject({ ttls: [1_000] })
    },
    'a foreign key finds nothing': c => {
      const [mine, other] = [c.key('x'), c.key('x')]
      expect(c.renew(c.acquire('a', 'x', {}, { key: mine }), other)).toMatchObject({ ttls: [-1] })
    },
    'whoever has the store renews for a key': c => {
      const key = c.key('x')
      c.renew(c.acquire('a', 'x', {}, { key }))
    },
    'a late release, when someone else has it': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.acquire('b', 'x')
      c.release(lease)
    },
    'what was given to a name is claimed by a key that may have it': c => {
      const [giver, taker] = [c.key('x'), c.key('x')]
      expect(c.renew(given(c, giver), taker)).toMatchObject({ ttls: [1_000] })
    },
    'what was given to a name is claimed by nobody else': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      expect(c.renew(given(c, giver), stranger)).toMatchObject({ ttls: [-1] })
    },
  },
  {
    'what was given to a name is claimed by a key that may not have it': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      const lease = given(c, giver)
      c.tamper = state => {
        findLease(state, lease)!.key = stranger
        return { kind: 'renewed', revision: 0, ttls: [1_000] }
      }
      c.renew(lease, stranger)
    },
    'released by a stranger': c => void c.do({ kind: 'release', lease: c.acquire('a', 'x') }),
    'renewed with a foreign key': c => {
      const lease = c.acquire('a', 'x', {}, { key: c.key('x') })
      const other = c.key('x')
      c.tamper = () => ({ kind: 'renewed', revision: 0, ttls: [1_000] })
      c.renew(lease, other)
    },
    'an entry is taken by a stranger': c => {
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('b', 'e')
    },
  },
)

judged(
  'S8',
  {
    'parent, child and grandchild end together': c => {
      const parent = c.register('a', 'e')
      const child = c.acquire('a', 'x', { parent })
      c.acquire('a', 'y', { parent: child })
      c.due(parent)
    },
    'a child goes before its parent': c => {
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
    'an entry has gone over to another lease': c => {
      const first = c.register('a', 'e')
      c.register('a', 'e', first)
      c.release(first)
    },
    'one grant goes, the lease stays': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.do({ kind: 'release', lease, resource: 'x' })
    },
    'frozen units outlive the entries': c => {
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
    'a resource is held by one who is gone': c => {
      const lease = c.acquire('a', 'x')
      c.state.leases.delete(lease - c.state.origin)
      c.referee.checkWhole()
    },
  },
)

judged(
  'S9',
  {
    'answered from the end of the log': c => c.referee.answers.answered(c.do(plain('a', 'x')), undefined, c.referee.revision, 0),
    'answered late': c => {
      const outcome = c.do(plain('a', 'x'))
      c.acquire('b', 'y')
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'acknowledged after it has ended': c => {
      const outcome = c.do(plain('a', 'x'))
      c.release((outcome as { lease: number }).lease)
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'an answer of the time before a loss': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'a refusal by an owner that has not met the loss yet': c => {
      c.do(plain('a', 'x'))
      const refused = c.do(plain('b', 'x'))
      c.lose(1)
      c.referee.answers.answered({ ...refused, revision: refused.revision + 5 }, undefined, 0, 1)
    },
    'a lease without resources': c => c.referee.answers.answered(c.do({ ...plain('a', 'x'), wants: [] }), undefined, 0, 0),
  },
  {
    'an answer from the future': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'a grant that stands nowhere': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, lease: 7 } as Outcome, undefined, 0, 0)
    },
    'a grant with another token': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, tokens: [7] } as Outcome, undefined, 0, 0)
    },
  },
)

function plain(holder: string, resource: string): Acquire {
  return { kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }] }
}

judged(
  'S10',
  {
    'refused at exactly the revision that was there when it was asked': c => {
      c.acquire('a', 'x')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, c.referee.revision, 0)
    },
    'refused as of a later revision': c => {
      c.acquire('a', 'x')
      const asked = c.referee.revision
      c.acquire('a', 'y')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, asked, 0)
    },
    'a repeated operation is answered as it was then': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'), { op: op(1) })
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, '0:s:1', c.referee.revision, 0)
    },
    'one of two, when any will do': c => {
      c.acquire('a', 'x')
      expect(c.acquire('b', ['x', 'y'], { any: 1 })).not.toBe(0)
    },
    'a waiter gets both at once': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.release(x)
      c.release(y)
    },
    'whoever would close a cycle is refused': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      expect(c.do({ ...plain('b', 'x'), wait: true, holding: [y] })).toMatchObject({ code: 'DEADLOCK' })
    },
    'a refusal for a cycle is given again after the cycle is gone': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      const waiter = c.acquire('a', 'y', { wait: true, holding: [x] })
      const wish = { ...plain('b', 'x'), wait: true, holding: [y] }
      c.do(wish, { op: op(1) })
      c.release(waiter)
      expect(c.do(wish, { op: op(1) })).toMatchObject({ code: 'DEADLOCK' })
    },
  },
  {
    'refused from an old state': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'))
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, undefined, c.referee.revision, 0)
    },
    'one of two, when both were asked for': c => {
      c.tamper = (_, events) => {
        events.pop()
        return undefined
      }
      c.acquire('a', ['x', 'y'])
    },
    'a cycle that is none': c => {
      const y = c.acquire('b', 'y')
      c.acquire('a', 'x')
      c.tamper = () => deadlock
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)

judged(
  'S11',
  {
    'the same answer twice': c => {
      for (let i = 0; i < 2; i++) c.do(plain('a', 'x'), { op: op(1) })
    },
    'the same number in two sessions': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'x'), { op: op(1, 't') })
    },
    'the same session with two keys': c => {
      const key = c.key('y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'y'), { op: op(1), key })
    },
    'an answer that is not kept any more': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('a', 'y'), { op: { ...op(2), acked: 1 } })
      expect(c.do(plain('a', 'x'), { op: op(1) })).toMatchObject({ code: 'STALE' })
    },
    'a renewal is simply done again': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
      c.release(lease)
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
    },
    'asked again after its answer was lost with the log': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.acquire('c', 'x')
      c.do(plain('a', 'x'), { op: op(1) })
    },
    'whoever asked hears what stands in the log': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
    'a refusal that never came to the log': c => {
      c.acquire('a', 'x')
      c.referee.answers.received({ kind: 'refused', revision: c.state.revision, code: 'HELD', message: '', facts: {} }, '0:s:1', 0, 0)
    },
    'whoever asked hears of what was lost meanwhile': c => {
      c.acquire('b', 'y')
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
  },
  {
    'whoever asked hears of an operation that the log does not have': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:2', 0, 0)
    },
    "whoever asked hears another's answer": c => {
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

judged(
  'S12',
  {
    'what failed never comes': c => c.referee.answers.failed('0:s:1'),
    'what failed comes and is refused': c => {
      c.acquire('a', 'x')
      c.referee.answers.failed('0:s:1')
      c.do(plain('b', 'x'), { op: op(1) })
    },
    'the next one of the same session is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(2) })
    },
    'the same one of another key is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1), key: c.key('x') })
    },
    'nobody said anything about it': c => void c.do(plain('a', 'x'), { op: op(1) }),
    'it was done in what the log has lost': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.failed('0:s:1')
    },
  },
  {
    'what was done is said to have failed': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.failed('0:s:1')
    },
    'what failed was done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1) })
    },
  },
)

/** Five revisions, as a watcher must see them. */
function revisions(c: Court): Event[][] {
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

judged(
  'S13',
  {
    'one after another': c => {
      const [first, second, third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!, 0)
      c.referee.revisions.watched(second![0]!.revision, third!, 0)
    },
    'from before the beginning': c => c.referee.revisions.watched(0, revisions(c)[0]!, 0),
    'a gap that was told as a resync': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision - 1, third!, 0)
    },
    'revisions that jump with a generation': c => {
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
    'what was seen before a loss': c => {
      const [first, , third] = revisions(c)
      c.lose(1)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
  },
  {
    'a revision is skipped': c => {
      const [first, , third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
    'half a revision': c => {
      const [first, second] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!.slice(1), 0)
    },
    'a revision that was never': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision, [{ ...third![0]!, revision: third![0]!.revision + 1 }], 0)
    },
  },
)

judged(
  'S14',
  {
    'an heir goes before those who wait': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'transfer', lease, to: 'heir' })
      c.due(lease)
    },
    'higher priority goes first': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.acquire('c', 'x', { wait: true, priority: 1 })
      c.release(lease)
    },
    'whoever fits goes past one who waits for more': c => {
      c.policy('p', { capacity: 2, queue: 'fit' })
      c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      expect(c.acquire('c', 'p')).not.toBe(0)
    },
    'one who has waited long goes before higher priority': c => {
      c.policy('x', { aging: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'tick', n: 1, elapsed: 1_000 })
      c.acquire('c', 'x', { wait: true, priority: 2 })
      c.release(lease)
    },
    'one whose key was revoked is passed over': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true }, { key })
      c.acquire('c', 'x', { wait: true })
      c.do({ kind: 'unkey', id: key })
      c.release(lease)
    },
    'a waiter for two things holds up one who waits for one of them': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.acquire('c', 'x', { wait: true })
      c.release(x)
      c.release(y)
    },
  },
  {
    'the second goes before the first': c => {
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
    'one whose key was revoked is granted': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      const waiter = findLease(c.state, c.acquire('b', 'x', { wait: true }, { key }))!
      // As if its place had been overlooked.
      waiter.key = 0
      c.do({ kind: 'unkey', id: key })
      waiter.key = key
      c.release(lease)
    },
    'a waiter that had gone is granted': c => {
      c.acquire('a', 'x')
      const gone = c.acquire('b', 'x', { wait: true })
      c.release(gone)
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, lease: gone }
        return undefined
      }
      c.acquire('c', 'y')
    },
    'a rank that priority does not explain': c => {
      c.acquire('a', 'x')
      c.tamper = state => {
        state.resources.get('x')!.queue[0]!.rare!.rank = 5
        return undefined
      }
      c.acquire('b', 'x', { wait: true })
    },
  },
)

judged(
  'S15',
  {
    'to the last unit': c => {
      c.policy('p', { capacity: 2 })
      for (const who of ['a', 'b']) c.acquire(who, 'p')
    },
    'over capacity after a shrink, and nothing granted': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.acquire('c', 'p', { wait: true })
      c.release(first!)
    },
    'passed on after a shrink': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.referee.givenUp.add(first!)
      c.do({ kind: 'transfer', lease: first!, to: 'c', stopped: true })
    },
    'readers take no units': c => {
      for (const who of ['a', 'b', 'c']) c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
    },
    'a wider policy lets one in at once': c => {
      c.acquire('a', 'p')
      c.acquire('b', 'p', { wait: true })
      c.policy('p', { capacity: 2 })
    },
  },
  {
    'one unit too many': c => {
      c.acquire('a', 'x')
      c.state.resources.get('x')!.used = 0
      c.acquire('b', 'x')
    },
    'a writer among readers': c => {
      c.policy('x', { capacity: 2 })
      c.acquire('a', [], { wants: [{ resource: 'x', shared: true }] })
      c.state.resources.get('x')!.sharers = 0
      c.acquire('b', 'x')
    },
  },
)

judged(
  'S18',
  {
    'a newer life takes over': c => {
      c.register('a', 'e')
      c.register('a', 'e')
    },
    'the same life writes again': c => {
      const lease = c.register('a', 'e')
      c.do({ kind: 'put', lease, key: 'e', value: 'w' })
      c.register('a', 'e', lease)
    },
    'a life that was replaced is refused': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      expect(c.register('a', 'e', old)).toBe(0)
    },
    'the lease it hung on ends, the entry stays': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.due(old)
      expect(c.state.entries.has('e')).toBe(true)
    },
    'when the successor has gone, the predecessor may come back': c => {
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
    'an older life writes over a newer one': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('a', 'e', old)
    },
    'an older life takes off what a newer one registered': c => {
      c.register('a', 'e')
      const young = c.register('a', 'e')
      c.tamper = (_, events) => {
        events.push({ revision: c.state.revision, type: 'deleted', lease: young, key: 'e', at: 0 })
        return undefined
      }
      c.do({ kind: 'delete', key: 'e', lease: 1 })
    },
    'an entry goes with the end of a lease it does not hang on': c => {
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

/** A server that stood still from 100 to 600, and what reached it at 200. */
function stalled(c: Court, { appending = false, arrived = 200 } = {}): number {
  const lease = c.acquire('a', 'x', { ttl: 400 })
  c.referee.terms.server = {
    arrivedWhileStalled: new Map([[lease, arrived]]),
    renewals: new Map(),
    machine: { lastStall: { from: 100, to: 600, appending }, life: 1, rough: -1 },
  }
  return lease
}

/** A server that stood still from 100 to 600, and acknowledged a renewal at 600. */
function renewedOnWaking(c: Court, { life = 1, rough = -1, losses = 0 } = {}): number {
  const lease = stalled(c, { arrived: 50 })
  c.referee.terms.server!.renewals.set(lease, { at: 600, term: 400, life, losses })
  Object.assign(c.referee.terms.server!.machine, { rough })
  return lease
}

function lapseAt(c: Court, lease: number, at: number, sentAt = at): void {
  c.now = at
  const it = findLease(c.state, lease)!
  const proposals = [{ command: { kind: 'due', timer: timerId(it, TERM), epoch: it.epoch } as const }]
  c.append(encodeBatch({ proposer: 2, seq: at, applied: c.state.index, trail: [0, 0], wall: 0, proposals }), sentAt)
}

judged(
  'S19',
  {
    'it lapses long after the renewal that waited': c => lapseAt(c, stalled(c), 700),
    'nothing had come for it': c => {
      stalled(c)
      lapseAt(c, c.acquire('b', 'y', { ttl: 400 }), 600)
    },
    'it had been proposed before the stall': c => lapseAt(c, stalled(c, { arrived: 450 }), 610, 90),
    'its end waited behind an append that was under way': c => lapseAt(c, stalled(c, { appending: true, arrived: 450 }), 610),
    'the renewal came before the stall': c => lapseAt(c, stalled(c, { arrived: 50 }), 610),
    'there is no server to judge': c => {
      const lease = stalled(c, { arrived: 450 })
      c.referee.terms.server = undefined
      lapseAt(c, lease, 610)
    },
  },
  { 'it lapses the moment the server wakes': c => lapseAt(c, stalled(c, { arrived: 450 }), 610) },
)

judged(
  'S5',
  {
    'it lapses one term after the renewal': c => lapseAt(c, renewedOnWaking(c), 1_010),
    'its end waited behind an append that failed': c => lapseAt(c, renewedOnWaking(c, { rough: 900 }), 5_000),
    'the server was killed since': c => lapseAt(c, renewedOnWaking(c, { life: 0 }), 5_000),
    'the log lost entries since': c => lapseAt(c, renewedOnWaking(c, { losses: -1 }), 5_000),
    'its end was proposed in time, and arrived late': c => lapseAt(c, renewedOnWaking(c), 5_000, 1_010),
    'a generation began its term again': c => {
      const lease = renewedOnWaking(c)
      c.now = 4_000
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 400 })
      lapseAt(c, lease, 5_000)
    },
  },
  { 'a stall from before the renewal is added to its term': c => lapseAt(c, renewedOnWaking(c), 1_010 + 1_000) },
)

judged(
  'S20',
  {
    'any number share it': c => {
      for (const name of ['a', 'b', 'c']) c.referee.opened(name, false)
    },
    'one owner after another': c => {
      c.referee.opened('a', true)
      c.referee.closed('a')
      c.referee.opened('b', true)
    },
    'an owner when all who shared have gone': c => {
      for (const name of ['a', 'b']) c.referee.opened(name, false)
      for (const name of ['a', 'b']) c.referee.closed(name)
      c.referee.opened('a', true)
    },
    'shared again when the owner has gone': c => {
      c.referee.opened('a', true)
      c.referee.closed('a')
      for (const name of ['a', 'b']) c.referee.opened(name, false)
    },
    'an owner opens it again after it failed': c => {
      c.referee.opened('a', true)
      c.referee.opened('a', true)
    },
  },
  {
    'two owners': c => {
      c.referee.opened('a', true)
      c.referee.opened('b', true)
    },
    'one shares what another owns': c => {
      c.referee.opened('a', true)
      c.referee.opened('b', false)
    },
    'one owns what another uses': c => {
      c.referee.opened('a', false)
      c.referee.opened('b', true)
    },
  },
)

const machine = { name: 'm' }

judged(
  'S22',
  {
    'the same state': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, c.state.index, () => c.referee.hash())
    },
    'before the first entry': c => c.referee.sameState(machine, 0, () => c.referee.hash()),
    'one that is behind': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 0, () => 'what it had then')
    },
    'one that is ahead of what was lost': c => {
      c.acquire('a', 'x')
      c.acquire('a', 'y')
      const hash = c.referee.hash()
      c.lose(1)
      c.referee.sameState(machine, 2, () => hash)
    },
    'one that began from a snapshot': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      const loader = new StateLoader()
      for (const chunk of saveState(c.state)) loader.add(chunk.slice())
      const state = loader.finish()
      c.referee.sameState(machine, state.index, () => stateHash(state))
    },
    'one that knows no newer rules stands where they were raised': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.referee.decided('m', RULES, c.state.index)
    },
    'one that knows them goes on': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES + 1, c.state.index)
    },
    'they were raised in what the log has lost': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.lose(1)
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'one that saw the entries again after a loss': c => {
      c.acquire('a', 'x')
      const hash = c.referee.hash()
      c.acquire('a', 'y')
      c.lose(1)
      c.referee.sameState(machine, 1, () => hash)
    },
  },
  {
    'one that knows no newer rules goes on under them': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'another state at the same entry': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 1, () => 'other')
    },
    'a holder without a name': c => {
      const lease = findLease(c.state, c.acquire('a', 'x'))!
      Object.assign(lease.holder, { name: '' })
      c.referee.checkWhole()
    },
  },
)

judged(
  'S24',
  {
    'an entry arrives twice and counts once': c => {
      c.acquire('a', 'x')
      c.again()
    },
    'it arrives three times, with others in between': c => {
      const lease = c.acquire('a', 'x')
      c.again()
      c.again()
      c.renew(lease)
    },
    'two proposers have the same number': c => {
      c.acquire('a', 'x')
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 1, trail: [0, 0], wall: 0, proposals }))
    },
    'one that claims to know the future is void': c => {
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 500, trail: [0, 0], wall: 0, proposals }))
      expect(c.state.leases.size).toBe(0)
    },
    'a copy of what was lost counts after all': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.lose(1)
      c.again()
    },
    'a grant is acknowledged after a loss that spared it': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered(outcome, undefined, 0, 1)
    },
  },
  {
    'an entry is applied twice': c => {
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

judged(
  'S25',
  {
    'the name of the scope itself': c => void c.acquire('a', 'x', {}, { key: c.key('x') }),
    'a name under it': c => void c.acquire('a', 'x/y/z', {}, { key: c.key('x') }),
    'a name that only begins like it is refused': c => expect(c.acquire('a', 'xy', {}, { key: c.key('x') })).toBe(0),
    everything: c => void c.acquire('a', 'y', {}, { key: c.key('') }),
    'whoever has the store needs no key': c => {
      c.key('x')
      c.acquire('a', 'y')
    },
    'a lease of a key that was revoked is passed on by whoever has the store': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x', {}, { key })
      c.do({ kind: 'unkey', id: key })
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
  },
  {
    'a key opens more than it was made for': c => {
      const key = c.key('x')
      c.state.keys.set(key, { ...c.state.keys.get(key)!, allow: [{ verb: 'acquire', prefix: '' }] })
      c.acquire('a', 'y', {}, { key })
    },
  },
)

judged(
  'L1',
  {
    'it is held': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
    },
    'one of two is free': c => {
      c.acquire('a', 'x')
      c.acquire('b', ['x', 'y'], { wait: true })
    },
    'the log is quiet after a loss': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 1_000 })
      c.release(lease)
    },
    'there is not enough for anyone since a shrink': c => {
      c.policy('p', { capacity: 2 })
      const lease = c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      c.policy('p', { capacity: 1 })
      c.release(lease)
    },
    'what is frozen is not free yet': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.revoke(lease)
    },
    'a lapse is followed by its lock-delay': c => {
      c.policy('x', { lockDelay: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.due(lease)
    },
  },
  {
    'what is free is given to nobody': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.tamper = state => {
        state.resources.get('x')!.grants.length = 0
        return undefined
      }
      c.do({ kind: 'recall', resource: 'x' })
    },
    'two are free and one who wants both is first for both': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.acquire('b', ['x', 'y'], { wait: true })
      findLease(c.state, lease)!.grants = []
      for (const name of ['x', 'y']) c.state.resources.get(name)!.grants.length = 0
      c.referee.checkWhole()
    },
    'what was given back is withheld': c => {
      const lease = c.acquire('a', 'x')
      const it = findLease(c.state, lease)!
      c.tamper = state => {
        it.status = 3
        state.leases.set(lease - state.origin, it)
        return undefined
      }
      c.release(lease)
    },
    'a waiting cycle is closed': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      const b = c.acquire('b', 'x', { wait: true })
      c.tamper = () => ({ kind: 'queued', revision: 0, lease: b, incarnation: 1, ttl: 1_000, position: 0 })
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)

judged(
  'L2',
  {
    'at once': c => c.referee.grantableAfter(0, 700, 500),
    'when its term is over': c => c.referee.grantableAfter(700, 700, 500),
    'with clocks as far apart as they may be': c => c.referee.grantableAfter(700 * (1 + RHO), 700, 0),
    'as late as is allowed': c => c.referee.grantableAfter(700 * (1 + RHO) + 500, 700, 500),
    'a long term takes long': c => c.referee.grantableAfter(45_000, 45_000, 500),
  },
  { 'too late': c => c.referee.grantableAfter(1_300, 700, 500) },
)
