/**
 * An agent: a holder that forgets. It needs no handles, because a claim is found by its names, and it runs no timers of its own, because every
 * call renews everything. Three clocks must all hold: it is alive (its process or its calls renew the session), it is active (calls and hook
 * events; an idle agent's claims go to waiters), and no claim outlives its cap.
 *
 * Promised: a claim that `claim` answers as held is held by no other holder, and its loss appears in `notices`. Not promised: that a model stops
 * writing when a claim is lost. The guard at the write, or a resource that checks tokens, is for that.
 */
import { hostname } from 'node:os'
import { chainAbort, pause, unlessAborted } from '../clock.ts'
import { inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Leases } from '../leases.ts'
import { checkOptionNames } from '../options.ts'
import { Activity, activityKey } from './activity.ts'
import type { AgentOptions, ClaimOptions, ClaimView, Mine, Released, TurnEnd, WhoAmI } from './agent-options.ts'
import { Asks } from './asks.ts'
import { ClaimBook } from './claim-book.ts'
import type { ClaimRecord } from './claim-record.ts'
import { Claiming } from './claiming.ts'
import { AgentLog } from './log.ts'
import { ClaimNames, checkAgentName, oneLine } from './names.ts'
import { look, type NameView } from './neighbours.ts'
import { type Notice, Notices } from './notices.ts'
import type { AgentSession } from './session.ts'
import { type AgentTakeRequest, type TakenMember, takeFromPool } from './take.ts'

export type { AgentOptions, ClaimOptions, ClaimView, Mine, Released, TurnEnd, WhoAmI } from './agent-options.ts'

const OPTIONS = ['name', 'unnamed', 'parent', 'process', 'isAlive', 'ttl', 'idle', 'cap', 'workspace', 'explicitNames'] as const

/** Less than the minute that clients of MCP wait for an answer by default. */
export const MAX_WAIT_SECONDS = 45
const PROCESS_TTL = 60_000
const CALLS_TTL = 900_000
const IDLE = 1_200_000
const CAP = 14_400_000
const PURPOSE_CHARACTERS = 500
/** The process that an agent is bound to is looked at this often. */
const PROCESS_CHECK = 500
const RETRY = 2_000
/** A waiting claim is renewed this often: well within its first term of 30 s. */
const WAITING_ROUND = 8_000
/** Activity is written to the log at most this often, and four times within a shorter idle limit. */
const MARK_INTERVAL = 30_000

export class Agent implements AsyncDisposable {
  readonly #leases: Leases
  readonly #log: AgentLog
  readonly #names: ClaimNames
  readonly #book: ClaimBook
  readonly #notices: Notices
  readonly #activity: Activity
  readonly #asks: Asks
  readonly #claiming: Claiming
  readonly #options: AgentOptions
  readonly #keeps: boolean
  readonly #ended = new AbortController()
  /** The activity of sub-agents, by their session. */
  readonly #below = new Map<number, Activity>()
  #queue: Promise<unknown> = Promise.resolve()
  #ending: Promise<void> | undefined
  #cancelRound = () => {}
  #cancelCheck = () => {}
  #markedAt = Number.NEGATIVE_INFINITY
  #markedUnderWay = false

  private constructor(leases: Leases, options: AgentOptions, parts: AgentParts, keeps: boolean) {
    this.#leases = leases
    this.#options = options
    this.#log = parts.log
    this.#names = parts.names
    this.#book = parts.book
    this.#notices = parts.notices
    this.#activity = parts.activity
    this.#asks = new Asks(parts.log, parts.names, parts.notices)
    this.#claiming = new Claiming(parts.log, parts.names, parts.book)
    this.#keeps = keeps
  }

  /**
   * Opens a session of its own and keeps it alive until `end`. If another live agent has the name, this one gets a number: see `whoami`.
   *
   * @example
   * await using agent = await Agent.begin(leases, { name: 'planner' })
   * await agent.claim(['src/server.ts'], { purpose: 'add a route' })
   */
  static async begin(leases: Leases, options: AgentOptions): Promise<Agent> {
    const agent = await Agent.#open(leases, options, true)
    agent.#scheduleRound()
    agent.#scheduleCheck()
    return agent
  }

  /**
   * Acts for the agent of this name: shares its live session, or opens one that lasts 15 minutes after the last call. For callers without a
   * process of the agent: HTTP, hooks. `detach` leaves everything claimed.
   */
  static join(leases: Leases, options: AgentOptions): Promise<Agent> {
    return Agent.#open(leases, options, false)
  }

  static async #open(leases: Leases, options: AgentOptions, keeps: boolean): Promise<Agent> {
    checkOptionNames('an agent', options, OPTIONS)
    const name = checkAgentName(options.name)
    const { idle = IDLE, cap = CAP, ttl = keeps ? PROCESS_TTL : CALLS_TTL, process, parent, unnamed } = options
    const log = new AgentLog(leases)
    const names = new ClaimNames(options.workspace, options.explicitNames)
    const notices = new Notices(leases.clock)
    const activity = new Activity(leases.clock, milliseconds(idle, 'idle'))
    const book = await ClaimBook.open({
      ...{ log, names, notices, activity, cap: milliseconds(cap, 'cap'), join: !keeps },
      request: {
        ...{ name, unnamed, ttl: milliseconds(ttl, 'ttl'), aliveBy: keeps ? 'process' : 'calls', parent },
        process: process && { host: hostname(), ...process },
      },
    })
    return new Agent(leases, options, { log, names, notices, activity, book }, keeps)
  }

  get name(): string {
    return this.#book.session.name
  }

  /** Its session lease. */
  get session(): number {
    return this.#book.session.lease
  }

  /** Returns how this agent writes names. */
  get names(): ClaimNames {
    return this.#names
  }

  /** Fires when the agent has ended: by `end`, or because its process is gone. */
  get signal(): AbortSignal {
    return this.#ended.signal
  }

  /**
   * Claims all of the names or none. The same names again are the same claim, or the same place in the queue. Names that this agent holds
   * already stay as they are.
   *
   * Throws `LIMIT` and `INVALID` for wrong names, `DEADLOCK` if the wait could never end, `HELD` if an agent above this one holds a name.
   */
  async claim(names: readonly string[], options: ClaimOptions = {}): Promise<ClaimView> {
    const resources = this.#names.resources(names)
    const { mode = 'exclusive', purpose = '', expectMinutes = 0, waitSeconds = 0, signal, conversation = '', forTurn = false } = options
    checkNumber('expectMinutes', expectMinutes, 0, 10_080)
    checkNumber('waitSeconds', waitSeconds, 0, MAX_WAIT_SECONDS)
    const expect = Math.round(expectMinutes * 60_000)
    const terms = { purpose: oneLine(purpose, PURPOSE_CHARACTERS), expect, conversation, forTurn }
    const queued = await this.#call(() => this.#claiming.claim(resources, mode, terms))
    if (queued !== undefined && waitSeconds > 0) await this.#untilGranted(queued, waitSeconds * 1_000, signal)
    return this.#claiming.viewOf(resources, mode, terms)
  }

  /** Resolves when the claim is held or has ended, or the wait is over. */
  async #untilGranted(claim: ClaimRecord, limit: number, signal?: AbortSignal): Promise<void> {
    const { clock, lessor } = this.#leases
    const end = clock.now() + limit
    const stop = new AbortController()
    const unchain = [chainAbort(signal, stop), chainAbort(this.#ended.signal, stop)]
    let wake = () => {}
    const follow = async () => {
      for await (const _ of lessor.watch(claim.resources[0]!, { signal: stop.signal })) wake()
    }
    follow().catch(() => {}) // then the rounds find the grant
    try {
      while (!stop.signal.aborted) {
        const woken = new Promise<void>(resolve => (wake = resolve)) // before the reading: an event that comes during it counts
        const now = await this.#serial(() => this.#book.reread(claim))
        const left = end - clock.now()
        if (now === undefined || now.held || left <= 0) return
        const round = new AbortController()
        const over = pause(clock, Math.min(left, WAITING_ROUND), round.signal, { ref: true })
        const isOver = await unlessAborted(Promise.race([woken.then(() => false), over.then(() => true)]), stop.signal).catch(() => false)
        round.abort()
        over.catch(() => {})
        if (isOver) await this.#serial(() => this.#book.sync())
      }
    } finally {
      stop.abort()
      for (const unlink of unchain) unlink()
      // A call that is under way is activity. Another process may keep the session: it learns of the wait by a mark.
      await this.noteActivity()
    }
  }

  /** Returns what this agent holds and waits for, and what it lost since the last call of `mine`. */
  async mine(): Promise<Mine> {
    return this.#call(async () => {
      const views = await Promise.all(this.#book.claims.map(claim => this.#claiming.view(claim)))
      return {
        held: views.filter(({ status }) => status === 'held'),
        queued: views.filter(({ status }) => status === 'queued'),
        lost: this.#notices.takeLost(),
      }
    })
  }

  /** Releases these names, or leaves their queues; without names, everything. */
  async release(names?: readonly string[]): Promise<Released> {
    return this.#release(names, () => true)
  }

  /** Leaves the queues of these names, and keeps what is held. With `conversation`, only the places of that one. */
  async leaveQueues(names: readonly string[], conversation = ''): Promise<void> {
    await this.#release(names, claim => !claim.held && claim.conversation === conversation)
  }

  #release(names: readonly string[] | undefined, isMeant: (claim: ClaimRecord) => boolean): Promise<Released> {
    const resources = names === undefined ? undefined : new Set(this.#names.resources(names))
    return this.#call(async () => {
      const released = new Set<string>()
      for (const claim of this.#book.claims.filter(isMeant)) {
        const given = resources === undefined ? claim.resources : claim.resources.filter(name => resources.has(name))
        if (given.length === 0) continue
        await this.#book.release(claim, given)
        for (const name of claim.held ? given : claim.resources) released.add(name)
      }
      const notHeld = [...(resources ?? [])].filter(name => !released.has(name))
      return { released: [...released].map(name => this.#names.shown(name)), notHeld: notHeld.map(name => this.#names.shown(name)) }
    })
  }

  /** The turn of the agent, or a conversation of it, is over: releases what was claimed for that, and keeps what was claimed to last. */
  async endTurn(end: TurnEnd = {}): Promise<void> {
    await this.#call(async () => {
      for (const claim of endsWith(end, this.#book.claims)) await this.#book.release(claim)
    })
  }

  /** Who holds and waits for a name, or for the names under a prefix; left out: all of the workspace. */
  async look(nameOrPrefix = ''): Promise<{ readonly names: readonly NameView[]; readonly more: boolean }> {
    const prefix = this.#names.prefix(nameOrPrefix)
    await this.#call(async () => {})
    return look(this.#log, prefix)
  }

  /** Asks the holder of a name to release it. It sees the message in its next result. Returns the holders. */
  async ask(name: string, message: string): Promise<readonly string[]> {
    const resource = this.#names.resource(name)
    return this.#call(() => this.#asks.send(this.#book.session, resource, message))
  }

  /** Takes members of a pool until this agent has `count` of them that match. */
  async take(request: AgentTakeRequest): Promise<readonly TakenMember[]> {
    return this.#call(() => takeFromPool(this.#leases, this.#book, request, this.#names.workspace))
  }

  whoami(): WhoAmI {
    const { name, lease, incarnation, parent, aliveBy, ttl, process } = this.#book.session
    const { idle = IDLE, cap = CAP, workspace } = this.#options
    return {
      agent: name,
      // A hook may have opened the session before this process came to keep it.
      ...{ session: lease, incarnation, parent, aliveBy: this.#keeps ? 'process' : aliveBy },
      ttlSeconds: ttl / 1_000,
      idleLimitSeconds: milliseconds(idle, 'idle') / 1_000,
      capSeconds: milliseconds(cap, 'cap') / 1_000,
      ...(process !== undefined && { process }),
      ...(workspace !== undefined && { workspace }),
    }
  }

  /**
   * The agent did something: a call, or an event of a hook. `underWay`: a tool call begins, and counts as activity until the next event, for an
   * hour at most. The process that keeps the session learns of it within a renewal.
   */
  async noteActivity({ underWay = false }: { readonly underWay?: boolean } = {}): Promise<void> {
    const { clock } = this.#leases
    this.#activity.note(underWay)
    const interval = Math.min(MARK_INTERVAL, milliseconds(this.#options.idle ?? IDLE, 'idle') / 4)
    if (clock.uptime() - this.#markedAt < interval && underWay === this.#markedUnderWay) return
    this.#markedAt = clock.uptime()
    this.#markedUnderWay = underWay
    const { lease, name } = this.#book.session
    // A key that may not register entries can claim all the same: only others do not see how long the agent has been idle.
    await this.#log.decide({ kind: 'put', lease, key: activityKey(name), value: this.#activity.mark(underWay) }).catch(() => {})
  }

  /** Returns what the agent has to know, since the last call. Every result of a tool ends with it. */
  async notices(): Promise<readonly Notice[]> {
    await this.#asks.collect(this.#book.session, this.#book.claims).catch(() => {})
    const { unconfirmedFor } = this.#book
    if (unconfirmedFor > this.#book.session.ttl / 2)
      this.#notices.add({
        kind: 'unreachable',
        names: [],
        text: `The server has not confirmed your claims for ${inWords(unconfirmedFor)}. Do not write to claimed names until mine answers.`,
      })
    return this.#notices.take()
  }

  /** Returns whether it waits for anything. */
  get isQueued(): boolean {
    return this.#book.claims.some(claim => !claim.held)
  }

  /** Keeps its places in queues between two calls, for an agent without a process. Call it every ten seconds while `isQueued`. */
  keepQueued(): Promise<void> {
    return this.#serial(() => this.#book.keepQueued())
  }

  /** A sub-agent: its session ends with this one, or by its own `end`. Whatever keeps this agent alive keeps its sub-agents alive. */
  child(name: string): Promise<Agent> {
    const { idle, cap, workspace, explicitNames } = this.#options
    return Agent.join(this.#leases, {
      name: `${this.name}/${name}`,
      parent: this.session,
      ttl: this.#book.session.ttl,
      ...(idle !== undefined && { idle }),
      ...(cap !== undefined && { cap }),
      ...(workspace !== undefined && { workspace }),
      ...(explicitNames !== undefined && { explicitNames }),
    })
  }

  /** Ends the agent: everything it and its sub-agents claimed is free at once. */
  end(reason: LeaseError = new LeaseError('GONE', `the agent ${this.name} has ended`)): Promise<void> {
    // A second caller waits for the same releases: the connection must not be closed before they are answered.
    this.#ending ??= this.#end(reason)
    return this.#ending
  }

  async #end(reason: LeaseError): Promise<void> {
    if (this.#ended.signal.aborted) return
    this.detach(reason)
    await this.#queue.catch(() => {})
    await this.#book.end()
  }

  /** Stops acting for the agent. Its claims stay until its clocks end them. */
  detach(reason: LeaseError = new LeaseError('GONE', `this process no longer acts for the agent ${this.name}`)): void {
    this.#cancelRound()
    this.#cancelCheck()
    this.#ended.abort(reason)
  }

  /** `end` after `begin`, `detach` after `join`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#keeps) await this.end()
    else this.detach()
  }

  // One at a time: two calls of one agent at the same moment must not claim the same names twice.
  #serial<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.catch(() => {}).then(work)
    this.#queue = result
    return result
  }

  /** A call of the agent: it counts as activity and renews everything. */
  async #call<T>(work: () => Promise<T>): Promise<T> {
    this.#ended.signal.throwIfAborted()
    await this.noteActivity()
    return this.#serial(async () => {
      await this.#book.sync()
      return work()
    })
  }

  // The clocks

  #scheduleRound(after = this.#book.session.ttl / 3): void {
    this.#cancelRound = this.#leases.clock.after(Math.min(after, this.isQueued ? WAITING_ROUND : after), () => void this.#round())
  }

  async #round(): Promise<void> {
    let failed = false
    await this.#serial(async () => {
      await this.#book.sync()
      await this.#book.yieldIdle((session, mark) => this.#isIdle(session, mark))
    }).catch(() => (failed = true))
    if (!this.#ended.signal.aborted) this.#scheduleRound(failed ? RETRY : undefined)
  }

  #isIdle(session: AgentSession, mark: string | undefined): boolean {
    if (session.lease === this.session) return this.#activity.isIdle
    const activity = this.#below.get(session.lease) ?? new Activity(this.#leases.clock, milliseconds(this.#options.idle ?? IDLE, 'idle'))
    this.#below.set(session.lease, activity)
    activity.see(mark)
    return activity.isIdle
  }

  #scheduleCheck(): void {
    const { isAlive } = this.#options
    if (isAlive === undefined) return
    this.#cancelCheck = this.#leases.clock.after(PROCESS_CHECK, () => {
      if (isAlive()) return this.#scheduleCheck()
      void this.end(new LeaseError('GONE', `the process of the agent ${this.name} is gone`)).catch(() => {}) // then it lapses
    })
  }
}

interface AgentParts {
  readonly log: AgentLog
  readonly names: ClaimNames
  readonly notices: Notices
  readonly activity: Activity
  readonly book: ClaimBook
}

/** Returns the claims that end. What another conversation claimed stays. A claim of the agent as a whole stays while another conversation is in a turn: it may be that one's. */
function endsWith({ conversation, everything = false }: TurnEnd, claims: readonly ClaimRecord[]): readonly ClaimRecord[] {
  const isOther = (claim: ClaimRecord) => conversation !== undefined && claim.conversation !== '' && claim.conversation !== conversation
  const isShared = claims.some(isOther)
  return claims.filter(claim => {
    if (isOther(claim) || (claim.conversation === '' && conversation !== undefined && isShared)) return false
    return claim.forTurn || (everything && claim.conversation !== '')
  })
}

function checkNumber(option: string, value: unknown, low: number, high: number): void {
  if (typeof value !== 'number' || !(value >= low && value <= high))
    throw new LeaseError('INVALID', `${option} must be a number from ${low} to ${high}, not ${String(value)}`, { facts: { option } })
}
