/** The status line of a command that waits on a terminal: who holds the resource, for how long, and the command's place in the queue. */
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
  readonly resource: string
  /** The text for a place in the queue. @default who holds the resource, and for how long */
  readonly describe?: (position: number | undefined) => Promise<string>
}

export function waitingLine({ leases, out, resource, describe }: WaitingLineOptions): WaitingLine {
  const { clock, lessor } = leases
  const terminal = isatty(2) && !out.json
  let position: number | undefined
  let shown = false
  let ended = false
  let cancel = () => {}

  const describeResource = async (position: number | undefined) => {
    const view = await lessor.read({ kind: 'resource', resource }).catch(() => undefined)
    return waitingText(resource, view?.value, position, clock.wall())
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

  return {
    update: place => {
      if (out.json && position !== place.position) out.note('waiting', { resource, ...place })
      position = place.position
      if (terminal) void draw()
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
      : `${first.status === 'frozen' ? 'frozen for' : 'held by'} ${first.holder}${others.length > 0 ? ` and ${others.length} more` : ''} for ${inWords(Math.max(0, now - first.since))}`
  const place = position === undefined ? '' : position === 0 ? ', you are next' : `, ${position} ahead of you`
  return `waiting for ${resource}: ${who}${place}`
}
