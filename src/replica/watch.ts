/** The watches of a replica: the events of each revision in order, or `resync` where some are no longer kept. */
import { unlessAborted } from '../clock.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { normalPrefix } from '../kernel/name.ts'
import { movedAway } from '../kernel/rule/move.ts'
import type { WatchOptions } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import type { IdleMode } from './idle-mode.ts'
import type { Lifetime } from './lifetime.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'
import type { EventFilter } from './recent-events.ts'

export interface WatchSource {
  readonly log: Log
  readonly outbox: Outbox
  readonly lifetime: Lifetime
  readonly idleMode: Pick<IdleMode, 'need'>
}

export async function* watchEvents(
  { log, outbox, lifetime, idleMode }: WatchSource,
  prefix: string,
  { after, types, grouped = false, lazy = false, signal }: WatchOptions,
): AsyncGenerator<readonly Event[], void, void> {
  using _following = { [Symbol.dispose]: lazy ? () => {} : idleMode.need() }
  // The watcher has seen more than this replica: catch up first.
  if (after !== undefined && after > log.state.revision)
    try {
      await unlessAborted(outbox.readToEnd(), signal)
    } catch (error) {
      if (signal.aborted) return
      throw error
    }
  let revision = after ?? log.state.revision
  const wanted = filterOf(prefix, types)
  using changes = log.changes(signal, normalPrefix(prefix), wanted, types)
  while (!signal.aborted) {
    lifetime.assertOpen()
    // The copy of leases that are being moved in has other revisions than this log had before, until they are in force.
    const missed = log.state.floor === undefined ? log.after(revision, wanted) : { revisions: [], upTo: revision }
    if (missed === undefined) {
      revision = log.state.revision
      yield [{ revision, type: 'resync', lease: 0, at: log.state.wall }]
      continue
    }
    for (const events of grouped && missed.revisions.length > 0 ? [missed.revisions.flat()] : missed.revisions) {
      yield events
      if (signal.aborted) return
    }
    if (missed.upTo === revision) {
      // While leases are being moved, nothing happens in either log: the watch waits.
      if (log.state.moved !== undefined && log.state.moved !== '') throw refusedError(movedAway(log.state, log.state.moved))
      await changes.next()
    }
    revision = Math.max(missed.upTo, changes.seen)
  }
}

function filterOf(prefix: string, types: readonly EventType[] | undefined): EventFilter | undefined {
  const root = normalPrefix(prefix)
  const inside = `${root}/`
  if (root === '') return types && (event => types.includes(event.type))
  return ({ type, resource, key }) => {
    const name = resource ?? key ?? ''
    return types?.includes(type) !== false && (name === root || name.startsWith(inside))
  }
}
