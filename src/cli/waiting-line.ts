/**
 * While a command waits, it says who holds the resource, for how long, and the command's place in the queue. On a terminal the line is drawn
 * again and again; elsewhere (a log, the mail of cron) it is written once, when the wait begins.
 */
import { isatty } from 'node:tty'
import { inWords } from '../duration.ts'
import type { Leases } from '../leases.ts'
import type { ResourceView } from '../lessor.ts'
import { clean, type Output, writeStderr } from './output.ts'

/** Ms between two drawings of the line. */
const REDRAW_INTERVAL = 1_000

export interface WaitingLine {
  readonly update: (place: { readonly lease: number; readonly position: number }) => void
  /** Clears the line. */
  end(): void
}

export interface WaitingLineOptions {
  readonly leases: Leases
  readonly out: Output
  readonly resources: readonly string[]
  /** The text for a place in the queue. @default who holds the resource, and for how long */
  readonly describe?: (position: number | undefined) => Promise<string>
}

export function waitingLine({ leases, out, resources, describe }: WaitingLineOptions): WaitingLine {
  const { clock, lessor } = leases
  const terminal = isatty(2) && !out.json
  let position: number | undefined
  let shown = false
  let ended = false
  let cancel = () => {}

  const describeResource = async (position: number | undefined) => {
    const views = await Promise.all(resources.map(resource => lessor.read({ kind: 'resource', resource }).catch(() => undefined)))
    const blocking = views.find(view => (view?.value.grants.length ?? 0) > 0) ?? views[0]
    return waitingText(blocking?.value.resource ?? resources[0]!, blocking?.value, position, clock.wall())
  }

  const draw = async () => {
    cancel()
    const text = clean(await (describe ?? describeResource)(position))
    if (ended) return
    const columns = process.stderr.columns || 80 // a terminal without a size reports 0
    writeStderr(`\r\u001b[K${[...text].slice(0, columns - 1).join('')}`)
    shown = true
    cancel = clock.after(REDRAW_INTERVAL, () => void draw())
  }

  const announce = async () => {
    const text = await (describe ?? describeResource)(position)
    if (!ended) out.note(text)
  }

  return {
    update: place => {
      const begins = position === undefined
      if (out.json && position !== place.position) out.note('waiting', { resource: resources.join(', '), ...place })
      position = place.position
      if (terminal) void draw()
      else if (begins && !out.json) void announce()
    },
    end: () => {
      ended = true
      cancel()
      if (shown) writeStderr('\r\u001b[K')
    },
  }
}

function waitingText(resource: string, view: ResourceView | undefined, position: number | undefined, now: number): string {
  const [first, ...others] = view?.grants ?? []
  const who =
    first === undefined
      ? 'not granted yet'
      : `it has been ${first.status === 'frozen' ? 'frozen for' : 'held by'} ${first.holder}${others.length > 0 ? ` and ${others.length} more` : ''} for ${inWords(Math.max(0, now - first.since))}`
  const place = position === undefined ? '' : position === 0 ? ', you are next' : `, ${position} ahead of you`
  return `waiting for ${resource}: ${who}${place}`
}
