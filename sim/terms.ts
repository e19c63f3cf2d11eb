/** Checks S4, S5 and S19: no lease ends before its acknowledged term is over, and none outlives its term for long. */
import type { Event } from '../src/kernel/event.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { BREAK, FROZEN, PREEMPT, SLOTS } from '../src/kernel/state.ts'
import type { LogView } from './log-view.ts'
import { type Machine, RHO, type World } from './world.ts'

/** Until a holder has renewed once, its term is at most this. */
const FIRST_TERM = 30_000
/** An owner may propose a lapse this late if nothing delays it. */
const OWNER_LATENESS = 700

/** A server that may stall: which renewals arrived meanwhile, by lease, and its last renewals in memory. */
export interface StallableServer {
  readonly arrivedWhileStalled: ReadonlyMap<number, number>
  readonly renewals: Map<number, { readonly at: number; readonly term: number; readonly life: number; readonly losses: number }>
  readonly machine: Pick<Machine, 'lastStall' | 'life' | 'rough'>
}

/** An end that was announced for a lease: not before `soonest`, and by `latest` if the world is calm. */
interface Announced {
  readonly soonest: number
  readonly latest: number
}

export class TermChecker {
  /** In a world without stalls and losses, how late a lapse may be. */
  lateness = Number.POSITIVE_INFINITY
  /** The server whose stalls are judged, in a world where only one server can lapse leases. */
  server: StallableServer | undefined
  readonly #world: World
  readonly #log: LogView
  readonly #acks = new Map<number, { readonly sent: number; readonly term: number }>()
  readonly #terms = new Map<number, number>()
  readonly #lastRenewal = new Map<number, number>()
  /** The record with each lease's last renewal, or its grant. */
  readonly #renewedAt = new Map<number, number>()
  /** When a survivor of a loss last wrote a generation. */
  #generationAt = Number.NEGATIVE_INFINITY
  /** Leases whose last renewal is lost, until a survivor writes a generation: then every term begins again. */
  readonly #lostRenewals = new Set<number>()
  readonly #breaks = new Map<number, Announced>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  /** A lease was granted or queued. */
  begins(lease: number, ttl: number): void {
    if (this.#terms.has(lease)) return
    this.#lastRenewal.set(lease, this.#world.now)
    this.#terms.set(lease, ttl)
    if (ttl > FIRST_TERM) this.#world.violate('S5', `lease ${lease} begins with a term of ${ttl} ms, unconfirmed`)
  }

  /** A record of the log renewed a lease. */
  renewed(lease: number, ttl: number): void {
    this.#lastRenewal.set(lease, this.#world.now)
    this.#renewedAt.set(lease, this.#log.state.index)
    this.#lostRenewals.delete(lease)
    if (ttl > 0) this.#terms.set(lease, ttl)
  }

  /** A holder received the acknowledgement of a renewal or an acquisition that it sent at `sent`. */
  acknowledged(lease: number, sent: number, term: number): void {
    const ended = this.#log.ended.get(lease)
    if (ended?.type === 'lapsed' && ended.cause === 'lapsed' && ended.at < sent + term / (1 + RHO) - 0.001)
      this.#world.violate(
        'S4',
        `lease ${lease} lapsed ${(sent + term / (1 + RHO) - ended.at).toFixed(1)} ms before an acknowledged renewal of ${term} ms was over`,
      )
    const known = this.#acks.get(lease)
    if (known === undefined || sent + term > known.sent + known.term) this.#acks.set(lease, { sent, term })
  }

  /** The end of the acknowledged term of a lease in true time, by the slowest clock. No holder may believe in it for longer. */
  believableUntil(lease: number): number | undefined {
    const ack = this.#acks.get(lease)
    return ack === undefined ? undefined : ack.sent + ack.term * (1 + RHO)
  }

  forgetAcknowledged(lease: number): void {
    this.#acks.delete(lease)
  }

  generationWritten(): void {
    this.#generationAt = this.#world.now
    this.#lostRenewals.clear()
  }

  /** The longest term that a holder was promised. */
  get longest(): number {
    return Math.max(0, ...[...this.#acks.values()].map(({ term }) => term))
  }

  /** The log lost all but its first `kept` records. Some breaks are lost: the replay restores those that the log's base does not contain. */
  lose(kept: number): void {
    for (const [id, { soonest }] of this.#breaks) {
      const { timers = [], pool } = findLease(this.#log.state, id)?.extras ?? {}
      if (timers.slice(BREAK, pool === undefined ? SLOTS : PREEMPT).some(timer => timer !== undefined))
        this.#breaks.set(id, { soonest, latest: Number.POSITIVE_INFINITY })
      else this.#breaks.delete(id)
    }
    // A lease that had ended is there again after the restore of a backup, and so is its break: how much of its delay was left is not known here.
    for (const { id, extras } of this.#log.state.leases.values())
      if (
        !this.#breaks.has(id) &&
        extras?.timers?.slice(BREAK, extras.pool === undefined ? SLOTS : PREEMPT).some(timer => timer !== undefined)
      )
        this.#breaks.set(id, { soonest: 0, latest: Number.POSITIVE_INFINITY })
    for (const [lease, index] of this.#renewedAt) if (index > kept) this.#lostRenewals.add(lease)
  }

  judgeLapse({ lease, type }: Event): void {
    this.#judgeStalledLapse(lease)
    this.#judgeOwnedLapse(lease, type)
    const last = this.#lastRenewal.get(lease)
    const term = this.#terms.get(lease)
    if (last !== undefined && term !== undefined && this.#world.now > last + term * (1 + RHO) + this.lateness)
      this.#world.violate(
        'S5',
        `lease ${lease} ${type} only ${Math.round(this.#world.now - last)} ms after its last renewal, with a term of ${term} ms`,
      )
    // The grace of a suspect lease begins now.
    if (type === 'suspected') {
      this.#lastRenewal.set(lease, this.#world.now)
      this.#terms.set(lease, findLease(this.#log.state, lease)?.extras?.grace ?? 0)
    }
    const ack = this.#acks.get(lease)
    if (ack === undefined || this.#log.ended.has(lease)) return
    // Its renewal was among the records that are lost, and a replica that never saw them judges before a survivor writes a generation.
    if (this.#lostRenewals.has(lease)) return
    const earliest = ack.sent + ack.term / (1 + RHO)
    if (this.#world.now < earliest - 0.001)
      this.#world.violate(
        'S4',
        `lease ${lease} ${type} ${(earliest - this.#world.now).toFixed(1)} ms before its acknowledged renewal of ${ack.term} ms was over`,
      )
  }

  /** S19: a server reads the input that arrived during a stall before it judges any lease. */
  #judgeStalledLapse(lease: number): void {
    const arrived = this.server?.arrivedWhileStalled.get(lease)
    if (this.server === undefined || arrived === undefined) return
    // A lapse proposed before the stall may still wait behind an append that was under way. The stall did not cause it.
    const { from, to, appending } = this.server.machine.lastStall
    if (appending || arrived < from || arrived > to || this.#log.sentAt < to) return
    const ttl = findLease(this.#log.state, lease)?.ttl ?? 300
    if (this.#world.now < arrived + Math.min(ttl, 300) / (1 + RHO))
      this.#world.violate('S19', `a renewal of ${lease} waited while the server was stalled, and the lease lapsed afterwards`)
  }

  /** S5 under one owner: a stall that ended before the last renewal adds nothing to the term. Judged only if nothing else can have delayed the lapse. */
  #judgeOwnedLapse(lease: number, type: string): void {
    const { server } = this
    const renewal = server?.renewals.get(lease)
    if (server === undefined || renewal === undefined) return
    const { at, term, life, losses } = renewal
    if (type === 'suspected') server.renewals.delete(lease) // its grace begins
    const { machine } = server
    // Every term begins again with a generation; the owner may have renewed in memory before it noticed the loss.
    if (this.#generationAt > at) return
    if (life !== machine.life || losses !== this.#log.losses || machine.lastStall.to > at || machine.rough > at) return
    if (this.#log.sentAt > at + term * (1 + RHO) + OWNER_LATENESS)
      this.#world.violate(
        'S5',
        `lease ${lease} ${type} only ${Math.round(this.#log.sentAt - at)} ms after its last renewal, with a term of ${term} ms and no stall since`,
      )
  }

  // Breaks

  /** `at`: when the break was appended. After a loss the log is replayed, and delays must not begin again. */
  announceBreak(resource: string, after: number, at: number): void {
    for (const { lease } of this.#log.state.resources.get(resource)?.grants ?? []) {
      if (lease.status === FROZEN) continue
      const known = this.#breaks.get(lease.id)
      this.#breaks.set(lease.id, {
        soonest: Math.min(known?.soonest ?? Number.POSITIVE_INFINITY, at + after / (1 + RHO)),
        latest: Math.min(known?.latest ?? Number.POSITIVE_INFINITY, at + after * (1 + RHO)),
      })
    }
  }

  /** A break of the former holder continues for the recipient. Only the marks in the log say how much of its time had passed. */
  transferBreak(from: number, to: number): void {
    const { soonest } = this.#breaks.get(from) ?? {}
    if (soonest !== undefined) this.#breaks.set(to, { soonest, latest: Number.POSITIVE_INFINITY })
  }

  judgeBreak({ lease }: Event): void {
    const announced = this.#breaks.get(lease)
    if (announced !== undefined && this.#world.now < announced.soonest - 0.001)
      this.#world.violate('S4', `lease ${lease} was broken ${Math.round(announced.soonest - this.#world.now)} ms before the delay was over`)
  }

  /** A lease has ended: by then, an announced break must not be overdue. */
  judgeOverdueBreak(lease: number): void {
    const announced = this.#breaks.get(lease)
    if (announced !== undefined && this.#world.now > announced.latest + this.lateness)
      this.#world.violate('S5', `lease ${lease} was broken ${Math.round(this.#world.now - announced.latest)} ms too late`)
  }
}
