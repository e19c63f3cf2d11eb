/** EVAL, EVALSHA and SCRIPT: scripts of lock clients. */
import { createHash } from 'node:crypto'
import { type FaceCaller, type RespFaceCommand, RespFailure, type RespReply } from '../face.ts'
import { mustBeFew, OK, SIGNAL, whole } from './arguments.ts'
import { type HeldKey, Locks } from './locks.ts'
import { LuaError } from './lua.ts'
import { LockScript, type LuaValue } from './script.ts'
import { Overtaken, ScriptAccess, UnnamedKey } from './script-access.ts'

/** Scripts that are kept for EVALSHA: the oldest makes room. */
const MAX_SCRIPTS = 512
/** How often a script is run again because another client was faster. */
const MAX_RUNS = 8
/** Keys that a script may use without naming them. */
const MAX_UNNAMED = 8

export function scriptCommands(): readonly RespFaceCommand[] {
  const scripts = new Scripts()
  const run = (script: LockScript, [many, ...rest]: readonly string[], caller: FaceCaller) => {
    const n = whole(many)
    if (n < 0 || n > rest.length) throw new RespFailure('ERR', "Number of keys can't be greater than number of args")
    const keys = rest.slice(0, n)
    mustBeFew(keys)
    return runScript(script, keys, rest.slice(n), new Locks(caller))
  }
  const keysOf = ([, many, ...rest]: readonly string[]) => rest.slice(0, Math.max(0, Math.min(Number(many) || 0, rest.length)))
  return [
    {
      name: 'EVAL',
      arity: -3,
      changes: true,
      summary: 'script keys key … arg …: a script of a lock client',
      keys: keysOf,
      run: async ([source, ...rest], caller) => run(scripts.load(source!).script, rest, caller),
    },
    {
      name: 'EVALSHA',
      arity: -3,
      changes: true,
      summary: 'sha keys key … arg …',
      keys: keysOf,
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
    return this.#bySha.get(sha) ?? this.#bySha.get(sha.toLowerCase())
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

/**
 * Runs the script on what this server has applied, which costs no wait, and writes what it did. If another client was faster, or the script read more than it
 * wrote, it is run again on what is at the end of the log.
 */
async function runScript(script: LockScript, keys: readonly string[], args: readonly string[], locks: Locks): Promise<RespReply> {
  const used = new Set(keys)
  for (let runs = 1; runs <= MAX_RUNS + MAX_UNNAMED; runs++) {
    const isLatest = runs > 1
    const access = new ScriptAccess(locks, await lookUp(locks, used, isLatest))
    let value: LuaValue
    try {
      value = script.run(keys, args, access)
    } catch (error) {
      if (error instanceof UnnamedKey) used.add(error.key)
      else if (isLatest) throw notALock(error)
      continue
    }
    if (!isLatest && !access.isConfirmedByWrites) continue
    try {
      await access.commit()
      return replyOf(value)
    } catch (error) {
      if (!(error instanceof Overtaken)) throw notALock(error)
    }
  }
  throw new RespFailure('ERR', `other clients were faster each time, or the script uses more than ${MAX_UNNAMED} keys without naming them`)
}

async function lookUp(locks: Locks, keys: ReadonlySet<string>, consistent: boolean): Promise<ReadonlyMap<string, HeldKey | undefined>> {
  const found = new Map<string, HeldKey | undefined>()
  for (const key of keys) found.set(key, key.startsWith(SIGNAL) ? undefined : await locks.find(key, consistent))
  return found
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
