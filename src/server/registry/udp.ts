/**
 * Heartbeats by datagram: nothing is answered, so they are for registrations alone, whose holders believe in nothing.
 *
 *   beat LEASE [status=passing] [load=3]
 *   beat LEASE [status=…] [load=…] key=ID seq=N mac=HEX       once there are keys
 *
 * `mac` is the HMAC-SHA256, in hex, of everything before it (without the space), under the SHA-256 of the key's secret. It is the last word: a datagram
 * with anything after it is dropped, and so is one that says a word twice. `seq` grows with each of a lease's
 * heartbeats: one that was heard before counts for nothing, or whoever overheard it could keep the dead alive.
 *
 * So that this outlives the server, and holds between servers on one store, the number is kept with the registration: the first that is ever
 * heard of a lease, and then every fourth. Above what is written at most three have been heard before; until a server has heard three more
 * itself it takes them as signs of life and for nothing else, and writes each of them down, so that they are used up.
 *
 * Not promised: that those three, overheard, do not count once more as signs of life.
 */
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv6 } from 'node:net'
import type { Clock } from '../../clock.ts'
import {
  type DeclaredStatus,
  type InstanceState,
  keyOf,
  partsOf,
  type RegistrationData,
  readRegistration,
  readState,
  STATUSES,
  stateEntryOf,
  stateOf,
} from '../../registry/entry.ts'
import { anonymousCaller, type Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'
import type { Log } from '../listener.ts'

export interface UdpOptions {
  readonly desk: GuardedLessor
  readonly clock: Clock
  readonly log: Log
  readonly host: string
  readonly port: number
}

interface Beat {
  readonly lease: number
  readonly state: Partial<InstanceState>
  readonly key: number
  readonly seq: number
  readonly mac: string
  /** What was signed: all that stands before ` mac=`, which comes last. */
  readonly text: string
}

interface Waiting {
  readonly beat: Beat
  readonly caller: Caller
}

interface Heard {
  /** The highest that came. */
  seq: number
  /** The highest that counted for something. */
  counted: number
  /** How many were counted since one was written down. */
  unwritten: number
  /** How many more may have been heard before, by this server before it was started or by another. */
  doubts: number
}

interface Carried {
  readonly registrations: readonly { readonly registration: RegistrationData; readonly before: InstanceState }[]
  /** The key that the number is written under. */
  readonly own: string
  readonly written: number | undefined
}

interface Counted extends Waiting, Pick<Carried, 'registrations'> {
  /** It was certainly never heard before. */
  readonly sure: boolean
}

/** A number is written down at the latest after so many that were not: each is an event for everyone who watches services. */
const UNWRITTEN = 3
/** Where: `services/SERVICE/INSTANCE/beat`, on the lease that it renews. */
const MARK = 'beat'
const MARKS = /^services\/[^/]+\/[^/]+\/beat$/
const LONGEST = 512
/** What waits to be looked at, or for the store; more is dropped, as datagrams are. */
const MAX_WAITING = 10_000
const MAX_REMEMBERED = 1_000_000

export class UdpHeartbeats implements AsyncDisposable {
  readonly #options: UdpOptions
  readonly #socket: Socket
  /** By key and lease: another key's must not silence this one's. */
  readonly #heard = new Map<string, Heard>()
  #waiting: Waiting[] = []
  /** Taken from `#waiting`, and not passed on yet. */
  #underWay = 0
  /** For metrics and tests. */
  readonly stats = { beats: 0, dropped: 0, renewed: 0 }

  private constructor(options: UdpOptions) {
    this.#options = options
    this.#socket = createSocket({ type: isIPv6(options.host) ? 'udp6' : 'udp4' })
    this.#socket.on('message', bytes => this.#message(bytes))
  }

  static async open(options: UdpOptions): Promise<UdpHeartbeats> {
    const heartbeats = new UdpHeartbeats(options)
    heartbeats.#socket.bind(options.port, options.host)
    await once(heartbeats.#socket, 'listening')
    heartbeats.#socket.on('error', error => options.log.warn({ error: String(error) }, 'heartbeats over UDP met a failure'))
    return heartbeats
  }

  get port(): number {
    return this.#socket.address().port
  }

  #message(bytes: Buffer): void {
    const beat = bytes.length <= LONGEST ? readBeat(bytes.toString('latin1')) : undefined
    const caller = beat === undefined ? undefined : this.#callerOf(beat)
    if (beat === undefined || caller === undefined || this.#waiting.length + this.#underWay >= MAX_WAITING) {
      this.stats.dropped++
      return
    }
    this.stats.beats++
    // All that came within this turn goes into one renewal.
    if (this.#waiting.length === 0) this.#options.clock.soon(() => void this.#renew())
    this.#waiting.push({ beat, caller })
  }

  #callerOf({ lease, key, seq, mac, text }: Beat): Caller | undefined {
    const { gate } = this.#options.desk
    if (!gate.closed) return anonymousCaller()
    const caller = gate.signer(key, text, mac)
    const whose = `${key} ${lease}`
    const heard = this.#heard.get(whose) ?? { seq: 0, counted: 0, unwritten: 0, doubts: 0 }
    if (caller === undefined || seq <= heard.seq) return undefined
    heard.seq = seq
    if (this.#heard.size >= MAX_REMEMBERED) this.#heard.delete(this.#heard.keys().next().value!)
    this.#heard.delete(whose)
    this.#heard.set(whose, heard)
    return caller
  }

  async #renew(): Promise<void> {
    const waiting = this.#waiting
    this.#waiting = []
    this.#underWay += waiting.length
    try {
      await this.#passOn(waiting)
    } finally {
      this.#underWay -= waiting.length
    }
  }

  async #passOn(waiting: readonly Waiting[]): Promise<void> {
    const byKey = new Map<number, { readonly caller: Caller; readonly leases: number[] }>()
    const told: Promise<void>[] = []
    try {
      for (const counted of await Promise.all(waiting.map(one => this.#count(one)))) {
        if (counted === undefined) continue
        const { beat, caller, registrations, sure } = counted
        const group = byKey.get(caller.key) ?? { caller, leases: [] }
        byKey.set(caller.key, group)
        group.leases.push(beat.lease)
        if (sure) for (const { registration, before } of registrations) told.push(this.#tell(caller, beat, registration, before))
      }
      for (const { caller, leases } of byKey.values()) {
        const outcome = await this.#options.desk.propose(caller, { kind: 'renew', leases })
        if (outcome.kind === 'renewed') this.stats.renewed += outcome.ttls.filter(ttl => ttl > 0).length
      }
    } catch (error) {
      this.#failed(error)
    }
    await Promise.all(told)
  }

  /** What a heartbeat is good for, its number written down where that is due; undefined: nothing. */
  async #count({ beat, caller }: Waiting): Promise<Counted | undefined> {
    const carried = await this.#carriedBy(beat.lease)
    if (carried === undefined) return undefined
    const { registrations, own, written } = carried
    const { gate, lessor } = this.#options.desk
    if (!gate.closed) return { beat, caller, registrations, sure: true }
    const { seq, lease } = beat
    if (seq <= (written ?? 0)) return undefined // heard before a restart, or by another server
    const heard = this.#heard.get(`${caller.key} ${lease}`)
    if (heard === undefined) return undefined // so many others came meanwhile that it was forgotten
    // Others have heard it since we did: some of what they heard they have not written down.
    if (written !== undefined && written > heard.counted) heard.doubts = UNWRITTEN
    const sure = heard.doubts === 0
    const write = written === undefined || !sure || heard.unwritten === UNWRITTEN
    heard.counted = Math.max(heard.counted, seq)
    heard.unwritten = write ? 0 : heard.unwritten + 1
    if (!sure) heard.doubts--
    if (!write) return { beat, caller, registrations, sure }
    // Not by way of the desk: like a renewal, it is never refused by rate.
    const mark = { kind: 'put', lease, key: `${own}/${MARK}`, value: String(seq), generation: lease } as const
    const outcome = await lessor.propose(mark, { key: caller.key })
    return outcome.kind === 'refused' && outcome.code !== 'LIMIT' ? undefined : { beat, caller, registrations, sure }
  }

  /** Nobody waits for an answer; the next heartbeat tries again. */
  #failed(error: unknown): void {
    this.#options.log.debug({ error: String(error) }, 'heartbeats over UDP could not be passed on')
  }

  /** What hangs on a lease that carries registrations and nothing else; a lock is not renewed by what nobody acknowledges. */
  async #carriedBy(id: number): Promise<Carried | undefined> {
    const { value: lease } = await this.#options.desk.lessor.read({ kind: 'lease', lease: id })
    if (lease === undefined || lease.grants.length > 0 || lease.wants.length > 0) return undefined
    const marks = lease.entries.filter(({ key }) => MARKS.test(key))
    const parts = lease.entries.filter(({ key }) => !MARKS.test(key)).map(({ key }) => partsOf(key))
    if (parts.length === 0 || parts.includes(undefined)) return undefined
    const values = new Map(lease.entries.map(({ key, value }) => [key, value]))
    const registrations = parts.flatMap(part => {
      if (part!.part !== '') return []
      // Whoever may write entries may write anything: what is no registration is renewed, and has no state to tell.
      const registration = readRegistration(keyOf(part!), values.get(keyOf(part!))!)
      if (registration === undefined) return []
      const state = values.get(keyOf(part!, 'state'))
      return {
        registration,
        before: state === undefined ? stateOf({}) : readState(state),
      }
    })
    const written = marks.length === 0 ? undefined : Math.max(...marks.map(({ value }) => whole(value) ?? 0))
    return { registrations, own: keyOf(parts[0]!), written }
  }

  /** Never throws: what one may not say keeps nobody from being renewed. */
  async #tell(caller: Caller, { lease, state }: Beat, registration: RegistrationData, before: InstanceState): Promise<void> {
    try {
      const after = stateOf(state, before)
      if (after.status === before.status && after.load === before.load) return
      await this.#options.desk.propose(caller, { kind: 'put', lease, ...stateEntryOf(registration, after) })
    } catch (error) {
      this.#failed(error)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>(resolve => this.#socket.close(() => resolve()))
  }
}

const WORDS: readonly string[] = ['status', 'load', 'key', 'seq', 'mac']

/** Undefined for anything else. Each word at most once, and `mac` only as the last: what follows it would be obeyed and is not signed. */
export function readBeat(message: string): Beat | undefined {
  const said = message.trimEnd()
  const words = said.split(' ')
  if (words.shift() !== 'beat') return undefined
  const lease = whole(words.shift())
  if (lease === undefined) return undefined
  const fields = new Map<string, string>()
  for (const word of words) {
    const [, name, value] = /^([a-z]+)=([^=]+)$/.exec(word) ?? []
    if (name === undefined || value === undefined || !WORDS.includes(name) || fields.has(name) || fields.has('mac')) return undefined
    fields.set(name, value)
  }
  const status = fields.get('status')
  const load = fields.get('load')
  const mac = fields.get('mac') ?? ''
  const [key, seq] = [whole(fields.get('key') ?? '0'), whole(fields.get('seq') ?? '0')]
  if (status !== undefined && !(STATUSES as readonly string[]).includes(status)) return undefined
  if (load !== undefined && !/^\d{1,9}(\.\d{1,6})?$/.test(load)) return undefined
  if (key === undefined || seq === undefined || (mac !== '' && !/^[0-9a-f]{1,64}$/i.test(mac))) return undefined
  return {
    lease,
    state: { ...(status !== undefined && { status: status as DeclaredStatus }), ...(load !== undefined && { load: Number(load) }) },
    key,
    seq,
    mac,
    text: mac === '' ? said : said.slice(0, -` mac=${mac}`.length),
  }
}

function whole(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined
}
