/**
 * A watch must know more of keys than the events tell: an event has the value, but not when its key was made and how often it was written.
 *
 * Exact for every event after the state that the watch began with. Of older events, which come when a watch begins in the past, it tells what that state
 * shows; what it does not show is left out of the answer.
 */
import { EtcdFailure } from './failure.ts'
import type { KeyRecord } from './key-view.ts'

/** A key as it is after an event. `created` and `version` are undefined where they are not known. */
export interface TrackedKey {
  readonly key: string
  readonly value: string
  readonly lease: number
  readonly mod: number
  readonly created: number | undefined
  readonly version: number | undefined
}

/** All watches of a server together may keep this many bytes: about 100 for each key, and its value if the watch shows previous values. */
export class TrackedBytes {
  readonly #most: number
  #bytes = 0

  constructor(most = 64 << 20) {
    this.#most = most
  }

  add(bytes: number): void {
    if (bytes > 0 && this.#bytes + bytes > this.#most)
      throw new EtcdFailure(
        'RESOURCE_EXHAUSTED',
        'etcdserver: too many requests',
        'the watches of this server cover too many keys: watch fewer of them, or without prev_kv',
      )
    this.#bytes += bytes
  }
}

const KEY_BYTES = 100

export class KeyTracker implements Disposable {
  readonly #budget: TrackedBytes
  readonly #keepsValues: boolean
  /** The revision of the state that the watch began with, and the keys at that revision. */
  readonly #revision: number
  readonly #first: Map<string, TrackedKey>
  /** Events have said this since; null: deleted. */
  readonly #since = new Map<string, TrackedKey | null>()
  #bytes = 0

  constructor(budget: TrackedBytes, revision: number, records: readonly KeyRecord[], keepsValues: boolean) {
    this.#budget = budget
    this.#keepsValues = keepsValues
    this.#revision = revision
    this.#grow(records.reduce((sum, { key, value }) => sum + this.#size(key, value), 0))
    this.#first = new Map(records.map(record => [record.key, keepsValues ? record : { ...record, value: '' }]))
  }

  /** The key after a put, and before it. */
  put(key: string, value: string, lease: number, revision: number): { readonly now: TrackedKey; readonly before: TrackedKey | undefined } {
    const before = this.#before(key, revision)
    const now: TrackedKey = { key, value, lease, mod: revision, ...this.#age(key, revision, before) }
    this.#keep(key, this.#keepsValues ? now : { ...now, value: '' }, revision)
    return { now, before: before ?? undefined }
  }

  /** The key before it was deleted. */
  delete(key: string, revision: number): TrackedKey | undefined {
    const before = this.#before(key, revision)
    this.#keep(key, null, revision)
    return before ?? undefined
  }

  /** Null: the key was not there. Undefined: not known. */
  #before(key: string, revision: number): TrackedKey | null | undefined {
    const tracked = this.#since.get(key)
    if (tracked !== undefined) return tracked
    if (revision <= this.#revision) return undefined
    return this.#first.get(key) ?? null
  }

  #age(key: string, revision: number, before: TrackedKey | null | undefined): Pick<TrackedKey, 'created' | 'version'> {
    if (before === null) return { created: revision, version: 1 }
    if (before?.version !== undefined) return { created: before.created, version: before.version + 1 }
    const first = this.#first.get(key)
    if (first === undefined || first.created === undefined || first.created > revision) return { created: undefined, version: undefined }
    if (first.created === revision) return { created: revision, version: 1 }
    return { created: first.created, version: first.mod === revision ? first.version : undefined }
  }

  #keep(key: string, tracked: TrackedKey | null, revision: number): void {
    const old = this.#since.get(key) ?? this.#first.get(key)
    const isNew = !this.#since.has(key) && !this.#first.has(key)
    const size = this.#size(key, tracked?.value ?? '')
    this.#grow(isNew ? size : size - this.#size(key, old?.value ?? ''))
    this.#since.set(key, tracked)
    // Once the first state has been passed, a key that is not known is not there: it need not be remembered.
    if (tracked !== null || this.#first.has(key) || revision <= this.#revision) return
    this.#since.delete(key)
    this.#grow(-size)
  }

  #size(key: string, value: string): number {
    return KEY_BYTES + key.length + (this.#keepsValues ? value.length : 0)
  }

  #grow(bytes: number): void {
    this.#budget.add(bytes)
    this.#bytes += bytes
  }

  [Symbol.dispose](): void {
    this.#budget.add(-this.#bytes)
    this.#bytes = 0
  }
}
