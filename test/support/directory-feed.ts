/** A directory that is fed by hand, with the events that a log would produce. */
import type { Event } from '../../src/kernel/event.ts'
import { Directory } from '../../src/registry/directory.ts'
import { entryOf, type RegistrationInput, registrationOf } from '../../src/registry/entry.ts'
import type { Filter } from '../../src/registry/match.ts'

export class DirectoryFeed {
  readonly directory = new Directory()
  revision = 0
  #lease = 0

  event(type: Event['type'], key: string, more: Partial<Event> = {}): Event {
    return { revision: this.revision, type, lease: this.#lease, holder: 'h', key, at: 0, ...more }
  }

  /** Applies the events as one revision. */
  apply(...events: (readonly [Event['type'], string, Partial<Event>?])[]): void {
    this.revision++
    this.directory.apply(events.map(([type, key, more]) => this.event(type, key, more)))
  }

  /** Returns the lease of the registration. */
  register(input: Partial<RegistrationInput> & { readonly service: string; readonly instance: string }): number {
    const { key, value } = entryOf(registrationOf({ address: 'h:1', ...input }))
    this.#lease++
    this.apply(['put', key, { value }])
    return this.#lease
  }

  state(name: string, state: object, lease?: number): void {
    this.apply(['put', `services/${name}/state`, { value: JSON.stringify(state), ...(lease !== undefined && { lease }) }])
  }

  names(filter: Filter = {}): string[] {
    return this.directory.list(filter).map(({ service, instance }) => `${service}/${instance}`)
  }
}
