/**
 * Decides from what happened whether the invariants of docs/guarantees.md held. It sees what nobody in the world can: true time, every entry
 * the moment it stands in the log, and what each holder believes.
 */
import { applyBatch, decodeBatch } from '../../kernel/batch.ts'
import type { Command, Operation } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import { badName } from '../../kernel/name.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { rule } from '../../kernel/policy.ts'
import { stateHash } from '../../kernel/snapshot.ts'
import { FROZEN, findLease, found, type Lease, type State, WAITING } from '../../kernel/state.ts'
import type { Position } from '../../store.ts'
import type { Machine, World } from './world.ts'

/** Clock rates in the world stay within this of each other. */
export const RHO = 0.005

export interface Belief {
  readonly who: string
  readonly lease: number
  readonly grants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly token: number }[]
  holds(): boolean
}

interface Ended {
  readonly at: number
  readonly index: number
  readonly type: Event['type']
}

export function operationName(key: number, { session, seq }: Operation): string {
  return `${key}:${session}:${seq}`
}

const ENDS = new Set<Event['type']>(['released', 'lapsed', 'revoked', 'transferred', 'withdrawn'])

export class Referee {
  readonly #world: World
  #state = found()
  readonly #entries: { readonly bytes: Uint8Array; readonly index: number }[] = []
  /** What watchers must see, in order. */
  #revisions: { readonly revision: number; readonly events: readonly Event[] }[] = []
  readonly #place = new Map<number, number>()
  #lastToken = 0
  readonly #granted = new Map<number, readonly number[]>()
  readonly #ranks = new Map<number, number>()
  readonly ended = new Map<number, Ended>()
  readonly #acks = new Map<number, { readonly sent: number; readonly term: number }>()
  readonly #failed = new Set<string>()
  readonly #answers = new Map<string, string>()
  readonly #beliefs = new Map<string, Set<Belief>>()
  /** Leases whose holders were overruled by force: the one named exception to S1. */
  readonly forced = new Set<number>()
  /** Leases that their own holder released or passed on. */
  readonly givenUp = new Set<number>()
  losses = 0
  commands = 0
  /** Told of each lapse, with the true time at which it was proposed. */
  onLapse: (lease: number, sentAt: number) => void = () => {}
  /** Entries were lost and the survivors have not spoken yet: if they died now, nobody would know. */
  mourning = false
  #sentAt = 0
  readonly #appliedEntries = new Set<string>()
  readonly #terms = new Map<number, number>()
  readonly #lastRenewal = new Map<number, number>()
  /** In a world without stalls and losses, how late a lapse may be. */
  lateness = Number.POSITIVE_INFINITY

  constructor(world: World) {
    this.#world = world
  }

  get state(): State {
    return this.#state
  }

  get revision(): number {
    return this.#state.revision
  }

  hash(): string {
    return stateHash(this.#state)
  }

  // What stands in the log

  observe(position: Position, bytes: Uint8Array, sentAt: number): void {
    this.#sentAt = sentAt
    this.#entries.push({ bytes, index: position.index })
    this.#apply(position.index, bytes, true)
  }

  #apply(index: number, bytes: Uint8Array, judge: boolean): void {
    const batch = decodeBatch(bytes)
    const state = this.#state
    const events: Event[] = []
    let at = 0
    const before = { revision: state.revision }
    const applied = applyBatch(state, index, batch, { events, timer() {} }, outcome => {
      const proposal = batch.proposals[at++]!
      if (proposal.op !== undefined) this.#judgeOperation(operationName(proposal.key ?? 0, proposal.op), outcome)
      if (judge) this.#judgeCommand(proposal.command, outcome, events)
      if (events.length > 0) {
        if (state.revision !== before.revision + 1 && index > 1 && proposal.command.kind !== 'generation')
          this.#world.violate('S13', `revision ${state.revision} follows ${before.revision}`)
        before.revision = state.revision
        this.#place.set(state.revision, this.#revisions.length)
        this.#revisions.push({ revision: state.revision, events: events.slice() })
      }
      events.length = 0
    })
    if (judge && applied.kind === 'applied') this.commands += batch.proposals.length
    if (applied.kind === 'applied') {
      const name = `${batch.proposer}:${batch.seq}`
      if (judge && this.#appliedEntries.has(name)) this.#world.violate('S24', `entry ${name} was applied twice`)
      this.#appliedEntries.add(name)
    }
    if (judge && this.#entries.length % 64 === 0) this.checkWhole()
  }

  #judgeCommand(command: Command, outcome: Outcome, events: readonly Event[]): void {
    const world = this.#world
    for (const event of events) {
      world.note(`${event.type} ${event.lease} ${event.resource ?? event.key ?? ''} ${event.token ?? ''} ${event.cause ?? ''}`)
      if (event.type === 'granted') this.#judgeGrant(event)
      if (event.type === 'generation') this.mourning = false
      if (event.type === 'queued') this.#ranks.set(event.lease, findLease(this.#state, event.lease)?.rare?.rank ?? 0)
      if (event.type === 'lapsed' || event.type === 'suspected') this.#judgeLapse(event)
      if (ENDS.has(event.type)) this.#judgeEnd(event, command)
    }
    if (outcome.kind === 'granted') this.#granted.set(outcome.lease, outcome.tokens)
    if (outcome.kind === 'granted' || outcome.kind === 'queued') {
      this.#lastRenewal.set(outcome.lease, world.now)
      this.#terms.set(outcome.lease, outcome.ttl)
    }
    if (command.kind === 'renew') for (const lease of command.leases) this.#lastRenewal.set(lease, world.now)
    if (events.length > 0) this.#judgeWaiters(events, command)
  }

  #judgeGrant({ lease, resource, token }: Event): void {
    const world = this.#world
    if (this.ended.has(lease)) world.violate('S6', `lease ${lease} was granted ${resource} after it had ended`)
    if (resource === undefined || token === undefined) return
    // Before survivors have spoken, a late copy of a lost entry may grant again what it had granted; nobody is told of that.
    if (token <= this.#lastToken && !this.mourning) world.violate('S3', `token ${token} follows ${this.#lastToken}`)
    this.#lastToken = Math.max(this.#lastToken, token)
    this.#granted.set(lease, [...(this.#granted.get(lease) ?? []), token])
    const there = this.#state.resources.get(resource)
    if (there === undefined) return
    const capacity = rule(this.#state, resource, 'capacity')
    const units = there.grants.reduce((sum, grant) => sum + grant.units, 0)
    if (units > capacity) world.violate('S15', `${units} of ${capacity} units of ${resource} are granted`)
    const shared = there.grants.filter(grant => grant.shared).length
    if (shared > 0 && shared < there.grants.length) world.violate('S15', `${resource} is granted shared and exclusively at once`)
  }

  /** Nobody overtakes, nothing free waits, nobody is granted who had gone. */
  #judgeWaiters(events: readonly Event[], command: Command): void {
    for (const { type, lease, resource } of events) {
      if (resource === undefined) continue
      const there = this.#state.resources.get(resource)
      const first = there?.queue[0]
      if (there === undefined || first === undefined) continue
      const wants = first.rare!.wants
      const alone = wants.length === 1 && first.rare!.any === 0
      if (
        alone &&
        there.grants.length === 0 &&
        this.#state.quiet === undefined &&
        wants[0]!.units <= rule(this.#state, resource, 'capacity')
      )
        this.#world.violate('L1', `${resource} is free and ${first.holder.name} waits for it`)
      // An heir takes the giver's place, not one in the queue.
      if (type !== 'granted' || command.kind === 'transfer' || rule(this.#state, resource, 'queue') !== 'fifo') continue
      const granted = findLease(this.#state, lease)
      if (granted === undefined || (granted.rare?.priority ?? 0) !== 0) continue
      const rank = this.#ranks.get(lease) ?? 0
      if (first.rare!.rank < rank || (first.rare!.rank === rank && first.id < lease))
        this.#world.violate('S14', `${lease} was granted ${resource} before ${first.id}, which had waited longer`)
    }
  }

  #judgeLapse({ lease, type }: Event): void {
    this.onLapse(lease, this.#sentAt)
    const last = this.#lastRenewal.get(lease)
    const term = this.#terms.get(lease)
    if (last !== undefined && term !== undefined && this.#world.now > last + term * (1 + RHO) + this.lateness)
      this.#world.violate(
        'S5',
        `lease ${lease} ${type} only ${Math.round(this.#world.now - last)} ms after its last renewal, with a term of ${term} ms`,
      )
    const ack = this.#acks.get(lease)
    if (ack === undefined || this.ended.has(lease)) return
    const earliest = ack.sent + ack.term / (1 + RHO)
    if (this.#world.now < earliest - 0.001)
      this.#world.violate(
        'S4',
        `lease ${lease} ${type} ${(earliest - this.#world.now).toFixed(1)} ms before its acknowledged renewal of ${ack.term} ms was over`,
      )
  }

  #judgeEnd({ lease, type, resource }: Event, command: Command): void {
    const world = this.#world
    const ended = this.ended.get(lease)
    if (ended !== undefined && ended.at !== world.now && type !== 'released')
      world.violate('S6', `lease ${lease} ended twice: ${ended.type}, ${type}`)
    const still = findLease(this.#state, lease)
    if (type === 'released' && still !== undefined && resource !== undefined) return // one grant of a lease that goes on
    if (type === 'released' && command.kind === 'release' && command.lease === lease && !this.givenUp.has(lease))
      world.violate('S7', `lease ${lease} was released by someone else`)
    this.ended.set(lease, { at: world.now, index: this.#state.index, type })
    if (still !== undefined && still.status !== FROZEN) world.violate('S8', `lease ${lease} ${type} and is still there`)
    for (const entry of this.#state.entries.values())
      if (entry.lease.id === lease) world.violate('S8', `the entry ${entry.key} outlives lease ${lease}, which ${type}`)
    for (const other of this.#state.leases.values())
      if (other.rare?.parent?.id === lease) world.violate('S8', `lease ${other.id} outlives its parent ${lease}`)
  }

  #judgeOperation(name: string, outcome: Outcome): void {
    this.#world.note(`operation ${name} ${outcome.kind}`)
    if (this.#failed.has(name) && outcome.kind !== 'refused')
      this.#world.violate('S12', `${name} was reported as certainly not done, and was done`)
    const text = JSON.stringify(outcome)
    const known = this.#answers.get(name)
    if (known === undefined) this.#answers.set(name, text)
    else if (known !== text && outcome.kind !== 'renewed' && !(outcome.kind === 'refused' && outcome.code === 'STALE'))
      this.#world.violate('S11', `${name} was answered ${known} and then ${text}`)
  }

  /** What is derived agrees with what it is derived from. */
  checkWhole(): void {
    const state = this.#state
    const world = this.#world
    const counts = { waiting: 0, frozen: 0 }
    for (const lease of state.leases.values()) {
      if (lease.status === WAITING) counts.waiting++
      if (lease.status === FROZEN) counts.frozen++
      if (badName(lease.holder.name) !== undefined) world.violate('S22', `a holder without a name: ${lease.id}`)
      for (const grant of lease.grants)
        if (!grant.resource.grants.includes(grant) || state.resources.get(grant.resource.name) !== grant.resource)
          world.violate('S8', `${grant.resource.name} does not know that lease ${lease.id} has it`)
    }
    if (counts.waiting !== state.counts.waiting || counts.frozen !== state.counts.frozen) world.violate('S8', 'the counts are off')
    for (const resource of state.resources.values())
      for (const grant of resource.grants)
        if (findLease(state, grant.lease.id) !== grant.lease)
          world.violate('S8', `${resource.name} is held by lease ${grant.lease.id}, which is gone`)
  }

  /** The engine forgot its last entries. What rests on them never happened; survivors must say so before anything is decided. */
  lose(count: number): void {
    this.losses++
    this.mourning = true
    this.#entries.splice(this.#entries.length - count, count)
    this.#state = found()
    this.#revisions = []
    this.#place.clear()
    this.#answers.clear()
    this.#appliedEntries.clear()
    for (const [lease, { index }] of this.ended) if (index > this.#entries.length) this.ended.delete(lease)
    for (const { index, bytes } of this.#entries) this.#apply(index, bytes, false)
  }

  get length(): number {
    return this.#entries.length
  }

  // What those who ask are told

  /** A replica has answered. `asked`: the log's revision when the question was put to it. */
  answered(outcome: Outcome, op: Operation | undefined, asked: number, losses: number): void {
    if (losses !== this.losses) return
    const world = this.#world
    // An owner that has not yet met the loss may still refuse from what it knows; that grants nobody anything.
    if (losses > 0 && outcome.kind !== 'granted') return
    if (outcome.revision > this.revision)
      world.violate('S9', `an answer from revision ${outcome.revision}, and the log is at ${this.revision}`)
    if (outcome.kind === 'granted') {
      const seen = this.#granted.get(outcome.lease)
      if (seen === undefined || !outcome.tokens.every(token => seen.includes(token)))
        world.violate(this.losses > 0 ? 'S24' : 'S9', `lease ${outcome.lease} was acknowledged, and is not in the log`)
    }
    // An operation that was sent before may be answered as it was then.
    const fresh = op === undefined || !this.#answers.has(operationName(0, op))
    if (fresh && outcome.kind === 'refused' && outcome.code === 'HELD' && outcome.revision < asked)
      world.violate('S10', `refused as of revision ${outcome.revision}, when the log was at ${asked}`)
  }

  /** A lease was renewed by one who knew the log up to `known` when asked. */
  renewed(lease: number, known: number, losses: number): void {
    const ended = this.ended.get(lease)
    if (losses === this.losses && ended !== undefined && ended.index <= known)
      this.#world.violate('S6', `lease ${lease} ended (${ended.type}) and was then renewed`)
  }

  /** A holder has the acknowledgement of a renewal, or of its grant, that it sent at `sent`. */
  acknowledged(lease: number, sent: number, term: number): void {
    const ended = this.ended.get(lease)
    if (ended?.type === 'lapsed' && ended.at < sent + term / (1 + RHO) - 0.001)
      this.#world.violate(
        'S4',
        `lease ${lease} lapsed ${(sent + term / (1 + RHO) - ended.at).toFixed(1)} ms before an acknowledged renewal of ${term} ms was over`,
      )
    const known = this.#acks.get(lease)
    if (known === undefined || sent + term > known.sent + known.term) this.#acks.set(lease, { sent, term })
  }

  failed(name: string): void {
    this.#world.note(`failed ${name}`)
    this.#failed.add(name)
  }

  // What holders believe

  believes(belief: Belief): void {
    if (!belief.holds()) return // the answer came after its time
    for (const { resource, units, shared, token } of belief.grants) {
      let all = this.#beliefs.get(resource)
      if (all === undefined) {
        all = new Set()
        this.#beliefs.set(resource, all)
      }
      const others = [...all].filter(other => {
        if (other !== belief && !other.holds()) all.delete(other)
        return (
          other !== belief &&
          other.lease !== belief.lease &&
          other.holds() &&
          !this.forced.has(other.lease) &&
          !this.forced.has(belief.lease)
        )
      })
      all.add(belief)
      const capacity = Math.max(1, rule(this.#state, resource, 'capacity'))
      const sum = others.reduce(
        (total, other) => total + (other.grants.find(grant => grant.resource === resource)?.units ?? 0),
        shared ? 0 : units,
      )
      const mixed = others.find(other => other.grants.some(grant => grant.resource === resource && grant.shared !== shared))
      if (sum > capacity || mixed !== undefined) {
        const other = mixed ?? others[0]!
        const how = this.ended.get(other.lease)
        this.#world.violate(
          'S1',
          `${belief.who} (lease ${belief.lease}, token ${token}) and ${other.who} (lease ${other.lease}, ${how?.type ?? 'not ended'}) both believe they hold ${resource}`,
        )
      }
    }
  }

  // What watchers see

  /** The revision that must follow `after` in a gap-free watch, if there is one yet. */
  watched(after: number, events: readonly Event[], losses: number): void {
    if (losses !== this.losses) return
    const revision = events[0]!.revision
    const place = this.#place.get(revision)
    if (place === undefined) return this.#world.violate('S13', `a watcher saw revision ${revision}, which is not in the log`)
    const expected = this.#revisions[place]!
    if (expected.events.length !== events.length)
      this.#world.violate('S13', `a watcher saw ${events.length} of ${expected.events.length} events of revision ${revision}`)
    const previous = place === 0 ? undefined : this.#revisions[place - 1]!.revision
    if (previous !== undefined && after < previous && this.#place.has(after))
      this.#world.violate('S13', `a watcher went from revision ${after} to ${revision} and missed ${previous}`)
  }

  // When everything is over

  /** Nobody has renewed for so long that nothing may be left. */
  nothingIsLeft(since: string): void {
    const left: Lease[] = [...this.#state.leases.values()]
    if (left.length === 0) return
    const lease = left[0]!
    this.#world.violate(
      'S5',
      `${left.length} leases are left ${since}: first ${lease.id} of ${lease.holder.name}, status ${lease.status}, ttl ${lease.ttl}`,
    )
  }

  sameState(machine: Machine, index: number, hash: () => string): void {
    if (index === this.#state.index && hash() !== this.hash())
      this.#world.violate('S22', `${machine.name} has another state than the log at entry ${index}`)
  }
}
