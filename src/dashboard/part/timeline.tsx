/** Past and present holders of a resource on an axis of time: one bar for each holder, hatched where the resource was withheld after a holder had lost it. */
import type { VNode } from 'preact'
import { second, serverNow } from '../clock.ts'
import { duration, exactTime, hueOf, timeOfDay, visible } from '../format.ts'

export interface Span {
  readonly from: number
  /** Undefined: it goes on. */
  readonly until?: number | undefined
  /** The holder; undefined: frozen. */
  readonly holder?: string | undefined
  /** It ended for this cause. */
  readonly cause?: string | undefined
  /** The command that ran meanwhile has failed in this way. */
  readonly failed?: string
  readonly key: string
}

/** Bars that overlap, as of shared holders, are put into lanes; not more than this many. */
const MAX_LANES = 6

export function Timeline({ spans, label }: { readonly spans: readonly Span[]; readonly label: string }): VNode | null {
  second.value // the present grows
  if (spans.length === 0) return null
  const now = serverNow()
  const begin = Math.min(...spans.map(({ from }) => from))
  const end = Math.max(now, ...spans.map(({ until = now }) => until))
  const whole = Math.max(1_000, end - begin)
  const at = (time: number) => (100 * (time - begin)) / whole
  const lanes = assignLanes(spans, now)
  const ticks = Array.from({ length: 5 }, (_, i) => begin + (whole * i) / 4)
  return (
    <div class="timeline">
      <ol aria-label={label} style={{ height: `${Math.max(1, ...lanes.map(lane => lane + 1)) * 30}px` }}>
        {spans.map(({ from, until, holder, cause, failed, key }, i) => {
          const width = Math.max(0.15, at(until ?? now) - at(from))
          const who = holder === undefined ? 'frozen' : visible(holder)
          const ended = until === undefined ? 'now' : `${cause === undefined ? '' : `${cause}, `}${exactTime(until)}`
          return (
            <li
              key={key}
              class={holder === undefined ? 'frozen' : `hue-${hueOf(holder)}`}
              data-open={until === undefined}
              data-failed={failed !== undefined}
              title={`${who}: ${duration((until ?? now) - from)}, from ${exactTime(from)} to ${ended}${failed === undefined ? '' : `, failed: ${failed}`}`}
              style={{ left: `${at(from)}%`, width: `${width}%`, top: `${lanes[i]! * 30}px` }}
            >
              <span>
                {failed === undefined ? '' : '✗ '}
                {who}
                {failed === undefined ? '' : `, ${failed}`}
              </span>
            </li>
          )
        })}
      </ol>
      <div class="axis" aria-hidden="true">
        {ticks.map((tick, i) => (
          <span key={String(i)}>{i === 4 ? 'now' : timeOfDay(tick)}</span>
        ))}
      </div>
    </div>
  )
}

function assignLanes(spans: readonly Span[], now: number): number[] {
  const ends: number[] = []
  return spans.map(({ from, until = now }) => {
    let lane = ends.findIndex(end => end <= from + 1)
    if (lane < 0) lane = Math.min(ends.length, MAX_LANES - 1)
    ends[lane] = Math.max(until, ends[lane] ?? 0)
    return lane
  })
}
