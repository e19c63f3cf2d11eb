/**
 * Elections: one leader at a time, one term of office after another.
 *
 * Promised: the `signal` of a term fires before another candidate can be elected, and a leader that resigns leaves office after the work of its
 * term has ended, or after its budget for ending is spent. Not promised: that the last messages of the former leader have arrived; compare
 * tokens where that matters.
 */
import { pause, whenAborted } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { checkSignal } from '../holder/acquire-options.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import type { Event } from '../kernel/event.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames } from '../options.ts'

export interface ElectionOptions {
  /**
   * A term lasts this long without a renewal: after a crash, the next leader is elected this much later.
   * @default '10s'
   */
  readonly ttl?: Duration | undefined
  /**
   * Candidates of higher priority are elected first, -1000 to 1000.
   * @default 0
   */
  readonly priority?: number | undefined
  /**
   * The work of a term may take this long to end once its signal has fired. After that the leader leaves office anyway.
   * @default no limit
   */
  readonly budget?: Duration | undefined
  /**
   * True if a leader resigns when a candidate of higher priority waits.
   * @default false
   */
  readonly yields?: boolean | undefined
}

/** A call that runs until its signal ends it. */
export interface UntilAborted {
  /** Ends the candidacy, or the observation. */
  readonly signal: AbortSignal
}

export interface Leader {
  readonly holder: string
  readonly token: number
  readonly lease: number
}

/** One term of office. */
export class Term {
  /** The lease of the office. */
  readonly lease: Lease
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  #successor: string | undefined

  constructor(lease: Lease) {
    this.lease = lease
    this.#signal = AbortSignal.any([lease.signal, this.#stop.signal])
  }

  /** The fencing token of this term, greater than that of every earlier term. */
  get token(): number {
    return this.lease.token
  }

  /** Fires when the work must end: the office is lost, or the leader has resigned. */
  get signal(): AbortSignal {
    return this.#signal
  }

  /** The successor that `resign` named. */
  get successor(): string | undefined {
    return this.#successor
  }

  /** Fires `signal`. When the work has ended, the office goes to the next candidate, or to the named one. */
  resign(successor?: string): void {
    this.#successor = successor
    const to = successor === undefined ? '' : ` in favour of ${successor}`
    this.#stop.abort(new LeaseError('GONE', `${this.lease.resources[0]}: the leader resigned${to}`))
  }
}

/**
 * @example
 * const election = leases.election('scheduler', { ttl: '10s' })
 * for await (const term of election.terms({ signal })) await lead(term.token, term.signal)
 */
export class Election {
  readonly #leases: LeaseClient
  readonly #office: string
  readonly #ttl: number
  readonly #priority: number
  readonly #budget: number
  readonly #yields: boolean
  #term: Term | undefined

  constructor(leases: LeaseClient, name: string, options: ElectionOptions = {}) {
    checkOptionNames('election', options, ['ttl', 'priority', 'budget', 'yields'])
    const { ttl = '10s', priority = 0, budget, yields = false } = options
    this.#leases = leases
    this.#office = `election/${name}`
    this.#ttl = milliseconds(ttl, 'ttl')
    this.#priority = priority
    this.#budget = budget === undefined ? Number.POSITIVE_INFINITY : milliseconds(budget, 'budget')
    this.#yields = yields
  }

  /** The present term, if this process leads. */
  get term(): Term | undefined {
    return this.#term
  }

  /**
   * Stands for election again and again. The loop body is the term: leaving it leaves office, until the next term.
   *
   * @example
   * for await (const term of election.terms({ signal })) await lead(term)
   */
  terms(options: UntilAborted): AsyncGenerator<Term, void, void> {
    // A bare signal is what this took before; programs still pass it.
    const bare = options as unknown as AbortSignal
    return this.#terms(checkedSignal('terms', typeof bare?.throwIfAborted === 'function' ? { signal: bare } : options))
  }

  async *#terms(signal: AbortSignal): AsyncGenerator<Term, void, void> {
    while (!signal.aborted) {
      let lease: Lease
      try {
        lease = await this.#leases.acquire(this.#office, { ttl: this.#ttl, renew: 'continuous', priority: this.#priority, signal })
      } catch (error) {
        if (signal.aborted) return
        throw error
      }
      // Aborted between the grant and here: no term begins.
      if (signal.aborted) return lease.release().catch(() => {})
      const term = new Term(lease)
      this.#term = term
      const stop = whenAborted(signal, () => term.resign())
      const over = new AbortController()
      this.#enforceBudget(term, over.signal)
      if (this.#yields) void this.#yieldToPriority(term, over.signal)
      try {
        yield term
      } finally {
        over.abort()
        stop()
        this.#term = undefined
        await this.#leaveOffice(term).catch(() => {}) // an undelivered release lapses by itself; the candidacy goes on
      }
    }
  }

  /**
   * Runs `work` for each term, one after another, until `signal` ends the candidacy.
   *
   * @example
   * await election.lead(async term => schedule(term.signal), { signal })
   */
  async lead(work: (term: Term) => void | PromiseLike<void>, options: UntilAborted): Promise<void> {
    if (typeof work !== 'function') throw new LeaseError('INVALID', 'lead runs a callback for each term: write lead(callback, { signal })')
    const signal = checkedSignal('lead', options)
    // If the candidacy ended while the term was handed over, its work does not begin.
    for await (const term of this.#terms(signal)) if (!term.signal.aborted) await work(term)
  }

  /** Resigns, if this process leads. */
  resign(successor?: string): void {
    this.#term?.resign(successor)
  }

  /** The present leader. */
  async leader(): Promise<Leader | undefined> {
    return (await this.#read()).leader
  }

  async #read(signal?: AbortSignal): Promise<{ readonly leader: Leader | undefined; readonly revision: number }> {
    const { value, revision } = await this.#leases.read(
      { kind: 'resource', resource: this.#office },
      { consistent: true, ...(signal !== undefined && { signal }) },
    )
    const grant = value.grants.find(({ status }) => status !== 'frozen')
    return { leader: grant && { holder: grant.holder, token: grant.token, lease: grant.lease }, revision }
  }

  /**
   * The leader now, and whenever it changes; undefined between terms.
   *
   * @example
   * for await (const leader of election.observe({ signal })) console.log(leader?.holder ?? 'no leader')
   */
  observe(options: UntilAborted): AsyncGenerator<Leader | undefined, void, void> {
    return this.#observe(checkedSignal('observe', options))
  }

  async *#observe(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    try {
      let { leader, revision } = await this.#read(signal)
      yield leader
      for await (const events of this.#leases.watch(this.#office, { after: revision, signal })) {
        let next: Leader | undefined
        if (events[0]!.type === 'resync') ({ leader: next, revision } = await this.#read(signal))
        // A read after a gap is newer than the next events of the watch: do not report a leader twice.
        else if (events[0]!.revision <= revision) continue
        else next = events.reduce(leaderAfter, leader)
        if (next?.token === leader?.token) continue
        leader = next
        yield leader
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** The work has ended, or its budget for ending is spent. */
  async #leaveOffice(term: Term): Promise<void> {
    const { lease, successor } = term
    if (successor === undefined || !lease.held) return lease.release()
    await lease.transfer(successor).catch(() => lease.release())
  }

  /** Work that does not end within its budget loses the office anyway. */
  #enforceBudget(term: Term, over: AbortSignal): void {
    if (this.#budget === Number.POSITIVE_INFINITY) return
    const begin = () => {
      pause(this.#leases.clock, this.#budget, over)
        .then(() => this.#leaveOffice(term))
        .catch(() => {}) // the work ended in time, or the lease is lost already
    }
    const stop = whenAborted(term.signal, begin)
    whenAborted(over, stop)
  }

  /** Resigns when a candidate of higher priority waits. */
  async #yieldToPriority(term: Term, over: AbortSignal): Promise<void> {
    const better = async () => {
      const { value, revision } = await this.#leases.read({ kind: 'resource', resource: this.#office })
      return { revision, found: value.queue.some(({ priority }) => priority > this.#priority) }
    }
    try {
      const { revision, found } = await better()
      if (found) return term.resign()
      for await (const _ of this.#leases.lessor.watch(this.#office, { after: revision, signal: over }))
        if ((await better()).found) return term.resign()
    } catch {
      // Without events the term goes on until it ends or is lost.
    }
  }
}

function checkedSignal(call: string, options: UntilAborted): AbortSignal {
  checkSignal(options?.signal, `${call} of an election`)
  checkOptionNames(call, options, ['signal'])
  return options.signal
}

function leaderAfter(leader: Leader | undefined, { type, lease, holder = '', token = 0 }: Event): Leader | undefined {
  if (type === 'granted') return { holder, token, lease }
  const ended = type === 'released' || type === 'lapsed' || type === 'revoked' || type === 'transferred'
  return ended && leader?.lease === lease ? undefined : leader
}
