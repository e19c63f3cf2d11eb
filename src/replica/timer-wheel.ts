/**
 * A timer wheel: alarms lie in buckets of a few milliseconds, and only the next bucket needs a real timer.
 *
 * A renewal moves the deadline of an alarm and nothing else; the alarm stays in its old bucket and moves to the right one when that bucket comes up.
 * So a renewal costs the same with a thousand leases and with a million.
 */
import type { CountdownBucket } from '../kernel/state/lease-state.ts'

export interface WheelAlarm {
  /** Set by the wheel; `undefined`: the alarm is in no bucket. */
  bucket: CountdownBucket | undefined
  /** The index in the bucket, so that the alarm can be removed without a search. */
  place: number
}

export class TimerWheel<A extends WheelAlarm> {
  readonly #grain: number
  readonly #buckets = new Map<number, CountdownBucket>()
  /** A binary heap of the ticks that have a bucket. */
  readonly #ticks: number[] = []
  #size = 0

  constructor(grain = 10) {
    this.#grain = grain
  }

  get size(): number {
    return this.#size
  }

  /** Takes `alarm` at `time`, or with the earlier bucket that it already lies in. Never before `time` otherwise. */
  set(alarm: A, time: number): void {
    const tick = Math.ceil(time / this.#grain)
    if (alarm.bucket !== undefined) {
      if (alarm.bucket.tick <= tick) return
      this.remove(alarm)
    }
    let bucket = this.#buckets.get(tick)
    if (bucket === undefined) {
      bucket = { tick, alarms: [] }
      this.#buckets.set(tick, bucket)
      this.#push(tick)
    }
    alarm.bucket = bucket
    alarm.place = bucket.alarms.length
    bucket.alarms.push(alarm)
    this.#size++
  }

  remove(alarm: A): void {
    const { bucket } = alarm
    if (bucket === undefined) return
    const last = bucket.alarms.pop()!
    if (last !== alarm) {
      bucket.alarms[alarm.place] = last
      last.place = alarm.place
    }
    alarm.bucket = undefined
    this.#size--
  }

  /** The time of the next bucket; undefined when there is none. */
  next(): number | undefined {
    for (;;) {
      const tick = this.#ticks[0]
      if (tick === undefined) return undefined
      if (this.#buckets.get(tick)!.alarms.length > 0) return tick * this.#grain
      this.#pop()
      this.#buckets.delete(tick)
    }
  }

  /** Removes and returns alarms whose bucket has come up, at most `most`. The caller decides which are due and sets the others again. */
  take(now: number, most = Number.POSITIVE_INFINITY): A[] {
    const taken: A[] = []
    for (let next = this.next(); next !== undefined && next <= now && taken.length < most; next = this.next()) {
      const tick = this.#ticks[0]!
      const bucket = this.#buckets.get(tick)!
      const room = most - taken.length
      // The last ones of a bucket that is too large, so that the others keep their places.
      const alarms = bucket.alarms.length <= room ? bucket.alarms : bucket.alarms.splice(bucket.alarms.length - room)
      if (alarms === bucket.alarms) {
        this.#pop()
        this.#buckets.delete(tick)
      }
      this.#size -= alarms.length
      for (const alarm of alarms) {
        alarm.bucket = undefined
        taken.push(alarm as A)
      }
    }
    return taken
  }

  #push(tick: number): void {
    const heap = this.#ticks
    let at = heap.push(tick) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (heap[above]! <= tick) break
      heap[at] = heap[above]!
      at = above
    }
    heap[at] = tick
  }

  #pop(): void {
    const heap = this.#ticks
    const last = heap.pop()!
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let below = at * 2 + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && heap[below + 1]! < heap[below]!) below++
      if (heap[below]! >= last) break
      heap[at] = heap[below]!
      at = below
    }
    heap[at] = last
  }
}
