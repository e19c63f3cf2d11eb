/**
 * Checks S26: a transaction compares and changes entries in one revision, all or none, and an entry without a lease stays until it is deleted. So does a
 * grant or a release that brings comparisons and changes. It follows the entries by their events alone, and never asks the state that the kernel keeps.
 */
import type { Acquire, Command, Comparison, GrantChange, Release } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { LogView } from './log-view.ts'
import type { World } from './world.ts'

/** The accounts of the bookkeepers, and what each has in the beginning. */
export const ACCOUNTS = ['kv/a', 'kv/b', 'kv/c'] as const
export const START = 100

interface FollowedEntry {
  readonly value: string
  readonly lease: number
  readonly created: number
  readonly revision: number
  readonly version: number
}

export class TransactionChecker {
  readonly #world: World
  readonly #log: LogView
  readonly #entries = new Map<string, FollowedEntry>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  /** Called before `follow`, with the events of this command. */
  judge(command: Command, outcome: Outcome, events: readonly Event[]): void {
    for (const { type, key, lease } of events)
      if (type === 'deleted' && lease === 0 && !mayDelete(command))
        this.#violate(`the entry ${key} hangs on no lease, and ended by ${command.kind}`)
    if (outcome.kind === 'refused') return
    if (command.kind === 'acquire' || command.kind === 'release') return this.#judgeBrought(command, outcome, events)
    if (command.kind !== 'transaction' || outcome.kind !== 'transacted') return
    const { compare = [], success = [], failure = [] } = command
    const succeeded = compare.every(comparison => this.#holds(comparison))
    if (outcome.succeeded !== succeeded)
      this.#violate(`a transaction ${outcome.succeeded ? 'succeeded' : 'failed'}, and its comparisons say otherwise`)
    const [made, expected] = [changesIn(events), this.#expected(succeeded ? success : failure)]
    if (made.join('\n') !== expected.join('\n')) this.#violate(`a transaction did [${made}] and not [${expected}]`)
  }

  /** The changes that a grant or a release brings come before those that follow from it: entries end with their lease, and waiters bring theirs. */
  #judgeBrought(command: Acquire | Release, outcome: Outcome, events: readonly Event[]): void {
    const { compare = [], changes = [] } = command
    if (!compare.every(comparison => this.#holds(comparison)))
      this.#violate(`${command.kind} was carried out, and its comparisons say otherwise`)
    const expected = this.#expected(changes, outcome.kind === 'granted' ? outcome.lease : 0)
    const made = changesIn(events).slice(0, expected.length)
    if (made.join('\n') !== expected.join('\n')) this.#violate(`${command.kind} did [${made}] and not [${expected}]`)
  }

  /** The events of entries that changes must make, one after the other. */
  #expected(changes: readonly GrantChange[], granted = 0): string[] {
    return changes
      .filter(change => change.delete !== true || this.#entries.has(change.key))
      .map(({ key, value = '', lease = 0, own, delete: deletes }) =>
        deletes === true ? `deleted ${key}` : `put ${key} ${own === true ? granted : lease} ${value}`,
      )
  }

  #holds({ key, field, is, number = 0, value = '' }: Comparison): boolean {
    const there = this.#entries.get(key)
    if (field === 'value') return there !== undefined && (is === 'equal' ? there.value === value : there.value !== value)
    const found = there?.[field] ?? 0
    return is === 'equal' ? found === number : is === 'unequal' ? found !== number : is === 'less' ? found < number : found > number
  }

  follow(events: readonly Event[]): void {
    for (const { type, key, value = '', lease, revision } of events) {
      if (key === undefined) continue
      if (type === 'deleted') this.#entries.delete(key)
      if (type !== 'put') continue
      const { created = revision, version = 0 } = this.#entries.get(key) ?? {}
      this.#entries.set(key, { value, lease, created, revision, version: version + 1 })
    }
  }

  /** Compares the state with what the events said. */
  checkWhole(): void {
    const { free, entries } = this.#log.state
    for (const { key, value, created, revision, version } of free.values()) {
      const known = this.#entries.get(key)
      const same = known?.value === value && known.created === created && known.revision === revision && known.version === version
      if (!same || known?.lease !== 0) this.#violate(`the entry ${key} is not as it was put: version ${version}, of revision ${revision}`)
    }
    for (const [key, { lease }] of this.#entries)
      if (lease === 0 ? free.get(key) === undefined : !entries.has(key)) this.#violate(`the entry ${key} is gone, and was not deleted`)
  }

  /** The log lost records: the rest is replayed, after the contents with which the log began. */
  lose(): void {
    this.#entries.clear()
    const { free, entries } = this.#log.state
    for (const { key, value, created, revision, version } of free.values())
      this.#entries.set(key, { value, lease: 0, created, revision, version })
    for (const { key, value, lease, created, revision, version } of entries.values())
      this.#entries.set(key, { value, lease: lease.id, created, revision, version })
  }

  #violate(message: string): void {
    this.#world.violate('S26', message)
  }
}

function changesIn(events: readonly Event[]): string[] {
  return events
    .filter(({ type }) => type === 'put' || type === 'deleted')
    .map(({ type, key, lease, value }) => (type === 'put' ? `put ${key} ${lease} ${value}` : `deleted ${key}`))
}

/** Returns whether a command may delete an entry that hangs on no lease. */
function mayDelete(command: Command): boolean {
  return command.kind === 'transaction' || command.kind === 'delete' || bringsChanges(command)
}

/** Returns whether it asks for a grant or a release that changes entries as a transaction does. */
export function bringsChanges(command: Command): boolean {
  return (command.kind === 'acquire' || command.kind === 'release') && (command.changes ?? []).length > 0
}

/** S26: transactions move amounts, and make none. */
export function judgeBooks(world: World, entries: Iterable<{ readonly key: string; readonly value: string }>): void {
  const amounts = [...entries].filter(({ key }) => (ACCOUNTS as readonly string[]).includes(key)).map(({ value }) => Number(value))
  const sum = amounts.reduce((total, amount) => total + amount, 0)
  if (amounts.length > 0 && (amounts.length !== ACCOUNTS.length || sum !== ACCOUNTS.length * START))
    world.violate('S26', `${amounts.length} accounts have ${sum} in all, and must have ${ACCOUNTS.length * START}`)
}
