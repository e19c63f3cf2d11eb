/**
 * The events that the page has: the newest few thousand, in a list of bounded length. Events that arrive together are handed on once per animation frame, so
 * that a thousand a second cost sixty updates a second and no more.
 */
import { signal } from '@preact/signals'
import type { Event } from '../wire/http/client.ts'

/** Events that are kept. */
export const KEPT_EVENTS = 2_000
/** How long events wait while the tab is hidden, when there are no animation frames, in ms. */
const HIDDEN_DELAY = 1_000

let kept: Event[] = []
let incoming: Event[] = []
let planned = false
const listeners = new Set<(events: readonly Event[]) => void>()

/** Counts the batches. A component that reads it is drawn again when events have come. */
export const batches = signal(0)
/** The newest revision that the page knows. */
export const revision = signal(0)

/** The kept events, oldest first. */
export function keptEvents(): readonly Event[] {
  return kept
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
  kept = kept.length + events.length > KEPT_EVENTS ? [...kept, ...events].slice(-KEPT_EVENTS) : [...kept, ...events]
  for (const listener of listeners) listener(events)
  revision.value = Math.max(revision.value, events.at(-1)!.revision)
  batches.value++
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
  revision.value = 0
  batches.value++
}
