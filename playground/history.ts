/** The recent past of a world, as a picture needs it: bars, messages and marks. Older parts are forgotten, so that a world can run for hours. */

/** The past that is kept, in ms of true time. */
export const KEPT = 90_000
/** The most items of each kind. */
const MOST = 6_000

/** The lease, and the plain lock beside it. */
export type Side = 'lease' | 'plain'

/** A claim on a resource over time: in a queue, or held. */
export interface Bar {
  readonly lane: string
  readonly side: Side
  readonly state: 'waiting' | 'held'
  readonly label: string
  readonly from: number
  /** The number of the lease; 0 for the plain lock, and for a waiter that has no number yet. */
  lease: number
  readonly token: number
  /** The end by the clocks of its process; infinity if the process knows no end. */
  deadline: number
  /** When it ended, and how. */
  ended: number | undefined
  how: string
  /** Reads the end by the clocks of the process again. Undefined once the bar has ended. */
  look: (() => number) | undefined
}

export interface Message {
  readonly from: string
  readonly to: string
  readonly side: Side
  readonly text: string
  readonly sentAt: number
  readonly arrivesAt: number
  readonly isLost: boolean
}

export type MarkKind = 'accepted' | 'refused' | 'overwrote' | 'event' | 'loss' | 'violation'

export interface Mark {
  readonly lane: string
  readonly side: Side
  readonly kind: MarkKind
  readonly at: number
  /** The token that was shown, or the turn of a holder of the plain lock. */
  readonly token: number
  readonly text: string
}

/** A condition of a lane over time: paused, dead, cut off. */
export interface Condition {
  readonly lane: string
  readonly kind: 'paused' | 'suspended' | 'dead' | 'cut' | 'stopped' | 'quiet'
  readonly from: number
  to: number | undefined
}

/** An act of a person. */
export interface Note {
  readonly at: number
  readonly text: string
}

export class History {
  bars: Bar[] = []
  messages: Message[] = []
  marks: Mark[] = []
  conditions: Condition[] = []
  notes: Note[] = []
  /** Counted from the beginning, by side and kind of mark. */
  readonly counts = new Map<string, number>()
  /** Grants from the beginning, in order, at most `MOST`: which process held when. */
  readonly tenures: { readonly lane: string; readonly side: Side; readonly label: string; readonly at: number }[] = []

  bar(bar: Bar): Bar {
    this.bars.push(bar)
    if (bar.state === 'held' && this.tenures.length < MOST)
      this.tenures.push({ lane: bar.lane, side: bar.side, label: bar.label, at: bar.from })
    return bar
  }

  mark(mark: Mark): void {
    this.marks.push(mark)
    const name = `${mark.side} ${mark.kind}`
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1)
  }

  count(side: Side, kind: MarkKind): number {
    return this.counts.get(`${side} ${kind}`) ?? 0
  }

  begin(lane: string, kind: Condition['kind'], from: number, to?: number): void {
    this.conditions.push({ lane, kind, from, to })
  }

  end(lane: string, kinds: readonly Condition['kind'][], at: number): void {
    for (const condition of this.conditions)
      if (condition.lane === lane && kinds.includes(condition.kind) && (condition.to ?? Number.POSITIVE_INFINITY) > at) condition.to = at
  }

  /** Reads the clocks of all holders, and forgets what is too old to be shown. */
  update(now: number): void {
    for (const bar of this.bars) if (bar.look !== undefined) bar.deadline = bar.look()
    const since = now - KEPT
    const recent = <T>(items: T[], at: (item: T) => number): T[] =>
      items.length > MOST || (items.length > 0 && at(items[0]!) < since) ? items.filter(item => at(item) >= since).slice(-MOST) : items
    this.bars = recent(this.bars, bar => bar.ended ?? now)
    this.messages = recent(this.messages, ({ arrivesAt }) => arrivesAt)
    this.marks = recent(this.marks, ({ at }) => at)
    this.conditions = recent(this.conditions, ({ to }) => to ?? now)
    this.notes = recent(this.notes, ({ at }) => at)
  }

  get size(): number {
    return this.bars.length + this.messages.length + this.marks.length + this.conditions.length + this.notes.length
  }
}
