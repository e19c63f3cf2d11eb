/** The history of a run: the notes that each process wrote at the time, and the records of the log. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Event } from '../../../src/kernel/event.ts'

/** All times are the machine's monotonic clock in ms, which its processes share. */
interface At {
  readonly t: number
  readonly who: string
}

export type Note = At &
  (
    | { readonly kind: 'begins'; readonly pid: number }
    | { readonly kind: 'believes'; readonly lease: number; readonly tokens: Readonly<Record<string, number>>; readonly until: number }
    /** `lease.held` was true when read at this time or a little later. */
    | { readonly kind: 'held'; readonly lease: number }
    /** An acknowledged renewal that was sent at `sent`. */
    | { readonly kind: 'renewed'; readonly lease: number; readonly sent: number; readonly ttl: number }
    /** The holder stops using the lease, before it sends the release. */
    | { readonly kind: 'releasing'; readonly lease: number }
    /** The lease's signal fired. */
    | { readonly kind: 'lost'; readonly lease: number; readonly code: string; readonly message: string }
    /** A probe: a resource that one holder requests once, without a retry. */
    | { readonly kind: 'asks'; readonly resource: string }
    | { readonly kind: 'answered'; readonly resource: string; readonly outcome: string; readonly lease?: number; readonly token?: number }
    | { readonly kind: 'error'; readonly what: string; readonly code: string; readonly message: string }
    /** The replica has stopped for good. */
    | { readonly kind: 'stopped'; readonly code: string; readonly message: string }
    | { readonly kind: 'rests' }
    | { readonly kind: 'state'; readonly index: number; readonly hash: string }
  )

/** One record of the log, as it was applied. */
export interface Logged {
  readonly index: number
  /** The record was in the log at this time at the latest. */
  readonly by: number
  /** Identifies the batch. Undefined: not applied, because it had been applied before or came too late. */
  readonly batch: string | undefined
  readonly events: readonly Event[]
}

export interface History {
  readonly notes: readonly Note[]
  readonly log: readonly Logged[]
  /** Records are missing from `log`: the observer fell so far behind that they had been trimmed. */
  readonly gap: boolean
}

/** Ignores the last line of a file, which a killed process may not have finished. The process did not act on that note. */
export function readNotes(folder: string): Note[] {
  const notes: Note[] = []
  for (const file of readdirSync(folder)) {
    const lines = readFileSync(join(folder, file), 'utf8').split('\n')
    for (const line of lines.slice(0, -1)) notes.push(JSON.parse(line))
  }
  return notes.sort((a, b) => a.t - b.t)
}
