/**
 * Heartbeats over UDP. Datagrams are not answered, so they renew only registrations, whose holders rely on no answer.
 *
 *   beat LEASE [status=passing] [load=3]
 *   beat LEASE [status=…] [load=…] key=ID seq=N mac=HEX       once there are keys
 *
 * `mac` is the HMAC-SHA256, in hex, of everything before it (without the space), under the SHA-256 of the key's secret. It is the last word: a
 * datagram with anything after it is dropped, and so is one that repeats a word. `seq` grows with each heartbeat of a lease. A datagram with an
 * old `seq` is ignored; otherwise a replayed datagram could keep a dead instance alive.
 *
 * The number must survive a restart and hold between servers on one store, so it is stored with the registration: the first number of a lease,
 * and then every fourth. So at most three numbers above the stored one were seen before. Until a server has received three more itself, it
 * accepts datagrams as signs of life only, and stores each of their numbers, so that they cannot be used again.
 *
 * Not promised: that those three datagrams, if replayed, do not renew the lease once more.
 */
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv6 } from 'node:net'
import type { Clock } from '../../clock.ts'
import { propose } from '../../lessor/propose.ts'
import { RecentMap } from '../../recent-map.ts'
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
import type { ServerLog } from '../listener.ts'

export interface UdpHeartbeatsOptions {
  readonly guarded: GuardedLessor
  readonly clock: Clock
  readonly log: ServerLog
  readonly host: string
  readonly port: number
}

interface Beat {
  readonly lease: number
  readonly state: Partial<InstanceState>
  readonly key: number
  readonly seq: number
  readonly mac: string
  /** The signed text: everything before ` mac=`, which comes last. */
  readonly text: string
}

interface ReceivedBeat {
  readonly beat: Beat
  readonly caller: Caller
}

/** The sequence numbers of one lease and key. */
interface SequenceState {
  /** The highest number received. */
  seq: number
  /** The highest number accepted. */
  accepted: number
  /** The number accepted since one was stored. */
  unstored: number
  /** The number of further values that may have been seen before: by this server before a restart, or by another server. */
  doubtful: number
}

interface LeaseContents {
  readonly registrations: readonly { readonly registration: RegistrationData; readonly before: InstanceState }[]
  /** The key of the registration, under which the number is stored. */
  readonly key: string
  readonly stored: number | undefined
}

interface AcceptedBeat extends ReceivedBeat, Pick<LeaseContents, 'registrations'> {
  /** It was certainly never seen before. */
  readonly fresh: boolean
}

/** Numbers between two stored ones. Storing a number is an event for every watcher of services, so not all are stored. */
const MAX_UNSTORED = 3
/** The number is stored in `services/SERVICE/INSTANCE/beat`, on the lease that it renews. */
const BEAT = 'beat'
const BEAT_KEY = /^services\/[^/]+\/[^/]+\/beat$/
const MAX_DATAGRAM = 512
/** Heartbeats in flight. More datagrams are dropped. */
const MAX_WAITING = 10_000
/** Numbers of this many leases, at least, are remembered. */
const KEPT_SEQUENCES = 500_000

export class UdpHeartbeats implements AsyncDisposable {
  readonly #options: UdpHeartbeatsOptions
  readonly #socket: Socket
  /** By key and lease: the numbers of one key must not affect those of another. */
  readonly #sequences = new RecentMap<string, SequenceState>(KEPT_SEQUENCES)
  #waiting: ReceivedBeat[] = []
  /** Taken from `#waiting`, and not renewed yet. */
  #inFlight = 0
  /** For metrics and tests. */
  readonly stats = { beats: 0, dropped: 0, renewed: 0 }

  private constructor(options: UdpHeartbeatsOptions) {
    this.#options = options
    this.#socket = createSocket({ type: isIPv6(options.host) ? 'udp6' : 'udp4' })
    this.#socket.on('message', bytes => this.#message(bytes))
  }

  static async open(options: UdpHeartbeatsOptions): Promise<UdpHeartbeats> {
    const heartbeats = new UdpHeartbeats(options)
    heartbeats.#socket.bind(options.port, options.host)
    await once(heartbeats.#socket, 'listening')
    heartbeats.#socket.on('error', error => options.log.warn({ error: String(error) }, 'UDP heartbeats failed'))
    return heartbeats
  }

  get port(): number {
    return this.#socket.address().port
  }

  #message(bytes: Buffer): void {
    const beat = bytes.length <= MAX_DATAGRAM ? readBeat(bytes.toString('latin1')) : undefined
    const caller = beat === undefined ? undefined : this.#callerOf(beat)
    if (beat === undefined || caller === undefined || this.#waiting.length + this.#inFlight >= MAX_WAITING) {
      this.stats.dropped++
      return
    }
    this.stats.beats++
    // All heartbeats of this turn go into one renewal.
    if (this.#waiting.length === 0) this.#options.clock.soon(() => void this.#renew())
    this.#waiting.push({ beat, caller })
  }

  #callerOf({ lease, key, seq, mac, text }: Beat): Caller | undefined {
    const { access } = this.#options.guarded
    if (!access.keyRequired) return anonymousCaller()
    const caller = access.signer(key, text, mac)
    const id = `${key} ${lease}`
    const sequence = this.#sequences.get(id) ?? { seq: 0, accepted: 0, unstored: 0, doubtful: 0 }
    if (caller === undefined || seq <= sequence.seq) return undefined
    sequence.seq = seq
    this.#sequences.set(id, sequence)
    return caller
  }

  async #renew(): Promise<void> {
    const waiting = this.#waiting
    this.#waiting = []
    this.#inFlight += waiting.length
    try {
      await this.#renewAll(waiting)
    } finally {
      this.#inFlight -= waiting.length
    }
  }

  async #renewAll(waiting: readonly ReceivedBeat[]): Promise<void> {
    const byKey = new Map<number, { readonly caller: Caller; readonly leases: number[] }>()
    const writes: Promise<void>[] = []
    try {
      for (const accepted of await Promise.all(waiting.map(received => this.#accept(received)))) {
        if (accepted === undefined) continue
        const { beat, caller, registrations, fresh } = accepted
        const group = byKey.get(caller.key) ?? { caller, leases: [] }
        byKey.set(caller.key, group)
        group.leases.push(beat.lease)
        if (fresh) for (const { registration, before } of registrations) writes.push(this.#writeState(caller, beat, registration, before))
      }
      for (const { caller, leases } of byKey.values()) {
        const outcome = await this.#options.guarded.propose(caller, { kind: 'renew', leases })
        if (outcome.kind === 'renewed') this.stats.renewed += outcome.ttls.filter(ttl => ttl > 0).length
      }
    } catch (error) {
      this.#failed(error)
    }
    await Promise.all(writes)
  }

  /** Checks the number of a heartbeat, and stores it if that is due. Undefined: the heartbeat is ignored. */
  async #accept({ beat, caller }: ReceivedBeat): Promise<AcceptedBeat | undefined> {
    const contents = await this.#contentsOf(beat.lease)
    if (contents === undefined) return undefined
    const { registrations, key, stored } = contents
    const { access, lessor } = this.#options.guarded
    if (!access.keyRequired) return { beat, caller, registrations, fresh: true }
    const { seq, lease } = beat
    if (seq <= (stored ?? 0)) return undefined // seen before a restart, or by another server
    const sequence = this.#sequences.get(`${caller.key} ${lease}`)
    if (sequence === undefined) return undefined // forgotten: too many other leases sent heartbeats meanwhile
    // Another server received heartbeats of this lease, and has not stored all their numbers.
    if (stored !== undefined && stored > sequence.accepted) sequence.doubtful = MAX_UNSTORED
    const fresh = sequence.doubtful === 0
    const store = stored === undefined || !fresh || sequence.unstored === MAX_UNSTORED
    sequence.accepted = Math.max(sequence.accepted, seq)
    sequence.unstored = store ? 0 : sequence.unstored + 1
    if (!fresh) sequence.doubtful--
    if (!store) return { beat, caller, registrations, fresh }
    // Not through the guarded lessor: like a renewal, it is never refused by the rate limit.
    const put = { kind: 'put', lease, key: `${key}/${BEAT}`, value: String(seq), generation: lease } as const
    const outcome = await propose(lessor, put, { key: caller.key })
    return outcome.kind === 'refused' && outcome.code !== 'LIMIT' ? undefined : { beat, caller, registrations, fresh }
  }

  /** No client waits for an answer. The next heartbeat tries again. */
  #failed(error: unknown): void {
    this.#options.log.debug({ error: String(error) }, 'UDP heartbeats could not be renewed')
  }

  /** Undefined unless the lease carries registrations and nothing else: a lock must not be renewed by messages without an answer. */
  async #contentsOf(id: number): Promise<LeaseContents | undefined> {
    const { value: lease } = await this.#options.guarded.lessor.read({ kind: 'lease', lease: id })
    if (lease === undefined || lease.grants.length > 0 || lease.wants.length > 0) return undefined
    const numbers = lease.entries.filter(({ key }) => BEAT_KEY.test(key))
    const parts = lease.entries.filter(({ key }) => !BEAT_KEY.test(key)).map(({ key }) => partsOf(key))
    if (parts.length === 0 || parts.includes(undefined)) return undefined
    const values = new Map(lease.entries.map(({ key, value }) => [key, value]))
    const registrations = parts.flatMap(part => {
      if (part!.part !== '') return []
      // A client that may write entries may write anything. Entries that are no registrations are renewed, but have no state.
      const registration = readRegistration(keyOf(part!), values.get(keyOf(part!))!)
      if (registration === undefined) return []
      const state = values.get(keyOf(part!, 'state'))
      return {
        registration,
        before: state === undefined ? stateOf({}) : readState(state),
      }
    })
    const stored = numbers.length === 0 ? undefined : Math.max(...numbers.map(({ value }) => whole(value) ?? 0))
    return { registrations, key: keyOf(parts[0]!), stored }
  }

  /** Never throws: a state that cannot be written must not stop renewals. */
  async #writeState(caller: Caller, { lease, state }: Beat, registration: RegistrationData, before: InstanceState): Promise<void> {
    try {
      const after = stateOf(state, before)
      if (after.status === before.status && after.load === before.load) return
      await this.#options.guarded.propose(caller, { kind: 'put', lease, ...stateEntryOf(registration, after) })
    } catch (error) {
      this.#failed(error)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>(resolve => this.#socket.close(() => resolve()))
  }
}

const WORDS: readonly string[] = ['status', 'load', 'key', 'seq', 'mac']

/** Undefined for anything else. Each word at most once, and `mac` last: a word after it would not be signed. */
export function readBeat(message: string): Beat | undefined {
  const text = message.trimEnd()
  const words = text.split(' ')
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
    text: mac === '' ? text : text.slice(0, -` mac=${mac}`.length),
  }
}

function whole(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined
}
