/** Commands and scripts of Redis clients share how arguments are read, and how a lock is shown. */
import { RespFailure } from '../face.ts'
import type { HeldKey } from './locks.ts'

const MAX_KEYS = 64
/** The list that python-redis-lock waits on: a lock that is free has an item there. */
export const SIGNAL = 'lock-signal:'
export const OK = { status: 'OK' } as const

export function syntaxError(): RespFailure {
  return new RespFailure('ERR', 'syntax error')
}

export function whole(text: string | undefined): number {
  const found = Number(text)
  if (text === undefined || !/^-?\d+$/.test(text) || !Number.isSafeInteger(found))
    throw new RespFailure('ERR', 'value is not an integer or out of range')
  return found
}

export function mustBeFew(keys: readonly string[]): void {
  if (keys.length > MAX_KEYS) throw new RespFailure('ERR', `at most ${MAX_KEYS} keys are taken together`)
}

/** A lock of another client is there, and its value says who has it. */
export function shownValue(lock: HeldKey | undefined): string | null {
  return lock === undefined ? null : (lock.value ?? `leasehold:${lock.holder}`)
}

/** Milliseconds, as PTTL answers. */
export function left(lock: HeldKey | undefined): number {
  return lock === undefined ? -2 : Math.max(1, Math.floor(lock.remaining))
}

/** Seconds, as TTL answers. */
export function inSeconds(ms: number): number {
  return ms < 0 ? ms : Math.round(ms / 1_000)
}

interface SetOptions {
  readonly ms: number
  readonly isNew: boolean
  readonly replaces: boolean
  readonly ifEqual: string | undefined
}

export function setOptions(options: readonly string[]): SetOptions {
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
