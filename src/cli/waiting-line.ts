/** While a command waits on a terminal: one line, always the same one, that says who has it, for how long, and our place in the queue. */
import { isatty } from 'node:tty'
import { inWords } from '../duration.ts'
import type { Leases } from '../leases.ts'
import type { ResourceView } from '../lessor.ts'
import { clean, type Output, write } from './output.ts'

const EVERY = 1_000

export interface WaitingLine {
  readonly place: (place: { readonly lease: number; readonly position: number }) => void
  /** Takes the line away. */
  end(): void
}

export function waitingLine({ leases, out, resource }: { leases: Leases; out: Output; resource: string }): WaitingLine {
  const { clock, lessor } = leases
  const terminal = isatty(2) && !out.json
  let position: number | undefined
  let shown = false
  let over = false
  let cancel = () => {}

  const draw = async () => {
    cancel()
    const found = await lessor.read({ kind: 'resource', resource }).catch(() => undefined)
    if (over) return
    const text = clean(inOneLine(resource, found?.value, position, clock.wall()))
    const columns = process.stderr.columns || 80 // 0 is what a terminal says that nobody has given a size
    write(`\r\u001b[K${[...text].slice(0, columns - 1).join('')}`)
    shown = true
    cancel = clock.after(EVERY, () => void draw())
  }

  return {
    place: place => {
      if (out.json && position !== place.position) out.note('waiting', { resource, ...place })
      position = place.position
      if (terminal) void draw()
    },
    end: () => {
      over = true
      cancel()
      if (shown) write('\r\u001b[K')
    },
  }
}

export function inOneLine(resource: string, view: ResourceView | undefined, position: number | undefined, now: number): string {
  const [first, ...others] = view?.grants ?? []
  const who =
    first === undefined
      ? 'it is not granted yet'
      : `${first.status === 'frozen' ? 'frozen for' : 'held by'} ${first.holder}${others.length > 0 ? ` and ${others.length} more` : ''} for ${inWords(Math.max(0, now - first.since))}`
  const place = position === undefined ? '' : position === 0 ? ', you are next' : `, ${position} before you`
  return `waiting for ${resource}: ${who}${place}`
}
