/**
 * The events that the dashboard has: the newest few thousand, in a list of bounded length. Events that arrive together are handed on once per animation frame, so
 * that a thousand a second cost sixty updates a second and no more. What people read changes less often still.
 */
import { signal } from '@preact/signals'
import type { Event } from '../wire/http/client.ts'
import { paced } from './pace.ts'

/** Events that are kept. */
export const KEPT_EVENTS = 2_000
/** Events wait this long while the tab is hidden, when there are no animation frames, in ms. */
const HIDDEN_DELAY = 1_000
/** Ms between two changes of the shown revision. A change in every frame would make the browser lay out the whole document in every frame. */
const REVISION_PACE = 250

/** Up to twice as many as are kept, so that most batches are only appended. */
let kept: Event[] = []
let incoming: Event[] = []
let planned = false
const listeners = new Set<(events: readonly Event[]) => void>()

let newest = 0
/** The newest revision that the dashboard knows, a moment late. */
export const revision = signal(0)
const showRevision = paced(REVISION_PACE, () => (revision.value = newest))

/** The kept events, oldest first. */
export function keptEvents(): readonly Event[] {
  return kept.slice(-KEPT_EVENTS)
}

export function receive(events: readonly Event[]): void {
  for (const event of events) incoming.push(event)
  if (incoming.length > 2 * KEPT_EVENTS) incoming = incoming.slice(-KEPT_EVENTS)
  if (planned) return
  planned = true
  if (document.hidden) setTimeout(handOn, HIDDEN_DELAY)
  else requestAnimationFrame(handOn)
}

function handOn(): void {
  planned = false
  const events = incoming
  incoming = []
  if (events.length === 0) return
  for (const event of events) kept.push(event)
  if (kept.length > 2 * KEPT_EVENTS) kept = kept.slice(-KEPT_EVENTS)
  for (const listener of listeners) listener(events)
  newest = Math.max(newest, events.at(-1)!.revision)
  showRevision.ask()
}

// A tab that was hidden hands on at once what has come meanwhile.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) handOn()
})

/** Calls `listener` with each batch of new events. Returns a function that ends this. */
export function onEvents(listener: (events: readonly Event[]) => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function forgetEvents(): void {
  kept = []
  incoming = []
  newest = 0
  showRevision.end()
  revision.value = 0
}
