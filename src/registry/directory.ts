/**
 * All instances that are known, put together from entries and events, and found by service, capability and tag without a look at the
 * others. It asks nobody: whoever keeps one feeds it what a watch of `services/` says.
 */
import type { Event } from '../kernel/event.ts'
import type { EntryView } from '../lessor.ts'
import {
  type CheckResult,
  type InstanceState,
  type InstanceStatus,
  partsOf,
  type Registration,
  readCheck,
  readRegistration,
  readState,
  SERVICES,
  UNCHECKED,
  UNKNOWN_STATE,
} from './entry.ts'
import { type Filter, type Instance, type InstanceMatcher, inOrder, matches, wantedBy } from './match.ts'
import { FilteredView } from './view.ts'

export interface Change {
  readonly type: 'added' | 'changed' | 'removed'
  /** As it is now, or as it was when it went. */
  readonly instance: Instance
}

/** Whoever wants to hear of each change: `before` is undefined for a newcomer, `after` for one that is gone. */
export type DirectoryListener = (slot: KnownInstance, before: Instance | undefined, after: Instance | undefined) => void

/** What hangs on one lease under one key. */
interface Part<T> {
  readonly lease: number
  readonly value: T
}

/** An instance, or what has been heard of one so far. */
export class KnownInstance {
  readonly key: string
  /** As it was written, and what that means. The same text keeps the same object: that is how one sees that nothing changed. */
  text = ''
  registration: Registration | undefined
  lease = 0
  holder = ''
  revision = 0
  suspect = false
  suppressed = false
  state: Part<InstanceState> | undefined
  check: Part<CheckResult> | undefined
  /** Undefined while its registration is not there. */
  #instance: Instance | undefined

  constructor(key: string) {
    this.key = key
  }

  get instance(): Instance {
    return this.#instance!
  }

  get listed(): boolean {
    return this.#instance !== undefined
  }

  get empty(): boolean {
    return this.registration === undefined && this.state === undefined && this.check === undefined
  }

  /** What a check found, if it was this registration's. What hangs on another lease is of a predecessor. */
  get result(): CheckResult | undefined {
    return this.check?.lease === this.lease ? this.check.value : undefined
  }

  /** Works out what others see now. */
  refresh(): Instance | undefined {
    const { registration, lease, holder, revision } = this
    this.#instance = undefined
    if (registration === undefined) return undefined
    const state = this.state?.lease === lease ? this.state.value : UNKNOWN_STATE
    const check = this.result
    const unchecked = registration.check !== undefined && check === undefined
    const { service, instance, addresses, capabilities, tags, metadata, weight, zone, generation } = registration
    // Field by field: to spread a registration costs several times as much.
    this.#instance = {
      service,
      instance,
      addresses,
      capabilities,
      tags,
      metadata,
      weight,
      zone,
      generation,
      check: registration.check,
      address: addresses[0] ?? '',
      status: this.#status(state, check, unchecked),
      reason: unchecked ? UNCHECKED : (check?.reason ?? ''),
      load: state.load,
      lease,
      holder,
      revision,
    }
    return this.#instance
  }

  /** Its own will first, then what is known to be wrong, then what is feared. */
  #status({ status }: InstanceState, check: CheckResult | undefined, unchecked: boolean): InstanceStatus {
    if (status === 'maintenance' || status === 'draining') return status
    if (status === 'critical' || check?.status === 'critical') return 'critical'
    // It asked to be looked at before it is used, and may be dead on arrival.
    if (unchecked) return 'unknown'
    if (this.suspect) return 'suspect'
    if (this.suppressed) return 'suppressed'
    return status === 'warning' || check?.status === 'warning' ? 'warning' : 'passing'
  }
}

export class Directory {
  readonly #known = new Map<string, KnownInstance>()
  readonly #services = new Map<string, Set<KnownInstance>>()
  readonly #capabilities = new Map<string, Set<KnownInstance>>()
  readonly #tags = new Map<string, Set<KnownInstance>>()
  readonly #preserved = new Map<string, string>()
  readonly #listeners = new Set<DirectoryListener>()
  /** Views go when nobody has them any more: whoever discovers in a loop leaves nothing behind. */
  readonly #views = new Set<WeakRef<FilteredView>>()
  #revision = 0
  #listed = 0

  /** Everything up to here has been heard. */
  get revision(): number {
    return this.#revision
  }

  get size(): number {
    return this.#listed
  }

  /** Services whose lapses are slowed, and why. */
  get preserved(): ReadonlyMap<string, string> {
    return this.#preserved
  }

  /** Views that someone still has. */
  get views(): number {
    for (const view of this.#views) if (view.deref() === undefined) this.#views.delete(view)
    return this.#views.size
  }

  /** Begins anew with all entries under `services`. Only what differs from before is told. `preserved`: the services that are, and why. */
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
    for (const [service, why] of preserved) this.#preserved.set(service, why)
    this.#revision = revision
  }

  /** All events of one revision under `services`. Not `resync`: then everything is loaded anew. */
  apply(events: readonly Event[]): void {
    const touched = new Set<KnownInstance>()
    for (const { type, key = '', value = '', lease, holder = '', cause = '', revision } of events) {
      this.#revision = Math.max(this.#revision, revision)
      if (type === 'preserving') this.#preserved.set(key.slice(SERVICES.length + 1), cause)
      else if (type === 'relaxed') this.#preserved.delete(key.slice(SERVICES.length + 1))
      const known = type === 'put' ? this.#put(this.#known, key, value, lease, holder, revision) : this.#told(type, key, lease, revision)
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
    const own = `${parts.service}/${parts.instance}`
    const known = to.get(own) ?? new KnownInstance(own)
    to.set(own, known)
    if (parts.part === 'state') known.state = { lease, value: readState(value) }
    else if (parts.part === 'check') {
      const result = readCheck(value)
      known.check = result === undefined ? undefined : { lease, value: result }
    } else {
      // A successor begins with a clean sheet; if it has none, that is told in the same revision.
      if (known.lease !== lease) Object.assign(known, { suspect: false, suppressed: false })
      if (known.text !== value) Object.assign(known, { text: value, registration: readRegistration(key, value) })
      Object.assign(known, { lease, holder })
    }
    known.revision = Math.max(known.revision, revision)
    return known
  }

  #told(type: Event['type'], key: string, lease: number, revision: number): KnownInstance | undefined {
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
      if (before !== undefined) this.#unfile(known, before)
      if (after !== undefined) this.#file(known, after)
    }
    for (const ref of this.#views) ref.deref()?.heard(known, before, after) ?? this.#views.delete(ref)
    for (const listener of this.#listeners) listener(known, before, after)
  }

  #file(known: KnownInstance, { service, capabilities, tags }: Registration): void {
    this.#listed++
    add(this.#services, service, known)
    for (const capability of capabilities) add(this.#capabilities, capability, known)
    for (const tag of tags) add(this.#tags, tag, known)
  }

  #unfile(known: KnownInstance, { service, capabilities, tags }: Registration): void {
    this.#listed--
    remove(this.#services, service, known)
    for (const capability of capabilities) remove(this.#capabilities, capability, known)
    for (const tag of tags) remove(this.#tags, tag, known)
  }

  listen(listener: DirectoryListener): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  get(service: string, instance: string): Instance | undefined {
    const known = this.#known.get(`${service}/${instance}`)
    return known?.listed === true ? known.instance : undefined
  }

  /** Names and how many instances each has, by name. */
  services(): readonly { readonly service: string; readonly instances: number }[] {
    const all = [...this.#services].map(([service, { size }]) => ({ service, instances: size }))
    return all.sort((a, b) => (a.service < b.service ? -1 : 1))
  }

  /** Nearest first, then by name. */
  list(filter: Filter = {}): Instance[] {
    const wanted = wantedBy(filter)
    const found: Instance[] = []
    for (const { instance } of this.search(wanted)) found.push(instance)
    return inOrder(wanted.zone, found)
  }

  /** Kept up to date for as long as someone has it. */
  view(filter: Filter, random: () => number): FilteredView {
    const view = new FilteredView(wantedBy(filter), random, wanted => this.search(wanted))
    this.#views.add(new WeakRef(view))
    return view
  }

  /** Looks only at the smallest of the groups that everyone wanted must be in. */
  *search(wanted: InstanceMatcher): Generator<KnownInstance, void, void> {
    let smallest: Iterable<KnownInstance> & { readonly size: number } = NOBODY
    let chosen = false
    const narrow = (group: Set<KnownInstance> | undefined) => {
      if (!chosen || (group?.size ?? 0) < smallest.size) smallest = group ?? NOBODY
      chosen = true
    }
    if (wanted.service !== undefined) narrow(this.#services.get(wanted.service))
    for (const capability of wanted.all) narrow(this.#capabilities.get(capability))
    for (const tag of wanted.tags) narrow(this.#tags.get(tag))
    if (!chosen && wanted.any.length > 0) narrow(new Set(wanted.any.flatMap(capability => [...(this.#capabilities.get(capability) ?? [])])))
    for (const known of chosen ? smallest : this.#known.values()) if (known.listed && matches(wanted, known.instance)) yield known
  }
}

const NOBODY: Set<KnownInstance> = new Set()

/** A registration that was not written again is the same object: only what may have changed is compared. */
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
