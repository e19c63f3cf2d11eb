/**
 * The disciplines of pools again, the naive way: lists that are searched from the front and worked out anew for each question, written from what docs/pool-queues.md
 * promises. Only the decay of usage is the kernel's own (`usageAt`, which has tests of its own), because it rounds.
 *
 * Left out: hosts that vanish, sharers, waiters for members by name other than recipients of transfers, and whether a reservation is accepted; the kernel
 * tells.
 */
import type { PoolCondition } from '../../../src/kernel/command.ts'
import { usageAt } from '../../../src/kernel/rule/pool/usage.ts'
import { ACCOUNT_SLICES, sliceOf } from '../../../src/kernel/state/account-table.ts'
import { passes } from './pool-invariant.ts'

export interface ModelRules {
  readonly queue: 'fifo' | 'fit' | 'backfill' | 'fair'
  readonly preempt: boolean
  readonly preemptNotice: number
  readonly minHold: number
  readonly aging: number
  readonly shareHalfLife: number
  readonly sharePenalty: number
  readonly accounts: Readonly<
    Record<
      string,
      { readonly quotaUnits?: number; readonly quotaBorrow?: number; readonly quotaWeek?: number; readonly shareWeight?: number }
    >
  >
  /** Units of a kind of members that an account may hold, by account and kind. */
  readonly kinds: Readonly<Record<string, Readonly<Record<string, number>>>>
}

export interface Ask {
  readonly account: string
  readonly count?: number
  readonly units?: number
  readonly total?: number
  readonly match: readonly PoolCondition[]
  readonly near?: string
  readonly priority: number
  readonly expect: number
  readonly maxLife: number
  readonly preemptible: boolean
  readonly from: number
}

interface Piece {
  readonly member: string
  readonly units: number
}

interface ModelLease {
  readonly id: number
  ask: Ask
  rank: number
  /** Log time at which its window begins; 0: it is no reservation. */
  readonly begin: number
  status: 'waiting' | 'held' | 'frozen'
  holds: readonly Piece[]
  start: number
  /** Higher is younger. */
  age: number
  yields: boolean
  borrows: boolean
  /** The waiter that it is preempted for; 0: none. */
  notice: number
  /** For how many ms the notice has run, as the log says; undefined: no notice runs. */
  noticeRan: number | undefined
  /** Of a recipient that waits until the giver has stopped: the members that it waits for. */
  promised: readonly Piece[]
  /** The end of the lease gives back the advance on its usage. */
  hasAdvance: boolean
}

interface ModelMember {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly units: number
}

interface Spending {
  usage: number
  at: number
}

const PREEMPTING_HALF_LIFE = 300_000
const LEAST_LEAD = 10_000
const NEGLIGIBLE = 1_000
const HOURS_6 = 21_600_000
const DAYS_7 = 604_800_000

interface Use {
  readonly account: string
  readonly from: number
  readonly to: number
  readonly units: number
}

export class PoolModel {
  readonly #rules: ModelRules
  members: ModelMember[] = []
  leases: ModelLease[] = []
  elapsed = 0
  /** Members or waiters have changed since the waiters were served. */
  isChanged = false
  #grants = 0
  #ticks = 0
  readonly #spending = new Map<string, Spending>()
  #uses: readonly Use[] = []
  readonly #servesAtOnce: boolean

  readonly #endsWith: (waiter: number, lease: number) => boolean

  /** `servesAtOnce`: after each command. Otherwise the caller serves. `endsWith`: whether the lease is a parent of the waiter, or above one. */
  constructor(
    rules: ModelRules,
    {
      servesAtOnce = true,
      endsWith = () => false,
    }: { readonly servesAtOnce?: boolean; readonly endsWith?: (waiter: number, lease: number) => boolean } = {},
  ) {
    this.#rules = rules
    this.#servesAtOnce = servesAtOnce
    this.#endsWith = endsWith
  }

  // Commands

  offer(member: ModelMember): void {
    this.members = [...this.members.filter(({ name }) => name !== member.name), member]
    this.#change()
  }

  withdraw(name: string): void {
    this.members = this.members.filter(member => member.name !== name)
    this.#change()
  }

  take(id: number, ask: Ask, joins = true): 'granted' | 'queued' {
    const begin = ask.from === 0 ? 0 : this.elapsed + ask.from
    const step = this.#rules.aging === 0 ? 1e9 : this.#rules.aging
    const rank = begin > 0 ? -5e14 + begin : this.elapsed - ask.priority * step
    const lease: ModelLease = {
      ...{ id, ask, rank, begin, status: 'waiting', holds: [], start: 0, age: 0, yields: false, borrows: false },
      ...{ notice: 0, noticeRan: undefined, promised: [], hasAdvance: true },
    }
    const isFirst = this.#isPlanned()
      ? this.#waiting().every(waiter => this.#isPassedOver(waiter)) && this.#standing(ask) === 'within'
      : this.#rules.queue === 'fit' || !this.#waiting().some(waiter => waiter.rank <= rank && !this.#isPassedOver(waiter))
    const chosen = isFirst && begin === 0 ? this.#offered(lease) : undefined
    this.leases.push(lease)
    if (chosen !== undefined) this.#give(lease, chosen, false)
    else if (this.#isPlanned() && joins) this.#change()
    return lease.status === 'waiting' ? 'queued' : 'granted'
  }

  isPossible(ask: Ask): boolean {
    return this.#choose(ask, this.members, ({ units }) => units) !== undefined
  }

  /** A reservation counts together with what its account has reserved for the same time. */
  mayEverHold(ask: Ask): boolean {
    const { quotaUnits = 0, quotaBorrow = 0 } = this.#rules.accounts[ask.account] ?? {}
    const [from, to] = [this.elapsed + ask.from, this.elapsed + ask.from + ask.maxLife]
    const windows = this.leases
      .filter(lease => ask.from > 0 && lease.begin > 0 && (isInQueue(lease) || lease.holds.length > 0))
      .map(lease => ({ ask: lease.ask, begin: Math.max(lease.begin, lease.start) }))
    const moments = [from, ...windows.map(({ begin }) => begin).filter(begin => begin > from && begin < to)]
    const together = (asked: (ask: Ask) => number) => {
      const reserved = moments.map(moment =>
        windows
          .filter(window => window.begin <= moment && moment < window.begin + window.ask.maxLife && window.ask.account === ask.account)
          .reduce((sum, window) => sum + asked(window.ask), 0),
      )
      return asked(ask) + Math.max(...reserved)
    }
    const fitsKinds = this.#kinds(ask.account).every(
      ([kind, quota]) => this.#askedOf(kind, ask) === 0 || together(other => this.#askedOf(kind, other)) <= quota,
    )
    const fitsUnits = quotaUnits === 0 || together(other => this.#asked(other)) <= quotaUnits + quotaBorrow
    return fitsUnits && fitsKinds && this.#fitsWeek(ask)
  }

  /** Of reservations: in no week with the new one does the account use more than it may. */
  #fitsWeek(ask: Ask): boolean {
    const { quotaWeek = 0 } = this.#rules.accounts[ask.account] ?? {}
    if (quotaWeek === 0 || ask.from === 0) return true
    const begin = this.elapsed + ask.from
    const others = this.leases.filter(lease => lease.begin > 0 && isInQueue(lease) && lease.ask.account === ask.account)
    const windows = [...others, { ask, begin }]
    return windows.every(({ begin: end }) => {
      if (end < begin || end >= begin + DAYS_7) return true
      const within = windows.filter(window => window.begin > end - DAYS_7 && window.begin <= end)
      const reserved = within.reduce((sum, window) => sum + this.#asked(window.ask) * Math.min(DAYS_7, window.ask.maxLife), 0)
      return this.#usedInWeek(ask.account, end) + reserved <= quotaWeek
    })
  }

  /** The holder has stopped, or the waiter goes away. */
  release(id: number): void {
    const lease = this.leases.find(other => other.id === id)!
    const isNamed = lease.holds.some(({ member }) => this.members.some(({ name }) => name === member) && !this.#isPromised(member))
    const isWaiter = isInQueue(lease)
    // Its account holds less: another of its waiters may be within the quota, and fit on other members.
    const hasHeld = lease.holds.length > 0
    while (lease.holds.length > 0) this.#return(lease, lease.holds[0]!)
    this.leases = this.leases.filter(other => other !== lease)
    const isLeft = lease.promised.some(({ member }) => this.members.some(other => other.name === member && this.#room(other) > 0))
    if (isWaiter || isNamed || (isLeft && this.#rules.queue !== 'fit') || (hasHeld && this.#isPlanned())) this.#change()
  }

  #return(lease: ModelLease, piece: Piece): void {
    const account = this.#upToDate(lease.ask.account)
    if (lease.hasAdvance) account.usage = Math.max(0, account.usage - this.#advanceLeft(lease, piece.units))
    lease.holds = lease.holds.filter(other => other !== piece)
  }

  #advanceLeft({ start }: ModelLease, units: number): number {
    return usageAt({ usage: this.#penalty(units), at: start, held: 0 }, this.elapsed, this.#halfLife())
  }

  /** The holder gives back one member and keeps the rest. With the last one, it is not asked for anything any more. */
  giveBack(id: number, member: string): void {
    const lease = this.#lease(id)
    this.#return(lease, lease.holds.find(piece => piece.member === member)!)
    if (lease.holds.length === 0) endNotice(lease)
    if (!this.#isPromised(member) || this.#isPlanned()) this.#change()
  }

  /**
   * The lease goes to another holder. The claim stays as it was, and so does a notice that runs. `atOnce`: its holder has stopped; otherwise the recipient waits
   * for the members, and is served before the pool.
   */
  handOver(id: number, to: number, atOnce: boolean): void {
    const giver = this.#lease(id)
    const { holds } = giver
    const heir: ModelLease = { ...giver, id: to, hasAdvance: true, promised: atOnce ? [] : holds, holds: [], status: 'waiting' }
    giver.hasAdvance = false
    if (atOnce) this.release(id)
    else this.freeze(id)
    this.leases.push(heir)
    if (atOnce) this.#grant(heir, holds)
  }

  /** A mark: the notice has run for at least so long. */
  age(id: number, ms: number): void {
    const lease = this.#lease(id)
    if (lease.noticeRan !== undefined) lease.noticeRan = Math.max(lease.noticeRan, ms)
  }

  /** The notice has run out. Returns whether the lease ends: not if it waits for its giver to stop, and the waiter of the notice has gone. */
  noticeEnds(id: number): boolean {
    const lease = this.#lease(id)
    const isNeeded = this.leases.some(waiter => waiter.id === lease.notice && isInQueue(waiter))
    if (lease.status !== 'waiting' || isNeeded) return true
    endNotice(lease)
    return false
  }

  /** Why it may not hold its members for `by` ms longer; undefined: it does from now on. */
  extend(id: number, by: number): 'HELD' | undefined {
    const lease = this.#lease(id)
    const isWaitedFor = this.#waiting().some(
      waiter =>
        !this.#isPassedOver(waiter) &&
        lease.holds.some(({ member }) =>
          this.members.some(({ name, labels }) => name === member && fitsLabels({ labels }, waiter.ask.match)),
        ),
    )
    const maxLife = lease.ask.maxLife + by
    if (isWaitedFor || this.#robbed(endOf(lease.start, maxLife), lease.holds, lease) !== undefined) return 'HELD'
    lease.ask = { ...lease.ask, maxLife }
    return undefined
  }

  /** Returns whether a request would be granted at once. `withWaiting`: as one that joins the queue; otherwise only as one that goes before it. */
  wouldGet(id: number, ask: Ask, withWaiting: boolean): boolean {
    const trial = this.#copy()
    trial.take(id, ask, withWaiting)
    if (withWaiting) trial.serve()
    return trial.leases.some(lease => lease.id === id && lease.status !== 'waiting')
  }

  #copy(): PoolModel {
    const copy = new PoolModel(this.#rules, { servesAtOnce: false, endsWith: this.#endsWith })
    Object.assign(copy, { members: this.members, elapsed: this.elapsed, leases: this.leases.map(lease => ({ ...lease })) })
    copy.#grants = this.#grants
    for (const [name, spending] of this.#spending) copy.#spending.set(name, { ...spending })
    copy.#uses = this.#uses
    return copy
  }

  #lease(id: number): ModelLease {
    return this.leases.find(other => other.id === id)!
  }

  #change(): void {
    this.isChanged = true
    if (this.#servesAtOnce) this.serve()
  }

  /** The lease has ended, and its holder may not have stopped. */
  freeze(id: number): void {
    const lease = this.leases.find(other => other.id === id)!
    lease.status = 'frozen'
    endNotice(lease)
  }

  tick(ms: number): void {
    const [from, to] = [this.elapsed, this.elapsed + ms]
    const names = new Set(this.leases.map(({ ask }) => ask.account))
    this.#uses = [...this.#uses, ...[...names].map(account => ({ account, from, to, units: this.#held(account) }))]
    this.elapsed = to
    this.#ticks++
    for (const [name, account] of this.#spending) {
      if (sliceOf(name) !== this.#ticks % ACCOUNT_SLICES) continue
      const isIdle = !this.leases.some(lease => lease.ask.account === name && (isInQueue(lease) || lease.holds.length > 0))
      if (isIdle && usageAt({ ...account, held: 0 }, this.elapsed, this.#halfLife()) < NEGLIGIBLE) this.#spending.delete(name)
    }
    this.#change()
  }

  /** Serves all that can be served. */
  serve(): void {
    this.serveRecipients()
    this.isChanged = false
    this.#serve()
  }

  /** Recipients of transfers come before the waiters of the pool. */
  serveRecipients(): void {
    for (let next = this.#nextRecipient(); next !== undefined; next = this.#nextRecipient()) {
      const { promised } = next
      next.promised = []
      // It leaves the queue of the member before it takes it: for that moment the pool had room.
      if (this.#rules.queue !== 'fit' && promised.some(({ member }) => !this.#isPromised(member))) this.isChanged = true
      // The waiter that its notice is for may have gone while it waited.
      if (next.notice !== 0) this.isChanged = true
      this.#grant(next, promised)
    }
  }

  /** The usage of each account that has one, at this time. */
  usage(): Record<string, number> {
    return Object.fromEntries([...this.#spending.keys()].sort().map(name => [name, this.#share(name).usage]))
  }

  #nextRecipient(): ModelLease | undefined {
    const recipients = this.leases.filter(({ promised }) => promised.length > 0).sort((a, b) => a.id - b.id)
    return recipients.find((recipient, i) =>
      recipient.promised.every(({ member, units }) => {
        const isLate = recipients.slice(0, i).some(({ promised }) => promised.some(piece => piece.member === member))
        const { units: all } = this.members.find(({ name }) => name === member)!
        return this.#used(member) + units <= all && (!isLate || this.#rules.queue === 'fit')
      }),
    )
  }

  /** One line for each lease: what the kernel must agree with. */
  picture(): string[] {
    return this.leases.map(({ id, status, holds, yields, borrows, notice }) => {
      const pieces = holds.map(({ member, units }) => `${member}*${units}`).sort()
      return `${id} ${status} ${pieces.join(' ')}${yields ? ' yields' : ''}${borrows ? ' borrows' : ''}${notice === 0 ? '' : ` for ${notice}`}`
    })
  }

  /** The waiters in the order of service. */
  queue(): number[] {
    return this.#order().map(({ id }) => id)
  }

  // Shares and quotas

  #isPlanned(): boolean {
    const { queue, preempt } = this.#rules
    return queue === 'backfill' || queue === 'fair' || preempt || this.#hasQuotas()
  }

  #hasQuotas(): boolean {
    const { accounts, kinds } = this.#rules
    const own = Object.values(accounts).some(({ quotaUnits = 0, quotaWeek = 0 }) => quotaUnits + quotaWeek > 0)
    return own || Object.values(kinds).some(quotas => Object.keys(quotas).length > 0)
  }

  #halfLife(): number {
    const { shareHalfLife, preempt } = this.#rules
    return preempt ? Math.min(shareHalfLife, PREEMPTING_HALF_LIFE) : shareHalfLife
  }

  #penalty(units: number): number {
    return units * Math.min(this.#rules.sharePenalty, Math.floor(this.#halfLife() / 4))
  }

  #held(account: string): number {
    return this.leases.filter(({ ask }) => ask.account === account).reduce((sum, lease) => sum + unitsOf(lease), 0)
  }

  #upToDate(name: string): Spending {
    const { usage, at } = this.#spending.get(name) ?? { usage: 0, at: 0 }
    const now = { usage: usageAt({ usage, at, held: this.#held(name) }, this.elapsed, this.#halfLife()), at: this.elapsed }
    this.#spending.set(name, now)
    return now
  }

  #share(name: string): { usage: number; held: number; weight: number } {
    const { usage, at } = this.#spending.get(name) ?? { usage: 0, at: 0 }
    const held = this.#held(name)
    const now = usageAt({ usage, at, held }, this.elapsed, this.#halfLife())
    return { usage: now, held, weight: this.#rules.accounts[name]?.shareWeight ?? 100 }
  }

  /** Whole members count as the largest that matches. */
  #asked({ total = 0, units = 0, count = 1, match }: Ask): number {
    if (total > 0) return total
    return (
      count * (units > 0 ? units : Math.max(1, ...this.members.filter(member => fitsLabels(member, match)).map(member => member.units)))
    )
  }

  /** `before`: as if this request of the same account were granted first. */
  #standing(ask: Ask, before?: Ask): 'within' | 'borrowed' | 'over' {
    const { quotaUnits = 0, quotaBorrow = 0, quotaWeek = 0 } = this.#rules.accounts[ask.account] ?? {}
    if (quotaWeek > 0 && this.#usedInWeek(ask.account, this.elapsed) >= quotaWeek) return 'over'
    const asks = before === undefined ? [ask] : [before, ask]
    for (const [kind, quota] of this.#kinds(ask.account)) {
      const asked = asks.reduce((sum, each) => sum + this.#askedOf(kind, each), 0)
      if (asked > 0 && this.#heldOf(kind, ask.account) + asked > quota) return 'over'
    }
    const after = this.#held(ask.account) + asks.reduce((sum, each) => sum + this.#asked(each), 0)
    return quotaUnits === 0 || after <= quotaUnits ? 'within' : after <= quotaUnits + quotaBorrow ? 'borrowed' : 'over'
  }

  #kinds(account: string): (readonly [kind: string, quota: number])[] {
    return Object.entries(this.#rules.kinds[account] ?? {})
  }

  /** The most units of a kind that the request could get if all members were free. */
  #askedOf(kind: string, { total = 0, units = 0, count = 1, match }: Ask): number {
    const fitting = this.members.filter(member => kindOf(member) === kind && fitsLabels(member, match)).map(member => member.units)
    const all = fitting.reduce((sum, each) => sum + each, 0)
    return Math.min(all, total > 0 ? total : count * (units > 0 ? units : Math.max(0, ...fitting)))
  }

  #heldOf(kind: string, account: string): number {
    const names = this.members.filter(member => kindOf(member) === kind).map(({ name }) => name)
    const pieces = this.leases.filter(({ ask }) => ask.account === account).flatMap(({ holds }) => holds)
    return pieces.filter(({ member }) => names.includes(member)).reduce((sum, { units }) => sum + units, 0)
  }

  /** Unit-milliseconds: of the step of six hours at `now`, and of the 28 before it. */
  #usedInWeek(account: string, now: number): number {
    const since = Math.floor(now / HOURS_6) * HOURS_6 - DAYS_7
    const own = this.#uses.filter(use => use.account === account && use.to > since)
    return own.reduce((sum, { from, to, units }) => sum + units * (to - Math.max(from, since)), 0)
  }

  #waiting(): ModelLease[] {
    return this.leases.filter(isInQueue).sort((a, b) => a.rank - b.rank || a.id - b.id)
  }

  #order(): ModelLease[] {
    const left = this.#waiting()
    if (this.#rules.queue !== 'fair') return left
    const shares = new Map(left.map(({ ask }) => [ask.account, this.#share(ask.account)]))
    const order: ModelLease[] = []
    const key = ({ ask, rank, id, begin }: ModelLease): number[] => {
      const { usage, held, weight } = shares.get(ask.account)!
      const [byUse, byHold] = [Math.floor(usage / weight), held / weight]
      // Reservations come first, in the order of their windows.
      const late = begin > 0 ? 0 : 1
      if (late === 0) return [late, rank, id]
      return this.#rules.preempt ? [late, byHold, byUse, rank, id] : [late, byUse, byHold, rank, id]
    }
    while (left.length > 0) {
      // Of each account only the first waiter is next.
      const firsts = left.filter(waiter => left.find(({ ask }) => ask.account === waiter.ask.account) === waiter)
      const next = firsts.reduce((best, waiter) => (isLess(key(waiter), key(best)) ? waiter : best))
      order.push(next)
      left.splice(left.indexOf(next), 1)
      if (this.#isPassedOver(next) || this.#standing(next.ask) !== 'within') continue
      const share = shares.get(next.ask.account)!
      const units = this.#asked(next.ask)
      shares.set(next.ask.account, { ...share, usage: share.usage + this.#penalty(units), held: share.held + units })
    }
    return order
  }

  #isPassedOver({ ask, begin }: ModelLease): boolean {
    return begin > this.elapsed || !this.isPossible(ask)
  }

  // Members

  #used(name: string, except: readonly ModelLease[] = []): number {
    const pieces = this.leases.filter(lease => !except.includes(lease)).flatMap(({ holds }) => holds)
    return pieces.filter(({ member }) => member === name).reduce((sum, { units }) => sum + units, 0)
  }

  /** A recipient of a transfer that waits for the member comes before the pool. */
  #room = ({ name, units }: ModelMember): number => (this.#isPromised(name) ? 0 : Math.max(0, units - this.#used(name)))

  /** A recipient of a transfer that waits for the member comes before the pool. */
  #isPromised(name: string): boolean {
    return this.#rules.queue !== 'fit' && this.#isNamed(name)
  }

  #isNamed(name: string): boolean {
    return this.leases.some(({ promised }) => promised.some(({ member }) => member === name))
  }

  #choose(ask: Ask, members: readonly ModelMember[], roomOf: (member: ModelMember) => number): Piece[] | undefined {
    const { near, match } = ask
    const open = members
      .map(member => ({ ...member, room: roomOf(member) }))
      .filter(member => member.room > 0 && fitsLabels(member, match))
      .sort((a, b) => a.room - b.room || (a.name < b.name ? -1 : 1))
    if (near === undefined) return pick(ask, open)
    const values = [...new Set(open.flatMap(({ labels }) => labels[near] ?? []))]
    const groups = values.map(value => ({ value, group: open.filter(({ labels }) => labels[near] === value) }))
    const size = (group: typeof open) => group.reduce((sum, { room }) => sum + room, 0)
    const able = groups.filter(({ group }) => pick(ask, group) !== undefined)
    able.sort((a, b) => size(a.group) - size(b.group) || (a.value < b.value ? -1 : 1))
    return able[0] && pick(ask, able[0].group)
  }

  #fits(ask: Ask, ended: readonly ModelLease[], avoid: readonly Ask[] = []): boolean {
    const members = this.members.filter(member => !this.#isNamed(member.name) && !avoid.some(({ match }) => fitsLabels(member, match)))
    return this.#choose(ask, members, ({ name, units }) => units - this.#used(name, ended)) !== undefined
  }

  // Reservations

  #reserved(): ModelLease[] {
    return this.#waiting().filter(({ begin }) => begin > this.elapsed)
  }

  /** The reservation that would find too little at its beginning, if these pieces were held until then. */
  #robbed(until: number, taken: readonly Piece[], except?: ModelLease): ModelLease | undefined {
    const windows = this.#waiting().filter(({ begin }) => begin > 0)
    windows.sort((a, b) => a.begin - b.begin || a.id - b.id)
    return windows.find(window => {
      if (window.begin <= this.elapsed || window.begin >= until) return false
      const stays = this.leases.filter(lease => lease !== except && !lease.yields && endOf(lease.start, lease.ask.maxLife) > window.begin)
      const gone = [...stays.flatMap(({ holds }) => holds), ...taken]
      const room = ({ name, units }: ModelMember) =>
        Math.max(0, units - gone.filter(({ member }) => member === name).reduce((sum, piece) => sum + piece.units, 0))
      for (const other of windows) {
        if (other.begin > window.begin || window.begin >= other.begin + other.ask.maxLife) continue
        const gets = this.#choose(other.ask, this.members, room)
        if (other === window) return gets === undefined
        gone.push(...(gets ?? []))
      }
      return false
    })
  }

  /** Of the free members, what the lease would get without taking from a reservation. */
  #offered({ ask }: ModelLease, yields = false): Piece[] | undefined {
    const chosen = this.#choose(ask, this.members, this.#room)
    if (chosen === undefined || this.#reserved().length === 0) return chosen
    const until = endOf(this.elapsed, ask.maxLife)
    const robbed = this.#robbed(until, yields ? [] : chosen)
    if (robbed === undefined) return chosen
    const rest = this.members.filter(member => !fitsLabels(member, robbed.ask.match))
    const others = this.#choose(ask, rest, this.#room)
    return others === undefined || this.#robbed(until, others) !== undefined ? undefined : others
  }

  // Service

  #give(lease: ModelLease, chosen: readonly Piece[], yields: boolean): void {
    const units = chosen.reduce((sum, piece) => sum + piece.units, 0)
    const { quotaUnits = 0, quotaBorrow = 0 } = this.#rules.accounts[lease.ask.account] ?? {}
    const after = this.#held(lease.ask.account) + units
    const account = this.#upToDate(lease.ask.account)
    account.usage += this.#penalty(units)
    Object.assign(lease, { start: this.elapsed, yields })
    this.#grant(lease, chosen)
    lease.borrows = quotaUnits > 0 && after > quotaUnits && after <= quotaUnits + quotaBorrow
  }

  #grant(lease: ModelLease, pieces: readonly Piece[]): void {
    this.#upToDate(lease.ask.account)
    this.#grants += pieces.length
    Object.assign(lease, { status: 'held', holds: pieces, age: this.#grants })
  }

  #serve(): void {
    for (;;) {
      const { next, blocked } = this.#plan()
      if (next !== undefined) this.#give(next.waiter, next.chosen, next.yields)
      else {
        if (this.#isPlanned()) this.#review(blocked)
        return
      }
    }
  }

  #plan(): {
    readonly next?: { readonly waiter: ModelLease; readonly chosen: readonly Piece[]; readonly yields: boolean }
    readonly blocked: readonly ModelLease[]
  } {
    const { queue } = this.#rules
    const all: ModelLease[] = []
    const isListed = (waiter: ModelLease) => all.some(({ ask }) => needs(ask) === needs(waiter.ask))
    const block = (waiter: ModelLease) => void (isListed(waiter) || all.push(waiter))
    /** Free members that no blocked waiter could use. */
    const apart = () => this.members.filter(member => this.#room(member) > 0 && !all.some(({ ask }) => fitsLabels(member, ask.match)))
    const chooseApart = (waiter: ModelLease) => {
      const chosen = this.#choose(waiter.ask, apart(), this.#room)
      const isKept = chosen !== undefined && this.#robbed(endOf(this.elapsed, waiter.ask.maxLife), chosen) !== undefined
      return isKept ? undefined : chosen
    }
    const mayGoOn = () => all.length === 0 || (queue !== 'fifo' && (queue !== 'fair' || apart().length > 0))
    const candidates = this.#order().filter(waiter => !this.#isPassedOver(waiter) && this.#standing(waiter.ask) !== 'over')
    const borrowers: ModelLease[] = []
    for (const waiter of candidates) {
      if (this.#standing(waiter.ask) === 'borrowed') {
        borrowers.push(waiter)
        continue
      }
      // Borrowers behind this point would overtake a waiter that may not even be tried.
      if (!mayGoOn()) break
      if (all.length === 0 || queue === 'fit') {
        const chosen = this.#offered(waiter)
        if (chosen !== undefined) return { next: { waiter, chosen, yields: false }, blocked: all }
      } else if (!all.some(({ ask }) => ask.account === waiter.ask.account && this.#standing(ask, waiter.ask) !== 'within')) {
        const own = chooseApart(waiter)
        if (own !== undefined) return { next: { waiter, chosen: own, yields: false }, blocked: all }
        const chosen = queue === 'backfill' && this.#mayOvertake(waiter, all[0]!) ? this.#offered(waiter, true) : undefined
        if (chosen !== undefined) return { next: { waiter, chosen, yields: true }, blocked: all }
      }
      block(waiter)
    }
    const blocked = [...all]
    for (const waiter of borrowers) {
      const chosen = chooseApart(waiter)
      if (chosen !== undefined) return { next: { waiter, chosen, yields: false }, blocked }
      if (queue === 'fifo' || !mayGoOn()) break
      block(waiter)
    }
    return { blocked }
  }

  #endingSoon(): ModelLease[] {
    return this.leases.filter(lease => lease.holds.length > 0 && (lease.status === 'frozen' || isNoticed(lease)))
  }

  /** It would end before the head could start; or it may be preempted. Never while the head starts as soon as those end that must. */
  #mayOvertake({ ask }: ModelLease, head: ModelLease): boolean {
    const soon = this.leases.filter(lease => this.#endingSoon().includes(lease) || (lease.yields && comesBefore(head, lease)))
    if (this.#fits(head.ask, soon)) return false
    if (ask.preemptible) return true
    const ends = this.leases
      .filter(lease => lease.status !== 'waiting' && !soon.includes(lease))
      .map(lease => ({ lease, at: expectedEnd(lease, this.elapsed) }))
      .filter(({ at }) => at < Number.POSITIVE_INFINITY)
      .sort((a, b) => a.at - b.at)
    const last = ends.findIndex((_, i) => this.#fits(head.ask, [...soon, ...ends.slice(0, i + 1).map(({ lease }) => lease)]))
    return last >= 0 && ask.expect > 0 && this.elapsed + ask.expect <= ends[last]!.at
  }

  // Preemption

  #review(blocked: readonly ModelLease[]): void {
    const noticed = this.leases.filter(isNoticed).sort((a, b) => a.age - b.age)
    for (const lease of noticed) {
      const waiter = this.leases.find(({ id, status }) => id === lease.notice && status === 'waiting')
      const others = this.#endingSoon().filter(other => other !== lease)
      if (waiter === undefined || this.#fits(waiter.ask, others)) endNotice(lease)
    }
    const { queue, preempt, preemptNotice } = this.#rules
    if (!preempt && queue !== 'backfill') return
    const upcoming = this.#reserved().filter(({ begin }) => begin - this.elapsed <= preemptNotice)
    const waiters = [...upcoming, ...blocked]
    const soon = this.#endingSoon()
    const ended: ModelLease[] = []
    for (const [i, waiter] of waiters.entries()) {
      if (ended.some(({ id }) => this.#endsWith(waiter.id, id))) continue
      const avoid = waiters.slice(0, i).map(({ ask }) => ask)
      if (this.#fits(waiter.ask, soon, avoid)) continue
      const open = this.members.filter(
        member =>
          !this.#isNamed(member.name) && fitsLabels(member, waiter.ask.match) && !avoid.some(({ match }) => fitsLabels(member, match)),
      )
      const near = waiter.ask.near
      const useful = open.filter(({ labels }) => near === undefined || labels[near] !== undefined).map(({ name }) => name)
      const candidates = this.#victims(waiter).filter(({ holds }) => holds.some(({ member }) => useful.includes(member)))
      const chosen = subsets(candidates).find(victims => this.#fits(waiter.ask, [...soon, ...victims], avoid))
      for (const victim of chosen ?? []) {
        if (preemptNotice === 0) {
          victim.status = 'frozen'
          ended.push(victim)
        } else Object.assign(victim, { notice: waiter.id, noticeRan: 0 })
        soon.push(victim)
      }
    }
  }

  /** The leases that may be preempted for a waiter, the youngest first. */
  #victims(waiter: ModelLease): ModelLease[] {
    const { queue, preempt, minHold, accounts } = this.#rules
    const { account, priority } = waiter.ask
    const units = this.#asked(waiter.ask)
    const lost = this.leases.filter(isNoticed)
    const found: ModelLease[] = []
    const refund = (lease: ModelLease) => this.#advanceLeft(lease, unitsOf(lease))
    const mayEnd = (lease: ModelLease) => lease.status === 'held' && !isNoticed(lease) && !this.#endsWith(waiter.id, lease.id)
    for (const lease of this.leases.filter(mayEnd).sort((a, b) => b.age - a.age)) {
      const theirs = lease.ask
      const before = [...lost, ...found].filter(({ ask }) => ask.account === theirs.account)
      const giver = this.#share(theirs.account)
      const held = giver.held - before.reduce((sum, other) => sum + unitsOf(other), 0)
      const isOld = preempt && this.elapsed - lease.start >= minHold && theirs.priority <= priority
      const mayTake = () => {
        const taker = this.#share(account)
        if ((taker.held + units) * giver.weight <= (held - unitsOf(lease)) * taker.weight) return true
        if (taker.held * giver.weight >= held * taker.weight) return false
        const spent = Math.floor((taker.usage + this.#penalty(units) + LEAST_LEAD) / taker.weight)
        const left = giver.usage - [...before, lease].reduce((sum, other) => sum + refund(other), 0)
        return spent <= Math.floor(Math.max(0, left) / giver.weight)
      }
      const isVictim =
        (lease.yields && comesBefore(waiter, lease)) ||
        (isOld && theirs.preemptible && priority > theirs.priority) ||
        (isOld && theirs.account !== account && lease.borrows && held > (accounts[theirs.account]?.quotaUnits ?? 0)) ||
        (isOld && theirs.account !== account && queue === 'fair' && theirs.preemptible && mayTake())
      if (isVictim) found.push(lease)
    }
    return found
  }
}

function isInQueue({ status, promised }: ModelLease): boolean {
  return status === 'waiting' && promised.length === 0
}

function isNoticed({ status, notice, holds }: ModelLease): boolean {
  return status === 'held' && notice !== 0 && holds.length > 0
}

function endNotice(lease: ModelLease): void {
  lease.notice = 0
  lease.noticeRan = undefined
}

function kindOf({ labels }: ModelMember): string | undefined {
  return labels.kind ?? labels.model
}

function fitsLabels({ labels }: Pick<ModelMember, 'labels'>, match: readonly PoolCondition[]): boolean {
  return match.every(condition => passes(labels, condition))
}

/** Of members that are ordered by room, then by name. */
function pick({ count = 1, units = 0, total = 0 }: Ask, open: readonly (ModelMember & { readonly room: number })[]): Piece[] | undefined {
  if (total === 0) {
    const able = open.filter(member => member.room >= (units === 0 ? member.units : units))
    if (able.length < count) return undefined
    return able.slice(0, count).map(member => ({ member: member.name, units: units === 0 ? member.units : units }))
  }
  const pieces: Piece[] = []
  const large = [...open].sort((a, b) => b.room - a.room || (a.name < b.name ? -1 : 1))
  for (let rest = total; rest > 0; ) {
    // The smallest that holds the rest; else the largest, whole.
    const left = large.filter(({ name }) => !pieces.some(({ member }) => member === name))
    const enough = left.filter(({ room }) => room >= rest).sort((a, b) => a.room - b.room || (a.name < b.name ? -1 : 1))
    const next = enough[0] ?? left[0]
    if (next === undefined) return undefined
    pieces.push({ member: next.name, units: Math.min(rest, next.room) })
    rest -= Math.min(rest, next.room)
  }
  return pieces
}

function needs({ count = 1, units = 0, total = 0, match, near = '' }: Ask): string {
  return JSON.stringify([total > 0 ? 0 : count, units, total, match, near])
}

function unitsOf({ holds }: ModelLease): number {
  return holds.reduce((sum, { units }) => sum + units, 0)
}

function endOf(start: number, maxLife: number): number {
  return maxLife === 0 ? Number.POSITIVE_INFINITY : start + maxLife
}

function expectedEnd({ start, ask: { expect, maxLife } }: ModelLease, now: number): number {
  const life = Math.min(...[expect, maxLife].filter(ms => ms > 0))
  return life === Number.POSITIVE_INFINITY ? life : Math.max(now, start + life)
}

function comesBefore(one: ModelLease, other: ModelLease): boolean {
  return one.rank < other.rank || (one.rank === other.rank && one.id < other.id)
}

function isLess(one: readonly number[], other: readonly number[]): boolean {
  const at = one.findIndex((value, i) => value !== other[i])
  return at >= 0 && one[at]! < other[at]!
}

/** All subsets, smaller ones first, and of equal size those with earlier items first. */
function subsets<T>(items: readonly T[]): T[][] {
  const all = Array.from({ length: 2 ** items.length }, (_, bits) => items.map((_, i) => i).filter(i => ((bits >> i) & 1) === 1))
  all.sort((a, b) => a.length - b.length || (isLess(a, b) ? -1 : 1))
  return all.map(places => places.map(place => items[place]!))
}
