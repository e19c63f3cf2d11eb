import { type FaceCaller, type RespFaceCommand, RespFailure, type RespReply } from '../face.ts'
import { mustBeFew, OK, SIGNAL, whole } from './arguments.ts'
import { type HeldKey, Locks } from './locks.ts'
import { LuaError } from './lua.ts'
import type { LockScript } from './script.ts'
import { Overtaken, ScriptAccess, UnnamedKey } from './script-access.ts'
import { KeptScripts } from './script-cache.ts'

/** A script is run again this many times because another client was faster. */
const MAX_RUNS = 8
/** Keys that a script may use without naming them. */
const MAX_UNNAMED = 8

export function scriptCommands(): readonly RespFaceCommand[] {
  const scripts = new KeptScripts()
  const load = (source: string, { key }: FaceCaller) => {
    try {
      return scripts.load(key, source)
    } catch (error) {
      throw notALock(error)
    }
  }
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
      run: async ([source, ...rest], caller) => run(load(source!, caller).script, rest, caller),
    },
    {
      name: 'EVALSHA',
      arity: -3,
      changes: true,
      summary: 'sha keys key … arg …',
      keys: keysOf,
      run: async ([sha, ...rest], caller) => {
        const script = scripts.get(caller.key, sha!)
        if (script === undefined) throw new RespFailure('NOSCRIPT', 'No matching script. Please use EVAL.')
        return run(script, rest, caller)
      },
    },
    {
      name: 'SCRIPT',
      arity: -2,
      changes: true,
      summary: 'LOAD script | EXISTS sha … | FLUSH',
      run: async ([word, ...rest], caller) => {
        switch (word!.toUpperCase()) {
          case 'LOAD':
            await new Locks(caller).requireSome()
            return load(rest[0] ?? '', caller).sha
          case 'EXISTS':
            mustBeFew(rest)
            return rest.map(sha => (scripts.get(caller.key, sha) === undefined ? 0 : 1))
          case 'FLUSH':
            scripts.flush(caller.key)
            return OK
          default:
            throw new RespFailure('ERR', 'unknown subcommand of SCRIPT')
        }
      },
    },
  ]
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
  // Looking a lock up needs the right to read it. A script that names none would need no right at all.
  if (keys.every(isSignal)) await locks.requireSome()
  for (let runs = 1; runs <= MAX_RUNS + MAX_UNNAMED; runs++) {
    const isLatest = runs > 1
    const access = new ScriptAccess(locks, await lookUp(locks, used, isLatest))
    let reply: RespReply
    try {
      reply = script.run(keys, args, access)
    } catch (error) {
      if (error instanceof UnnamedKey) used.add(error.key)
      else if (isLatest) throw notALock(error)
      continue
    }
    if (!isLatest && !access.isConfirmedByWrites) continue
    try {
      await access.commit()
      return reply
    } catch (error) {
      if (!(error instanceof Overtaken)) throw notALock(error)
    }
  }
  throw new RespFailure('ERR', `other clients were faster each time, or the script uses more than ${MAX_UNNAMED} keys without naming them`)
}

async function lookUp(locks: Locks, keys: ReadonlySet<string>, consistent: boolean): Promise<ReadonlyMap<string, HeldKey | undefined>> {
  const found = new Map<string, HeldKey | undefined>()
  for (const key of keys) found.set(key, isSignal(key) ? undefined : await locks.find(key, consistent))
  return found
}

function isSignal(key: string): boolean {
  return key.startsWith(SIGNAL)
}
