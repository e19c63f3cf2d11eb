/** A kernel to play with: commands in, outcomes and events out, everything that must always hold checked after every step. */
import { strict as assert } from 'node:assert'
import { expect } from 'vitest'
import { apply } from '../../../src/kernel/apply.ts'
import { type Applied, applyBatch, type Batch } from '../../../src/kernel/codec/batch.ts'
import { StateLoader, saveState, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { Acquire, Command, Operation, PolicyRules, Scope, Want } from '../../../src/kernel/command.ts'
import type { Event } from '../../../src/kernel/event.ts'
import type { Granted, Outcome, Queued, RefusalCode, Refused } from '../../../src/kernel/outcome.ts'
import type { FactsByReason, Reason } from '../../../src/kernel/reason.ts'
import type { Effects } from '../../../src/kernel/rule/effects.ts'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { createState, type LeaseState, RULES, type Slot, type State } from '../../../src/kernel/state.ts'
import { check } from './invariant.ts'

/** Wants as tests write them: `'a'`, `'a:3'` for three units, `'a~'` for shared. */
export function wants(...names: readonly string[]): Want[] {
  return names.map(name => {
    if (name.endsWith('~')) return { resource: name.slice(0, -1), shared: true }
    const [resource, units] = name.split(':') as [string, string?]
    return units === undefined ? { resource } : { resource, units: Number(units) }
  })
}

export type Options = Partial<Omit<Acquire, 'kind' | 'wants'>> & { readonly key?: number }

export class World {
  state: State
  readonly events: Event[] = []
  /** The timers that the kernel said it started, restarted or cancelled with the last command. */
  timers: string[] = []
  /** Hashing the whole state at every step is for small worlds. */
  readonly strict: boolean
  readonly effects: Effects = {
    events: this.events,
    timer: (lease, slot) => void this.timers.push(lease === undefined ? `log/${slot}` : `${lease.id}/${slot}`),
  }
  #proposed = 0

  /** `empty`: no entry was ever applied, the first one will found the log. */
  constructor({
    strict = true,
    wall = 0,
    empty = false,
  }: { readonly strict?: boolean; readonly wall?: number; readonly empty?: boolean } = {}) {
    this.strict = strict
    this.state = createState(wall)
    if (!empty) this.state.index = 1
  }

  /** Applies one command and checks: a refusal changed nothing, a revision is made if and only if there were events, all invariants hold. */
  do(command: Command, { key = 0 }: { readonly key?: number } = {}): Outcome {
    const { state, events } = this
    const before = this.strict ? stateHash(state) : ''
    const { revision, nextToken, nextLease } = state
    const first = events.length
    this.timers = []
    const outcome = apply(state, { command, key }, this.effects)
    const news = events.slice(first)
    const made = state.revision - revision
    if (command.kind !== 'generation') assert(made === (news.length > 0 ? 1 : 0), 'one revision if and only if there were events')
    assert(outcome.revision === state.revision, 'an outcome carries the revision it was decided at')
    for (const event of news) assert(event.revision === state.revision, 'all events of a command belong to one revision')
    assert(state.nextToken >= nextToken && state.nextLease >= nextLease, 'ids and tokens only grow')
    if (outcome.kind === 'refused') {
      assert(news.length === 0, 'a refusal emits no event')
      if (this.strict) assert(stateHash(state) === before, `a refusal changes nothing: ${outcome.reason}`)
    }
    if (this.strict) check(state)
    return outcome
  }

  /** The events from index `since` on, as short phrases. */
  eventsSince(since: number): string[] {
    return this.events.slice(since).map(({ type, resource, key, cause }) => [type, resource ?? key, cause].filter(Boolean).join(' '))
  }

  get revisionEvents(): Event[] {
    return this.events.filter(event => event.revision === this.state.revision)
  }

  ask(holder: string, names: string | readonly string[], { key = 0, ...rest }: Options = {}): Outcome {
    const list = typeof names === 'string' ? [names] : names
    return this.do({ kind: 'acquire', holder, ttl: 10_000, wants: wants(...list), ...rest }, { key })
  }

  acquire(holder: string, names: string | readonly string[], options: Options = {}): Granted {
    const outcome = this.ask(holder, names, options)
    assert(outcome.kind === 'granted', `${holder} acquires ${names}, but: ${JSON.stringify(outcome)}`)
    return outcome
  }

  queue(holder: string, names: string | readonly string[], options: Options = {}): Queued {
    const outcome = this.ask(holder, names, { wait: true, ...options })
    assert(outcome.kind === 'queued', `${holder} waits for ${names}, but: ${JSON.stringify(outcome)}`)
    return outcome
  }

  /** `facts`: some of those that the reason must come with. */
  refused<R extends Reason>(outcome: Outcome, code: RefusalCode, reason?: R, facts: Partial<FactsByReason[R]> = {}): Refused {
    expect(outcome).toMatchObject({ kind: 'refused', code })
    if (reason !== undefined) expect(outcome).toMatchObject({ reason, facts })
    return outcome as Refused
  }

  renew(lease: number, key = 0): number {
    const outcome = this.do({ kind: 'renew', leases: [lease] }, { key })
    expect(outcome.kind).toBe('renewed')
    return (outcome as { ttls: readonly number[] }).ttls[0]!
  }

  release(lease: number, resource?: string, key = 0): Outcome {
    return this.do({ kind: 'release', lease, ...(resource !== undefined && { resource }) }, { key })
  }

  /** The timer as it runs now is due. */
  due(lease: number, slot: Slot = 0): Outcome {
    const there = this.lease(lease)
    expect(there, `lease ${lease} is there`).toBeDefined()
    const timer = timerOf(there!, slot)
    expect(timer, `timer ${slot} of ${lease} runs`).toBeDefined()
    return this.do({ kind: 'due', timer: timerId(there!, slot), epoch: timer!.epoch })
  }

  policy(prefix: string, rules: PolicyRules): void {
    expect(this.do({ kind: 'policy', prefix, rules })).toMatchObject({ kind: 'done' })
  }

  key(name: string, ...allow: readonly `${Scope['verb']}:${string}`[]): number {
    const scopes = allow.map(text => {
      const [verb, prefix] = text.split(':') as [Scope['verb'], string]
      return { verb, prefix }
    })
    const outcome = this.do({ kind: 'key', name, hash: '0'.repeat(64), allow: scopes })
    return (outcome as { id: number }).id
  }

  lease(id: number): LeaseState | undefined {
    return findLease(this.state, id)
  }

  /** Who has units of it, ended or not: name of the holder, with `*` where frozen and `?` where suspect. */
  holders(resource: string): string[] {
    return (this.state.resources.get(resource)?.grants ?? []).map(
      ({ lease }) => lease.holder.name + (lease.status === 3 ? '*' : lease.status === 2 ? '?' : ''),
    )
  }

  waiters(resource: string): string[] {
    return (this.state.resources.get(resource)?.queue ?? []).map(lease => lease.holder.name)
  }

  entries(): string[] {
    const free = [...this.state.free.values()].map(({ key, value }) => `${key}=${value}`)
    return [...this.state.entries.values()]
      .map(({ key, value, lease }) => `${key}=${value}@${lease.id}`)
      .concat(free)
      .sort()
  }

  hash(): string {
    return stateHash(this.state)
  }

  /** Proposes through a log record, as an operation or not. */
  entry(commands: readonly Command[], { op, key = 0, ...header }: Partial<Batch> & { op?: Operation; key?: number } = {}): Applied {
    const seq = ++this.#proposed
    return applyBatch(
      this.state,
      this.state.index + 1,
      {
        proposer: 1,
        seq,
        applied: this.state.index,
        decisionHash: [this.state.decisionHashA, this.state.decisionHashB],
        wall: 0,
        rules: RULES,
        proposals: commands.map(command => ({ command, key, ...(op !== undefined && { op }) })),
        ...header,
      },
      this.effects,
    )
  }
}

/** A copy through bytes: what a replica that starts from a snapshot has. */
export function reload(state: State): State {
  return loaded(saveState(state))
}

/** The state of a snapshot. */
export function loaded(snapshot: Iterable<Uint8Array>): State {
  const loader = new StateLoader()
  for (const chunk of snapshot) loader.add(chunk)
  return loader.finish()
}
