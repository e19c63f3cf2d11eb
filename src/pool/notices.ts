/**
 * Notices for the users of a pool: a lease is about to end, was granted after a wait, is recalled or idle, or the window of a reservation has begun.
 *
 * A notice is found by comparing two views of the pool, with the help of the events between them. Each is given once. What holds already when the first
 * view is read is given too, with the id that it had before a restart, so that a receiver can drop what it knows.
 *
 * Not promised: a notice for what began and ended between two views.
 */
import { inWords } from '../duration.ts'
import type { Event } from '../kernel/event.ts'
import type { PoolGrantView, PoolView, PoolWaiterView } from '../lessor.ts'

export const NOTICE_KINDS = ['ending', 'granted', 'recalled', 'idle', 'reservation'] as const
export type PoolNoticeKind = (typeof NOTICE_KINDS)[number]

export interface PoolNotice {
  /** The same for the same thing: a receiver drops what it has seen. */
  readonly id: string
  readonly kind: PoolNoticeKind
  readonly pool: string
  readonly lease: number
  /** The account of the lease; without one, its holder. */
  readonly account: string
  readonly holder: string
  /** The members that the lease holds; none while it waits. */
  readonly members: readonly string[]
  /** One or two sentences for people. */
  readonly text: string
  /** Ms until the end, of `ending` and of a preemption. */
  readonly left?: number
  /** Ms that a granted request waited. */
  readonly waited?: number
  /** Ms that the busiest of its devices has been idle. */
  readonly idle?: number
  /** Who asks for the members, of `recalled`. */
  readonly by?: string
}

interface HeldMembers {
  readonly grant: PoolGrantView
  readonly members: string[]
}

/** Recalls of leases that are not in a view yet. */
const MOST_RECALLS = 10_000

export class PoolNotices {
  /** Notices of `ending` are given when so many ms are left, or half of the whole time if that is less. */
  readonly #before: number
  /** Leases that wait, with the wall time since when. */
  readonly #waiting = new Map<number, number>()
  readonly #reserved = new Set<number>()
  readonly #recalls = new Map<number, Event>()
  /** Leases that were not recalled in the last view. */
  #undisturbed: ReadonlySet<number> = new Set()
  /** The ids that were given for each lease that holds members. */
  readonly #given = new Map<number, Set<string>>()

  constructor(before: number) {
    this.#before = before
  }

  /** Takes the events of the pool since the last view. */
  saw(events: readonly Event[]): void {
    for (const event of events) {
      if (event.type === 'queued') this.#waiting.set(event.lease, this.#waiting.get(event.lease) ?? event.at)
      else if (event.type === 'withdrawn') this.#waiting.delete(event.lease)
      else if (event.type === 'recalled' && this.#recalls.size < MOST_RECALLS) this.#recalls.set(event.lease, event)
    }
  }

  /** Returns the notices that follow from a view. `idle`: the members whose hosts report them idle beyond the first stage, and for how many ms. */
  update(view: PoolView, idle: ReadonlyMap<string, number>): PoolNotice[] {
    const held = heldMembers(view)
    const notices = [...this.#reservations(view, held), ...this.#granted(view, held)]
    for (const [lease, holding] of held)
      for (const notice of [this.#ending(view, holding), this.#recalled(view, holding), this.#idle(view, holding, idle)])
        if (notice !== undefined && this.#isNew(lease, notice)) notices.push(notice)
    for (const lease of this.#given.keys()) if (!held.has(lease)) this.#given.delete(lease)
    this.#recalls.clear()
    this.#undisturbed = new Set([...held].filter(([, { grant }]) => !grant.recalled).map(([lease]) => lease))
    this.#remember(view)
    return notices
  }

  /** Returns in how many ms the next notice is due that no event announces. */
  dueIn(view: PoolView): number {
    const ends = [...heldMembers(view).values()]
      .filter(({ grant }) => grant.maxLife > 0 && leftOf(grant) > this.#threshold(grant))
      .map(({ grant }) => leftOf(grant) - this.#threshold(grant))
    return Math.min(...ends, ...view.reservations.map(({ request }) => request.from ?? 0))
  }

  #isNew(lease: number, { id, kind }: PoolNotice): boolean {
    // One period of idleness has one notice, whatever revision it is seen in.
    const key = kind === 'idle' ? kind : id
    const given = this.#given.get(lease) ?? new Set()
    this.#given.set(lease, given)
    return !given.has(key) && given.add(key) !== undefined
  }

  #threshold({ maxLife }: PoolGrantView): number {
    return Math.min(this.#before, maxLife / 2)
  }

  #remember({ queue, reservations, waiting }: PoolView): void {
    const seen = new Set(queue.map(({ lease }) => lease))
    // A gap in the events may have hidden that a waiter left.
    if (queue.length >= waiting) for (const lease of this.#waiting.keys()) if (!seen.has(lease)) this.#waiting.delete(lease)
    for (const { lease, since } of queue) this.#waiting.set(lease, since)
    this.#reserved.clear()
    for (const { lease } of reservations) this.#reserved.add(lease)
  }

  #reservations({ pool, queue, reservations }: PoolView, held: ReadonlyMap<number, HeldMembers>): PoolNotice[] {
    const ahead = new Set(reservations.map(({ lease }) => lease))
    return [...this.#reserved].flatMap((lease): PoolNotice[] => {
      if (ahead.has(lease)) return []
      const id = `${pool}:${lease}:reservation`
      const holding = held.get(lease)
      if (holding !== undefined) {
        this.#waiting.delete(lease)
        const what = namesIn(holding.members)
        const text = `${nameOf(holding.grant)}: your reservation ${lease} of ${pool} has begun, with ${what}. Use it: leasehold pool take ${pool} --reservation ${lease} -- CMD`
        return [{ id, kind: 'reservation', pool, ...about(holding), text }]
      }
      const waiter = queue.find(waiter => waiter.lease === lease)
      if (waiter === undefined) return []
      const text = `${nameOf(waiter)}: the window of your reservation ${lease} of ${pool} has begun, and it waits until its members are free`
      return [{ id, kind: 'reservation', pool, ...aboutWaiter(waiter), text }]
    })
  }

  #granted({ pool }: PoolView, held: ReadonlyMap<number, HeldMembers>): PoolNotice[] {
    return [...this.#waiting].flatMap(([lease, since]): PoolNotice[] => {
      const holding = held.get(lease)
      if (holding === undefined) return []
      this.#waiting.delete(lease)
      const waited = Math.max(0, holding.grant.since - since)
      const text = `${nameOf(holding.grant)}: you have ${namesIn(holding.members)} of ${pool} now, after ${inWords(waited)} (lease ${lease})`
      return [{ id: `${pool}:${lease}:granted`, kind: 'granted', pool, ...about(holding), waited, text }]
    })
  }

  #ending({ pool }: PoolView, holding: HeldMembers): PoolNotice | undefined {
    const { grant, members } = holding
    const { lease, maxLife } = grant
    const left = leftOf(grant)
    if (maxLife === 0 || left > this.#threshold(grant)) return undefined
    const text = `${nameOf(grant)}: your time with ${namesIn(members)} of ${pool} ends in ${inWords(left)} (lease ${lease}). To keep them longer, run: leasehold pool extend ${lease} 2h`
    // An extension gives it another end.
    return { id: `${pool}:${lease}:ending:${maxLife}`, kind: 'ending', pool, ...about(holding), left, text }
  }

  #recalled({ pool }: PoolView, holding: HeldMembers): PoolNotice | undefined {
    const { grant, members } = holding
    const event = this.#recalls.get(grant.lease)
    if (event === undefined && (!grant.recalled || this.#undisturbed.has(grant.lease))) return undefined // its event is on the way
    const { by = '', cause, value } = event ?? {}
    const left = cause === 'preempt' && /^\d{1,15}$/.test(value ?? '') ? Number(value) : undefined
    const who = by === '' ? 'another holder' : by
    const end = left === undefined ? 'Give them back soon.' : `They are taken away in ${inWords(left)}.`
    const text = `${nameOf(grant)}: ${who} asks for ${namesIn(members)} of ${pool} back (lease ${grant.lease}). ${end}`
    const more = { ...(left !== undefined && { left }), ...(by !== '' && { by }) }
    return { id: `${pool}:${grant.lease}:recalled`, kind: 'recalled', pool, ...about(holding), ...more, text }
  }

  /** A lease is as idle as the busiest of its devices. */
  #idle({ pool, elapsed }: PoolView, holding: HeldMembers, idle: ReadonlyMap<string, number>): PoolNotice | undefined {
    const { grant, members } = holding
    const times = members.map(member => idle.get(member))
    if (times.some(ms => ms === undefined)) {
      this.#given.get(grant.lease)?.delete('idle')
      return undefined
    }
    const ms = Math.min(...(times as number[]))
    const text = `${nameOf(grant)}: ${namesIn(members)} of ${pool} ${members.length === 1 ? 'has' : 'have'} been idle for ${inWords(ms)} (lease ${grant.lease}). Give back what you do not use: leasehold pool return ${grant.lease}`
    // The minute in which it became idle.
    const id = `${pool}:${grant.lease}:idle:${Math.floor((elapsed - ms) / 60_000)}`
    return { id, kind: 'idle', pool, ...about(holding), idle: ms, text }
  }
}

function heldMembers({ members }: PoolView): Map<number, HeldMembers> {
  const held = new Map<number, HeldMembers>()
  for (const { member, grants } of members)
    for (const grant of grants) {
      if (grant.status === 'frozen') continue // it has ended
      const known = held.get(grant.lease)
      if (known === undefined) held.set(grant.lease, { grant, members: [member] })
      else known.members.push(member)
    }
  return held
}

function about({ grant: { lease, account, holder }, members }: HeldMembers) {
  return { lease, account: account || holder, holder, members }
}

function aboutWaiter({ lease, account, holder }: PoolWaiterView) {
  return { lease, account: account || holder, holder, members: [] }
}

function nameOf({ account, holder }: Pick<PoolGrantView, 'account' | 'holder'>): string {
  return account || holder
}

function leftOf({ maxLife, held }: PoolGrantView): number {
  return Math.max(0, maxLife - held)
}

/** `GPU-1`, `GPU-1 and GPU-2`, `GPU-1 and 7 others`. */
function namesIn([first = 'nothing', second, ...others]: readonly string[]): string {
  if (second === undefined) return first
  return others.length === 0 ? `${first} and ${second}` : `${first} and ${others.length + 1} others`
}
