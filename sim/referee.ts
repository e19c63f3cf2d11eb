/**
 * Decides whether the invariants of docs/guarantees.md held. It sees what no process in the simulated world can see: true time, every record
 * when it is appended, and which leases each holder uses.
 */
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import { stateHash } from '../src/kernel/codec/snapshot.ts'
import type { Command, Operation, Proposal, Scope } from '../src/kernel/command.ts'
import { ELSEWHERE, type Event } from '../src/kernel/event.ts'
import { badName } from '../src/kernel/name.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { rule } from '../src/kernel/rule/policy.ts'
import { findLease, UNCLAIMED } from '../src/kernel/state/leases.ts'
import { createState, FROZEN, type LeaseState, type State, WAITING } from '../src/kernel/state.ts'
import type { Position } from '../src/store.ts'
import { BeliefChecker, type ObservedBelief } from './beliefs.ts'
import { Waiters } from './waiters.ts'
import type { Machine, World } from './world.ts'

/** Clock rates in the world stay within this of each other. */
export const RHO = 0.005
/** Until a holder has renewed once, its term is at most this. */
const FIRST_TERM = 30_000

/** A record of the log, with the true time at which it was appended. */
interface Recorded {
  readonly bytes: Uint8Array
  readonly index: number
  readonly at: number
}

interface Ended {
  readonly at: number
  readonly index: number
  readonly type: Event['type']
}

/** A server that may stall: which renewals arrived meanwhile, by lease, and its last renewals in memory. */
export interface StallableServer {
  readonly arrivedWhileStalled: ReadonlyMap<number, number>
  readonly renewals: Map<number, { readonly at: number; readonly term: number; readonly life: number; readonly losses: number }>
  readonly machine: Pick<Machine, 'lastStall' | 'life' | 'rough'>
}

/** How late an owner may propose a lapse if nothing delays it. */
const OWNER_LATENESS = 700

/** An end that was announced for a lease: not before `soonest`, and by `latest` if the world is calm. */
interface Announced {
  readonly soonest: number
  readonly latest: number
}

/** A refusal because of the key is not remembered: it is refused again, at a later revision. */
function forbids(outcome: Outcome): boolean {
  return outcome.kind === 'refused' && outcome.code === 'FORBIDDEN'
}

export function operationName(key: number, { session, seq }: Operation): string {
  return `${key}:${session}:${seq}`
}

const ENDS = new Set<Event['type']>(['released', 'lapsed', 'revoked', 'transferred', 'withdrawn'])

function ends({ type, cause }: Event): boolean {
  return ENDS.has(type) && cause !== ELSEWHERE
}

export class Referee {
  readonly #world: World
  readonly #applyBatch: typeof applyBatch
  readonly #waiters: Waiters
  readonly #beliefs: BeliefChecker
  #state = createState()
  readonly #records: Recorded[] = []
  /** The events that watchers must see, in order. */
  #revisions: { readonly revision: number; readonly events: readonly Event[] }[] = []
  readonly #place = new Map<number, number>()
  #lastToken = 0
  readonly #granted = new Map<number, readonly number[]>()
  readonly ended = new Map<number, Ended>()
  readonly #acks = new Map<number, { readonly sent: number; readonly term: number }>()
  readonly #failed = new Set<string>()
  readonly #done = new Set<string>()
  readonly #answers = new Map<string, string>()
  /** Leases that their own holder released or transferred. */
  readonly givenUp = new Set<number>()
  losses = 0
  commands = 0
  /** The server whose stalls are judged, in a world where only one server can lapse leases. */
  server: StallableServer | undefined
  /** Records were lost and no survivor has written a generation yet: if they died now, no process would know of the loss. */
  awaitsGeneration = false
  #sentAt = 0
  readonly #appliedRecords = new Set<string>()
  readonly #terms = new Map<number, number>()
  readonly #lastRenewal = new Map<number, number>()
  /** The record with each lease's last renewal, or its grant. */
  readonly #renewedAt = new Map<number, number>()
  /** When a survivor of a loss last wrote a generation. */
  #generationAt = Number.NEGATIVE_INFINITY
  /** Leases whose last renewal is lost, until a survivor writes a generation: then every term begins again. */
  readonly #lostRenewals = new Set<number>()
  readonly #watchedBeliefs = new Map<number, ObservedBelief & { told(): boolean }>()
  readonly #breaks = new Map<number, Announced>()
  readonly #children = new Map<number, Set<number>>()
  /** The holder of each entry. */
  readonly #registered = new Map<string, { readonly holder: string; readonly incarnation: number; readonly lease: number }>()
  readonly #fences = new Map<string, number>()
  readonly #scopes = new Map<number, readonly Scope[]>()
  /** Transferred to a name without a known process. */
  readonly #unclaimed = new Set<number>()
  readonly #users = new Map<string, boolean>()
  /** The record that raised the rules. */
  #raisedAt = Number.POSITIVE_INFINITY
  /** In a world without stalls and losses, how late a lapse may be. */
  lateness = Number.POSITIVE_INFINITY

  constructor(world: World, { apply = applyBatch }: { readonly apply?: typeof applyBatch } = {}) {
    this.#world = world
    this.#applyBatch = apply
    const violate = (invariant: string, message: string) => world.violate(invariant, message)
    this.#waiters = new Waiters(violate)
    this.#beliefs = new BeliefChecker(violate)
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

  // Records of the log

  observe(position: Position, bytes: Uint8Array, sentAt: number): void {
    this.#sentAt = sentAt
    const record = { bytes, index: position.index, at: this.#world.now }
    this.#records.push(record)
    this.#apply(record, true)
  }

  #apply({ index, bytes, at: appendedAt }: Recorded, judge: boolean): void {
    const batch = decodeBatch(bytes)
    const state = this.#state
    const events: Event[] = []
    let at = 0
    const before = { revision: state.revision }
    const applied = this.#applyBatch(state, index, batch, { events, timer() {} }, outcome => {
      const proposal = batch.proposals[at++]!
      if (this.#isAgain(proposal, outcome) && events.length === 0) return // an earlier answer, judged then
      this.#waiters.follow(state, proposal.command, outcome)
      if (judge) this.#judgeCommand(proposal, outcome, events)
      this.#follow(proposal.command, outcome, events, appendedAt)
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
      if (judge && this.#appliedRecords.has(name)) this.#world.violate('S24', `record ${name} was applied twice`)
      this.#appliedRecords.add(name)
    }
    if (judge && this.#records.length % 64 === 0) this.checkWhole()
  }

  #judgeCommand({ command, key = 0 }: Proposal, outcome: Outcome, events: readonly Event[]): void {
    const world = this.#world
    for (const event of events) {
      world.note(`${event.type} ${event.lease} ${event.resource ?? event.key ?? ''} ${event.token ?? ''} ${event.cause ?? ''}`)
      if (event.type === 'granted') this.#judgeGrant(event, command)
      if (event.type === 'generation') this.#generationWritten()
      if (event.type === 'lapsed' || (event.type === 'suspected' && command.kind === 'due')) this.#judgeLapse(event)
      if (event.type === 'revoked' && event.cause === 'break' && command.kind === 'due') this.#judgeBreak(event)
      if (event.type === 'put') this.#judgePut(event)
      if (ends(event)) this.#judgeEnd(event, command)
    }
    for (const event of events) {
      if (event.type === 'deleted') this.#judgeDeleted(event, command)
      if (ends(event) && this.ended.has(event.lease)) this.#judgeChildren(event)
    }
    if (outcome.kind === 'granted') this.#granted.set(outcome.lease, outcome.tokens)
    if ((outcome.kind === 'granted' || outcome.kind === 'queued') && !this.#terms.has(outcome.lease)) {
      this.#lastRenewal.set(outcome.lease, world.now)
      this.#terms.set(outcome.lease, outcome.ttl)
      if (outcome.ttl > FIRST_TERM) world.violate('S5', `lease ${outcome.lease} begins with a term of ${outcome.ttl} ms, unconfirmed`)
    }
    if (command.kind === 'renew' && outcome.kind === 'renewed') this.#judgeRenewal(command.leases, outcome.ttls, key)
    if (outcome.kind === 'fenced' && command.kind === 'fence' && command.token < (this.#fences.get(command.resource) ?? 0))
      world.violate('S2', `${command.resource} accepted token ${command.token} after ${this.#fences.get(command.resource)}`)
    this.#waiters.judge(this.#state, command, outcome, events)
  }

  /** Remembers what later judgements need; also for records that were judged before. */
  #follow(command: Command, outcome: Outcome, events: readonly Event[], appendedAt: number): void {
    for (const { type, key, lease } of events) {
      if (key === undefined) continue
      const holder = findLease(this.#state, lease)?.holder
      if (type === 'put' && holder !== undefined) this.#registered.set(key, { holder: holder.name, incarnation: holder.incarnation, lease })
      if (type === 'deleted') this.#registered.delete(key)
    }
    if (outcome.kind === 'refused') return
    if (command.kind === 'acquire' && command.parent !== undefined && (outcome.kind === 'granted' || outcome.kind === 'queued'))
      this.#children.set(command.parent, (this.#children.get(command.parent) ?? new Set()).add(outcome.lease))
    if (command.kind === 'acquire' && command.steal === 'force')
      for (const { type, lease } of events) if (type === 'revoked' || type === 'thawed') this.forced.add(lease)
    if (command.kind === 'transfer' && outcome.kind === 'done' && outcome.id !== undefined) {
      if (findLease(this.#state, outcome.id)?.key === UNCLAIMED) this.#unclaimed.add(outcome.id)
      // A break of the former holder continues for the recipient. Only the marks in the log say how much of its time had passed.
      const { soonest } = this.#breaks.get(command.lease) ?? {}
      if (soonest !== undefined) this.#breaks.set(outcome.id, { soonest, latest: Number.POSITIVE_INFINITY })
    }
    if (outcome.kind === 'fenced' && command.kind === 'fence')
      this.#fences.set(command.resource, Math.max(command.token, this.#fences.get(command.resource) ?? 0))
    if (command.kind === 'key' && outcome.kind === 'done' && outcome.id !== undefined) this.#scopes.set(outcome.id, command.allow)
    if (command.kind === 'policy') this.#beliefs.allows(command.prefix, command.rules?.capacity ?? 1)
    if (command.kind === 'unkey') this.#scopes.delete(command.id)
    if (command.kind === 'upgrade') this.#raisedAt = this.#state.index
    if (command.kind === 'break' && (command.after ?? 0) > 0) this.#announceBreak(command.resource, command.after!, appendedAt)
  }

  /** `at`: when the break was appended. After a loss the log is replayed, and delays must not begin again. */
  #announceBreak(resource: string, after: number, at: number): void {
    for (const { lease } of this.#state.resources.get(resource)?.grants ?? []) {
      if (lease.status === FROZEN) continue
      const known = this.#breaks.get(lease.id)
      this.#breaks.set(lease.id, {
        soonest: Math.min(known?.soonest ?? Number.POSITIVE_INFINITY, at + after / (1 + RHO)),
        latest: Math.min(known?.latest ?? Number.POSITIVE_INFINITY, at + after * (1 + RHO)),
      })
    }
  }

  #judgeBreak({ lease }: Event): void {
    const announced = this.#breaks.get(lease)
    if (announced !== undefined && this.#world.now < announced.soonest - 0.001)
      this.#world.violate('S4', `lease ${lease} was broken ${Math.round(announced.soonest - this.#world.now)} ms before the delay was over`)
  }

  #generationWritten(): void {
    this.awaitsGeneration = false
    this.#generationAt = this.#world.now
    this.#lostRenewals.clear()
  }

  /** Where keys are in use, only the key that made a lease may act on it. */
  #judgeRenewal(leases: readonly number[], ttls: readonly number[], key: number): void {
    for (const [i, id] of leases.entries()) {
      this.#lastRenewal.set(id, this.#world.now)
      this.#renewedAt.set(id, this.#state.index)
      this.#lostRenewals.delete(id)
      if (ttls[i]! > 0) this.#terms.set(id, ttls[i]!)
      const lease = findLease(this.#state, id)
      if (ttls[i]! > 0 && lease !== undefined && this.#unclaimed.delete(id))
        for (const { resource } of lease.grants)
          if (!this.#entitled(lease, resource.name))
            this.#world.violate('S7', `lease ${id} was claimed with key ${key}, which does not allow ${resource.name}`)
      if (ttls[i]! > 0 && key !== 0 && lease !== undefined && lease.key !== key)
        this.#world.violate('S7', `lease ${id} of key ${lease.key} was renewed with key ${key}`)
    }
  }

  #judgePut({ key, lease: id }: Event): void {
    const known = this.#registered.get(key!)
    const holder = findLease(this.#state, id)?.holder
    if (known === undefined || holder === undefined) return
    if (known.holder !== holder.name) this.#world.violate('S7', `${holder.name} took the entry ${key} from ${known.holder}`)
    else if (known.incarnation > holder.incarnation)
      this.#world.violate('S18', `incarnation ${holder.incarnation} of ${holder.name} wrote ${key} over incarnation ${known.incarnation}`)
  }

  /** An entry ends with its lease, or when it is deleted with the right lease named. */
  #judgeDeleted({ key, lease }: Event, command: Command): void {
    if (command.kind === 'delete') {
      if (command.lease !== undefined && command.lease !== lease)
        this.#world.violate(
          'S18',
          `the entry ${key} of lease ${lease} was deleted for lease ${command.lease}, from which it was taken over`,
        )
    } else if (!this.ended.has(lease)) this.#world.violate('S18', `the entry ${key} of lease ${lease} ended with another lease`)
  }

  #judgeChildren({ lease, type }: Event): void {
    for (const child of this.#children.get(lease) ?? [])
      if (!this.ended.has(child)) this.#world.violate('S8', `lease ${child} outlives its parent ${lease}, which ${type}`)
  }

  #entitled(lease: LeaseState, resource: string): boolean {
    // A lease that was transferred to a name alone has no key until a process renews it.
    if (lease.key === 0 || lease.key === UNCLAIMED) return true
    const scopes = this.#scopes.get(lease.key) ?? []
    return scopes.some(
      ({ verb, prefix }) =>
        (verb === 'acquire' || verb === 'admin' || (verb === 'renew' && lease.rare?.handed === true)) &&
        (prefix === '' || `${resource}/`.startsWith(`${prefix}/`)),
    )
  }

  #judgeGrant({ lease, resource, token }: Event, command: Command): void {
    const world = this.#world
    const ended = this.ended.get(lease)
    if (ended !== undefined)
      world.violate(ended.type === 'withdrawn' ? 'S14' : 'S6', `lease ${lease} was granted ${resource} after it had ended: ${ended.type}`)
    if (resource === undefined || token === undefined) return
    const holder = findLease(this.#state, lease)
    // A transfer was checked against the rights of the former holder.
    if (holder !== undefined && command.kind !== 'transfer' && !this.#entitled(holder, resource))
      world.violate(
        this.#waiters.wasQueued(lease) ? 'S14' : 'S25',
        `lease ${lease} was granted ${resource}, and its key does not allow that`,
      )
    // Before a survivor writes a generation, a late record may repeat a lost grant under the same number. No client is told of it, and the quiet
    // time protects the client that was told of the lost one.
    if (this.awaitsGeneration && this.#granted.has(lease)) this.#acks.delete(lease)
    if (token <= this.#lastToken && !this.awaitsGeneration) world.violate('S3', `token ${token} follows ${this.#lastToken}`)
    this.#lastToken = Math.max(this.#lastToken, token)
    this.#granted.set(lease, [...(this.#granted.get(lease) ?? []), token])
    const there = this.#state.resources.get(resource)
    if (there === undefined) return
    const capacity = rule(this.#state, resource, 'capacity')
    const units = there.grants.reduce((sum, grant) => sum + grant.units, 0)
    // A transferred grant is older: a capacity that shrank since then does not end it.
    if (units > capacity && command.kind !== 'transfer') world.violate('S15', `${units} of ${capacity} units of ${resource} are granted`)
    const shared = there.grants.filter(grant => grant.shared).length
    if (shared > 0 && shared < there.grants.length) world.violate('S15', `${resource} is granted shared and exclusively at once`)
  }

  #judgeLapse({ lease, type }: Event): void {
    this.#judgeBelief({ lease, type })
    this.#judgeStalledLapse(lease)
    this.#judgeOwnedLapse(lease, type)
    const last = this.#lastRenewal.get(lease)
    const term = this.#terms.get(lease)
    if (last !== undefined && term !== undefined && this.#world.now > last + term * (1 + RHO) + this.lateness)
      this.#world.violate(
        'S5',
        `lease ${lease} ${type} only ${Math.round(this.#world.now - last)} ms after its last renewal, with a term of ${term} ms`,
      )
    // The grace of a suspect lease begins now.
    if (type === 'suspected') {
      this.#lastRenewal.set(lease, this.#world.now)
      this.#terms.set(lease, findLease(this.#state, lease)?.rare?.grace ?? 0)
    }
    const ack = this.#acks.get(lease)
    if (ack === undefined || this.ended.has(lease)) return
    // Its renewal was among the records that are lost, and a replica that never saw them judges before a survivor writes a generation.
    if (this.#lostRenewals.has(lease)) return
    const earliest = ack.sent + ack.term / (1 + RHO)
    if (this.#world.now < earliest - 0.001)
      this.#world.violate(
        'S4',
        `lease ${lease} ${type} ${(earliest - this.#world.now).toFixed(1)} ms before its acknowledged renewal of ${ack.term} ms was over`,
      )
  }

  /** S19: a server reads the input that arrived during a stall before it judges any lease. */
  #judgeStalledLapse(lease: number): void {
    const arrived = this.server?.arrivedWhileStalled.get(lease)
    if (this.server === undefined || arrived === undefined) return
    // A lapse proposed before the stall may still wait behind an append that was under way. The stall did not cause it.
    const { from, to, appending } = this.server.machine.lastStall
    if (appending || arrived < from || arrived > to || this.#sentAt < to) return
    const ttl = findLease(this.#state, lease)?.ttl ?? 300
    if (this.#world.now < arrived + Math.min(ttl, 300) / (1 + RHO))
      this.#world.violate('S19', `a renewal of ${lease} waited while the server was stalled, and the lease lapsed afterwards`)
  }

  /** S5 under one owner: a stall that ended before the last renewal adds nothing to the term. Judged only if nothing else can have delayed the lapse. */
  #judgeOwnedLapse(lease: number, type: string): void {
    const { server } = this
    const renewal = server?.renewals.get(lease)
    if (server === undefined || renewal === undefined) return
    const { at, term, life, losses } = renewal
    if (type === 'suspected') server.renewals.delete(lease) // its grace begins
    const { machine } = server
    // Every term begins again with a generation; the owner may have renewed in memory before it noticed the loss.
    if (this.#generationAt > at) return
    if (life !== machine.life || losses !== this.losses || machine.lastStall.to > at || machine.rough > at) return
    if (this.#sentAt > at + term * (1 + RHO) + OWNER_LATENESS)
      this.#world.violate(
        'S5',
        `lease ${lease} ${type} only ${Math.round(this.#sentAt - at)} ms after its last renewal, with a term of ${term} ms and no stall since`,
      )
  }

  #judgeEnd({ lease, type }: Event, command: Command): void {
    const world = this.#world
    const ended = this.ended.get(lease)
    if (ended !== undefined && ended.at !== world.now && type !== 'released')
      world.violate('S6', `lease ${lease} ended twice: ${ended.type}, ${type}`)
    const isReleased = command.kind === 'release' && (command.lease === lease || command.stopped?.includes(lease) === true)
    const byItself = isReleased || (command.kind === 'transfer' && command.stopped === true)
    if (byItself) this.#judgeBelief({ lease, type })
    const still = findLease(this.#state, lease)
    if (type === 'released' && command.kind === 'release' && command.resource !== undefined) return // one grant of a lease that continues
    if (type === 'released' && isReleased && !this.givenUp.has(lease)) world.violate('S7', `lease ${lease} was released by another process`)
    this.ended.set(lease, { at: world.now, index: this.#state.index, type })
    const announced = this.#breaks.get(lease)
    if (announced !== undefined && world.now > announced.latest + this.lateness)
      world.violate('S5', `lease ${lease} was broken ${Math.round(world.now - announced.latest)} ms too late`)
    if (type === 'released' && still?.status === FROZEN)
      world.violate('L1', `lease ${lease} was released by its holder and is still withheld`)
    if (still !== undefined && still.status !== FROZEN) world.violate('S8', `lease ${lease} ${type} and is still there`)
    for (const entry of this.#state.entries.values())
      if (entry.lease.id === lease) world.violate('S8', `the entry ${entry.key} outlives lease ${lease}, which ${type}`)
    for (const other of this.#state.leases.values())
      if (other.rare?.parent?.id === lease) world.violate('S8', `lease ${other.id} outlives its parent ${lease}`)
  }

  /** Whether this operation was answered before. The answer must be the same. */
  #isAgain({ command, key = 0, op }: Proposal, outcome: Outcome): boolean {
    if (op === undefined) return false
    const name = operationName(key, op)
    const known = this.#answers.has(name)
    this.#judgeOperation(name, outcome)
    return known && command.kind !== 'renew'
  }

  #judgeOperation(name: string, outcome: Outcome): void {
    this.#world.note(`operation ${name} ${outcome.kind}`)
    if (this.#failed.has(name) && outcome.kind !== 'refused')
      this.#world.violate('S12', `${name} was reported as certainly not done, and was done`)
    if (outcome.kind !== 'refused') this.#done.add(name)
    const text = JSON.stringify(outcome)
    const known = this.#answers.get(name)
    if (known === undefined) this.#answers.set(name, text)
    else if (forbids(outcome) && forbids(JSON.parse(known) as Outcome)) return
    else if (known !== text && outcome.kind !== 'renewed' && !(outcome.kind === 'refused' && outcome.code === 'STALE'))
      this.#world.violate('S11', `${name} was answered ${known} and then ${text}`)
  }

  /** Derived parts of the state must agree with the parts they are derived from. */
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
          world.violate('S8', `${grant.resource.name} does not list lease ${lease.id}, which holds it`)
    }
    if (counts.waiting !== state.counts.waiting || counts.frozen !== state.counts.frozen) world.violate('S8', 'the counts are wrong')
    for (const resource of state.resources.values())
      for (const grant of resource.grants)
        if (findLease(state, grant.lease.id) !== grant.lease)
          world.violate('S8', `${resource.name} is held by lease ${grant.lease.id}, which is gone`)
    for (const resource of state.resources.values()) this.#waiters.judgeFree(state, resource)
  }

  /** The engine lost its last records. Survivors must write a generation before anything is decided. */
  lose(count: number): void {
    this.losses++
    this.awaitsGeneration = true
    this.#records.splice(this.#records.length - count, count)
    const { nextToken } = this.#state
    this.#state = createState()
    this.#revisions = []
    this.#place.clear()
    this.#answers.clear()
    this.#done.clear()
    this.#appliedRecords.clear()
    this.#registered.clear()
    this.#children.clear()
    this.#fences.clear()
    this.#scopes.clear()
    this.#unclaimed.clear()
    this.#breaks.clear() // some breaks are lost; the replay restores the others
    this.#raisedAt = Number.POSITIVE_INFINITY
    this.#waiters.forget()
    for (const [lease, { index }] of this.ended) if (index > this.#records.length) this.ended.delete(lease)
    for (const [lease, index] of this.#renewedAt) if (index > this.#records.length) this.#lostRenewals.add(lease)
    for (const record of this.#records) this.#apply(record, false)
    this.#beliefs.lose(this.#state.nextToken, nextToken)
  }

  get length(): number {
    return this.#records.length
  }

  // Answers to clients

  /** A replica has answered. `asked`: the log's revision when the request was made. */
  answered(outcome: Outcome, op: string | undefined, asked: number, losses: number): void {
    if (losses !== this.losses) return
    const world = this.#world
    // An owner that has not noticed the loss may still refuse by its own state; that grants nothing.
    if (losses > 0 && outcome.kind !== 'granted') return
    if (outcome.revision > this.revision)
      world.violate('S9', `an answer from revision ${outcome.revision}, and the log is at ${this.revision}`)
    if (outcome.kind === 'granted') {
      const seen = this.#granted.get(outcome.lease)
      if (seen === undefined || !outcome.tokens.every(token => seen.includes(token)))
        world.violate(this.losses > 0 ? 'S24' : 'S9', `lease ${outcome.lease} was acknowledged, and is not in the log`)
    }
    // An operation that was sent before may get its earlier answer.
    const fresh = op === undefined || !this.#answers.has(op)
    if (fresh && outcome.kind === 'refused' && outcome.code === 'HELD' && outcome.revision < asked)
      world.violate('S10', `refused as of revision ${outcome.revision}, when the log was at ${asked}`)
  }

  /** The outcome as the client received it: local or remote, after any number of attempts. */
  told(outcome: Outcome, op: string | undefined, asked: number, losses: number): void {
    this.answered(outcome, op, asked, losses)
    if (losses !== this.losses || op === undefined) return
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued' && outcome.kind !== 'done') return
    const known = this.#answers.get(op)
    if (known === undefined) return this.#world.violate('S11', `${op} was answered ${outcome.kind}, and the log has no such operation`)
    const { kind, lease } = JSON.parse(known) as Outcome & { readonly lease?: number }
    if (kind !== outcome.kind || ('lease' in outcome && outcome.lease !== lease))
      this.#world.violate('S11', `${op} was answered ${JSON.stringify(outcome)}, and in the log it is ${known}`)
  }

  /** A replica renewed a lease; it knew the log up to `known` when it was asked. */
  renewed(lease: number, known: number, losses: number): void {
    const ended = this.ended.get(lease)
    if (losses === this.losses && ended !== undefined && ended.index <= known)
      this.#world.violate('S6', `lease ${lease} ended (${ended.type}) and was then renewed`)
  }

  /** A holder received the acknowledgement of a renewal or an acquisition that it sent at `sent`. */
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
    if (this.#done.has(name)) this.#world.violate('S12', `${name} was done, and is reported as certainly not done`)
  }

  /** An operation that is sent again may be done after all. */
  asks(name: string): void {
    this.#failed.delete(name)
  }

  // Leases that holders use

  get forced(): Set<number> {
    return this.#beliefs.forced
  }

  believes(belief: ObservedBelief): void {
    this.#beliefs.begins(belief, lease => this.ended.get(lease)?.type ?? 'not ended')
  }

  /** From now on the holder must have stopped, and must know of the loss, when its lease lapses or it releases the lease. */
  minds(belief: ObservedBelief & { told(): boolean }): void {
    this.#watchedBeliefs.set(belief.lease, belief)
  }

  #judgeBelief({ lease, type }: Pick<Event, 'lease' | 'type'>): void {
    const belief = this.#watchedBeliefs.get(lease)
    if (belief === undefined) return
    if (belief.holds()) this.#world.violate('S1', `lease ${lease} ${type} while ${belief.who} still used it`)
    // A holder that transfers its lease has stopped: its signal fires when the transfer is answered.
    if ((type === 'lapsed' || type === 'suspected') && !belief.told() && !this.givenUp.has(lease))
      this.#world.violate('L3', `lease ${lease} ${type} and ${belief.who}, which was not stalled, had not been told`)
    this.#watchedBeliefs.delete(lease)
  }

  /** A present or former holder writes to a resource with its token. Returns whether the write was accepted. */
  writes(belief: ObservedBelief, resource: string, token: number): boolean {
    return this.#beliefs.writes(belief, resource, token)
  }

  // Rules versions

  /** A replica has made a decision at this record of the log. */
  decided(name: string, rules: number, index: number): void {
    if (rules < this.#state.rules && index > this.#raisedAt)
      this.#world.violate('S22', `${name} knows rules up to ${rules}, and continues after the log was raised to ${this.#state.rules}`)
  }

  // Users of the store

  /** A process has opened the log, as its owner or not. */
  opened(name: string, owned: boolean): void {
    for (const [other, owner] of this.#users)
      if (other !== name && (owned || owner))
        this.#world.violate('S20', `${name} opened the log ${owned ? 'as its owner ' : ''}while ${other} ${owner ? 'owns' : 'uses'} it`)
    this.#users.set(name, owned)
  }

  closed(name: string): void {
    this.#users.delete(name)
  }

  // Watches

  /** A watcher at revision `after` received the events of the next revision. */
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

  // The end of the run

  /** No holder has renewed for longer than any term, so no lease may be left. */
  nothingIsLeft(since: string): void {
    const left: LeaseState[] = [...this.#state.leases.values()]
    if (left.length === 0) return
    const lease = left[0]!
    this.#world.violate(
      'S5',
      `${left.length} leases are left ${since}: first ${lease.id} of ${lease.holder.name}, status ${lease.status}, ttl ${lease.ttl}`,
    )
  }

  /** A resource abandoned with this term was granted again after `ms`. */
  grantableAfter(ms: number, term: number, within: number): void {
    if (ms > term * (1 + RHO) + within)
      this.#world.violate('L2', `a resource abandoned with a term of ${term} ms was granted again only after ${Math.round(ms)} ms`)
  }

  sameState(machine: Pick<Machine, 'name'>, index: number, hash: () => string): void {
    if (index === this.#state.index && hash() !== this.hash())
      this.#world.violate('S22', `${machine.name} has another state than the log at record ${index}`)
  }
}
