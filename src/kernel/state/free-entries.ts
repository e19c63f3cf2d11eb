/** The entries that belong to no lease, and how many bytes they take under each prefix: policies bound both. */
import { utf8Length } from '../name.ts'

/** An entry that hangs on no lease. It is replaced, never changed: a snapshot that is being taken keeps the old one. */
export interface FreeEntry {
  readonly key: string
  readonly value: string
  readonly created: number
  readonly revision: number
  readonly version: number
  /** The key that was the last to write it; 0: none. */
  readonly by: number
}

/** There are this many entries under a prefix, with these bytes of keys and values. */
export interface EntryUsage {
  entries: number
  bytes: number
}

/** The size of an entry, as policies and the limits of a lease count it. */
export function entryBytes({ key, value }: { readonly key: string; readonly value: string }): number {
  return utf8Length(key) + utf8Length(value)
}

export class FreeEntries {
  readonly #entries = new Map<string, FreeEntry>()
  /** By each prefix of a key that ends before a slash, and by the empty one. */
  readonly #usage = new Map<string, EntryUsage>()

  get size(): number {
    return this.#entries.size
  }

  get(key: string): FreeEntry | undefined {
    return this.#entries.get(key)
  }

  values(): IterableIterator<FreeEntry> {
    return this.#entries.values()
  }

  set(entry: FreeEntry): void {
    const before = this.#entries.get(entry.key)
    this.#entries.set(entry.key, entry)
    this.#count(entry.key, before === undefined ? 1 : 0, entryBytes(entry) - (before === undefined ? 0 : entryBytes(before)))
  }

  delete(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#entries.delete(key)
    this.#count(key, -1, -entryBytes(entry))
  }

  /** By whole segments; the entry whose key is the prefix itself counts as well. */
  under(prefix: string): Readonly<EntryUsage> {
    const { entries, bytes } = this.#usage.get(prefix) ?? { entries: 0, bytes: 0 }
    const own = this.#entries.get(prefix)
    return own === undefined ? { entries, bytes } : { entries: entries + 1, bytes: bytes + entryBytes(own) }
  }

  #count(key: string, entries: number, bytes: number): void {
    if (entries === 0 && bytes === 0) return
    this.#add('', entries, bytes)
    for (let slash = key.indexOf('/'); slash !== -1; slash = key.indexOf('/', slash + 1)) this.#add(key.slice(0, slash), entries, bytes)
  }

  #add(prefix: string, entries: number, bytes: number): void {
    const usage = this.#usage.get(prefix)
    if (usage === undefined) this.#usage.set(prefix, { entries, bytes })
    else if (usage.entries + entries === 0) this.#usage.delete(prefix)
    else {
      usage.entries += entries
      usage.bytes += bytes
    }
  }
}
