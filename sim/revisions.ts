/** Checks S13: revisions have no gaps, and watchers see every event of every revision. */
import type { Event } from '../src/kernel/event.ts'
import type { LogView } from './log-view.ts'
import type { World } from './world.ts'

export class RevisionChecker {
  readonly #world: World
  readonly #log: LogView
  /** The events that watchers must see, in order. */
  #revisions: { readonly revision: number; readonly events: readonly Event[] }[] = []
  readonly #place = new Map<number, number>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  add(events: readonly Event[]): void {
    const { revision } = this.#log.state
    this.#place.set(revision, this.#revisions.length)
    this.#revisions.push({ revision, events: events.slice() })
  }

  /** The log lost records: the rest is replayed. */
  lose(): void {
    this.#revisions = []
    this.#place.clear()
  }

  /** A watcher at revision `after` received the events of the next revision. */
  watched(after: number, events: readonly Event[], losses: number): void {
    if (losses !== this.#log.losses) return
    const revision = events[0]!.revision
    const place = this.#place.get(revision)
    if (place === undefined) return this.#world.violate('S13', `a watcher saw revision ${revision}, which is not in the log`)
    const expected = this.#revisions[place]!
    if (expected.events.length !== events.length)
      this.#world.violate('S13', `a watcher saw ${events.length} of ${expected.events.length} events of revision ${revision}`)
    const previous = place === 0 ? undefined : this.#revisions[place - 1]!.revision
    if (previous !== undefined && after < previous && this.#place.has(after))
      this.#world.violate('S13', `a watcher went from revision ${after} to ${revision} and missed ${previous}`)
  }
}
