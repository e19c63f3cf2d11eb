/**
 * The Redis commands that lock clients send. Locks have a term: a key without one is refused, and so is everything that is not a lock.
 */
import { type Face, type RespFaceCommand, RespFailure, type RespReply } from '../face.ts'
import { inSeconds, left, mustBeFew, OK, SIGNAL, setOptions, shownValue, syntaxError, whole } from './arguments.ts'
import { Locks } from './locks.ts'
import { scriptCommands } from './script-commands.ts'

export function redisFace(): Face {
  return { name: 'redis', commands: [...KEY_COMMANDS.map(onLocks), ...scriptCommands()] }
}

/** A command on the locks of its caller. Its keys are its first argument, or all of them. */
interface KeyCommand extends Omit<RespFaceCommand, 'run' | 'keys'> {
  readonly names: readonly [first: 1, last: 1 | -1, step: 1]
  run(args: readonly string[], locks: Locks): Promise<RespReply>
}

function onLocks({ run, ...command }: KeyCommand): RespFaceCommand {
  const [, last] = command.names
  return {
    ...command,
    keys: args => (last === 1 ? args.slice(0, 1) : args),
    run: async (args, caller) => run(args, new Locks(caller)),
  }
}

const ONE = [1, 1, 1] as const
const ALL = [1, -1, 1] as const

const KEY_COMMANDS: readonly KeyCommand[] = [
  {
    name: 'SET',
    arity: -3,
    changes: true,
    names: ONE,
    summary: 'key value NX | XX PX ms | EX s; key value IFEQ value PX ms | EX s',
    run: ([key, value, ...options], locks) => set(locks, key!, value!, options),
  },
  { name: 'GET', arity: 2, names: ONE, summary: 'key', run: async ([key], locks) => shownValue(await locks.find(key!, true)) },
  { name: 'EXISTS', arity: -2, names: ALL, summary: 'key …', run: (keys, locks) => count(keys, key => isThere(locks, key)) },
  { name: 'DEL', arity: -2, changes: true, names: ALL, summary: 'key …', run: del },
  { name: 'UNLINK', arity: -2, changes: true, names: ALL, summary: 'key …', run: del },
  {
    name: 'DELEX',
    arity: -2,
    changes: true,
    names: ONE,
    summary: 'key [IFEQ value]',
    run: async ([key, word, value, ...rest], locks) => {
      if (word === undefined) return del([key!], locks)
      if (word.toUpperCase() !== 'IFEQ' || value === undefined || rest.length > 0) throw syntaxError()
      return delIfEqual(locks, key!, value)
    },
  },
  {
    name: 'DELIFEQ',
    arity: 3,
    changes: true,
    names: ONE,
    summary: 'key value',
    run: ([key, value], locks) => delIfEqual(locks, key!, value!),
  },
  {
    name: 'PEXPIRE',
    arity: 3,
    changes: true,
    names: ONE,
    summary: 'key ms',
    run: ([key, ms], locks) => expire(locks, key!, whole(ms)),
  },
  {
    name: 'EXPIRE',
    arity: 3,
    changes: true,
    names: ONE,
    summary: 'key s',
    run: ([key, s], locks) => expire(locks, key!, whole(s) * 1_000),
  },
  { name: 'PTTL', arity: 2, names: ONE, summary: 'key', run: async ([key], locks) => left(await locks.find(key!, true)) },
  { name: 'TTL', arity: 2, names: ONE, summary: 'key', run: async ([key], locks) => inSeconds(left(await locks.find(key!, true))) },
  { name: 'BLPOP', arity: 3, names: ONE, waits: true, summary: `${SIGNAL}NAME seconds: when lock:NAME is free`, run: waitForSignal },
]

async function count(keys: readonly string[], each: (key: string) => Promise<boolean>): Promise<number> {
  mustBeFew(keys)
  let found = 0
  for (const key of keys) if (await each(key)) found++
  return found
}

async function isThere(locks: Locks, key: string): Promise<boolean> {
  return (await locks.find(key, true)) !== undefined
}

async function set(locks: Locks, key: string, value: string, options: readonly string[]): Promise<RespReply> {
  const { ms, isNew, replaces, ifEqual } = setOptions(options)
  if (isNew) return (await locks.take([key], value, ms)) ? OK : null
  const lock = await locks.find(key, true)
  if (replaces) return lock !== undefined && (await locks.replace(key, lock, value, ms)) ? OK : null
  if (lock?.value === undefined || lock.value !== ifEqual) return null
  if (value !== ifEqual) throw new RespFailure('ERR', 'the value of a lock cannot be changed: SET … IFEQ extends it with the same value')
  return (await locks.extend(key, lock, ms)) ? OK : null
}

function del(keys: readonly string[], locks: Locks): Promise<number> {
  return count(keys, key =>
    locks.change(
      key,
      () => true,
      lock => locks.end([key], lock),
    ),
  )
}

async function delIfEqual(locks: Locks, key: string, value: string): Promise<number> {
  const isEqual = (lock: { readonly value: string | undefined }) => lock.value === value
  return (await locks.change(key, isEqual, lock => locks.end([key], lock))) ? 1 : 0
}

async function expire(locks: Locks, key: string, ms: number): Promise<number> {
  if (ms <= 0) return del([key], locks)
  const changed = await locks.change(
    key,
    () => true,
    lock => locks.extend(key, lock, ms),
  )
  return changed ? 1 : 0
}

async function waitForSignal([key, seconds]: readonly string[], locks: Locks): Promise<RespReply> {
  if (!key!.startsWith(SIGNAL)) throw new RespFailure('ERR', `BLPOP is answered for ${SIGNAL}NAME only, as python-redis-lock waits`)
  const ms = Number(seconds) * 1_000
  if (!(ms >= 0 && ms <= 86_400_000)) throw new RespFailure('ERR', 'timeout is not a number, or longer than a day')
  return (await locks.whenFree(`lock:${key!.slice(SIGNAL.length)}`, ms)) ? [key!, '1'] : null
}
