/** Reads of a view: at once, again soon after an event that concerns them, and every few seconds, because renewals cause no events. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Event } from '../wire/http/client.ts'
import { onEvents } from './live.ts'
import { epoch, get, messageOf } from './server.ts'

/** Ms between two reads of one view, at least. */
const PACE = 500

export interface Reading<T> {
  readonly data: T | undefined
  /** Why there is nothing newer. */
  readonly error: string | undefined
  /** When the server read its clock for the data, by `performance.now()`. */
  readonly at: number
}

export interface ReadingOptions {
  /** Ms between two reads without an event. @default 3000 */
  readonly every?: number
  /** Which events change the answer. @default every event */
  readonly about?: (event: Event) => boolean
}

const NOTHING = { data: undefined, error: undefined, at: 0 }

/** The answer of a GET, kept current while the component is shown. An undefined path reads nothing. */
export function useReading<T>(path: string | undefined, { every = 3_000, about }: ReadingOptions = {}): Reading<T> {
  const [reading, setReading] = useState<Reading<T> & { readonly path: string | undefined }>({ ...NOTHING, path })
  const concerns = useRef(about)
  concerns.current = about
  const { value: era } = epoch
  // A layout effect, because others run after the next frame: the reader would wait for it.
  useLayoutEffect(() => {
    if (path === undefined) return
    return repeat(
      every,
      event => concerns.current?.(event) ?? true,
      async end => {
        try {
          const sent = performance.now()
          const data = await get<T>(path, end)
          if (!end.aborted) setReading({ data, error: undefined, at: midway(sent), path })
        } catch (error) {
          if (!end.aborted) setReading(last => ({ ...(last.path === path ? last : NOTHING), error: messageOf(error), path }))
        }
      },
    )
  }, [path, every, era])
  return reading.path === path ? reading : NOTHING
}

/** The middle between `sent` and now: the server has read its clock at about that time. */
export function midway(sent: number): number {
  return (sent + performance.now()) / 2
}

/** Runs `read` now, after events that concern it, and every `every` ms; never twice at a time, nor faster than the pace. Returns a function that ends this. */
export function repeat(every: number, concerns: (event: Event) => boolean, read: (end: AbortSignal) => Promise<void>): () => void {
  const end = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  let reading = false
  let changed = false
  let began = 0
  const run = async () => {
    if (reading || end.signal.aborted) return
    if (document.hidden) {
      plan(every)
      return
    }
    reading = true
    changed = false
    began = performance.now()
    await read(end.signal)
    reading = false
    plan(changed ? PACE : every)
  }
  const plan = (ms: number) => {
    clearTimeout(timer)
    if (!end.signal.aborted) timer = setTimeout(run, Math.max(0, began + ms - performance.now()))
  }
  const stop = onEvents(events => {
    if (changed || !events.some(concerns)) return
    changed = true
    if (!reading) plan(PACE)
  })
  const shown = () => {
    if (!document.hidden) plan(0)
  }
  document.addEventListener('visibilitychange', shown)
  void run()
  return () => {
    stop()
    document.removeEventListener('visibilitychange', shown)
    clearTimeout(timer)
    end.abort()
  }
}
