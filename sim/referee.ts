/**
 * Decides whether the invariants of docs/guarantees.md held. It sees what no process in the simulated world can see: true time, every record
 * when it is appended, and which leases each holder uses.
 */
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import { StateLoader, stateHash } from '../src/kernel/codec/snapshot.ts'
import type { Command, Proposal } from '../src/kernel/command.ts'
import { ELSEWHERE, type Event } from '../src/kernel/event.ts'
import { badName } from '../src/kernel/name.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { createState, FROZEN, type LeaseState, type State, WAITING } from '../src/kernel/state.ts'
import type { Position } from '../src/store.ts'
import { AnswerChecker } from './answers.ts'
import { BeliefChecker } from './beliefs.ts'
import { ClaimChecker } from './claims.ts'
import { EntryChecker } from './entries.ts'
import { KeyChecker } from './keys.ts'
import type { Ended, LogView } from './log-view.ts'
import { PairTracker } from './pairs.ts'
import { agreedByAll } from './permits.ts'
import { RevisionChecker } from './revisions.ts'
import { TermChecker } from './terms.ts'
import { bringsChanges, judgeBooks, TransactionChecker } from './transactions.ts'
import { Waiters } from './waiters.ts'
import { type Machine, RHO, type World } from './world.ts'

/** A record of the log, with the true time at which it was appended. */
interface Recorded {
  readonly bytes: Uint8Array
  readonly index: number
  readonly at: number
}

/** The contents with which a log begins: chunks of a snapshot, and the record that they belong to. */
export interface LogBase {
  readonly chunks: readonly Uint8Array[]
  readonly index: number
}

const ENDS = new Set<Event['type']>(['released', 'lapsed', 'revoked', 'transferred', 'withdrawn'])
/** Ends by which a holder says that it has stopped. */
const STOPS = new Set<Event['type']>(['released', 'lapsed'])

function ends({ type, cause }: Event): boolean {
  return ENDS.has(type) && cause !== ELSEWHERE
}

/** Which processes have opened the log, and whether each owns it. */
class StoreUsers {
  readonly #world: World
  readonly #users = new Map<string, boolean>()

  constructor(world: World) {
    this.#world = world
  }

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
}

export class Referee implements LogView {
  readonly #world: World
  readonly #applyBatch: typeof applyBatch
  readonly #waiters: Waiters
  readonly #entries: EntryChecker
  readonly #keys: KeyChecker
  readonly #transactions: TransactionChecker
  readonly #claims: ClaimChecker
  readonly pairs = new PairTracker(() => this.#state)
  readonly answers: AnswerChecker
  readonly beliefs: BeliefChecker
  readonly revisions: RevisionChecker
  readonly terms: TermChecker
  #state = createState()
  readonly #records: Recorded[] = []
  #base: LogBase | undefined
  #lastToken = 0
  readonly ended = new Map<number, Ended>()
  /** Leases that their own holder released or transferred. */
  readonly givenUp = new Set<number>()
  /** Leases that their program never renews: since when it has them. */
  readonly neverRenewed = new Map<number, number>()
  losses = 0
  commands = 0
  /** Records were lost and no survivor has written a generation yet: if they died now, no process would know of the loss. */
  awaitsGeneration = false
  sentAt = 0
  readonly #appliedRecords = new Set<string>()
  readonly #children = new Map<number, Set<number>>()
  readonly #fences = new Map<string, number>()
  readonly users: StoreUsers
  #raisedAt = Number.POSITIVE_INFINITY

  constructor(world: World, { apply = applyBatch }: { readonly apply?: typeof applyBatch } = {}) {
    this.#world = world
    this.#applyBatch = apply
    const violate = (...violation: Parameters<World['violate']>) => world.violate(...violation)
    this.#waiters = new Waiters(violate, this.pairs)
    this.#claims = new ClaimChecker(world, this, this.pairs)
    this.#entries = new EntryChecker(world, this)
    this.#keys = new KeyChecker(world, this)
    this.#transactions = new TransactionChecker(world, this)
    this.answers = new AnswerChecker(world, this)
    this.beliefs = new BeliefChecker(violate, lease => this.ended.get(lease)?.type ?? 'not ended', this.pairs)
    this.revisions = new RevisionChecker(world, this)
    this.terms = new TermChecker(world, this)
    this.users = new StoreUsers(world)
  }

  /** No lease is left, and the log grants again. */
  get isCalm(): boolean {
    return this.state.leases.size === 0 && !this.awaitsGeneration && this.state.quiet === undefined
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
    this.sentAt = sentAt
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
    this.#claims.before(judge ? batch.proposals[0]?.command : undefined)
    const applied = this.#applyBatch(state, index, batch, { events, timer() {} }, outcome => {
      const proposal = batch.proposals[at++]!
      const next = () => this.#claims.before(judge ? batch.proposals[at]?.command : undefined)
      if (this.answers.isRepeated(proposal, outcome) && events.length === 0) return next() // an earlier answer, judged then
      this.#waiters.follow(state, proposal.command, outcome)
      if (judge) this.#judgeCommand(proposal, outcome, events)
      this.#follow(proposal.command, outcome, events, appendedAt)
      if (events.length > 0) {
        if (state.revision !== before.revision + 1 && index > 1 && proposal.command.kind !== 'generation' && !isArrival(proposal))
          this.#world.violate('S13', `revision ${state.revision} follows ${before.revision}`)
        before.revision = state.revision
        this.revisions.add(events)
      }
      events.length = 0
      next()
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
    this.pairs.applied(command, outcome, events)
    this.#claims.judge(command, outcome, events)
    for (const event of events) {
      world.note(`${event.type} ${event.lease} ${event.resource ?? event.key ?? ''} ${event.token ?? ''} ${event.cause ?? ''}`)
      if (event.type === 'granted') this.#judgeGrant(event, command)
      if (event.type === 'generation') this.#generationWritten()
      if ((event.type === 'lapsed' || event.type === 'suspected') && command.kind === 'due') {
        this.beliefs.judgeEnd(event, this.givenUp)
        this.terms.judgeLapse(event)
        for (const invariant of ['S4', 'S5']) this.pairs.looked(invariant, event.lease)
      }
      if (event.type === 'revoked' && event.cause === 'break' && command.kind === 'due') {
        this.terms.judgeBreak(event)
        this.pairs.looked('S4', event.lease)
      }
      if (event.type === 'put') this.#entries.judgePut(event, events)
      if (event.type === 'put' || event.type === 'deleted') this.pairs.looked('S18', event.lease)
      if (ends(event)) this.#judgeEnd(event, command)
    }
    for (const event of events) {
      if (event.type === 'deleted') this.#entries.judgeDeleted(event, command)
      if (ends(event) && this.ended.has(event.lease)) this.#judgeChildren(event)
    }
    if (outcome.kind === 'granted') this.answers.granted(outcome.lease, outcome.tokens)
    if (outcome.kind === 'granted' || outcome.kind === 'queued') this.terms.begins(outcome.lease, outcome.ttl)
    if (command.kind === 'renew' && outcome.kind === 'renewed')
      for (const [i, lease] of command.leases.entries()) {
        const ttl = outcome.ttls[i]!
        this.terms.renewed(lease, ttl)
        if (ttl > 0) this.#keys.judgeRenewal(lease, key)
      }
    if (outcome.kind === 'fenced' && command.kind === 'fence' && command.token < (this.#fences.get(command.resource) ?? 0))
      world.violate('S2', `${command.resource} accepted token ${command.token} after ${this.#fences.get(command.resource)}`)
    this.#waiters.judge(this.#state, command, outcome, events)
    this.#transactions.judge(command, outcome, events)
    if (bringsChanges(command)) this.pairs.looked('S26', ...events.map(({ lease }) => lease))
    if (command.kind === 'transaction') judgeBooks(world, this.#state.free.values())
  }

  /** Remembers what later judgements need; also for records that were judged before. */
  #follow(command: Command, outcome: Outcome, events: readonly Event[], appendedAt: number): void {
    this.#entries.follow(events)
    this.#transactions.follow(events)
    if (outcome.kind === 'refused') return
    this.#keys.follow(command, outcome)
    if (command.kind === 'claim') this.#entries.claimed(command.lease)
    if (command.kind === 'acquire' && command.parent !== undefined && (outcome.kind === 'granted' || outcome.kind === 'queued'))
      this.#children.set(command.parent, (this.#children.get(command.parent) ?? new Set()).add(outcome.lease))
    if (command.kind === 'acquire' && command.steal === 'force')
      for (const { type, lease } of events) if (type === 'revoked' || type === 'thawed') this.beliefs.forced.add(lease)
    if (command.kind === 'transfer' && outcome.kind === 'done' && outcome.id !== undefined)
      this.terms.transferBreak(command.lease, outcome.id)
    if (outcome.kind === 'fenced' && command.kind === 'fence')
      this.#fences.set(command.resource, Math.max(command.token, this.#fences.get(command.resource) ?? 0))
    if (command.kind === 'policy') this.beliefs.allows(command.prefix, command.rules?.capacity ?? 1)
    if (command.kind === 'upgrade') this.#raisedAt = this.#state.index
    if (command.kind === 'break' && (command.after ?? 0) > 0) this.terms.announceBreak(command.resource, command.after!, appendedAt)
  }

  #generationWritten(): void {
    this.awaitsGeneration = false
    this.terms.generationWritten()
    for (const { id } of this.#state.leases.values()) this.pairs.looked('S24', id)
  }

  #judgeChildren({ lease, type }: Event): void {
    for (const child of this.#children.get(lease) ?? [])
      if (!this.ended.has(child)) this.#world.violate('S8', `lease ${child} outlives its parent ${lease}, which ${type}`)
  }

  #judgeGrant({ lease, resource, token }: Event, command: Command): void {
    const world = this.#world
    const ended = this.ended.get(lease)
    if (ended !== undefined)
      world.violate(ended.type === 'withdrawn' ? 'S14' : 'S6', `lease ${lease} was granted ${resource} after it had ended: ${ended.type}`)
    if (resource === undefined || token === undefined) return
    for (const invariant of ['S8', 'S15']) this.pairs.looked(invariant, lease, resource)
    const holder = findLease(this.#state, lease)
    // A transfer was checked against the rights of the former holder.
    if (holder !== undefined && command.kind !== 'transfer' && !this.#keys.allows(holder, resource))
      world.violate(
        this.#waiters.wasQueued(lease) ? 'S14' : 'S25',
        `lease ${lease} was granted ${resource}, and its key does not allow that`,
      )
    // Before a survivor writes a generation, a late record may repeat a lost grant under the same number. No client hears of the repeated grant, and
    // the quiet time protects the client that received the lost one.
    if (this.awaitsGeneration && this.answers.wasGranted(lease)) this.terms.forgetAcknowledged(lease)
    if (token <= this.#lastToken && !this.awaitsGeneration) world.violate('S3', `token ${token} follows ${this.#lastToken}`)
    this.#lastToken = Math.max(this.#lastToken, token)
    this.answers.grantedToken(lease, token)
    judgeUnits(world, this.#state, resource, command)
  }

  #judgeEnd({ lease, type, cause }: Event, command: Command): void {
    const world = this.#world
    const ended = this.ended.get(lease)
    for (const invariant of ['S6', 'S8']) this.pairs.looked(invariant, lease)
    if (ended !== undefined && ended.at !== world.now && type !== 'released')
      world.violate('S6', `lease ${lease} ended twice: ${ended.type}, ${type}`)
    const isReleased = command.kind === 'release' && (command.lease === lease || command.stopped?.includes(lease) === true)
    if (isReleased || (command.kind === 'transfer' && command.stopped === true)) this.beliefs.judgeEnd({ lease, type }, this.givenUp)
    const still = findLease(this.#state, lease)
    const isPart = type === 'released' && command.kind === 'release' && command.resource !== undefined
    if (isPart && still?.grants.length === 0) this.givenUp.add(lease) // a face ends a lease of which nothing is left
    if (isPart) return // one grant of a lease that continues
    if (STOPS.has(type) && isReleased && !this.givenUp.has(lease)) world.violate('S7', `lease ${lease} was released by another process`)
    this.ended.set(lease, { at: world.now, index: this.#state.index, type, cause })
    this.terms.judgeOverdueBreak(lease)
    if (type === 'released' && still?.status === FROZEN)
      world.violate('L1', `lease ${lease} was released by its holder and is still withheld`)
    if (still !== undefined && still.status !== FROZEN) world.violate('S8', `lease ${lease} ${type} and is still there`)
    for (const entry of this.#state.entries.values())
      if (entry.lease.id === lease) world.violate('S8', `the entry ${entry.key} outlives lease ${lease}, which ${type}`)
    for (const other of this.#state.leases.values())
      if (other.extras?.parent?.id === lease) world.violate('S8', `lease ${other.id} outlives its parent ${lease}`)
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
    this.#transactions.checkWhole()
  }

  /** The engine lost its last records. Survivors must write a generation before anything is decided. */
  lose(count: number): void {
    this.losses++
    this.awaitsGeneration = true
    this.pairs.actsOnAll('rollback')
    this.#records.splice(this.#records.length - count, count)
    const { nextToken } = this.#state
    this.#beginAgain()
    this.pairs.rebuild('rollback')
    this.beliefs.lose(this.#state.nextToken, nextToken)
  }

  /** A failover undid these records. None was acknowledged; a replica that has seen one writes a generation. */
  undo(count: number): void {
    if (count === 0) return
    this.#world.note(`${count} records are undone`)
    this.losses++
    const undone = this.#records.splice(this.#records.length - count, count)
    this.#beginAgain()
    this.answers.undo(undone.flatMap(({ bytes }) => decodeBatch(bytes).proposals))
    this.#lastToken = this.#state.nextToken - 1
  }

  /** Hosts use another log from now on: the leases have moved there, or a backup was restored into it, and what was decided since then is lost. */
  beginWith(base: LogBase, cause: 'restore' | 'migration'): void {
    this.losses++
    this.pairs.actsOnAll(cause)
    const { nextToken, nextLease } = this.#state
    this.#records.length = 0
    this.#base = base
    this.#beginAgain()
    // A lease that ended since the backup is there again. No id and no token of the lost ones may come again.
    for (const { id } of this.#state.leases.values()) this.ended.delete(id)
    if (this.#state.nextLease < nextLease || this.#state.nextToken < nextToken)
      this.#world.violate('S3', `counters go back with a ${cause}`)
    this.pairs.rebuild(cause)
    this.#generationWritten()
  }

  /** Forgets what is lost, and applies what is left of the log. */
  #beginAgain(): void {
    this.#state = this.#base === undefined ? createState() : loadState(this.#base)
    this.#appliedRecords.clear()
    this.#children.clear()
    this.#fences.clear()
    this.#entries.lose()
    this.#keys.lose()
    this.#transactions.lose()
    this.answers.lose()
    this.revisions.lose()
    this.terms.lose(this.length)
    this.#raisedAt = Number.POSITIVE_INFINITY
    this.#waiters.forget(this.#state)
    for (const [lease, { index }] of this.ended) if (index > this.length) this.ended.delete(lease)
    for (const record of this.#records) this.#apply(record, false)
    this.#claims.forget()
  }

  get length(): number {
    return (this.#base?.index ?? 0) + this.#records.length
  }

  /** A replica renewed a lease; it knew the log up to `known` when it was asked. */
  renewed(lease: number, known: number, losses: number): void {
    const ended = this.ended.get(lease)
    if (losses === this.losses && ended !== undefined && ended.index <= known)
      this.#world.violate('S6', `lease ${lease} ended (${ended.type}) and was then renewed`)
  }

  // Rules versions

  /** A replica has made a decision at this record of the log. */
  decided(name: string, rules: number, index: number): void {
    if (rules < this.#state.rules && index > this.#raisedAt)
      this.#world.violate('S22', `${name} knows rules up to ${rules}, and continues after the log was raised to ${this.#state.rules}`)
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

/** Moved leases are in force from here on, above all revisions of both logs. */
export function isArrival({ command }: Proposal): boolean {
  return command.kind === 'move' && command.into === 'end'
}

function loadState({ chunks, index }: LogBase): State {
  const loader = new StateLoader()
  for (const chunk of chunks) loader.add(chunk)
  return Object.assign(loader.finish(), { index })
}

function judgeUnits(world: World, state: State, resource: string, command: Command): void {
  const there = state.resources.get(resource)
  if (there === undefined) return
  const capacity = agreedByAll(state, there)
  const units = there.grants.reduce((sum, grant) => sum + grant.units, 0)
  // A transferred grant is older: a capacity that shrank since then does not end it.
  if (units > capacity && command.kind !== 'transfer') world.violate('S15', `${units} of ${capacity} units of ${resource} are granted`)
  const shared = there.grants.filter(grant => grant.shared).length
  if (shared > 0 && shared < there.grants.length) world.violate('S15', `${resource} is granted shared and exclusively at once`)
}
