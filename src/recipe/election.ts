/**
 * Elections: one seat, one leader at a time, terms of office one after another.
 *
 * Not promised: that the former leader's last messages have arrived anywhere; compare tokens where that matters. Promised: a term's `signal`
 * fires before the seat can be another's, and a seat that is given up is given up after the work of the term has ended, or after its
 * budget for ending is spent.
 */
import { pause, whenAborted } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Event } from '../kernel/event.ts'
import type { Lease } from '../lease.ts'
import type { Leases } from '../leases.ts'
import { checkOptionNames } from '../options.ts'

export interface ElectionOptions {
  readonly ttl?: Duration
  /** Candidates of higher priority are elected first. */
  readonly priority?: number
  /** How long the work of a term has to end once it was asked to. Left out: as long as it takes. */
  readonly budget?: Duration
  /** Whether to make way when a candidate of higher priority waits. */
  readonly yields?: boolean
}

export interface Leader {
  readonly holder: string
  readonly token: number
  readonly lease: number
}

/** One term of office. */
export class Term {
  readonly lease: Lease
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  #successor: string | undefined

  constructor(lease: Lease) {
    this.lease = lease
    this.#signal = AbortSignal.any([lease.signal, this.#stop.signal])
  }

  /** Grows from term to term: what the leader writes is fenced with it. */
  get token(): number {
    return this.lease.token
  }

  /** The work must end: the seat is lost, or will be given up when the work has ended. */
  get signal(): AbortSignal {
    return this.#signal
  }

  get successor(): string | undefined {
    return this.#successor
  }

  /** Asks the work to end; then the seat goes to the next candidate, or to the one that is named. */
  resign(successor?: string): void {
    this.#successor = successor
    const to = successor === undefined ? '' : ` in favour of ${successor}`
    this.#stop.abort(new LeaseError('GONE', `${this.lease.resources[0]}: the leader resigned${to}`))
  }
}

export class Election {
  readonly #leases: Leases
  readonly #seat: string
  readonly #ttl: number
  readonly #priority: number
  readonly #budget: number
  readonly #yields: boolean
  #term: Term | undefined

  constructor(leases: Leases, name: string, options: ElectionOptions = {}) {
    checkOptionNames('election', options, ['ttl', 'priority', 'budget', 'yields'])
    const { ttl = '10s', priority = 0, budget, yields = false } = options
    this.#leases = leases
    this.#seat = `election/${name}`
    this.#ttl = milliseconds(ttl, 'ttl')
    this.#priority = priority
    this.#budget = budget === undefined ? Number.POSITIVE_INFINITY : milliseconds(budget, 'budget')
    this.#yields = yields
  }

  /** The term that is in office here. */
  get term(): Term | undefined {
    return this.#term
  }

  /** The consumer's loop body is the term: leaving it gives up the seat, to be elected again later. */
  terms(signal: AbortSignal): AsyncGenerator<Term, void, void> {
    mustEnd(signal)
    return this.#terms(signal)
  }

  async *#terms(signal: AbortSignal): AsyncGenerator<Term, void, void> {
    while (!signal.aborted) {
      let lease: Lease
      try {
        lease = await this.#leases.acquire(this.#seat, { ttl: this.#ttl, renew: 'continuous', priority: this.#priority, signal })
      } catch (error) {
        if (signal.aborted) return
        throw error
      }
      // Called off between the grant and here: no term begins.
      if (signal.aborted) return lease.release().catch(() => {})
      const term = new Term(lease)
      this.#term = term
      const stop = whenAborted(signal, () => term.resign())
      const over = new AbortController()
      this.#spend(term, over.signal)
      if (this.#yields) void this.#makeWay(term, over.signal)
      try {
        yield term
      } finally {
        over.abort()
        stop()
        this.#term = undefined
        await this.#giveUp(term).catch(() => {}) // untold, it lapses by itself: no reason to stand no more
      }
    }
  }

  /** Runs `work` for each term, one after another, until `signal` ends the candidacy. */
  async lead(work: (term: Term) => void | PromiseLike<void>, options: { readonly signal: AbortSignal }): Promise<void> {
    if (typeof work !== 'function') throw new LeaseError('INVALID', 'lead runs a callback for each term: write lead(callback, { signal })')
    const signal = options?.signal
    mustEnd(signal)
    checkOptionNames('lead', options, ['signal'])
    // Called off while it was handed over, a term is over before its work has begun.
    for await (const term of this.terms(signal)) if (!term.signal.aborted) await work(term)
  }

  /** Ends the present term, if it is ours. */
  resign(successor?: string): void {
    this.#term?.resign(successor)
  }

  async leader(): Promise<Leader | undefined> {
    return (await this.#look()).leader
  }

  async #look(signal?: AbortSignal): Promise<{ readonly leader: Leader | undefined; readonly revision: number }> {
    const { value, revision } = await this.#leases.read(
      { kind: 'resource', resource: this.#seat },
      { consistent: true, ...(signal !== undefined && { signal }) },
    )
    const held = value.grants.find(({ status }) => status !== 'frozen')
    return { leader: held && { holder: held.holder, token: held.token, lease: held.lease }, revision }
  }

  /** The leader now, and whenever it changes; undefined between terms. */
  observe(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    mustEnd(signal)
    return this.#observe(signal)
  }

  async *#observe(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    try {
      let { leader, revision } = await this.#look(signal)
      yield leader
      for await (const events of this.#leases.watch(this.#seat, { after: revision, signal })) {
        let next: Leader | undefined
        if (events[0]!.type === 'resync') ({ leader: next, revision } = await this.#look(signal))
        // What was read after a gap is newer than what the watch goes on with: nobody leads twice.
        else if (events[0]!.revision <= revision) continue
        else next = events.reduce(succeeds, leader)
        if (next?.token === leader?.token) continue
        leader = next
        yield leader
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** The work has ended, or its time for ending has. */
  async #giveUp(term: Term): Promise<void> {
    const { lease, successor } = term
    if (successor === undefined || !lease.held) return lease.release()
    await lease.transfer(successor).catch(() => lease.release())
  }

  /** Work that does not end within its budget loses the seat all the same. */
  #spend(term: Term, over: AbortSignal): void {
    if (this.#budget === Number.POSITIVE_INFINITY) return
    const begin = () => {
      pause(this.#leases.clock, this.#budget, over)
        .then(() => this.#giveUp(term))
        .catch(() => {}) // the work ended in time, or the lease is lost: nothing left to give up
    }
    const stop = whenAborted(term.signal, begin)
    whenAborted(over, stop)
  }

  /** Someone preferred waits: the term is handed over as soon as the work has ended. */
  async #makeWay(term: Term, over: AbortSignal): Promise<void> {
    const better = async () => {
      const { value, revision } = await this.#leases.read({ kind: 'resource', resource: this.#seat })
      return { revision, found: value.queue.some(({ priority }) => priority > this.#priority) }
    }
    try {
      const { revision, found } = await better()
      if (found) return term.resign()
      for await (const _ of this.#leases.lessor.watch(this.#seat, { after: revision, signal: over }))
        if ((await better()).found) return term.resign()
    } catch {
      // Without news the term goes on: it is ours until it is given up or lost.
    }
  }
}

function mustEnd(signal: AbortSignal): void {
  if (typeof signal?.throwIfAborted !== 'function')
    throw new LeaseError('INVALID', 'who stands for an election or observes one passes an AbortSignal, which ends it')
}

function succeeds(leader: Leader | undefined, { type, lease, holder = '', token = 0 }: Event): Leader | undefined {
  if (type === 'granted') return { holder, token, lease }
  const ended = type === 'released' || type === 'lapsed' || type === 'revoked' || type === 'transferred'
  return ended && leader?.lease === lease ? undefined : leader
}
