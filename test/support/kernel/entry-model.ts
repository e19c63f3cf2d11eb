/**
 * Entries and transactions again, the naive way: one list of entries, copied before each transaction, and put back if anything in it is refused. Leases
 * are numbers that end. What it says in a page, the kernel must do.
 */
import type { Comparison, EntryChange, GrantChange, Transaction } from '../../../src/kernel/command.ts'

interface Changes {
  readonly compare: readonly Comparison[]
  readonly changes: readonly GrantChange[]
}

interface ModelEntry {
  readonly key: string
  readonly value: string
  /** 0: none. */
  readonly lease: number
  readonly created: number
  readonly revision: number
  readonly version: number
}

export class EntryModel {
  entries: readonly ModelEntry[] = []
  revision: number
  readonly #leases = new Set<number>()
  /** The most free entries; only keys under `kv/` may be changed. */
  readonly #most: number

  constructor(revision: number, most: number) {
    this.revision = revision
    this.#most = most
  }

  begin(lease: number): void {
    this.#leases.add(lease)
    this.revision++
  }

  end(lease: number): void {
    if (!this.#leases.delete(lease)) return
    this.entries = this.entries.filter(entry => entry.lease !== lease)
    this.revision++
  }

  /** As the command `put`: it takes no entry from another lease, and none that hangs on no lease. */
  put(lease: number, key: string, value: string): string {
    if (!this.#leases.has(lease)) return 'GONE'
    const there = this.#find(key)
    if (there !== undefined && there.lease !== lease) return 'HELD'
    this.revision++
    this.#write({ key, value, lease })
    return 'done'
  }

  delete(key: string): string {
    if (this.#find(key) === undefined) return 'NOT_FOUND'
    this.revision++
    this.entries = this.entries.filter(entry => entry.key !== key)
    return 'done'
  }

  transact({ compare = [], success = [], failure = [] }: Omit<Transaction, 'kind'>): string {
    if ([success, failure].some(isMalformed)) return 'INVALID'
    const succeeded = compare.every(comparison => this.#holds(comparison))
    return this.#carryOut(succeeded ? success : failure, false) ?? String(succeeded)
  }

  /** A lease is granted with changes, some of which hang on it. */
  grant(lease: number, { compare, changes }: Changes): string {
    const word = this.#refusal(compare, changes) ?? this.#carryOut(changes, true, lease)
    if (word !== undefined) return word
    this.#leases.add(lease)
    return 'granted'
  }

  release(lease: number, { compare, changes }: Changes): string {
    if (!this.#leases.has(lease)) return 'GONE'
    const word = this.#refusal(compare, changes) ?? this.#carryOut(changes, true)
    if (word !== undefined) return word
    this.#leases.delete(lease)
    this.entries = this.entries.filter(entry => entry.lease !== lease)
    return 'done'
  }

  #refusal(compare: readonly Comparison[], changes: readonly EntryChange[]): string | undefined {
    if (isMalformed(changes)) return 'INVALID'
    return compare.every(comparison => this.#holds(comparison)) ? undefined : 'STALE'
  }

  /** Returns why nothing is changed. `isRevision`: the command makes a revision in any case. `granted`: the lease that it grants. */
  #carryOut(changes: readonly GrantChange[], isRevision: boolean, granted = 0): string | undefined {
    if (changes.some(({ lease }) => lease !== undefined && !this.#leases.has(lease))) return 'GONE'
    const before = this.entries
    this.revision++
    const changed = changes.filter(change => this.#change(change, granted)).length > 0
    const free = (entries: readonly ModelEntry[]) => entries.filter(({ lease }) => lease === 0).length
    if (free(this.entries) > Math.max(this.#most, free(before))) {
      this.entries = before
      this.revision--
      return 'LIMIT'
    }
    if (!changed && !isRevision) this.revision--
    return undefined
  }

  #change({ key, value = '', lease = 0, own = false, delete: deletes = false }: GrantChange, granted: number): boolean {
    if (!deletes) this.#write({ key, value, lease: own ? granted : lease })
    else if (this.#find(key) === undefined) return false
    else this.entries = this.entries.filter(entry => entry.key !== key)
    return true
  }

  #write(entry: Pick<ModelEntry, 'key' | 'value' | 'lease'>): void {
    const { created = this.revision, version = 0 } = this.#find(entry.key) ?? {}
    this.entries = [
      ...this.entries.filter(({ key }) => key !== entry.key),
      { ...entry, created, revision: this.revision, version: version + 1 },
    ]
  }

  #find(key: string): ModelEntry | undefined {
    return this.entries.find(entry => entry.key === key)
  }

  #holds({ key, field, is, number = 0, value = '' }: Comparison): boolean {
    const there = this.#find(key)
    if (field === 'value') {
      if (there === undefined) return false
      return is === 'equal' ? there.value === value : there.value !== value
    }
    const found = there?.[field] ?? 0
    switch (is) {
      case 'equal':
        return found === number
      case 'unequal':
        return found !== number
      case 'less':
        return found < number
      case 'greater':
        return found > number
    }
  }
}

function isMalformed(changes: readonly EntryChange[]): boolean {
  return new Set(changes.map(({ key }) => key)).size < changes.length || changes.some(({ key }) => !key.startsWith('kv/'))
}
