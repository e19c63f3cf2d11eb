/** A key and its value as they are kept: the entry `consul/KEY`, whose value is JSON that people can read. */
import { isUtf8 } from 'node:buffer'
import { utf8Length, VALUE_BYTES } from '../../kernel/name.ts'
import type { EntryView, GrantView } from '../../lessor.ts'
import { whyBadName } from '../../wording.ts'
import { TextFailure } from '../text-failure.ts'
import { SESSION_FOLDER } from './sessions.ts'

export const ROOT = 'consul'
const DIGITS = /^\d{1,20}$/
const MAX_FLAGS = 2n ** 64n - 1n
/** The flag of locks in the clients of Consul. */
const LOCK_FLAGS = '3304740253564472344'

/** A key with its value. */
export interface ConsulPair {
  readonly key: string
  readonly value: Uint8Array
  /** An unsigned number of 64 bits. */
  readonly flags: string
  /** The key was acquired this many times. */
  readonly locks: number
  /** The session that acquired it last, and the incarnation of its process. They count only while a lease of that process has the grant. */
  readonly session: string
  readonly lock: number
  readonly created: number
  readonly revision: number
  /** The lease that the entry hangs on; 0: none. */
  readonly on: number
}

/** This is written of a pair. */
export type PairContent = Pick<ConsulPair, 'value' | 'flags' | 'locks' | 'session' | 'lock'>

/** The name of the resource and the entry of a key. */
export function nameOf(key: string): string {
  const name = `${ROOT}/${key}`
  const bad = key === '' ? 'is empty' : whyBadName(name)
  if (key === '') throw new TextFailure(400, 'Missing key name')
  if (bad !== undefined) throw new TextFailure(400, `Invalid key: "${key.slice(0, 64)}" cannot be the name of a lease: ${ROOT}/KEY ${bad}`)
  if (key === SESSION_FOLDER || key.startsWith(`${SESSION_FOLDER}/`))
    throw new TextFailure(400, `Invalid key: the sessions are kept under ${SESSION_FOLDER}`)
  return name
}

export function flagsOf(text: string | null): string {
  if (text === null || text === '') return '0'
  if (!DIGITS.test(text) || BigInt(text) > MAX_FLAGS) throw new TextFailure(400, 'Invalid flags: not a number of 64 bits')
  return BigInt(text).toString()
}

/** The text of an entry. Throws if the value is too large to be kept. */
export function written(key: string, { value, flags, locks, session, lock }: PairContent): string {
  // A text must come back as the same bytes.
  const content = isUtf8(value) ? { value: Buffer.from(value).toString() } : { base64: Buffer.from(value).toString('base64') }
  const text = JSON.stringify({
    ...content,
    ...(flags !== '0' && { flags }),
    ...(locks > 0 && { locks, session, lock }),
  })
  if (utf8Length(text) > VALUE_BYTES)
    throw new TextFailure(
      413,
      `Value for key "${key.slice(0, 64)}" is too large (${value.length} bytes): at most about ${VALUE_BYTES} are kept`,
    )
  return text
}

/** Any client with a key for the entry may have written it: an entry of another form is shown as it is. */
export function pairOf({ key, value: text, created, revision, lease }: EntryView): ConsulPair {
  const found = { key: key.slice(ROOT.length + 1), created, revision, on: lease }
  try {
    const { value = '', base64, flags = '0', locks = 0, session = '', lock = 0 } = JSON.parse(text) as Partial<Record<string, unknown>>
    if (typeof flags === 'string' && DIGITS.test(flags) && typeof session === 'string' && isWhole(locks) && isWhole(lock)) {
      if (typeof base64 === 'string') return { ...found, value: Buffer.from(base64, 'base64'), flags, locks, session, lock }
      if (base64 === undefined && typeof value === 'string') return { ...found, value: Buffer.from(value), flags, locks, session, lock }
    }
  } catch {
    // Not JSON.
  }
  return { ...found, value: Buffer.from(text), flags: '0', locks: 0, session: '', lock: 0 }
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value)
}

/** The session that holds a key. A frozen key shows none, as Consul does during a lock-delay. */
export function sessionShown(pair: ConsulPair | undefined, grant: GrantView | undefined): string {
  return pair !== undefined && grant !== undefined && grant.status !== 'frozen' && pair.lock === grant.incarnation ? pair.session : ''
}

/** The id under which a holder without Consul is shown: clients wait for it as for any other. */
export function foreignSession(lease: number): string {
  return `00000000-0000-0000-0000-${lease.toString(16).padStart(12, '0')}`
}

/** Built by hand: a number of 64 bits does not survive JSON.stringify. */
export function shownPair({ key, value, flags, locks, created, revision }: ConsulPair, session: string): string {
  const text = value.length === 0 ? 'null' : `"${Buffer.from(value).toString('base64')}"`
  const holder = session === '' ? '' : `"Session":${JSON.stringify(session)},`
  return `{"LockIndex":${locks},"Key":${JSON.stringify(key)},"Flags":${flags},"Value":${text},${holder}"CreateIndex":${created},"ModifyIndex":${revision}}`
}

/** A key without a value that a client without Consul holds: it looks like a lock of that client. */
export function foreignPair(key: string, { lease, holder, token }: GrantView): string {
  const pair = { key, value: Buffer.from(`leasehold:${holder}`), flags: LOCK_FLAGS, locks: 1, session: '', lock: lease, on: 0 }
  return shownPair({ ...pair, created: token, revision: token }, foreignSession(lease))
}
