/**
 * The reads and writes of a script go through this. It reads locks that were looked up before it runs, sees its own writes, and nothing is written before it ends.
 *
 * What was looked up may be old: a lock may have ended since, or another client may have taken it. A write is refused then, and the script is run again. What was
 * only read has no write to confirm it, so it must be looked up at the end of the log.
 */
import { RespFailure } from '../face.ts'
import { inSeconds, left, OK, SIGNAL, setOptions, shownValue, whole } from './arguments.ts'
import type { HeldKey, Locks } from './locks.ts'
import { LuaError } from './lua.ts'
import type { LuaValue } from './script.ts'

/** A lock of the script was not as it had read it: another client was faster. */
export class Overtaken extends Error {}

/** The script uses a key that it did not name among its keys. */
export class UnnamedKey extends Error {
  readonly key: string

  constructor(key: string) {
    super(`the script uses the key ${key}`)
    this.key = key
  }
}

export class ScriptAccess {
  readonly #locks: Locks
  /** These keys were looked up. */
  readonly #found: ReadonlyMap<string, HeldKey | undefined>
  readonly #read = new Set<string>()
  /** The keys that it takes, with their value and term. */
  readonly #taken = new Map<string, { readonly value: string; readonly ms: number }>()
  readonly #ended = new Set<string>()
  readonly #extended = new Map<string, number>()

  constructor(locks: Locks, found: ReadonlyMap<string, HeldKey | undefined>) {
    this.#locks = locks
    this.#found = found
  }

  /** Returns whether each key that the script has read is one that it writes: then the writes confirm what it read. */
  get isConfirmedByWrites(): boolean {
    if (this.#taken.size + this.#ended.size + this.#extended.size === 0) return false
    for (const key of this.#read) if (!this.#taken.has(key) && !this.#ended.has(key) && !this.#extended.has(key)) return false
    return true
  }

  #lock(key: string): HeldKey | undefined {
    this.#read.add(key)
    const found = this.#found.get(key)
    if (found === undefined && !this.#found.has(key)) throw new UnnamedKey(key)
    return found
  }

  /** The value as the script sees it. */
  #value(key: string): string | undefined {
    const taken = this.#taken.get(key)
    if (taken !== undefined) return taken.value
    return this.#ended.has(key) ? undefined : (shownValue(this.#lock(key)) ?? undefined)
  }

  call(name: string, args: readonly string[]): LuaValue {
    const [key = '', ...rest] = args
    switch (name) {
      case 'GET':
        // Lua sees a missing value as false.
        return this.#value(key) ?? false
      case 'GETRANGE':
        return range(this.#value(key) ?? '', Number(rest[0]), Number(rest[1]))
      case 'EXISTS':
        return args.filter(each => this.#value(each) !== undefined).length
      case 'SET':
        return this.#set(key, rest)
      case 'DEL':
      case 'UNLINK':
        return this.#delete(args)
      case 'PEXPIRE':
        return this.#expire(key, whole(rest[0]))
      case 'EXPIRE':
        return this.#expire(key, whole(rest[0]) * 1_000)
      case 'PTTL':
        return this.#left(key)
      case 'TTL':
        return inSeconds(this.#left(key))
      case 'LPUSH':
      case 'RPUSH':
        // A lock that is free signals by itself: see BLPOP.
        if (key.startsWith(SIGNAL)) return 1
        break
    }
    throw new LuaError(`it calls ${name.slice(0, 32)}${key === '' ? '' : ` of ${key.slice(0, 64)}`}`)
  }

  #left(key: string): number {
    const taken = this.#taken.get(key)
    if (taken !== undefined) return taken.ms
    if (this.#ended.has(key)) return -2
    return this.#extended.get(key) ?? left(this.#lock(key))
  }

  #set(key: string, [value = '', ...options]: readonly string[]): LuaValue {
    const words = options.map(word => word.toUpperCase())
    const isNew = words.includes('NX')
    const plain = options.filter((_, i) => words[i] !== 'NX' && words[i] !== 'XX')
    const { ms } = setOptions([...plain, 'NX'])
    const present = this.#value(key)
    if (isNew && present !== undefined) return false
    if (present === undefined) {
      if (words.includes('XX')) return false
      this.#taken.set(key, { value, ms })
    } else if (present === value) this.#expire(key, ms)
    else throw new RespFailure('ERR', `the script would replace the value of ${key}, which another client holds`)
    return OK
  }

  #delete(keys: readonly string[]): number {
    let found = 0
    for (const key of keys) {
      if (key.startsWith(SIGNAL) || this.#value(key) === undefined) continue
      found++
      this.#taken.delete(key)
      this.#extended.delete(key)
      if (this.#lock(key) !== undefined) this.#ended.add(key)
    }
    return found
  }

  #expire(key: string, ms: number): number {
    if (key.startsWith(SIGNAL)) return 1
    if (this.#value(key) === undefined) return 0
    if (ms <= 0) return this.#delete([key])
    const taken = this.#taken.get(key)
    if (taken !== undefined) this.#taken.set(key, { ...taken, ms })
    else this.#extended.set(key, ms)
    return 1
  }

  /** Carries out what the script did. Throws Overtaken if it must be run again; then it has changed nothing, or what it ended was over already. */
  async commit(): Promise<void> {
    if (this.#taken.size > 0) await this.#take()
    for (const [key, ms] of this.#extended) if (!(await this.#locks.extend(key, this.#found.get(key)!, ms))) throw new Overtaken()
    const byLease = new Map<number, string[]>()
    for (const key of this.#ended) {
      const { lease } = this.#found.get(key)!
      byLease.set(lease, [...(byLease.get(lease) ?? []), key])
    }
    for (const keys of byLease.values()) if (!(await this.#locks.end(keys, this.#found.get(keys[0]!)!))) throw new Overtaken()
  }

  async #take(): Promise<void> {
    const [first] = this.#taken.values()
    const { value, ms } = first!
    for (const other of this.#taken.values())
      if (other.value !== value || other.ms !== ms) throw new LuaError('it takes several keys with different values or terms')
    if (!(await this.#locks.take([...this.#taken.keys()], value, ms))) throw new Overtaken()
  }
}

/** As GETRANGE of Redis: both ends belong to it, and negative places count from the end. */
function range(value: string, from: number, to: number): string {
  const at = (place: number) => (place < 0 ? Math.max(0, value.length + place) : place)
  return value.slice(at(from), to < 0 && value.length + to < 0 ? 0 : at(to) + 1)
}
