/**
 * An index of all registered instances, built from entries and events, and searched by service, capability and tag. It does no I/O: its owner
 * feeds it the entries and events under `services`.
 */
import type { Event } from '../kernel/event.ts'
import type { EntryView } from '../lessor.ts'
import { partsOf, type RegistrationData, readCheck, readRegistration, readState, SERVICES } from './entry.ts'
import { KnownInstance } from './known-instance.ts'
import { type Filter, type Instance, type InstanceMatcher, matcherOf, matches, nearestFirst } from './match.ts'
import { FilteredView } from './view.ts'

/** One instance came, changed or went. */
export interface Change {
  readonly type: 'added' | 'changed' | 'removed'
  /** The instance as it is now; a removed one as it was. */
  readonly instance: Instance
}

/** Called for each change. `before` is undefined for a new instance, `after` for a removed one. */
export type DirectoryListener = (known: KnownInstance, before: Instance | undefined, after: Instance | undefined) => void

/** All instances, and indexes over them. */
export class Directory {
  readonly #known = new Map<string, KnownInstance>()
  readonly #services = new Map<string, Set<KnownInstance>>()
  readonly #capabilities = new Map<string, Set<KnownInstance>>()
  readonly #tags = new Map<string, Set<KnownInstance>>()
  readonly #preserved = new Map<string, string>()
  readonly #listeners = new Set<DirectoryListener>()
  /** Weak: a program that calls `discover` in a loop must not leak views. */
  readonly #views = new Set<WeakRef<FilteredView>>()
  #revision = 0
  #listed = 0

  /** All changes up to this revision were applied. */
  get revision(): number {
    return this.#revision
  }

  get size(): number {
    return this.#listed
  }

  /** The services in self-preservation, whose lapses are slowed, and the reason for each. */
  get preserved(): ReadonlyMap<string, string> {
    return this.#preserved
  }

  /** The number of views that are still referenced. */
  get views(): number {
    for (const view of this.#views) if (view.deref() === undefined) this.#views.delete(view)
    return this.#views.size
  }

  /** Replaces everything by `entries`, all entries under `services`. Listeners hear only of differences. `preserved`: services and reasons. */
  load(entries: readonly EntryView[], revision: number, preserved: Iterable<readonly [string, string]> = []): void {
    const fresh = new Map<string, KnownInstance>()
    for (const { key, value, lease, holder, status, suppressed, revision: changed } of entries) {
      const known = this.#put(fresh, key, value, lease, holder, changed)
      if (known?.lease !== lease) continue
      known.suspect ||= status === 'suspect'
      known.suppressed ||= suppressed
    }
    for (const [key, known] of this.#known) {
      if (fresh.has(key)) continue
      this.#change(known, () => {
        known.registration = undefined
      })
      this.#known.delete(key)
    }
    for (const [key, next] of fresh) {
      const known = this.#known.get(key) ?? new KnownInstance(key)
      this.#known.set(key, known)
      const { text, lease, holder, revision, suspect, suppressed, state, check } = next
      const registration = known.text === text ? known.registration : next.registration
      this.#change(known, () => Object.assign(known, { text, registration, lease, holder, revision, suspect, suppressed, state, check }))
    }
    this.#preserved.clear()
    for (const [service, reason] of preserved) this.#preserved.set(service, reason)
    this.#revision = revision
  }

  /** Applies all events of one revision under `services`. After `resync` call `load` instead. */
  apply(events: readonly Event[]): void {
    const touched = new Set<KnownInstance>()
    for (const { type, key = '', value = '', lease, holder = '', cause = '', revision } of events) {
      this.#revision = Math.max(this.#revision, revision)
      if (type === 'preserving') this.#preserved.set(key.slice(SERVICES.length + 1), preservedText(cause))
      else if (type === 'relaxed') this.#preserved.delete(key.slice(SERVICES.length + 1))
      const known =
        type === 'put' ? this.#put(this.#known, key, value, lease, holder, revision) : this.#applyEvent(type, key, lease, revision)
      if (known !== undefined) touched.add(known)
    }
    for (const known of touched) {
      this.#change(known, () => {})
      if (known.empty) this.#known.delete(known.key)
    }
  }

  #put(
    to: Map<string, KnownInstance>,
    key: string,
    value: string,
    lease: number,
    holder: string,
    revision: number,
  ): KnownInstance | undefined {
    const parts = partsOf(key)
    if (parts === undefined) return undefined
    const name = `${parts.service}/${parts.instance}`
    const known = to.get(name) ?? new KnownInstance(name)
    to.set(name, known)
    if (parts.part === 'state') known.state = { lease, value: readState(value) }
    else if (parts.part === 'check') {
      const result = readCheck(value)
      known.check = result === undefined ? undefined : { lease, value: result }
    } else {
      // A successor starts neither suspect nor suppressed. If it is, an event of the same revision says so.
      if (known.lease !== lease) Object.assign(known, { suspect: false, suppressed: false })
      if (known.text !== value) Object.assign(known, { text: value, registration: readRegistration(key, value) })
      Object.assign(known, { lease, holder })
    }
    known.revision = Math.max(known.revision, revision)
    return known
  }

  #applyEvent(type: Event['type'], key: string, lease: number, revision: number): KnownInstance | undefined {
    const parts = partsOf(key)
    const known = parts === undefined ? undefined : this.#known.get(`${parts.service}/${parts.instance}`)
    if (parts === undefined || known === undefined) return undefined
    if (type === 'deleted') {
      if (parts.part === 'state' && known.state?.lease === lease) known.state = undefined
      else if (parts.part === 'check' && known.check?.lease === lease) known.check = undefined
      else if (parts.part === '') Object.assign(known, { text: '', registration: undefined, lease: 0, suspect: false, suppressed: false })
    } else if (parts.part !== '') return undefined
    else if (type === 'suspected' || type === 'recovered') known.suspect = type === 'suspected'
    else if (type === 'suppressed' || type === 'reused') known.suppressed = type === 'suppressed'
    else return undefined
    known.revision = Math.max(known.revision, revision)
    return known
  }

  #change(known: KnownInstance, change: () => void): void {
    const before = known.listed ? known.instance : undefined
    change()
    const after = known.refresh()
    if (before === undefined && after === undefined) return
    if (before !== undefined && after !== undefined && same(before, after)) return
    if (before?.capabilities !== after?.capabilities || before?.tags !== after?.tags) {
      if (before !== undefined) this.#removeFromIndexes(known, before)
      if (after !== undefined) this.#addToIndexes(known, after)
    }
    for (const ref of this.#views) ref.deref()?.changed(known, before, after) ?? this.#views.delete(ref)
    for (const listener of this.#listeners) listener(known, before, after)
  }

  #addToIndexes(known: KnownInstance, { service, capabilities, tags }: RegistrationData): void {
    this.#listed++
    add(this.#services, service, known)
    for (const capability of capabilities) add(this.#capabilities, capability, known)
    for (const tag of tags) add(this.#tags, tag, known)
  }

  #removeFromIndexes(known: KnownInstance, { service, capabilities, tags }: RegistrationData): void {
    this.#listed--
    remove(this.#services, service, known)
    for (const capability of capabilities) remove(this.#capabilities, capability, known)
    for (const tag of tags) remove(this.#tags, tag, known)
  }

  /** Calls `listener` for each change. Returns a function that ends this. */
  listen(listener: DirectoryListener): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  get(service: string, instance: string): Instance | undefined {
    const known = this.#known.get(`${service}/${instance}`)
    return known?.listed === true ? known.instance : undefined
  }

  /** All services and the number of their instances, by name. */
  services(): readonly { readonly service: string; readonly instances: number }[] {
    const all = [...this.#services].map(([service, { size }]) => ({ service, instances: size }))
    return all.sort((a, b) => (a.service < b.service ? -1 : 1))
  }

  /** Nearest first, then by name. */
  list(filter: Filter = {}): Instance[] {
    const matcher = matcherOf(filter)
    const found: Instance[] = []
    for (const { instance } of this.search(matcher)) found.push(instance)
    return nearestFirst(matcher.zone, found)
  }

  /** A view that stays up to date while it is referenced. */
  view(filter: Filter, random: () => number): FilteredView {
    const view = new FilteredView(matcherOf(filter), random, matcher => this.search(matcher))
    this.#views.add(new WeakRef(view))
    return view
  }

  /** Scans only the smallest index group that contains all matches. */
  *search(matcher: InstanceMatcher): Generator<KnownInstance, void, void> {
    let smallest: Iterable<KnownInstance> & { readonly size: number } = NONE
    let chosen = false
    const narrow = (group: Set<KnownInstance> | undefined) => {
      if (!chosen || (group?.size ?? 0) < smallest.size) smallest = group ?? NONE
      chosen = true
    }
    if (matcher.service !== undefined) narrow(this.#services.get(matcher.service))
    for (const capability of matcher.all) narrow(this.#capabilities.get(capability))
    for (const tag of matcher.tags) narrow(this.#tags.get(tag))
    if (!chosen && matcher.any.length > 0)
      narrow(new Set(matcher.any.flatMap(capability => [...(this.#capabilities.get(capability) ?? [])])))
    for (const known of chosen ? smallest : this.#known.values()) if (known.listed && matches(matcher, known.instance)) yield known
  }
}

const NONE: Set<KnownInstance> = new Set()

/** The fields of an unchanged registration are the same objects, so comparing references is enough for them. */
function same(a: Instance, b: Instance): boolean {
  return (
    a.addresses === b.addresses &&
    a.metadata === b.metadata &&
    a.capabilities === b.capabilities &&
    a.tags === b.tags &&
    a.lease === b.lease &&
    a.holder === b.holder &&
    a.status === b.status &&
    a.reason === b.reason &&
    a.load === b.load
  )
}

function add(to: Map<string, Set<KnownInstance>>, name: string, known: KnownInstance): void {
  const group = to.get(name)
  if (group === undefined) to.set(name, new Set([known]))
  else group.add(known)
}

function remove(from: Map<string, Set<KnownInstance>>, name: string, known: KnownInstance): void {
  const group = from.get(name)
  group?.delete(known)
  if (group?.size === 0) from.delete(name)
}

/** The cause of a `preserving` event, `suspect 4/20`, for people. */
function preservedText(cause: string): string {
  const [, suspect = 'some', total = 'all'] = /(\d+)\/(\d+)/.exec(cause) ?? []
  return `${suspect} of ${total} missed a renewal: lapses are slowed`
}
