/** What happened, as each process wrote it down at the time, and what stands in the log. */
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
    /** `lease.held` was true, asked at this moment or a little later. */
    | { readonly kind: 'held'; readonly lease: number }
    /** Acknowledged; it was sent at `sent`. */
    | { readonly kind: 'renewed'; readonly lease: number; readonly sent: number; readonly ttl: number }
    /** Its holder stops believing by itself, before it says so. */
    | { readonly kind: 'releasing'; readonly lease: number }
    /** The lease's signal fired. */
    | { readonly kind: 'lost'; readonly lease: number; readonly code: string; readonly message: string }
    /** A name that is asked for once, by one, without a retry. */
    | { readonly kind: 'asks'; readonly resource: string }
    | { readonly kind: 'told'; readonly resource: string; readonly outcome: string; readonly lease?: number; readonly token?: number }
    | { readonly kind: 'error'; readonly what: string; readonly code: string; readonly message: string }
    /** The replica will never answer again. */
    | { readonly kind: 'stopped'; readonly code: string; readonly message: string }
    | { readonly kind: 'rests' }
    | { readonly kind: 'state'; readonly index: number; readonly hash: string }
  )

/** One entry of the log, as it was applied. */
export interface Logged {
  readonly index: number
  /** It stood in the log at this moment at the latest. */
  readonly by: number
  /** Undefined: it was not applied, since it had been before, or came too late. */
  readonly entry: string | undefined
  readonly events: readonly Event[]
}

export interface History {
  readonly notes: readonly Note[]
  readonly log: readonly Logged[]
  /** Entries are missing from `log`: whoever followed it fell so far behind that they had been trimmed. */
  readonly gap: boolean
}

/** The last line of a process that was killed may be torn: it was never finished, so it was never believed in. */
export function readNotes(folder: string): Note[] {
  const notes: Note[] = []
  for (const file of readdirSync(folder)) {
    const lines = readFileSync(join(folder, file), 'utf8').split('\n')
    for (const line of lines.slice(0, -1)) notes.push(JSON.parse(line))
  }
  return notes.sort((a, b) => a.t - b.t)
}
