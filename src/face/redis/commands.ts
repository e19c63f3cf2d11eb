/**
 * The Redis commands that lock clients send. Locks have a term: a key without one is refused, and so is everything that is not a lock.
 */
import { createHash } from 'node:crypto'
import { type Face, type FaceCaller, type RespFaceCommand, RespFailure, type RespReply } from '../face.ts'
import { type HeldKey, Locks } from './locks.ts'
import { LuaError } from './lua.ts'
import { LockScript, type LuaValue } from './script.ts'

/** Scripts that are kept for EVALSHA: the oldest makes room. */
const MAX_SCRIPTS = 512
const MAX_KEYS = 64
/** How often a script is run again because another client was faster. */
const MAX_RUNS = 8
/** The list that python-redis-lock waits on: a lock that is free has an item there. */
const SIGNAL = 'lock-signal:'

const OK = { status: 'OK' } as const

export function redisFace(): Face {
  const scripts = new Scripts()
  return { name: 'redis', commands: [...KEY_COMMANDS, ...scriptCommands(scripts)] }
}

const KEY_COMMANDS: readonly RespFaceCommand[] = [
  {
    name: 'SET',
    arity: -3,
    changes: true,
    names: [1, 1, 1],
    summary: 'key value NX | XX PX ms | EX s; key value IFEQ value PX ms | EX s',
    run: ([key, value, ...options], caller) => set(new Locks(caller), key!, value!, options),
  },
  { name: 'GET', arity: 2, names: [1, 1, 1], summary: 'key', run: async ([key], caller) => shownValue(await new Locks(caller).find(key!)) },
  { name: 'EXISTS', arity: -2, names: [1, -1, 1], summary: 'key …', run: (keys, caller) => count(keys, key => isThere(caller, key)) },
  { name: 'DEL', arity: -2, changes: true, names: [1, -1, 1], summary: 'key …', run: del },
  { name: 'UNLINK', arity: -2, changes: true, names: [1, -1, 1], summary: 'key …', run: del },
  {
    name: 'DELEX',
    arity: -2,
    changes: true,
    names: [1, 1, 1],
    summary: 'key [IFEQ value]',
    run: ([key, word, value, ...rest], caller) => {
      if (word === undefined) return del([key!], caller)
      if (word.toUpperCase() !== 'IFEQ' || value === undefined || rest.length > 0) throw syntaxError()
      return delIfEqual(caller, key!, value)
    },
  },
  {
    name: 'DELIFEQ',
    arity: 3,
    changes: true,
    names: [1, 1, 1],
    summary: 'key value',
    run: ([key, value], caller) => delIfEqual(caller, key!, value!),
  },
  {
    name: 'PEXPIRE',
    arity: 3,
    changes: true,
    names: [1, 1, 1],
    summary: 'key ms',
    run: ([key, ms], caller) => expire(caller, key!, whole(ms)),
  },
  {
    name: 'EXPIRE',
    arity: 3,
    changes: true,
    names: [1, 1, 1],
    summary: 'key s',
    run: ([key, s], caller) => expire(caller, key!, whole(s) * 1_000),
  },
  { name: 'PTTL', arity: 2, names: [1, 1, 1], summary: 'key', run: async ([key], caller) => left(await new Locks(caller).find(key!)) },
  {
    name: 'TTL',
    arity: 2,
    names: [1, 1, 1],
    summary: 'key',
    run: async ([key], caller) => {
      const ms = left(await new Locks(caller).find(key!))
      return ms < 0 ? ms : Math.round(ms / 1_000)
    },
  },
  { name: 'BLPOP', arity: 3, names: [1, 1, 1], summary: `${SIGNAL}NAME seconds: when lock:NAME is free`, run: waitForSignal },
]

function syntaxError(): RespFailure {
  return new RespFailure('ERR', 'syntax error')
}

function whole(text: string | undefined): number {
  const found = Number(text)
  if (text === undefined || !/^-?\d+$/.test(text) || !Number.isSafeInteger(found))
    throw new RespFailure('ERR', 'value is not an integer or out of range')
  return found
}

async function count(keys: readonly string[], each: (key: string) => Promise<boolean>): Promise<number> {
  mustBeFew(keys)
  let found = 0
  for (const key of keys) if (await each(key)) found++
  return found
}

function mustBeFew(keys: readonly string[]): void {
  if (keys.length > MAX_KEYS) throw new RespFailure('ERR', `at most ${MAX_KEYS} keys are taken together`)
}

async function isThere(caller: FaceCaller, key: string): Promise<boolean> {
  return (await new Locks(caller).find(key)) !== undefined
}

/** A lock of another client is there, and its value says who has it. */
function shownValue(lock: HeldKey | undefined): string | null {
  return lock === undefined ? null : (lock.value ?? `leasehold:${lock.holder}`)
}

function left(lock: HeldKey | undefined): number {
  return lock === undefined ? -2 : Math.max(1, Math.floor(lock.remaining))
}

interface SetOptions {
  readonly ms: number
  readonly isNew: boolean
  readonly replaces: boolean
  readonly ifEqual: string | undefined
}

function setOptions(options: readonly string[]): SetOptions {
  let ms = 0
  let isNew = false
  let replaces = false
  let ifEqual: string | undefined
  for (let i = 0; i < options.length; i++) {
    const word = options[i]!.toUpperCase()
    if (word === 'NX') isNew = true
    else if (word === 'XX') replaces = true
    else if (word === 'PX') ms = whole(options[++i])
    else if (word === 'EX') ms = whole(options[++i]) * 1_000
    else if (word === 'IFEQ' && options[i + 1] !== undefined) ifEqual = options[++i]
    else throw new RespFailure('ERR', `SET … ${word.slice(0, 16)} is not answered here: locks are set with NX and PX or EX`)
  }
  if (Number(isNew) + Number(replaces) + Number(ifEqual !== undefined) !== 1)
    throw new RespFailure('ERR', 'this is Leasehold, which keeps locks: use SET key value NX PX ms')
  if (ms <= 0) throw new RespFailure('ERR', 'a lock needs a term: add PX ms or EX seconds. Leasehold keeps no lock for ever')
  return { ms, isNew, replaces, ifEqual }
}

async function set(locks: Locks, key: string, value: string, options: readonly string[]): Promise<RespReply> {
  const { ms, isNew, replaces, ifEqual } = setOptions(options)
  if (isNew) return (await locks.take([key], value, ms)) ? OK : null
  const lock = await locks.find(key)
  if (replaces) return lock !== undefined && (await locks.replace(key, lock, value, ms)) ? OK : null
  if (lock?.value === undefined || lock.value !== ifEqual) return null
  if (value !== ifEqual) throw new RespFailure('ERR', 'the value of a lock cannot be changed: SET … IFEQ extends it with the same value')
  return (await locks.extend(key, lock, ms)) ? OK : null
}

async function del(keys: readonly string[], caller: FaceCaller): Promise<number> {
  const locks = new Locks(caller)
  return count(keys, async key => {
    const lock = await locks.find(key)
    return lock !== undefined && (await locks.end([key], lock))
  })
}

async function delIfEqual(caller: FaceCaller, key: string, value: string): Promise<number> {
  const locks = new Locks(caller)
  const lock = await locks.find(key)
  return lock?.value === value && (await locks.end([key], lock)) ? 1 : 0
}

async function expire(caller: FaceCaller, key: string, ms: number): Promise<number> {
  const locks = new Locks(caller)
  const lock = await locks.find(key)
  if (lock === undefined) return 0
  if (ms <= 0) return (await locks.end([key], lock)) ? 1 : 0
  return (await locks.extend(key, lock, ms)) ? 1 : 0
}

async function waitForSignal([key, seconds]: readonly string[], caller: FaceCaller): Promise<RespReply> {
  if (!key!.startsWith(SIGNAL)) throw new RespFailure('ERR', `BLPOP is answered for ${SIGNAL}NAME only, as python-redis-lock waits`)
  const ms = Number(seconds) * 1_000
  if (!(ms >= 0 && ms <= 86_400_000)) throw new RespFailure('ERR', 'timeout is not a number, or longer than a day')
  return (await new Locks(caller).whenFree(`lock:${key!.slice(SIGNAL.length)}`, ms)) ? [key!, '1'] : null
}

// Scripts

class Scripts {
  readonly #bySha = new Map<string, LockScript>()

  /** Throws an error that says what is not understood. */
  load(source: string): { readonly sha: string; readonly script: LockScript } {
    const sha = createHash('sha1').update(source).digest('hex')
    const known = this.#bySha.get(sha)
    if (known !== undefined) return { sha, script: known }
    try {
      const script = new LockScript(source)
      this.#bySha.set(sha, script)
      if (this.#bySha.size > MAX_SCRIPTS) this.#bySha.delete(this.#bySha.keys().next().value!)
      return { sha, script }
    } catch (error) {
      throw notALock(error)
    }
  }

  get(sha: string): LockScript | undefined {
    return this.#bySha.get(sha.toLowerCase())
  }

  flush(): void {
    this.#bySha.clear()
  }
}

function notALock(error: unknown): unknown {
  if (!(error instanceof LuaError)) return error
  return new RespFailure(
    'ERR',
    `this script is not one of a lock client: ${error.message}. Leasehold answers scripts that take, extend and release locks; use LEASE.ACQUIRE, LEASE.RENEW and LEASE.RELEASE`,
  )
}

function scriptCommands(scripts: Scripts): readonly RespFaceCommand[] {
  const run = (script: LockScript, [many, ...rest]: readonly string[], caller: FaceCaller) => {
    const n = whole(many)
    if (n < 0 || n > rest.length) throw new RespFailure('ERR', "Number of keys can't be greater than number of args")
    mustBeFew(rest.slice(0, n))
    return runScript(script, rest.slice(0, n), rest.slice(n), caller)
  }
  return [
    {
      name: 'EVAL',
      arity: -3,
      changes: true,
      summary: 'script keys key … arg …: a script of a lock client',
      run: async ([source, ...rest], caller) => run(scripts.load(source!).script, rest, caller),
    },
    {
      name: 'EVALSHA',
      arity: -3,
      changes: true,
      summary: 'sha keys key … arg …',
      run: async ([sha, ...rest], caller) => {
        const script = scripts.get(sha!)
        if (script === undefined) throw new RespFailure('NOSCRIPT', 'No matching script. Please use EVAL.')
        return run(script, rest, caller)
      },
    },
    {
      name: 'SCRIPT',
      arity: -2,
      changes: true,
      summary: 'LOAD script | EXISTS sha … | FLUSH',
      run: async ([word, ...rest]) => {
        switch (word!.toUpperCase()) {
          case 'LOAD':
            return scripts.load(rest[0] ?? '').sha
          case 'EXISTS':
            mustBeFew(rest)
            return rest.map(sha => (scripts.get(sha) === undefined ? 0 : 1))
          case 'FLUSH':
            scripts.flush()
            return OK
          default:
            throw new RespFailure('ERR', 'unknown subcommand of SCRIPT')
        }
      },
    },
  ]
}

/** A lock of the script was not as it had read it: another client was faster. */
class Overtaken extends Error {}

async function runScript(script: LockScript, keys: readonly string[], args: readonly string[], caller: FaceCaller): Promise<RespReply> {
  for (let runs = 1; ; runs++) {
    const access = new ScriptAccess(new Locks(caller))
    try {
      const value = await script.run(keys, args, access)
      await access.commit()
      return replyOf(value)
    } catch (error) {
      if (!(error instanceof Overtaken)) throw notALock(error)
      if (runs === MAX_RUNS) throw new RespFailure('ERR', 'other clients were faster each time: try again')
    }
  }
}

/** What a script reads and writes: it reads each key once, sees its own writes, and nothing is written before it ends. */
class ScriptAccess {
  readonly #locks: Locks
  readonly #read = new Map<string, HeldKey | undefined>()
  /** The keys that it takes, with their value and term. */
  readonly #taken = new Map<string, { readonly value: string; readonly ms: number }>()
  readonly #ended = new Set<string>()
  readonly #extended = new Map<string, number>()

  constructor(locks: Locks) {
    this.#locks = locks
  }

  async #lock(key: string): Promise<HeldKey | undefined> {
    if (!this.#read.has(key)) this.#read.set(key, await this.#locks.find(key))
    return this.#read.get(key)
  }

  /** The value as the script sees it. */
  async #value(key: string): Promise<string | undefined> {
    const taken = this.#taken.get(key)
    if (taken !== undefined) return taken.value
    return this.#ended.has(key) ? undefined : (shownValue(await this.#lock(key)) ?? undefined)
  }

  async call(name: string, args: readonly string[]): Promise<LuaValue> {
    const [key = '', ...rest] = args
    switch (name) {
      case 'GET':
        // Lua sees a missing value as false.
        return (await this.#value(key)) ?? false
      case 'GETRANGE':
        return range((await this.#value(key)) ?? '', Number(rest[0]), Number(rest[1]))
      case 'EXISTS': {
        let found = 0
        for (const each of args) if ((await this.#value(each)) !== undefined) found++
        return found
      }
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
      case 'TTL': {
        const ms = await this.#left(key)
        return ms < 0 ? ms : Math.round(ms / 1_000)
      }
      case 'LPUSH':
      case 'RPUSH':
        // A lock that is free signals by itself: see BLPOP.
        if (key.startsWith(SIGNAL)) return 1
        break
    }
    throw new LuaError(`it calls ${name.slice(0, 32)}${key === '' ? '' : ` of ${key.slice(0, 64)}`}`)
  }

  async #left(key: string): Promise<number> {
    const taken = this.#taken.get(key)
    if (taken !== undefined) return taken.ms
    if (this.#ended.has(key)) return -2
    return this.#extended.get(key) ?? left(await this.#lock(key))
  }

  async #set(key: string, [value = '', ...options]: readonly string[]): Promise<LuaValue> {
    const words = options.map(word => word.toUpperCase())
    const isNew = words.includes('NX')
    const plain = options.filter((_, i) => words[i] !== 'NX' && words[i] !== 'XX')
    const { ms } = setOptions([...plain, 'NX'])
    const present = await this.#value(key)
    if (isNew && present !== undefined) return false
    if (present === undefined) {
      if (words.includes('XX')) return false
      this.#taken.set(key, { value, ms })
    } else if (present === value) await this.#expire(key, ms)
    else throw new RespFailure('ERR', `the script would replace the value of ${key}, which another client holds`)
    return { status: 'OK' }
  }

  async #delete(keys: readonly string[]): Promise<number> {
    let found = 0
    for (const key of keys) {
      if (key.startsWith(SIGNAL) || (await this.#value(key)) === undefined) continue
      found++
      this.#taken.delete(key)
      this.#extended.delete(key)
      if ((await this.#lock(key)) !== undefined) this.#ended.add(key)
    }
    return found
  }

  async #expire(key: string, ms: number): Promise<number> {
    if (key.startsWith(SIGNAL)) return 1
    if ((await this.#value(key)) === undefined) return 0
    if (ms <= 0) return this.#delete([key])
    const taken = this.#taken.get(key)
    if (taken !== undefined) this.#taken.set(key, { ...taken, ms })
    else this.#extended.set(key, ms)
    return 1
  }

  /** Carries out what the script did. Throws Overtaken if it must be run again; then it has changed nothing, or what it ended was over already. */
  async commit(): Promise<void> {
    if (this.#taken.size > 0) await this.#take()
    for (const [key, ms] of this.#extended) if (!(await this.#locks.extend(key, this.#read.get(key)!, ms))) throw new Overtaken()
    const byLease = new Map<number, string[]>()
    for (const key of this.#ended) {
      const { lease } = this.#read.get(key)!
      byLease.set(lease, [...(byLease.get(lease) ?? []), key])
    }
    for (const keys of byLease.values()) if (!(await this.#locks.end(keys, this.#read.get(keys[0]!)!))) throw new Overtaken()
  }

  async #take(): Promise<void> {
    const [first] = this.#taken.values()
    const { value, ms } = first!
    if ([...this.#taken.values()].some(other => other.value !== value || other.ms !== ms))
      throw new LuaError('it takes several keys with different values or terms')
    if (!(await this.#locks.take([...this.#taken.keys()], value, ms))) throw new Overtaken()
  }
}

/** As Redis turns Lua into an answer: true is 1, false and nil are null, numbers lose their fraction. */
function replyOf(value: LuaValue): RespReply {
  if (value === undefined || value === false) return null
  if (value === true) return 1
  if (typeof value === 'number') return Math.trunc(value)
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return value.map(replyOf)
  return 'status' in value ? value : { error: new RespFailure(...splitError(value.failure)) }
}

function splitError(message: string): [string, string] {
  const [, code = 'ERR', rest = message] = /^([A-Z][A-Z0-9_]*) ([\s\S]*)$/.exec(message) ?? []
  return [code, rest]
}

/** As GETRANGE of Redis: both ends belong to it, and negative places count from the end. */
function range(value: string, from: number, to: number): string {
  const at = (place: number) => (place < 0 ? Math.max(0, value.length + place) : place)
  return value.slice(at(from), to < 0 && value.length + to < 0 ? 0 : at(to) + 1)
}
