/** The watches of a replica: the events of each revision in order, or `resync` where some are no longer kept. */
import { unlessAborted } from '../clock.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { under } from '../kernel/name.ts'
import type { WatchOptions } from '../lessor.ts'
import type { Follower } from './follower.ts'
import type { EventFilter } from './recent-events.ts'

export interface WatchSource {
  readonly follower: Follower
  readonly readToEnd: () => Promise<void>
  /** Throws why nothing more can follow: the replica has closed, or the leases have moved to another log. */
  readonly check: () => void
  readonly checkMoved: () => void
}

export async function* watchEvents(
  { follower, readToEnd, check, checkMoved }: WatchSource,
  prefix: string,
  { after, types, grouped = false, signal }: WatchOptions,
): AsyncGenerator<readonly Event[], void, void> {
  // The watcher has seen more than this replica: catch up first.
  if (after !== undefined && after > follower.state.revision)
    try {
      await unlessAborted(readToEnd(), signal)
    } catch (error) {
      if (signal.aborted) return
      throw error
    }
  let revision = after ?? follower.state.revision
  const wanted = filterOf(prefix, types)
  using changes = follower.changes(signal)
  while (!signal.aborted) {
    check()
    const missed = follower.after(revision, wanted)
    if (missed === undefined) {
      revision = follower.state.revision
      yield [{ revision, type: 'resync', lease: 0, at: follower.state.wall }]
      continue
    }
    for (const events of grouped && missed.revisions.length > 0 ? [missed.revisions.flat()] : missed.revisions) {
      yield events
      if (signal.aborted) return
    }
    if (missed.upTo === revision) {
      checkMoved()
      await changes.next()
    }
    revision = missed.upTo
  }
}

function filterOf(prefix: string, types: readonly EventType[] | undefined): EventFilter | undefined {
  if (types === undefined) return prefix === '' ? undefined : event => under(prefix, event.resource ?? event.key ?? '')
  return event => types.includes(event.type) && (prefix === '' || under(prefix, event.resource ?? event.key ?? ''))
}
