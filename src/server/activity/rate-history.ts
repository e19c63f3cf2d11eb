/**
 * Counts of what happened, per second for the last minutes and per minute for the last day, in memory of a fixed size (about 70 kB).
 *
 * Time is wall time, for display. A clock that is set back adds to the newest step until it has caught up.
 */

/** Counted per step. */
export const COUNTED = ['granted', 'released', 'lapsed', 'lost', 'queued', 'recalled'] as const
/** Levels: the last value of each step. */
export const LEVELS = ['live', 'waiting'] as const
export type CountedSeries = (typeof COUNTED)[number]
export type LevelSeries = (typeof LEVELS)[number]
export type SeriesName = CountedSeries | LevelSeries

const SECOND = 1_000
const MINUTE = 60_000
/** Steps that are kept. */
export const SECONDS = 900
export const MINUTES = 1_440
const NAMES: readonly SeriesName[] = [...COUNTED, ...LEVELS]
/** Nothing is known of this step. */
const UNKNOWN = -1

/** The values of one step after another; null where nothing is known. */
export type Series = Readonly<Record<SeriesName, readonly (number | null)[]>>

export interface SeriesView {
  /** When the first step began, in ms of wall time. */
  readonly from: number
  readonly step: number
  readonly series: Series
}

/** One resolution: a ring of steps. A step is known by its number since 1970. */
class StepRing {
  readonly step: number
  readonly #size: number
  readonly #values: Readonly<Record<SeriesName, Int32Array>>
  /** The newest step that was written. */
  #newest = Number.NEGATIVE_INFINITY

  constructor(step: number, size: number) {
    this.step = step
    this.#size = size
    this.#values = Object.fromEntries(NAMES.map(name => [name, new Int32Array(size).fill(UNKNOWN)])) as Record<SeriesName, Int32Array>
  }

  /** The place of the step at this time. Steps that were skipped had no events, and the last levels. */
  placeAt(wall: number): number {
    const step = Math.floor(wall / this.step)
    if (step > this.#newest) {
      const first = this.#newest < 0 ? step : Math.max(this.#newest + 1, step - this.#size + 1)
      const known = this.#newest >= step - this.#size
      const before = this.#newest % this.#size
      for (const name of NAMES) {
        const values = this.#values[name]
        const level = isLevel(name) ? (known ? values[before]! : UNKNOWN) : 0
        for (let at = first; at <= step; at++) values[at % this.#size] = level
      }
      this.#newest = step
    }
    return this.#newest % this.#size
  }

  add(name: CountedSeries, place: number, count: number): void {
    this.#values[name][place]! += count
  }

  set(name: LevelSeries, place: number, value: number): void {
    this.#values[name][place] = value
  }

  view(wall: number, steps: number): SeriesView {
    this.placeAt(wall)
    const count = Math.min(steps, this.#size)
    const from = this.#newest - count + 1
    const series = Object.fromEntries(
      NAMES.map(name => {
        const values = this.#values[name]
        return [name, Array.from({ length: count }, (_, i) => orNull(values[(from + i) % this.#size]!))]
      }),
    ) as unknown as Series
    return { from: from * this.step, step: this.step, series }
  }

  /** Takes over the values of a view that was saved. Nothing is known of the steps between them and now. */
  restore({ from, series }: SeriesView, wall: number): void {
    const first = Math.round(from / this.step)
    this.#newest = Math.floor(wall / this.step) - 1
    for (const name of NAMES)
      for (const [i, value] of (series[name] ?? []).entries())
        if (value !== null && Number.isSafeInteger(value) && value >= 0 && value < 2 ** 31) {
          this.#values[name][(first + i) % this.#size] = value
          this.#newest = Math.max(this.#newest, first + i)
        }
  }
}

export class RateHistory {
  readonly #seconds = new StepRing(SECOND, SECONDS)
  readonly #minutes = new StepRing(MINUTE, MINUTES)

  count(name: CountedSeries, wall: number, count = 1): void {
    this.#seconds.add(name, this.#seconds.placeAt(wall), count)
    this.#minutes.add(name, this.#minutes.placeAt(wall), count)
  }

  level(name: LevelSeries, wall: number, value: number): void {
    for (const ring of [this.#seconds, this.#minutes]) ring.set(name, ring.placeAt(wall), value)
  }

  /** The last `steps` seconds or minutes. The step that is running is the last of them. */
  view(unit: 'second' | 'minute', wall: number, steps: number): SeriesView {
    return (unit === 'second' ? this.#seconds : this.#minutes).view(wall, steps)
  }

  /** Takes over the minutes of an earlier run that are younger than a day. */
  restore(minutes: SeriesView, wall: number): void {
    const oldest = (Math.floor(wall / MINUTE) - MINUTES + 1) * MINUTE
    const skipped = Math.max(0, Math.ceil((oldest - minutes.from) / MINUTE))
    const room = Math.max(0, Math.floor((wall - minutes.from) / MINUTE) + 1)
    const series = Object.fromEntries(NAMES.map(name => [name, (minutes.series[name] ?? []).slice(skipped, room)]))
    this.#minutes.restore({ from: minutes.from + skipped * MINUTE, step: MINUTE, series: series as unknown as Series }, wall)
  }
}

function isLevel(name: SeriesName): name is LevelSeries {
  return (LEVELS as readonly string[]).includes(name)
}

function orNull(value: number): number | null {
  return value === UNKNOWN ? null : value
}
