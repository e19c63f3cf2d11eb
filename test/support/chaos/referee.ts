/**
 * Checks a recorded history against the invariants of docs/guarantees.md. It knows less than the referee of the simulator, since true time
 * is not known here: a record was in the log at the latest when the observer first read it. It reports only certain violations.
 */

import { ELSEWHERE, type Event } from '../../../src/kernel/event.ts'
import { isLossCause } from '../../../src/kernel/loss-cause.ts'
import type { History, Note } from './history.ts'

/** The clock drift that the product allows for. All processes of a run share one clock. */
const RHO = 0.005
/** The part of a term by which a holder stops early. */
const MARGIN = 2 * RHO
const ENDS = new Set<Event['type']>(['released', 'lapsed', 'revoked', 'transferred', 'withdrawn'])

export interface Violation {
  readonly invariant: string
  readonly message: string
}

export interface Interval {
  readonly who: string
  readonly lease: number
  readonly resource: string
  readonly token: number
  readonly from: number
  readonly to: number
}

/** The intervals in which each holder believed to hold a resource. For a process that was killed or paused, until its deadline. */
export function beliefs(notes: readonly Note[]): Interval[] {
  interface Open {
    readonly who: string
    readonly lease: number
    readonly tokens: Readonly<Record<string, number>>
    readonly from: number
    deadline: number
    seen: number
    ended: number
  }
  const open = new Map<number, Open>()
  for (const note of notes) {
    if (note.kind === 'believes') {
      const { who, lease, tokens, t, until } = note
      open.set(lease, { who, lease, tokens, from: t, deadline: until, seen: t, ended: Number.POSITIVE_INFINITY })
    }
    const belief = 'lease' in note ? open.get(note.lease!) : undefined
    if (belief === undefined) continue
    if (note.kind === 'renewed' && note.t < belief.ended) belief.deadline = Math.max(belief.deadline, note.sent + note.ttl * (1 - MARGIN))
    // What `lease.held` returned counts, whatever was computed here.
    if (note.kind === 'held') belief.seen = Math.max(belief.seen, note.t)
    if (note.kind === 'releasing' || note.kind === 'lost') belief.ended = Math.min(belief.ended, note.t)
  }
  return [...open.values()].flatMap(({ who, lease, tokens, from, deadline, seen, ended }) =>
    Object.entries(tokens).map(([resource, token]) => {
      const to = Math.max(seen, Math.min(deadline, ended))
      return { who, lease, resource, token, from, to }
    }),
  )
}

export function judge({ notes, log, gap }: History): Violation[] {
  const found: Violation[] = []
  const violate = (invariant: string, message: string) => found.push({ invariant, message })

  // S1
  const held = beliefs(notes)
  for (const resource of new Set(held.map(interval => interval.resource))) {
    // Ignore leases that were over when they arrived: on a busy machine a process may wait between the answer and reading the clock.
    const intervals = held.filter(({ from, to, ...of }) => of.resource === resource && to > from).sort((a, b) => a.from - b.from)
    let last: Interval | undefined
    for (const interval of intervals) {
      if (last !== undefined && interval.from < last.to && interval.lease !== last.lease)
        violate(
          'S1',
          `${last.who} (lease ${last.lease}) and ${interval.who} (lease ${interval.lease}) both believed to hold ${resource} for ${(last.to - interval.from).toFixed(1)} ms`,
        )
      if (last === undefined || interval.to > last.to) last = interval
    }
  }

  // S3, S24, and the maps that the other checks use
  const granted = new Map<string, { readonly lease: number; readonly token: number }[]>()
  const tokens = new Map<number, number>()
  const ended = new Map<
    number,
    { readonly type: string; readonly cause: string | undefined; readonly by: number; readonly index: number }
  >()
  const applied = new Set<string>()
  let highest = 0
  for (const { index, by, batch, events } of log) {
    if (batch !== undefined && applied.has(batch)) violate('S24', `batch ${batch} was applied again at ${index}`)
    if (batch !== undefined) applied.add(batch)
    for (const { type, lease, resource, token, cause } of events) {
      if (type === 'granted' && resource !== undefined && token !== undefined) {
        if (token <= highest) violate('S3', `token ${token} of ${resource} follows ${highest}`)
        highest = Math.max(highest, token)
        if (ended.has(lease)) violate('S6', `lease ${lease} was granted ${resource} after it had ended`)
        tokens.set(token, lease)
        granted.set(resource, [...(granted.get(resource) ?? []), { lease, token }])
      }
      if (ENDS.has(type) && cause !== ELSEWHERE && !ended.has(lease)) ended.set(lease, { type, cause, by, index })
    }
  }

  // S9: every acknowledged grant is in the log
  for (const { who, lease, resource, token } of held)
    if (!gap && tokens.get(token) !== lease) violate('S9', `${who} was granted ${resource} with token ${token}, which is not in the log`)

  // S4 and S6: an acknowledged renewal extends the lease, and no ended lease is renewed
  for (const note of notes) {
    if (note.kind !== 'renewed') continue
    const end = ended.get(note.lease)
    if (end === undefined) continue
    const earliest = note.sent + note.ttl / (1 + RHO)
    if (end.type === 'lapsed' && !isLossCause(end.cause ?? '') && end.by < earliest)
      violate('S4', `lease ${note.lease} lapsed ${(earliest - end.by).toFixed(1)} ms before a renewal acknowledged to ${note.who} was over`)
    if (end.by < note.sent)
      violate('S6', `lease ${note.lease} had ended (${end.type}) ${(note.sent - end.by).toFixed(1)} ms before it was renewed`)
  }

  // S12, S9 and S11, by the probes
  for (const note of notes) {
    if (note.kind !== 'answered') continue
    const grants = granted.get(note.resource) ?? []
    if (note.outcome === 'UNAVAILABLE' && grants.length > 0)
      violate('S12', `${note.who} received UNAVAILABLE for ${note.resource}, although it was granted`)
    if (note.outcome === 'granted' && !gap && !grants.some(({ lease, token }) => lease === note.lease && token === note.token))
      violate('S9', `${note.who} received a grant of ${note.resource} that is not in the log`)
    if (grants.length > 1) violate('S11', `${note.resource} was requested once and granted ${grants.length} times`)
    if (note.outcome === 'BROKEN') violate('S12', `${note.who} requested ${note.resource} and received an error without a code`)
  }

  // S22
  const hashes = new Map<number, { readonly hash: string; readonly who: string }>()
  for (const note of notes) {
    if (note.kind !== 'state') continue
    const known = hashes.get(note.index)
    if (known !== undefined && known.hash !== note.hash)
      violate('S22', `${known.who} and ${note.who} have applied ${note.index} records and differ`)
    hashes.set(note.index, note)
  }

  for (const note of notes) {
    if (note.kind === 'stopped') violate('S24', `${note.who} stopped for good: ${note.code} ${note.message}`)
    if (note.kind === 'error' && note.code === 'BROKEN') violate('errors', `${note.who}: ${note.message}`)
  }
  return found
}
