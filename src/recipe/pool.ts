/**
 * Pools of members, of which a caller takes as many as it needs: GPUs, licences, test machines.
 *
 * A member is in the pool while its offer is held, with labels to choose by and, if it can be shared, units. The kernel chooses the members and
 * keeps one queue for each pool: all that a caller asks for is granted at once, and members that come to match during the wait count from then on.
 *
 * Not promised: that a granted member still matches. A member that leaves the pool or is relabelled is not taken from its holder; but if the
 * process that offered it dies, the leases that hold it end.
 */
import { chainAbort } from '../clock.ts'
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { type AcquireOptions, type AdvancedAcquireOptions, waitOf } from '../holder/acquire-options.ts'
import { CLASS_LABEL, classOf, type LearnOptions } from '../holder/learned-terms.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import type { PoolCondition, PoolRequest } from '../kernel/command.ts'
import { matches } from '../kernel/rule/pool/condition.ts'
import { expectedDuration } from '../learn/expectation.ts'
import type { Lease } from '../lease.ts'
import { propose } from '../lessor/propose.ts'
import type { PoolPage, PoolView } from '../lessor.ts'
import { checkOptionNames } from '../options.ts'
import { EXPLAINED, type ExplainPoolOptions, explainPool, explainWaiter } from '../pool/explain.ts'
import { readDurations } from '../pool/learned-durations.ts'
import { type Match, parseMatch } from '../pool/match.ts'
import type { WaitExplanation } from '../pool/wait-explanation.ts'
import { refusedError } from '../refused-error.ts'

export type Labels = Readonly<Record<string, string>>

export interface PoolOptions {
  /** Only members that match: values of labels, or a text such as `'model in (a100,h100), mem>=40, !spot'`. */
  readonly match?: Match | undefined
}

export interface Member {
  readonly member: string
  /** The resource that is held while the member is taken. */
  readonly resource: string
  readonly labels: Labels
  readonly units: number
}

export interface OfferOptions {
  readonly labels?: Labels | undefined
  /**
   * The member has this many units. Takers share it if they take fewer.
   * @default 1
   */
  readonly units?: number | undefined
  /** The member stays in the pool this long after its owner crashed. */
  readonly ttl?: Duration | undefined
}

/** The options of a request: about the members, and about itself. */
export interface PoolRequestOptions {
  /**
   * The request takes this many units of each member.
   * @default all of them: then no other taker is on it
   */
  readonly units?: number | undefined
  /** Only members that match, besides the conditions of the pool. */
  readonly match?: Match | undefined
  /** Only members with the same value of this label, such as `'host'`. */
  readonly near?: string | undefined
  /**
   * The user or team that it counts for.
   * @default the holder
   */
  readonly account?: string | undefined
  /**
   * The lease will be used for this long, for waiters and planners. It never ends the lease. `'auto'`: as long as half of such leases were held before; nothing
   * is said while too little is known.
   */
  readonly expect?: Duration | 'auto' | undefined
  /**
   * The class of work that its duration counts for, and that `'auto'` learns from.
   * @default the name of the pool, the account if one is given, and the values of `learn.labels`
   */
  readonly learn?: LearnOptions | undefined
  /** It may be preempted for others: `lease.recalled` fires, and the lease ends after the notice that the policy of the pool gives. */
  readonly preemptible?: boolean | undefined
}

/** Options of `take`. It waits by the same rule as `acquire`: until granted, unless `wait`, `ifAvailable` or `signal` end the wait. */
export interface TakeOptions
  extends PoolRequestOptions,
    Pick<
      AcquireOptions,
      'ttl' | 'wait' | 'ifAvailable' | 'signal' | 'priority' | 'renew' | 'maxHold' | 'parent' | 'onWait' | 'onLost' | 'labels'
    > {
  /** Options that few programs need, as those of `acquire`. */
  readonly advanced?: Pick<AdvancedAcquireOptions, 'onQueued' | 'onAway' | 'grace' | 'maxStall'> | undefined
  /** Instead of a count and units: this many units in all, on as few members as possible. */
  readonly total?: number | undefined
  /** The lease ends this long after the grant, unless it is extended. */
  readonly maxLife?: Duration | undefined
  /**
   * Also wait for members to be offered. Otherwise a request that all present members could not serve is refused with `LIMIT`.
   * @default false
   */
  readonly patient?: boolean | undefined
}

/** Options of `reserve`. */
export interface ReserveOptions extends PoolRequestOptions {
  /** In how long the window begins. */
  readonly from: Duration
  /** The window is this long. */
  readonly for: Duration
  /**
   * The reservation waits this long for its holder after the beginning of its window.
   * @default '15m'
   */
  readonly ttl?: Duration | undefined
  /** Texts for people and tools, shown with the lease. */
  readonly labels?: Labels | undefined
}

/** A reservation. When its window begins, `leases.adopt(lease)` gives the members to this process. */
export interface Reservation {
  readonly lease: number
  /** Its place among all waiters of the pool; 0 is next. */
  readonly position: number
}

const REQUEST = ['units', 'match', 'near', 'account', 'expect', 'learn', 'preemptible'] as const
/** A request waits this long for what is known of its class, and goes on without it. */
const LEARN_TIMEOUT = 1_000
const TRY_TAKE = [
  ...['ttl', 'priority', 'signal', 'renew', 'maxHold', 'parent', 'onWait', 'onLost', 'labels', 'total', 'maxLife', 'advanced'],
  ...REQUEST,
]
const TAKE = ['wait', 'ifAvailable', 'patient', ...TRY_TAKE]
const SHOW_UP = 900_000

/**
 * @example
 * const gpus = leases.pool('gpu', { match: 'model in (a100,h100), mem>=40' })
 * await using two = await gpus.take(2, { wait: '1h', expect: '20m', near: 'host' })
 * console.log(two.resources)
 */
export class Pool {
  readonly #leases: LeaseClient
  readonly #name: string
  readonly #match: readonly PoolCondition[]

  constructor(leases: LeaseClient, name: string, options: PoolOptions = {}) {
    checkOptionNames('pool', options, ['match'])
    this.#leases = leases
    this.#name = name
    this.#match = parseMatch(options.match ?? {})
  }

  /**
   * Offers a member: it is in the pool while the returned lease is held. Releasing it lets the member drain: present holders keep it.
   *
   * @example
   * await using offer = await leases.pool('gpu').offer('gpu-0', { labels: { model: 'A100' } })
   */
  async offer(member: string, options: OfferOptions = {}): Promise<Lease> {
    checkOptionNames('offer', options, ['labels', 'units', 'ttl'])
    const { labels = {}, units = 1, ttl } = options
    if (member.includes('/')) throw new LeaseError('INVALID', `a member's name has no slash: ${member}`, { facts: { member } })
    if (!Number.isSafeInteger(units) || units < 1)
      throw new LeaseError('INVALID', `units of ${member} must be a whole number above 0, not ${String(units)}`, {
        facts: { option: 'units' },
      })
    return this.#leases.grant({ entries: { [this.#key(member)]: JSON.stringify({ labels, units }) }, ...(ttl !== undefined && { ttl }) })
  }

  /** Changes the labels of a member that `offer` has offered. */
  async relabel(offer: Lease, member: string, labels: Labels): Promise<void> {
    const key = this.#key(member)
    const { value } = await this.#leases.lessor.read({ kind: 'entries', prefix: key }, { consistent: true })
    const offered = parseOffer(value.find(entry => entry.key === key)?.value ?? '')
    if (offered === undefined)
      throw new LeaseError('NOT_FOUND', `${member} is not offered in the pool ${this.#name}`, { facts: { member } })
    await offer.put(key, JSON.stringify({ ...offered, labels }))
  }

  /** The members that match, taken or not. */
  async members(match: Match = {}): Promise<readonly Member[]> {
    const conditions = [...this.#match, ...parseMatch(match)]
    const { value } = await this.#leases.read({ kind: 'entries', prefix: `pool/${this.#name}` }, { consistent: true })
    return value.flatMap(({ key, value }) => {
      const member = key.slice(this.#key('').length)
      const offered = member.includes('/') ? undefined : parseOffer(value)
      if (offered === undefined || !matches(new Map(Object.entries(offered.labels)), conditions)) return []
      return [{ member, resource: `${this.#name}/${member}`, labels: offered.labels, units: offered.units }]
    })
  }

  /**
   * Members with their holders, the queue in the order of service, accounts, reservations and rules. Of a long queue, the first 1,000 waiters, or those that
   * `limit` and `skip` say; `waiting` counts all of them.
   */
  async state(options: Pick<PoolPage, 'limit' | 'skip'> = {}): Promise<PoolView> {
    checkOptionNames('state', options, ['limit', 'skip'])
    return this.#view(options)
  }

  async #view(page: PoolPage): Promise<PoolView> {
    return (await this.#leases.lessor.read({ ...page, kind: 'pool', pool: this.#name }, { consistent: true })).value
  }

  /**
   * Why each of the first waiters waits, or one of them: what is in its way, when it will probably start, and with `whatIf`, what it could ask for
   * instead to start sooner. Undefined for a lease that does not wait for this pool.
   *
   * @example
   * for (const { text } of await leases.pool('gpu').explain()) console.log(text.join('\n'))
   */
  async explain(options?: ExplainPoolOptions & { readonly limit?: number }): Promise<readonly WaitExplanation[]>
  async explain(options: ExplainPoolOptions & { readonly lease: number }): Promise<WaitExplanation | undefined>
  async explain(options: ExplainPoolOptions & { readonly lease?: number; readonly limit?: number } = {}) {
    checkOptionNames('explain', options, ['lease', 'limit', 'whatIf', 'duration'])
    const { lease, ...rest } = options
    const view = await this.#view(lease === undefined ? { limit: rest.limit ?? EXPLAINED } : { lease })
    const duration = rest.duration ?? (await this.#durations(view))
    const known = { ...rest, ...(duration !== undefined && { duration }) }
    return lease === undefined ? explainPool(view, known) : explainWaiter(view, lease, known)
  }

  /**
   * Takes any `count` of the members that match, all at once; `resources` of the lease says which. Waits until enough of them are free, unless
   * `wait`, `ifAvailable` or `signal` end the wait. Rejects with `LIMIT` if all members together could not serve it, with `HELD` if they are
   * taken and it does not wait.
   *
   * @example
   * await using gpu = await leases.pool('gpu').take(1, { match: { model: 'H100' }, wait: '10m' })
   */
  async take(count?: number, options: TakeOptions = {}): Promise<Lease> {
    if (count !== undefined && typeof count !== 'number')
      throw new LeaseError('INVALID', 'the count comes first: write take(count, options)')
    checkOptionNames('take', options, TAKE)
    return this.#take(count, options, waitOf(options, 'take'))
  }

  /** As `take`, without waiting: undefined if too few are offered or free. */
  async tryTake(count?: number, options: Omit<TakeOptions, 'wait' | 'ifAvailable' | 'patient'> = {}): Promise<Lease | undefined> {
    checkOptionNames('tryTake', options, TRY_TAKE)
    try {
      return await this.#take(count, options, 0)
    } catch (error) {
      if (LeaseError.is(error, 'HELD') || lacksMembers(error)) return undefined
      throw error
    }
  }

  /**
   * Reserves members for a window that begins later. It need not be renewed before: `leases.adopt(lease)` takes them over once the window has
   * begun, within `ttl`. Give it back early by releasing it.
   */
  async reserve(count: number | undefined, options: ReserveOptions): Promise<Reservation> {
    checkOptionNames('reserve', options, ['from', 'for', 'ttl', 'labels', ...REQUEST])
    const { from, for: length, ttl = SHOW_UP, labels = {}, ...rest } = options
    const learn = this.#class(rest, labels)
    const expect = await this.#expectation(rest.expect, learn)
    const outcome = await propose(this.#leases.lessor, {
      kind: 'acquire',
      holder: this.#leases.holder,
      ttl: milliseconds(ttl, 'ttl'),
      wants: [],
      wait: true,
      maxLife: milliseconds(length, 'for'),
      labels: Object.entries({ ...labels, [CLASS_LABEL]: learn }),
      pool: { ...this.#request(count, rest, expect), from: milliseconds(from, 'from') },
    })
    if (outcome.kind === 'refused') throw refusedError(outcome)
    if (outcome.kind !== 'queued') throw new LeaseError('UNKNOWN', `a reservation was answered with ${outcome.kind}`)
    return { lease: outcome.lease, position: outcome.position }
  }

  /** Returns how long the work in this pool is held, by what the log has counted. Undefined: a lessor of an older build has not counted it. */
  async #durations(view: PoolView): Promise<ExplainPoolOptions['duration']> {
    const { lessor } = this.#leases
    try {
      return await readDurations(view, async name => (await lessor.read({ kind: 'durations', class: name })).value)
    } catch (error) {
      if (LeaseError.is(error, 'INVALID', 'UNSUPPORTED', 'FORBIDDEN')) return undefined
      throw error
    }
  }

  #class({ learn = {}, account }: PoolRequestOptions, labels: Labels): string {
    const prefix = account === undefined ? this.#name : `${this.#name}/${account}`
    return classOf([`${prefix}/member`], learn, labels)
  }

  async #expectation(expect: Duration | 'auto' | undefined, learn: string): Promise<number | undefined> {
    if (expect !== 'auto') return expect === undefined ? undefined : milliseconds(expect, 'expect')
    const over = new AbortController()
    const cancel = this.#leases.clock.after(LEARN_TIMEOUT, () => over.abort(), { ref: true })
    try {
      const { value } = await this.#leases.lessor.read({ kind: 'durations', class: learn }, { signal: over.signal })
      return expectedDuration(value)
    } catch {
      return undefined // it is for planners only: the request goes on without it
    } finally {
      cancel()
    }
  }

  #request(
    count: number | undefined,
    options: PoolRequestOptions & { readonly total?: number | undefined },
    expect: number | undefined,
  ): PoolRequest {
    const { units, match = {}, near, account, preemptible, total } = options
    const conditions = [...this.#match, ...parseMatch(match)]
    return {
      pool: this.#name,
      ...(count !== undefined && { count }),
      ...(units !== undefined && { units }),
      ...(total !== undefined && { total }),
      ...(conditions.length > 0 && { match: conditions }),
      ...(near !== undefined && { near }),
      ...(account !== undefined && { account }),
      ...(expect !== undefined && { expect }),
      ...(preemptible !== undefined && { preemptible }),
    }
  }

  async #take(count: number | undefined, options: TakeOptions, limit: number): Promise<Lease> {
    const { units, match, near, account, expect, preemptible, total, maxLife, patient = false, wait: _, ifAvailable: __, ...rest } = options
    const { clock } = this.#leases
    const end = clock.now() + limit
    const learn = this.#class(options, rest.labels ?? {})
    const pool = this.#request(count, options, await this.#expectation(expect, learn))
    for (;;) {
      const left = Math.max(1, Math.round(end - clock.now()))
      // Read before the request: a member that is offered while it is under way must not be missed.
      const revision = patient ? await this.#revision(rest.signal) : 0
      try {
        return await this.#leases.acquire(this.#name, {
          ...rest,
          learn: { ...rest.learn, class: learn },
          ...(limit === 0 && { ifAvailable: true }),
          ...(limit > 0 && limit < Number.POSITIVE_INFINITY && { wait: left }),
          advanced: { ...rest.advanced, pool, ...(maxLife !== undefined && { maxLife }) },
        })
      } catch (error) {
        if (!lacksMembers(error) || !patient || limit === 0) throw error
      }
      await this.#whenChanged(revision, limit === Number.POSITIVE_INFINITY ? limit : end - clock.now(), rest.signal)
    }
  }

  async #revision(signal: AbortSignal | undefined): Promise<number> {
    signal?.throwIfAborted()
    return (await this.#leases.read({ kind: 'summary' }, signal === undefined ? {} : { signal })).revision
  }

  #key(member: string): string {
    return `pool/${this.#name}/${member}`
  }

  /** Resolves when a member was offered or has changed after this revision; throws `TIMEOUT` when that took too long. */
  async #whenChanged(after: number, limit: number, signal: AbortSignal | undefined): Promise<void> {
    const { clock, lessor } = this.#leases
    const over = new AbortController()
    const unchain = chainAbort(signal, over)
    const late = new LeaseError('TIMEOUT', `the pool ${this.#name} had too few members that match for ${inWords(Math.max(0, limit))}`, {
      facts: { pool: this.#name },
    })
    const cancel = limit === Number.POSITIVE_INFINITY ? () => {} : clock.after(Math.max(0, limit), () => over.abort(late), { ref: true })
    try {
      for await (const _ of this.#leases.watch(`pool/${this.#name}`, { after, types: ['put', 'recovered'], signal: over.signal })) return
      over.signal.throwIfAborted()
      lessor.signal.throwIfAborted()
    } finally {
      cancel()
      over.abort()
      unchain()
    }
  }
}

/** Returns whether the pool refused a request that all its members together could not serve. */
function lacksMembers(error: unknown): boolean {
  return LeaseError.is(error, 'LIMIT') && 'matching' in error.facts
}

/** The value of an offer's entry. Further fields belong to others. */
interface OfferEntry {
  readonly labels: Labels
  readonly units: number
}

/** Undefined for a value that is no offer. */
function parseOffer(value: string): OfferEntry | undefined {
  try {
    const { labels = {}, units = 1, ...rest } = JSON.parse(value) as Partial<OfferEntry>
    return typeof labels === 'object' && labels !== null && Number.isSafeInteger(units) && units > 0
      ? { ...rest, labels, units }
      : undefined
  } catch {
    return undefined
  }
}
