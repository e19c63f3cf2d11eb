/**
 * A world for tests of the simulator's referee, which accepts unusual but correct histories, and names the invariant that a wrong history violates.
 * Histories are real records applied by the real kernel. To violate an invariant, a test changes the result of the kernel before the referee sees it.
 */
import { describe, expect, test } from 'vitest'
import type { ObservedBelief } from '../../../sim/beliefs.ts'
import type { FindingName } from '../../../sim/findings.ts'
import { Referee } from '../../../sim/referee.ts'
import { World } from '../../../sim/world.ts'
import { applyBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { saveState } from '../../../src/kernel/codec/snapshot.ts'
import type { Acquire, Command, Operation, PolicyRules, Proposal } from '../../../src/kernel/command.ts'
import type { Event } from '../../../src/kernel/event.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { type Slot, type State, TERM } from '../../../src/kernel/state.ts'

type Tamper = (state: State, events: Event[], outcome: Outcome, command: Command) => Outcome | undefined

export class RefereedWorld extends World {
  readonly violations: string[] = []
  /** The known findings that were reported instead of a violation. */
  readonly known: FindingName[] = []
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

  override violate(invariant: string, _message: string, finding?: FindingName): void {
    if (finding === undefined) this.violations.push(invariant)
    else this.known.push(finding)
  }

  get state(): State {
    return this.referee.state
  }

  /** Appends one record with these proposals. Returns the outcome of the last. */
  propose(...proposals: Proposal[]): Outcome {
    const batch = {
      proposer: 1,
      seq: ++this.#seq,
      applied: this.#index,
      decisionHash: [0, 0] as const,
      wall: Math.floor(this.now),
      proposals,
    }
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

  /** The contents of the log, as a snapshot. */
  saved(): Iterable<Uint8Array> {
    return saveState(this.state)
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

export type History = (world: RefereedWorld) => void

/** At least five histories that the referee must accept, and the histories that it must report. */
export function cases(invariant: string, accepted: Readonly<Record<string, History>>, reported: Readonly<Record<string, History>>): void {
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

export function plain(holder: string, resource: string): Acquire {
  return { kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }] }
}

export const op = (seq: number, session = 's'): Operation => ({ session, seq, acked: 0 })
