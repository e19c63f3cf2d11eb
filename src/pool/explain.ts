/**
 * Why a waiter of a pool waits: what is in its way, what would let it start, when it will probably start, and what it could ask for instead to start
 * sooner. Pure: everything follows from one view of the pool.
 */
import { inWords } from '../duration.ts'
import type { PoolCondition, PoolRequest } from '../kernel/command.ts'
import { kindOf, matches } from '../kernel/rule/pool/condition.ts'
import type { PoolGrantView, PoolMemberView, PoolView, PoolWaiterView } from '../lessor.ts'
import { type DurationModel, statedDuration, UNKNOWN_DURATION } from './duration-model.ts'
import { forecastInSteps, type StartForecast } from './forecast.ts'
import type { ForecastRequest, ForecastUse } from './forecast-input.ts'
import type { PoolUse } from './learned-durations.ts'
import { matchText } from './match.ts'
import { type BeyondQuota, type QuotaUse, withinQuotas } from './quota-wait.ts'
import type { Alternative, Blocker, WaitCause, WaitExplanation, WaitReason } from './wait-explanation.ts'
import { membersText, reservedBefore, sentences, wantedText, whoText } from './wait-sentences.ts'

/** Waiters that are explained unless the caller says how many. */
export const EXPLAINED = 20
/** Leases in the way that are listed. */
const MAX_BLOCKERS = 8
/** Other requests that are tried. */
const MAX_ALTERNATIVES = 8
/** An alternative is worth mentioning if it starts within this part of the time. */
const MUCH_SOONER = 0.7
/** The former holder of a frozen lease stops within its ttl, which the view does not have. This is the ttl of most leases. */
const FROZEN_FOR = 30_000

export interface ExplainPoolOptions {
  /**
   * Returns how long leases of this kind are held.
   * @default the `expect` of the request, otherwise a distribution that knows nothing
   */
  readonly duration?: (use: PoolUse) => DurationModel
  /**
   * Also try other requests. It takes one more forecast for each.
   * @default false
   */
  readonly whatIf?: boolean
}

/** Explains why one waiter waits, from a view of the whole queue or one that was asked for this lease. Undefined if the lease does not wait for this pool. */
export function explainWaiter(view: PoolView, lease: number, options: ExplainPoolOptions = {}): WaitExplanation | undefined {
  return [...explanations(view, { ...options, lease })].find(explanation => explanation !== undefined)
}

/** Explains why the first waiters wait, from a view that begins with them. */
export function explainPool(
  view: PoolView,
  { limit = EXPLAINED, ...options }: ExplainPoolOptions & { readonly limit?: number } = {},
): readonly WaitExplanation[] {
  return [...explanations(view, { limit, ...options })].filter(explanation => explanation !== undefined)
}

/**
 * As `explainPool`, or with `lease` as `explainWaiter`, in steps of bounded work: in a large pool, the forecast for one waiter takes a while. Yields undefined
 * between two steps.
 */
export function* explanations(
  view: PoolView,
  { limit = EXPLAINED, lease, ...options }: ExplainPoolOptions & { readonly limit?: number; readonly lease?: number } = {},
): Generator<WaitExplanation | undefined, void, void> {
  const explainer = new PoolExplainer(view, options)
  const { length } = view.queue.slice(0, lease === undefined ? limit : undefined)
  for (let place = 0; place < length; place++)
    if (lease === undefined || view.queue[place]!.lease === lease) yield yield* explainer.explain(place)
}

/** Members, running leases and requests in the form of the forecast, made once for all waiters. */
class PoolExplainer {
  readonly #view: PoolView
  readonly #options: ExplainPoolOptions
  /** Members that are given out. */
  readonly #members: readonly PoolMemberView[]
  /** By member, made when a condition or a group needs them. */
  readonly #labels: ReadonlyMap<string, string>[] = []
  readonly #holders: readonly MemberHolder[]
  /** In the order of the holders. */
  readonly #running: readonly ForecastUse[]
  readonly #stated = new Map<number, DurationModel>()
  readonly #matching = new Map<string, readonly number[]>()
  readonly #requests: ForecastRequest[] = []

  constructor(view: PoolView, options: ExplainPoolOptions) {
    this.#view = view
    this.#options = options
    this.#members = view.members.filter(({ status }) => status === 'live')
    this.#holders = holdersIn(this.#members)
    this.#running = this.#holders.map(holder => this.#use(holder))
  }

  /** `place`: where the waiter is in the queue of the view, which may have gaps. */
  *explain(place: number): Generator<undefined, WaitExplanation, void> {
    const waiter = this.#view.queue[place]!
    const { lease, holder, account, request, possible, position } = waiter
    const matching = this.#matchingOf(request)
    const reasons = this.#reasons(waiter, matching)
    const blockers = this.#blockers(matching)
    const start = possible ? yield* this.#forecast(place, request) : undefined
    const alternatives = this.#options.whatIf === true ? yield* this.#alternatives(place, waiter, start) : []
    const text = sentences(this.#view, waiter, { reasons, blockers, start, alternatives })
    return { lease, holder, account, position, reasons, blockers, start, alternatives, text }
  }

  #use({ grant, takes }: MemberHolder): ForecastUse {
    const { held, maxLife, status, recalled, preemptible, yields } = grant
    const ends: number[] = []
    if (maxLife > 0) ends.push(Math.max(0, maxLife - held))
    if (status === 'frozen') ends.push(FROZEN_FOR)
    if (recalled && (preemptible || yields)) ends.push(this.#view.rules.preemptNotice + FROZEN_FOR)
    const { expect } = grant
    return { takes, age: held, duration: this.#durationOf(grant), expect, yields, ...(ends.length > 0 && { atMost: Math.min(...ends) }) }
  }

  #durationOf(use: PoolUse): DurationModel {
    const { duration } = this.#options
    if (duration !== undefined) return duration(use)
    if (use.expect === 0) return UNKNOWN_DURATION
    let stated = this.#stated.get(use.expect)
    if (stated === undefined) {
      stated = statedDuration(use.expect)
      this.#stated.set(use.expect, stated)
    }
    return stated
  }

  #labelsOf(member: number): ReadonlyMap<string, string> {
    this.#labels[member] ??= new Map(Object.entries(this.#members[member]!.labels))
    return this.#labels[member]
  }

  #matchingOf({ match = [] }: PoolRequest): readonly number[] {
    const key = match.length === 0 ? '' : matchText(match)
    let matching = this.#matching.get(key)
    if (matching === undefined) {
      const all = [...this.#members.keys()]
      matching = match.length === 0 ? all : all.filter(member => matches(this.#labelsOf(member), match))
      this.#matching.set(key, matching)
    }
    return matching
  }

  #requestAt(place: number): ForecastRequest {
    this.#requests[place] ??= this.#forecastRequest(this.#view.queue[place]!)
    return this.#requests[place]
  }

  #forecastRequest({ request, holder, account, maxLife, class: name }: PoolWaiterView): ForecastRequest {
    const { count = 1, units = 0, total = 0, near, expect = 0, preemptible = false } = request
    return {
      matching: this.#matchingOf(request),
      count,
      each: units,
      total,
      ...(near !== undefined && { groups: this.#groupsBy(near) }),
      duration: this.#durationOf({ holder, account, expect, class: name }),
      ...{ expect, preemptible },
      ...(maxLife > 0 && { atMost: maxLife }),
    }
  }

  /** Members without the label are in no group with another. */
  #groupsBy(label: string): readonly number[] {
    const numbers = new Map<string, number>()
    return this.#members.map((_, member) => {
      const value = this.#labelsOf(member).get(label)
      if (value === undefined) return -1 - member
      const number = numbers.get(value) ?? numbers.size
      numbers.set(value, number)
      return number
    })
  }

  /** When the waiter at this place would start with this request. */
  *#forecast(place: number, request: PoolRequest): Generator<undefined, StartForecast, void> {
    const { queue, rules } = this.#view
    const waiter = queue[place]!
    const own = request === waiter.request ? this.#requestAt(place) : this.#forecastRequest({ ...waiter, request })
    // Waiters that cannot be served are passed over. One that stands before a gap of the view stands for those in the gap.
    const ahead: number[] = []
    for (let at = 0; at < place; at++) {
      const { possible, request, position } = queue[at]!
      if (!possible || (request.from ?? 0) > 0) continue
      for (let stands = queue[at + 1]!.position - position; stands > 0; stands--) ahead.push(at)
    }
    const input = {
      units: this.#members.map(({ units }) => units),
      running: this.#running,
      waiter: (at: number) => (at === ahead.length ? own : this.#requestAt(ahead[at]!)),
      discipline: rules.queue,
    }
    const start = yield* forecastInSteps(input, ahead.length)
    const again = this.#view.accounts.find(({ account }) => account === waiter.account)?.week?.again ?? 0
    const from = (time: number, chance: number) =>
      Math.max(request.from ?? 0, again, time, this.#withinQuota(waiter.account, request, chance))
    return { low: from(start.low, 0.1), median: from(start.median, 0.5), high: from(start.high, 0.9) }
  }

  /** The time within which leases of the account end with this chance, so that its quotas of units allow the request. */
  #withinQuota(account: string, request: PoolRequest, chance: number): number {
    const over = this.#beyondQuotas(account, request, this.#matchingOf(request))
    if (over.length === 0) return 0
    const uses = this.#holders.flatMap(({ grant, takes }, i): QuotaUse[] => {
      if (grant.account !== account) return []
      const { duration, age, atMost = Number.POSITIVE_INFINITY } = this.#running[i]!
      const unitsOf = (kind: string | undefined) =>
        takes.reduce((sum, { member, units }) => sum + (kind === undefined || kindOf(this.#labelsOf(member)) === kind ? units : 0), 0)
      return [{ end: Math.min(duration.remaining(age)(chance), atMost), unitsOf }]
    })
    return withinQuotas(over, uses)
  }

  /** The quotas of units that hold the request back. */
  #beyondQuotas(account: string, request: PoolRequest, matching: readonly number[]): readonly BeyondQuota[] {
    const own = this.#view.accounts.find(known => known.account === account)
    if (own === undefined) return []
    const found: BeyondQuota[] = []
    const quota = own.quota + own.borrow
    const asked = own.quota > 0 ? leastUnits(request, this.#members, matching) : 0
    if (own.quota > 0 && own.held + asked > quota) found.push({ kind: undefined, held: own.held, quota, asked })
    for (const { kind, held, quota } of own.kinds ?? []) {
      const asked = this.#unitsOfKind(kind, request, matching)
      if (asked > 0 && held + asked > quota) found.push({ kind, held, quota, asked })
    }
    return found
  }

  #blockers(matching: readonly number[]): readonly Blocker[] {
    const usable = new Uint8Array(this.#members.length)
    for (const member of matching) usable[member] = 1
    const first: { readonly holder: MemberHolder; readonly likelyEnd: number }[] = []
    for (const [i, holder] of this.#holders.entries()) {
      if (!holder.takes.some(({ member }) => usable[member] === 1)) continue
      const { duration, age, atMost = Number.POSITIVE_INFINITY } = this.#running[i]!
      const likelyEnd = Math.min(duration.remaining(age)(0.5), atMost)
      const isBefore = (other: { readonly holder: MemberHolder; readonly likelyEnd: number }) =>
        likelyEnd < other.likelyEnd || (likelyEnd === other.likelyEnd && holder.grant.lease < other.holder.grant.lease)
      // A few of perhaps thousands are wanted: they are kept in order, and the rest is not sorted.
      if (first.length === MAX_BLOCKERS && !isBefore(first.at(-1)!)) continue
      const place = first.findIndex(isBefore)
      first.splice(place < 0 ? first.length : place, 0, { holder, likelyEnd })
      if (first.length > MAX_BLOCKERS) first.pop()
    }
    return first.map(({ holder: { grant, takes }, likelyEnd }) => {
      const members = takes.filter(({ member }) => usable[member] === 1).map(({ member }) => this.#members[member]!.member)
      const { lease, holder, account, held, status, recalled } = grant
      return { lease, holder, account, members, held, likelyEnd, frozen: status === 'frozen', recalled }
    })
  }

  #reasons(waiter: PoolWaiterView, matching: readonly number[]): readonly WaitReason[] {
    const { request, possible, account, position } = waiter
    const { accounts, queue, rules } = this.#view
    const reasons: WaitReason[] = []
    const add = (cause: WaitCause, text: string) => reasons.push({ cause, text })
    const wanted = wantedText(request)
    if ((request.from ?? 0) > 0) add('window', `its window begins in ${inWords(request.from!)}`)
    if (!possible) {
      add('impossible', `the pool has ${membersText(matching.length)} that match, which cannot give ${wanted} even when all are free`)
      return reasons
    }
    const own = accounts.find(known => known.account === account)
    for (const { kind, held, quota } of this.#beyondQuotas(account, request, matching)) {
      if (kind === undefined) add('quota', `${account} holds ${held} of the ${quota} units that its quota allows`)
      else {
        const isOnly = matching.every(member => kindOf(this.#labelsOf(member)) === kind)
        const other = isOnly ? '' : `: a request that leaves ${kind} out need not wait`
        add('quota', `${account} holds ${held} of the ${quota} units of the kind ${kind} that its quota allows${other}`)
      }
    }
    if (own?.week !== undefined && own.week.again > 0)
      add(
        'quota',
        `${account} has used the ${inWords(own.week.quota)} of units that its quota allows in a week; some of it is free again in ${inWords(own.week.again)} at the earliest`,
      )
    const free = this.#free(request, matching)
    const needed = request.total ?? request.count ?? 1
    if (free.fitting < needed)
      add(
        'held',
        `${free.fitting} of ${matching.length} matching ${request.total === undefined ? 'members are' : 'units are'} free, and it needs ${wanted}`,
      )
    else if (request.near !== undefined && free.largestGroup < needed)
      add(
        'near',
        `${free.fitting} matching members are free, at most ${free.largestGroup} of them with the same ${request.near}, and it needs ${wanted}`,
      )
    const suspect = this.#view.members.filter(
      ({ status, labels }) => status === 'suspect' && matches(new Map(Object.entries(labels)), request.match ?? []),
    )
    if (suspect.length > 0) add('suspect', `${membersText(suspect.length)} that match are not given out: their host has missed a renewal`)
    const reserved = reservedBefore(this.#view, waiter)
    const waiting = position - reserved.size
    if (waiting > 0) {
      const before = queue.slice(0, Math.min(position, 3 + reserved.size)).filter(({ lease }) => !reserved.has(lease))
      const names = before.slice(0, 3).map(({ holder, account }) => whoText(holder, account))
      add('ahead', `${waiting} waiting before it: ${names.join(', ')}${waiting > 3 ? ' …' : ''}`)
    }
    if (rules.queue === 'fair' && own !== undefined) {
      const share = (known: { readonly usage: number; readonly weight: number }) => known.usage / known.weight
      const less = accounts.filter(known => known.waiting > 0 && share(known) < share(own))
      if (less.length > 0)
        add(
          'share',
          `${less
            .map(known => known.account)
            .slice(0, 3)
            .join(', ')} used less than ${account} and goes first`,
        )
    }
    return reasons
  }

  /** The most units of a kind that the request could get. */
  #unitsOfKind(kind: string, { count = 1, units, total }: PoolRequest, matching: readonly number[]): number {
    const capacities = matching.flatMap(member => (kindOf(this.#labelsOf(member)) === kind ? [this.#members[member]!.units] : []))
    const all = capacities.reduce((sum, each) => sum + each, 0)
    return Math.min(all, total ?? count * (units ?? Math.max(0, ...capacities)))
  }

  /** Members that are free for the request, or with `total`, units. */
  #free({ units, total, near }: PoolRequest, matching: readonly number[]): { readonly fitting: number; readonly largestGroup: number } {
    const groups = new Map<string, number>()
    let fitting = 0
    for (const member of matching) {
      const { units: has, used, waiting } = this.#members[member]!
      if (waiting > 0) continue
      const room = Math.max(0, has - used)
      const counts = total !== undefined ? room : (units === undefined ? used === 0 && has > 0 : room >= units) ? 1 : 0
      fitting += counts
      const group = near === undefined ? undefined : this.#labelsOf(member).get(near)
      if (group !== undefined) groups.set(group, (groups.get(group) ?? 0) + counts)
    }
    return { fitting, largestGroup: Math.max(0, ...groups.values()) }
  }

  *#alternatives(
    place: number,
    { request }: PoolWaiterView,
    start: StartForecast | undefined,
  ): Generator<undefined, readonly Alternative[], void> {
    const found: Alternative[] = []
    for (const { change, request: other } of otherRequests(request, this.#view.members).slice(0, MAX_ALTERNATIVES)) {
      const sooner = yield* this.#forecast(place, other)
      if (sooner.median === Number.POSITIVE_INFINITY) continue
      if (start === undefined || sooner.median < MUCH_SOONER * start.median) found.push({ change, start: sooner })
    }
    return found.sort((a, b) => a.start.median - b.start.median)
  }
}

interface MemberHolder {
  readonly grant: PoolGrantView
  readonly takes: { member: number; units: number }[]
}

function holdersIn(members: readonly PoolMemberView[]): readonly MemberHolder[] {
  const holders = new Map<number, MemberHolder>()
  for (const [member, { grants, units: all }] of members.entries()) {
    for (const grant of grants) {
      const units = grant.shared ? all : grant.units
      const known = holders.get(grant.lease)
      if (known === undefined) holders.set(grant.lease, { grant, takes: [{ member, units }] })
      else known.takes.push({ member, units })
    }
  }
  return [...holders.values()]
}

/** Requests that ask for less, or accept more. */
function otherRequests(
  request: PoolRequest,
  members: readonly PoolMemberView[],
): readonly { readonly change: string; readonly request: PoolRequest }[] {
  const others: { change: string; request: PoolRequest }[] = []
  const { count = 1, total, near, match = [] } = request
  const wanted = total ?? count
  for (const fewer of new Set([wanted - 1, Math.ceil(wanted / 2), 1])) {
    if (fewer < 1 || fewer >= wanted) continue
    others.push({
      change: `${fewer} instead of ${wanted}`,
      request: total === undefined ? { ...request, count: fewer } : { ...request, total: fewer },
    })
  }
  if (near !== undefined) {
    const { near: _, ...apart } = request
    others.push({ change: `without the same ${near}`, request: apart })
  }
  for (const [at, condition] of match.entries()) {
    const { label, test, values = [] } = condition
    if (test === 'in') {
      const known = new Set(members.flatMap(({ labels }) => labels[label] ?? []))
      for (const value of [...known].filter(value => !values.includes(value)).slice(0, 3)) {
        const wider: PoolCondition = { label, test, values: [...values, value] }
        others.push({ change: `with ${label} ${value} too`, request: { ...request, match: match.with(at, wider) } })
      }
    } else others.push({ change: `without ${matchText([condition])}`, request: { ...request, match: match.toSpliced(at, 1) } })
  }
  return others
}

/** The fewest units that the request takes. */
function leastUnits({ count = 1, units, total }: PoolRequest, members: readonly PoolMemberView[], matching: readonly number[]): number {
  if (total !== undefined) return total
  if (units !== undefined) return count * units
  const smallest = matching.reduce((least, member) => Math.min(least, members[member]!.units), Number.POSITIVE_INFINITY)
  return count * (smallest === Number.POSITIVE_INFINITY ? 1 : smallest)
}
