/**
 * Sessions: each is a lease with one entry, `consul/.session/ID`, which ends with it. Nothing else remembers a session.
 *
 * A key that the session acquires is held by a lease of its own, a child of the session's: it ends with the session, in the same revision. Its ttl is that of
 * the session and the lock-delay together, and both are renewed by one command. So when the session lapses, the kernel keeps the key frozen for exactly the
 * lock-delay. Destroying a session freezes its keys until the term that their holder may count with is over; without a lock-delay they are free at once.
 */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { badName } from '../../kernel/name.ts'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { EntryView, ReadOptions } from '../../lessor.ts'
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { mapInSlices } from '../slices.ts'
import { TextFailure } from '../text-failure.ts'
import { startWholeTerm } from '../whole-term.ts'
import { whenChanged } from './blocking.ts'
import { answer, bodyFields, expected, goDuration, goText, json, listAnswer, NODE, TRUE, textField } from './protocol.ts'

/** No key of a client is under this folder. */
export const SESSION_FOLDER = '.session'
const SESSIONS = `consul/${SESSION_FOLDER}`
const MIN_TTL = 10_000
const MAX_TTL = 86_400_000
const DEFAULT_LOCK_DELAY = 15_000
const MAX_LOCK_DELAY = 60_000
/** A number below this is seconds, any other nanoseconds: as Consul reads a lock-delay. */
const SECONDS_BELOW = 1_000
/** The longest term of a key that a session holds. */
export const MAX_LOCK_TTL = MAX_TTL + MAX_LOCK_DELAY

/** A session that is there. */
export interface ConsulSession {
  readonly id: string
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly name: string
  readonly ttl: number
  readonly lockDelay: number
  readonly behavior: 'release' | 'delete'
  readonly created: number
  readonly revision: number
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export class Sessions {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  async find(id: string, options: ReadOptions = { consistent: true }): Promise<ConsulSession | undefined> {
    if (!UUID.test(id)) return undefined
    const key = `${SESSIONS}/${id}`
    const { value } = await this.#caller.lessor.read<'entries'>({ kind: 'entries', prefix: key, limit: 1 }, options)
    const entry = value.find(found => found.key === key)
    return entry === undefined ? undefined : sessionOf(entry)
  }

  async create(request: HttpFaceRequest): Promise<HttpFaceResponse> {
    const { lessor, holder, clock } = this.#caller
    const { name, ttl, lockDelay, behavior } = sessionFields(await bodyFields(request))
    const id = uuid(clock)
    const value = JSON.stringify({ name, ttl, lockDelay, behavior })
    const outcome = await propose(lessor, {
      kind: 'acquire',
      holder: holderOf(name, holder),
      ttl,
      wants: [],
      entries: [{ key: `${SESSIONS}/${id}`, value }],
    })
    const { lease } = expected(outcome, 'granted')
    if (!(await startWholeTerm(lessor, ttl, lease))) throw new TextFailure(500, 'the session was ended at once: create another')
    return json({ ID: id })
  }

  /** Renews the session and all that it holds, in one command. */
  async renew(id: string): Promise<HttpFaceResponse> {
    const { lessor, signal } = this.#caller
    const session = await this.find(id)
    const gone = new TextFailure(404, `Session id '${id.slice(0, 64)}' not found`)
    if (session === undefined) throw gone
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: session.lease }, { signal })
    if (lease === undefined) throw gone
    const outcome = await propose(lessor, { kind: 'renew', leases: [session.lease, ...lease.children] })
    if (expected(outcome, 'renewed').ttls[0] === GONE) throw gone
    return json([shown(session)])
  }

  async destroy(id: string): Promise<HttpFaceResponse> {
    const { lessor, signal } = this.#caller
    const session = await this.find(id)
    if (session === undefined) return TRUE
    // Without a lock-delay the client says that no key of the session is used any more.
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: session.lease }, { signal })
    const stopped = session.lockDelay === 0 ? (lease?.children ?? []) : []
    const outcome = await propose(lessor, { kind: 'release', lease: session.lease, ...(stopped.length > 0 && { stopped }) })
    if (!(outcome.kind === 'refused' && outcome.code === 'GONE')) expected(outcome, 'done')
    // The kernel does not tell a lease of another key from one that has ended.
    else if ((await this.find(id)) !== undefined) throw new TextFailure(403, 'Permission denied: the session was made with another key')
    return TRUE
  }

  async info(request: HttpFaceRequest, id: string): Promise<HttpFaceResponse> {
    const { lessor, signal } = this.#caller
    if (!UUID.test(id)) return answer((await lessor.read<'summary'>({ kind: 'summary' }, { signal })).revision, [])
    const key = `${SESSIONS}/${id}`
    const at = await whenChanged(request, this.#caller, key)
    const { revision, value } = await lessor.read<'entries'>(
      { kind: 'entries', prefix: key, limit: 1 },
      { consistent: true, ...at, signal },
    )
    return answer(revision, sessionsIn(value))
  }

  async list(request: HttpFaceRequest, node = NODE): Promise<HttpFaceResponse> {
    const { lessor, signal } = this.#caller
    const at = await whenChanged(request, this.#caller, SESSIONS)
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: SESSIONS }, { consistent: true, ...at, signal })
    const visible = node === NODE ? await this.#visible(value) : []
    const found = await mapInSlices(this.#caller, visible, sessionOf)
    return listAnswer(
      this.#caller,
      found.filter(session => session !== undefined),
      shown,
      revision,
    )
  }

  /**
   * All sessions for a key that may read all of Consul, else those that it made itself. Every key must be allowed to read entries of sessions, to use its own; what the
   * sessions of others are called is none of its business.
   */
  async #visible(entries: readonly EntryView[]): Promise<readonly EntryView[]> {
    const { lessor, key, signal } = this.#caller
    if (key === 0 || (await this.#mayReadAll())) return entries
    const { value: own } = await lessor.read<'leases'>({ kind: 'leases', within: [], own: { key, claims: [] } }, { signal })
    const made = new Set(own.filter(view => view.key === key).map(({ lease }) => lease))
    return entries.filter(({ lease }) => made.has(lease))
  }

  async #mayReadAll(): Promise<boolean> {
    try {
      await this.#caller.lessor.read<'resource'>({ kind: 'resource', resource: 'consul', waiters: 0, holders: 0 })
      return true
    } catch (error) {
      if (LeaseError.is(error, 'FORBIDDEN')) return false
      throw error
    }
  }
}

function sessionsIn(entries: readonly EntryView[]): readonly object[] {
  return entries.flatMap(entry => {
    const session = sessionOf(entry)
    return session === undefined ? [] : [shown(session)]
  })
}

/** Any client with a key for the entry may have written it. */
function sessionOf({ key, value, lease, holder, incarnation, created, revision }: EntryView): ConsulSession | undefined {
  try {
    const { name, ttl, lockDelay, behavior } = JSON.parse(value) as Partial<ConsulSession>
    if (lease === 0 || typeof name !== 'string' || !Number.isSafeInteger(ttl) || !Number.isSafeInteger(lockDelay)) return undefined
    if (behavior !== 'release' && behavior !== 'delete') return undefined
    const id = key.slice(SESSIONS.length + 1)
    return { id, lease, holder, incarnation, name, ttl: ttl!, lockDelay: lockDelay!, behavior, created, revision }
  } catch {
    return undefined
  }
}

function shown({ id, name, ttl, lockDelay, behavior, created, revision }: ConsulSession): object {
  return {
    ...{ ID: id, Name: name, Node: NODE, NodeChecks: [], ServiceChecks: null, LockDelay: lockDelay * 1e6, Behavior: behavior },
    ...{ TTL: goText(ttl), CreateIndex: created, ModifyIndex: revision },
  }
}

type SessionFields = Pick<ConsulSession, 'name' | 'ttl' | 'lockDelay' | 'behavior'>

function sessionFields(fields: Readonly<Record<string, unknown>>): SessionFields {
  const name = textField(fields, 'Name')
  if (Buffer.byteLength(name) > 256) throw new TextFailure(400, 'Request decode failed: Name is longer than 256 bytes')
  const node = textField(fields, 'Node')
  if (node !== '' && node !== NODE) throw new TextFailure(500, `Missing node registration: the only node here is ${NODE}`)
  for (const checks of ['servicechecks', 'checks', 'nodechecks']) {
    const named = fields[checks]
    const known = checks === 'servicechecks' ? [] : ['serfHealth']
    if (Array.isArray(named) && named.some(check => !known.includes(String(check))))
      throw new TextFailure(400, 'a session is kept by its TTL alone: leave its checks out, or name serfHealth')
  }
  const given = textField(fields, 'TTL')
  const ttl = goDuration(given)
  if (given === '')
    throw new TextFailure(400, 'a session needs a TTL, from 10s to 24h, and renewals: nothing is locked for ever here. Add "TTL": "15s"')
  if (ttl === undefined || ttl < MIN_TTL || ttl > MAX_TTL)
    throw new TextFailure(400, `Invalid Session TTL '${given.slice(0, 32)}', must be between [10s=24h0m0s]`)
  const behavior = textField(fields, 'Behavior') || 'release'
  if (behavior !== 'release' && behavior !== 'delete') throw new TextFailure(400, `Invalid Behavior setting '${behavior.slice(0, 32)}'`)
  return { name, ttl, lockDelay: lockDelayOf(fields.lockdelay), behavior }
}

function lockDelayOf(given: unknown): number {
  if (given === undefined || given === null) return DEFAULT_LOCK_DELAY
  const bare = typeof given === 'string' && /^\d+$/.test(given) ? Number(given) : given
  const ms =
    typeof bare === 'number' ? (bare < SECONDS_BELOW ? bare * 1_000 : bare / 1e6) : typeof bare === 'string' ? goDuration(bare) : undefined
  if (ms === undefined || !(ms >= 0)) throw new TextFailure(400, 'Request decode failed: LockDelay is not a duration')
  return Math.min(MAX_LOCK_DELAY, Math.ceil(ms))
}

/** A random id of version 4. */
function uuid(clock: Clock): string {
  const hex = [clock.bits(), clock.bits()].map(bits => bits.toString(16).padStart(16, '0')).join('')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`
}

/** The name that people read as the holder: what the client calls its session, and where it comes from. */
function holderOf(name: string, holder: string): string {
  const full = `${name.replaceAll('/', ' ')} (${holder})`
  return name === '' || badName(full) !== undefined ? holder : full
}
