/**
 * The claims of one agent: the leases under its session, as the log has them. The log is the memory, not this object: another process of the
 * same agent may have claimed or released, and the session may have lapsed while the machine slept. `sync` reads what there is, renews all of
 * it, and turns every difference to what was there before into a notice.
 */
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Mode } from '../holder/acquire-options.ts'
import type { Acquire, Want } from '../kernel/command.ts'
import type { Granted, Queued } from '../kernel/outcome.ts'
import { type Activity, markOf } from './activity.ts'
import { type AgentLeaseKind, type ClaimRecord, claimRecord, isSameConversation } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import { type ClaimNames, MAX_NAMES } from './names.ts'
import { viewsAround } from './neighbours.ts'
import type { Notices } from './notices.ts'
import { type ClaimEnd, endOfClaim, resume } from './resume.ts'
import { type AgentSession, agentResource, defaultName, joinSession, openSession, type SessionRequest, sessionOf } from './session.ts'
import { aboveOf, heldIn, leasesOf, readTree, type SessionTree } from './session-tree.ts'

/** The most claims of one agent. */
export const MAX_CLAIMS = 200
/** A waiting lease is renewed within its first term of 30 s, or it has lapsed. */
const WAITING_TERM = 25_000
/** A claim that ends this soon by its cap is announced. */
const EXPIRES_SOON = 600_000

/** Who revoked a claim that an idle agent has yielded: this, and the waiter. */
const IDLE = 'idle: wanted by '

export interface ClaimDetails {
  readonly kind: Exclude<AgentLeaseKind, 'agent'>
  readonly wants: readonly Want[]
  /** The number of `wants` that suffice. Left out: all. */
  readonly any?: number
  readonly purpose: string
  /** In ms; 0: unknown. */
  readonly expect: number
  readonly pool?: string
  readonly match?: string
  readonly conversation?: string
  readonly forTurn?: boolean
  readonly wait: boolean
}

interface EndedClaim {
  readonly claim: ClaimRecord
  /** Ms since the renewal before. */
  readonly lateBy: number
  /** The session ended in this way, if it did. */
  readonly session?: ClaimEnd
}

export interface ClaimBookOptions {
  readonly log: AgentLog
  readonly names: ClaimNames
  readonly notices: Notices
  readonly activity: Activity
  readonly request: SessionRequest
  /** The longest life of a claim, in ms. */
  readonly cap: number
  /** Share the live session of this name. False: the session is this agent's alone. */
  readonly join: boolean
}

export class ClaimBook {
  readonly #options: ClaimBookOptions
  readonly #claims = new Map<number, ClaimRecord>()
  /** When each claim was first seen as held, by the uptime. */
  readonly #heldSince = new Map<number, number>()
  /** Claims that have ended, and whose end is not explained yet: a request may fail in the middle, and no loss may go without a word. */
  readonly #unexplained: EndedClaim[] = []
  #session: AgentSession
  #tree: SessionTree | undefined
  #renewedAt: number

  private constructor(options: ClaimBookOptions, session: AgentSession) {
    this.#options = options
    this.#session = session
    this.#renewedAt = options.log.leases.clock.uptime()
  }

  static async open(options: ClaimBookOptions): Promise<ClaimBook> {
    const book = new ClaimBook(options, await ClaimBook.#openSession(options, options.request))
    book.#noteName()
    return book
  }

  static #openSession({ log, join }: ClaimBookOptions, request: SessionRequest): Promise<AgentSession> {
    return join ? joinSession(log, request) : openSession(log, request)
  }

  get session(): AgentSession {
    return this.#session
  }

  get claims(): readonly ClaimRecord[] {
    return [...this.#claims.values()]
  }

  /** Milliseconds since the server last confirmed everything. */
  get unconfirmedFor(): number {
    return this.#options.log.leases.clock.uptime() - this.#renewedAt
  }

  /** Returns what is left of the cap of a claim, in ms. */
  capLeft({ lease }: ClaimRecord): number {
    const { cap, log } = this.#options
    const now = log.leases.clock.uptime()
    return Math.max(0, (this.#heldSince.get(lease) ?? now) + cap - now)
  }

  /** Reads and renews everything of this agent. Resumes what lapsed meanwhile, if it can be. */
  async sync(): Promise<void> {
    const { log, activity } = this.#options
    for (let tries = 0; tries < 3; tries++) {
      const sentAt = log.leases.clock.uptime()
      // Read and renew what the last call found in the same turn as the session: most calls find nothing else.
      const expected = this.#tree === undefined ? [] : heldIn(this.#tree, this.claims)
      const [view, known, lost] = await Promise.all([
        log.lease(this.#session.lease),
        log.leasesOf(this.#knownChildren()),
        log.renew(expected),
      ])
      const session = view && sessionOf(view)
      if (session === undefined) {
        await this.#reopen()
        continue
      }
      activity.see(markOf(view!))
      const tree = await readTree(log, view!, session, known)
      const renewed = new Set(expected)
      const others = [...aboveOf(session), ...leasesOf(tree)].filter(id => !renewed.has(id))
      const gone = new Set([...lost, ...(await log.renew(others))])
      if (gone.has(session.lease)) continue
      const lateBy = sentAt - this.#renewedAt
      this.#renewedAt = sentAt
      this.#tree = tree
      await this.#compare(
        tree.claims.filter(({ lease }) => !gone.has(lease)),
        lateBy,
      )
      return
    }
    throw new LeaseError('UNAVAILABLE', `the session of ${this.#session.name} ends again and again: try again in a minute`)
  }

  #knownChildren(): readonly number[] {
    return [...this.#claims.keys(), ...(this.#tree?.children ?? []).map(({ session }) => session.lease)]
  }

  /** Takes over what the log has, and explains what is missing. */
  async #compare(claims: readonly ClaimRecord[], lateBy: number): Promise<void> {
    const { notices, names, log } = this.#options
    const before = new Map(this.#claims)
    this.#claims.clear()
    for (const claim of claims) {
      this.#claims.set(claim.lease, claim)
      if (!claim.held) continue
      if (!this.#heldSince.has(claim.lease)) this.#heldSince.set(claim.lease, log.leases.clock.uptime())
      const shown = claim.resources.map(resource => names.shown(resource))
      if (before.get(claim.lease)?.held === false)
        notices.add({ kind: 'granted', names: shown, text: `${shown.join(', ')}: your turn has come, you hold it now.` })
      const left = this.capLeft(claim)
      if (left < EXPIRES_SOON)
        notices.add(
          {
            kind: 'expiring',
            names: shown,
            text: `${shown.join(', ')} reaches its longest life in ${inWords(left)}: finish, or release and claim it again.`,
          },
          `cap ${claim.lease}`,
        )
    }
    for (const lease of this.#heldSince.keys()) if (!this.#claims.has(lease)) this.#heldSince.delete(lease)
    for (const claim of before.values()) if (!this.#claims.has(claim.lease)) this.#unexplained.push({ claim, lateBy })
    for (let ended = this.#unexplained[0]; ended !== undefined; ended = this.#unexplained[0]) {
      await this.#explain(ended)
      this.#unexplained.shift()
    }
  }

  /** The session is over. The agent lives, so it gets a new one. */
  async #reopen(): Promise<void> {
    const { request, log, activity } = this.#options
    const old = this.#session
    const end = await endOfClaim(log, { lease: old.lease, resources: [agentResource(old.name)] })
    await log.release(old.lease)
    this.#tree = undefined
    this.#session = await ClaimBook.#openSession(this.#options, {
      ...{ ...request, name: old.name },
      // After a release by another process of this agent, everything begins anew.
      ...(end.cause !== 'released' && { incarnation: old.incarnation }),
    })
    // Marks that other processes of this agent left have ended with the session, and may not have been seen.
    activity.note()
    this.#noteName()
    for (const claim of this.claims) this.#unexplained.push({ claim, lateBy: Number.POSITIVE_INFINITY, session: end })
    const held = this.claims.filter(claim => claim.held)
    this.#claims.clear()
    this.#heldSince.clear()
    // A claim that ended with the session is frozen for the rest of its term. One of a file must not keep that of its folder from being resumed.
    if (end.cause === 'lapsed') await Promise.all(held.map(({ lease }) => log.release(lease)))
  }

  #noteName(): void {
    const { request, notices } = this.#options
    const { name } = this.#session
    if (name === request.name || request.unnamed === true) return
    const text =
      request.process !== undefined && name === defaultName(request.process)
        ? `Your process was known as ${name} before it was named ${request.name}, and keeps that name.`
        : `Another live agent is named ${request.name}, so you are ${name}. Its claims are not yours.`
    notices.add({ kind: 'renamed', names: [], text, by: request.name }, `renamed ${name}`)
  }

  /** A claim is not in the log any more. Repeated if a request fails. */
  async #explain({ claim, lateBy, session }: EndedClaim): Promise<void> {
    const { log } = this.#options
    if (session?.cause === 'released') return
    const isRevoked = session !== undefined && session.cause !== 'lapsed' && session.cause !== 'unknown'
    if (isRevoked) return this.#lost(claim, session.cause, session.by, endText(session.cause, session.by))
    if (!claim.held) {
      if (lateBy > WAITING_TERM) return this.#queueAgain(claim)
      return this.#lost(claim, 'withdrawn', '', 'Your place in the queue was given up. Claim again if you still need it.')
    }
    const { cause, by } = await endOfClaim(log, claim)
    // Another process of this agent has released it.
    if (cause === 'released') return
    const hasMerelyLapsed = cause === 'lapsed' || (cause === 'parent' && session !== undefined)
    if (cause === 'revoked' && by.startsWith(IDLE)) return this.#lost(claim, 'idle', by.slice(IDLE.length), idleText(by.slice(IDLE.length)))
    if (!hasMerelyLapsed) return this.#lost(claim, cause, by, endText(cause, by))
    const { notices, names } = this.#options
    const result = await resume(log, { record: claim, holder: this.#session.name, names }, async () => {
      // An attempt before this one may have been granted, and its answer lost.
      const again = this.claims.find(
        one => one.held && one.conversation === claim.conversation && claim.resources.every(resource => resource in one.tokens),
      )
      return (again ?? (await this.acquire({ ...detailsOf(claim), wait: false }))).lease
    })
    if (result.kind === 'taken') {
      if (result.released !== undefined) this.#forget(result.released)
      const what = claim.resources.includes(result.resource) ? 'it' : names.shown(result.resource)
      const text = `It was not renewed in time, and ${result.by} was granted ${what} meanwhile. What you read may be out of date: claim it again, then read it again.`
      return this.#lost(claim, 'lapsed', result.by, text)
    }
    const shown = claim.resources.map(resource => names.shown(resource))
    const tokens = Object.values(this.#claims.get(result.lease)?.tokens ?? {})
    const text = `${shown.join(', ')} was not renewed in time (this machine slept, or the server was away). No other holder was granted it meanwhile: you hold it again, under a new token (${tokens.join(', ')}).`
    notices.add({ kind: 'resumed', names: shown, text })
  }

  async #queueAgain(claim: ClaimRecord): Promise<void> {
    const { notices, names } = this.#options
    const again = this.claims.find(
      ({ resources, conversation }) =>
        conversation === claim.conversation && claim.resources.every(resource => resources.includes(resource)),
    )
    const record = again ?? (await this.acquire({ ...detailsOf(claim), wait: true }))
    const shown = record.resources.map(resource => names.shown(resource))
    const what = record.held ? 'You hold it now.' : 'You wait at the end of the queue again.'
    notices.add({ kind: 'queued', names: shown, text: `${shown.join(', ')}: your place was lost while the server was away. ${what}` })
  }

  #lost(claim: ClaimRecord, cause: string, by: string, why: string): void {
    const { notices, names } = this.#options
    const shown = claim.resources.map(resource => names.shown(resource))
    const text = `You no longer ${claim.held ? 'hold' : 'wait for'} ${shown.join(', ')}. ${why}`
    notices.addLost({ names: shown, purpose: claim.purpose, cause, text, ...(by !== '' && { by }) })
  }

  /** Asks for a lease under the session. */
  async acquire(details: ClaimDetails): Promise<ClaimRecord> {
    const { log } = this.#options
    if (this.#claims.size >= MAX_CLAIMS)
      throw new LeaseError('LIMIT', `you have ${MAX_CLAIMS} claims, as many as one agent may have: release some first`, {
        facts: { limit: MAX_CLAIMS },
      })
    const outcome = await log.acquire(this.#command(details))
    const record = outcome.kind === 'granted' ? await this.#grantedRecord(details, outcome) : await this.#queuedRecord(outcome)
    this.#claims.set(record.lease, record)
    if (record.held) this.#heldSince.set(record.lease, log.leases.clock.uptime())
    return record
  }

  /** Renews the grant, which gives it its whole term. A process that keeps its agent renews again within the first term, so its caller need not wait for this renewal. */
  async #grantedRecord(details: ClaimDetails, granted: Granted): Promise<ClaimRecord> {
    const { log, join } = this.#options
    const confirmed = log.renew([granted.lease])
    if (join) await confirmed
    else confirmed.catch(() => {})
    return grantedRecord(details, granted, log.leases.clock.wall())
  }

  async #queuedRecord({ lease }: Queued): Promise<ClaimRecord> {
    const view = await this.#options.log.lease(lease)
    const record = view && claimRecord(view)
    if (record === undefined) throw new LeaseError('UNAVAILABLE', 'the claim ended as it was made: try again')
    return record
  }

  #command({ kind, wants, any, purpose, expect, pool = '', match = '', conversation = '', forTurn = false, wait }: ClaimDetails): Acquire {
    const { name, incarnation, ttl, lease } = this.#session
    const held = this.claims.filter(claim => claim.held && isSameConversation(claim, conversation)).map(claim => claim.lease)
    // A path is a file or a folder. A claim that covers excludes others in both cases.
    const covers = kind === 'claim' && wants.some(({ resource }) => this.#options.names.isPath(resource))
    const labels: (readonly [string, string])[] = [['kind', kind]]
    if (purpose !== '') labels.push(['purpose', purpose])
    if (expect > 0) labels.push(['expect', `${expect}`])
    if (pool !== '') labels.push(['pool', pool], ['match', match])
    if (conversation !== '') labels.push(['conversation', conversation])
    if (forTurn) labels.push(['until', 'turn'])
    return {
      ...{ kind: 'acquire', holder: name, incarnation, ttl, wants, parent: lease, labels, maxLife: this.#options.cap },
      ...(any !== undefined && { any }),
      ...(covers && { covers }),
      // Its own claims are no obstacle to one of a path above or below them, and a wait that could never end is refused.
      ...((wait || covers) && { holding: held.slice(0, MAX_NAMES) }),
      // The holders see that another agent waits.
      ...(wait && { wait, recall: true }),
    }
  }

  /** Takes over what became of one claim, such as a grant during a wait. Undefined: it has ended. */
  async reread(claim: ClaimRecord): Promise<ClaimRecord | undefined> {
    const view = await this.#options.log.lease(claim.lease)
    const record = view && claimRecord(view)
    if (record === undefined) return undefined
    if (record.held && !claim.held) {
      await this.#options.log.renew([record.lease])
      this.#heldSince.set(record.lease, this.#options.log.leases.clock.uptime())
    }
    this.#claims.set(record.lease, record)
    return record
  }

  /** Releases a claim, or of a granted one only these resources. */
  async release(claim: ClaimRecord, only?: readonly string[]): Promise<void> {
    const { log } = this.#options
    if (claim.held && only !== undefined && only.length < claim.resources.length) {
      for (const resource of only) await log.change({ kind: 'release', lease: claim.lease, resource })
      await this.reread(claim)
      return
    }
    await log.release(claim.lease)
    this.#forget(claim.lease)
  }

  /** The lease is released. */
  #forget(lease: number): void {
    this.#claims.delete(lease)
    this.#heldSince.delete(lease)
  }

  /**
   * Keeps the places of waiting claims, and confirms a grant once, for an agent that does not call at the moment. Claims that it holds are not
   * renewed: only its calls do that.
   */
  async keepQueued(): Promise<void> {
    const waiting = this.claims.filter(claim => !claim.held)
    if (waiting.length === 0) return
    const { log } = this.#options
    await log.renewWaiting(waiting.map(({ lease }) => lease))
    for (const claim of waiting) await this.reread(claim)
  }

  /** Claims of idle agents, this one and those below it, go to waiters. */
  async yieldIdle(isIdle: (session: AgentSession, mark: string | undefined) => boolean): Promise<void> {
    const pending = this.#tree === undefined ? [] : [this.#tree]
    for (let tree = pending.pop(); tree !== undefined; tree = pending.pop()) {
      const { session, view, claims, children } = tree
      pending.push(...children)
      const isStillIdle = () => isIdle(session, markOf(view))
      if (!isStillIdle()) continue
      for (const claim of claims) {
        if (!claim.held || !claim.recalled) continue
        const waiter = await this.#waiterFor(claim)
        // The agent may have become active while the queue was read, or while another of its claims was ended.
        if (waiter === undefined || !isStillIdle()) continue
        // Not a release: an object for the same agent in another process must not take it for the agent's own.
        await this.#options.log.change({ kind: 'revoke', target: { lease: claim.lease }, force: true, by: `${IDLE}${waiter}` })
        if (session.lease !== this.#session.lease) continue
        this.#claims.delete(claim.lease)
        this.#lost(claim, 'idle', waiter, idleText(waiter))
      }
    }
  }

  async #waiterFor({ resources }: ClaimRecord): Promise<string | undefined> {
    const { log, names } = this.#options
    for (const resource of resources)
      for (const { queue } of await viewsAround(log, names, resource)) {
        const waiter = queue.find(({ holder }) => holder !== this.#session.name)
        if (waiter !== undefined) return waiter.holder
      }
    return undefined
  }

  /** Ends the session with everything below it: this agent and its sub-agents have stopped. */
  async end(): Promise<void> {
    const { log } = this.#options
    const view = await log.lease(this.#session.lease)
    const session = view && sessionOf(view)
    const stopped = session === undefined ? [] : leasesOf(await readTree(log, view!, session)).filter(id => id !== session.lease)
    await log.release(this.#session.lease, stopped)
    this.#claims.clear()
  }
}

export function wantsOf(resources: readonly string[], mode: Mode): readonly Want[] {
  return resources.map(resource => (mode === 'shared' ? { resource, shared: true } : { resource }))
}

function detailsOf(claim: ClaimRecord): Omit<ClaimDetails, 'wait'> {
  const { resources, mode, purpose, expect, pool, match, conversation, forTurn } = claim
  return { kind: pool === '' ? 'claim' : 'take', wants: wantsOf(resources, mode), purpose, expect, pool, match, conversation, forTurn }
}

/** The record that `claimRecord` would read from the log. */
function grantedRecord(details: ClaimDetails, { lease, resources, tokens }: Granted, since: number): ClaimRecord {
  const { wants, purpose, expect, pool = '', match = '', conversation = '', forTurn = false } = details
  return {
    ...{ lease, resources, purpose, expect, pool, match, conversation, forTurn, since },
    mode: wants[0]?.shared === true ? 'shared' : 'exclusive',
    tokens: Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]!])),
    ...{ held: true, position: 0, recalled: false },
  }
}

function idleText(waiter: string): string {
  return `You were not active for a long time, and ${waiter} waited for it. Claim it again, then read it again.`
}

function endText(cause: string, by: string): string {
  const who = by === '' ? '' : ` by ${by}`
  if (cause === 'cap') return 'It reached its longest life. Claim it again if you still need it, and read it again first.'
  if (cause === 'hold') return 'Others waited longer than its policy allows. Claim it again to queue.'
  if (cause === 'transferred') return `It was given${by === '' ? '' : ` to ${by}`}.`
  if (cause === 'unknown') return 'It has ended, and the history does not say why. Claim it again, then read it again.'
  return `It was ended${who} (${cause}). Stop writing to it. Ask ${by === '' ? 'an operator' : by} before you claim it again.`
}
