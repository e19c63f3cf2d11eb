/** Decides what a claim of names needs: nothing, because all of it is held; the place in a queue that it has; or a new lease. */
import { LeaseError } from '../errors.ts'
import type { Mode } from '../holder/acquire-options.ts'
import type { ResourceView } from '../lessor.ts'
import type { ClaimView } from './agent-options.ts'
import { type ClaimBook, wantsOf } from './claim-book.ts'
import { type ClaimRecord, isSameConversation } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import type { ClaimNames } from './names.ts'
import { blockers, viewsAround } from './neighbours.ts'

/** The options of a claim, besides its names. */
export interface ClaimTerms {
  readonly purpose: string
  /** In ms; 0: unknown. */
  readonly expect: number
  readonly conversation: string
  readonly forTurn: boolean
}

export class Claiming {
  readonly #log: AgentLog
  readonly #names: ClaimNames
  readonly #book: ClaimBook

  constructor(log: AgentLog, names: ClaimNames, book: ClaimBook) {
    this.#log = log
    this.#names = names
    this.#book = book
  }

  /** Undefined: all of it is held. Otherwise the claim that waits. */
  async claim(resources: readonly string[], mode: Mode, terms: ClaimTerms): Promise<ClaimRecord | undefined> {
    const missing = this.#notYetHeld(resources, mode, terms)
    if (missing.length === 0) return undefined
    const waiting = this.#waitingFor(missing, mode, terms)
    if (waiting !== undefined) return waiting
    const record = await this.#book.acquire({ kind: 'claim', wants: wantsOf(missing, mode), ...terms, wait: true })
    if (record.held) return undefined
    return this.#onlyIfNeeded(record, missing, mode, terms)
  }

  /** The claims that the caller may count as its own. */
  #ownClaims({ conversation }: Pick<ClaimTerms, 'conversation'>): readonly ClaimRecord[] {
    return this.#book.claims.filter(claim => isSameConversation(claim, conversation))
  }

  #notYetHeld(resources: readonly string[], mode: Mode, terms: ClaimTerms): readonly string[] {
    const own = this.#ownClaims(terms).filter(claim => claim.held)
    const held = new Map(own.flatMap(claim => claim.resources.map(name => [name, claim.mode])))
    const tooWeak = mode === 'exclusive' ? resources.filter(name => held.get(name) === 'shared') : []
    if (tooWeak.length > 0)
      throw new LeaseError(
        'INVALID',
        `you hold ${this.#shown(tooWeak)} shared, and cannot have it exclusive at the same time: release it, then claim it exclusive`,
        { facts: { names: this.#names.shown(tooWeak[0]!) } },
      )
    return resources.filter(name => !held.has(name))
  }

  /** The queued claim that covers all of `missing`. */
  #waitingFor(missing: readonly string[], mode: Mode, terms: ClaimTerms): ClaimRecord | undefined {
    const queued = this.#ownClaims(terms).filter(claim => !claim.held && missing.some(name => claim.resources.includes(name)))
    const covering = queued
      .filter(claim => missing.every(name => claim.resources.includes(name)) && (claim.mode === mode || claim.mode === 'exclusive'))
      .sort((a, b) => a.lease - b.lease)[0]
    if (covering !== undefined || queued.length === 0) return covering
    const names = this.#shown(queued.flatMap(claim => claim.resources))
    throw new LeaseError(
      'INVALID',
      `you already wait for ${names}: ask for exactly these names again, or release them first and then claim all names together`,
      { facts: { queued: names } },
    )
  }

  /** Another process of this agent may have claimed the same names at the same moment: then this place waits for the agent itself. */
  async #onlyIfNeeded(record: ClaimRecord, missing: readonly string[], mode: Mode, terms: ClaimTerms): Promise<ClaimRecord | undefined> {
    const { name, incarnation } = this.#book.session
    const known = new Set(this.#book.claims.map(({ lease }) => lease))
    const around = await Promise.all(record.resources.map(resource => viewsAround(this.#log, this.#names, resource)))
    const views = around.flat()
    const isNews = (view: ResourceView, lease: number) => record.resources.includes(view.resource) || !known.has(lease)
    const grants = views.flatMap(view => view.grants.filter(({ lease }) => isNews(view, lease)))
    const above = grants.find(({ holder }) => name.startsWith(`${holder}/`))
    if (above !== undefined) {
      await this.#book.release(record)
      throw new LeaseError(
        'HELD',
        `${this.#names.shown(above.resource)} is held by ${above.holder}, the agent that you work for, which may wait for you: let it release the name first, then claim it`,
        { facts: { resource: this.#names.shown(above.resource), holder: above.holder } },
      )
    }
    const isOwn = (holder: { readonly holder: string; readonly incarnation: number }) =>
      holder.holder === name && holder.incarnation === incarnation
    const isWaitingTwice = views.some(({ queue }) => queue.some(waiter => isOwn(waiter) && waiter.lease < record.lease))
    if (!grants.some(isOwn) && !isWaitingTwice) return record
    await this.#book.sync()
    // Another conversation of this agent has it, or waits for it.
    const others = new Set(this.#book.claims.filter(claim => !isSameConversation(claim, terms.conversation)).map(({ lease }) => lease))
    const isMine = (one: { readonly holder: string; readonly incarnation: number; readonly lease: number }) =>
      isOwn(one) && !others.has(one.lease) && one.lease !== record.lease
    if (!grants.some(isMine) && !views.some(({ queue }) => queue.some(waiter => isMine(waiter) && waiter.lease < record.lease)))
      return this.#book.claims.find(({ lease }) => lease === record.lease && !record.held) ?? record
    await this.#book.release(record)
    await this.#book.sync()
    const still = this.#notYetHeld(missing, mode, terms)
    if (still.length === 0) return undefined
    return this.#waitingFor(still, mode, terms) ?? this.#book.acquire({ kind: 'claim', wants: wantsOf(still, mode), ...terms, wait: true })
  }

  async viewOf(resources: readonly string[], mode: Mode, terms: Pick<ClaimTerms, 'conversation'>): Promise<ClaimView> {
    const claims = this.#ownClaims(terms).filter(claim => claim.resources.some(name => resources.includes(name)))
    const waiting = claims.find(claim => !claim.held)
    if (waiting !== undefined) return this.view(waiting)
    const tokens = Object.fromEntries(claims.flatMap(claim => Object.entries(claim.tokens)).filter(([name]) => resources.includes(name)))
    if (resources.some(name => tokens[name] === undefined))
      throw new LeaseError('GONE', `${this.#shown(resources)} ended while you waited: claim it again`)
    const left = Math.min(...claims.map(claim => this.#book.capLeft(claim)))
    return {
      status: 'held',
      names: resources.map(name => this.#names.shown(name)),
      ...{ resources, mode, purpose: claims[0]!.purpose, forTurn: claims.some(claim => claim.forTurn) },
      tokens: this.#shownKeys(tokens),
      capSeconds: Math.round(left / 1_000),
    }
  }

  async view(claim: ClaimRecord): Promise<ClaimView> {
    const { resources, mode, purpose, tokens, position, held, forTurn } = claim
    return {
      status: held ? 'held' : 'queued',
      names: resources.map(name => this.#names.shown(name)),
      ...{ resources, mode, purpose, forTurn },
      tokens: this.#shownKeys(tokens),
      ...(held ? { capSeconds: Math.round(this.#book.capLeft(claim) / 1_000) } : { position, waitsFor: await this.#blockers(claim) }),
    }
  }

  #blockers(claim: ClaimRecord): ReturnType<typeof blockers> {
    return blockers(this.#log, this.#names, claim, new Set(this.#book.claims.map(({ lease }) => lease)))
  }

  #shown(resources: readonly string[]): string {
    return resources.map(name => this.#names.shown(name)).join(', ')
  }

  #shownKeys(tokens: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
    return Object.fromEntries(Object.entries(tokens).map(([name, token]) => [this.#names.shown(name), token]))
  }
}
