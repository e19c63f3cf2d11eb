/**
 * Watches of Leases: the writes of objects as events, in order, from a resourceVersion on.
 *
 * A watch keeps nothing for a client that does not read: the next revision is fetched when the last was sent. A client that is too slow, or that asks for a
 * resourceVersion whose events are no longer kept, gets the error `Expired` (410) and lists again, as in Kubernetes.
 */
import type { Clock } from '../../clock.ts'
import type { Event } from '../../kernel/event.ts'
import type { FaceCaller } from '../face.ts'
import { API_VERSION, type KubeLease, nameOf, type ObjectName, PREFIX, storedLease } from './lease-object.ts'
import type { FoundLeases } from './lease-objects.ts'
import { encodeEvent } from './messages.ts'
import { type AnswerForm, PROTOBUF_TYPE } from './negotiation.ts'
import type { JsonObject } from './protobuf.ts'
import type { LeaseSelector } from './selector.ts'
import { expired, type StatusFailure, toldFailure } from './status.ts'
import { leaseTable, partialLease } from './table.ts'

export interface WatchRequest {
  readonly namespace: string | undefined
  readonly selector: LeaseSelector
  readonly form: AnswerForm
  /** The part of an object that a row of a table contains. */
  readonly include: string
  /** Deliver the writes after this revision. */
  readonly after: number
  /** Objects that are delivered first, as added. */
  readonly initial: FoundLeases | undefined
  /** Mark the end of the initial objects by a bookmark. */
  readonly marksInitial: boolean
  readonly bookmarks: boolean
  /** Ends the watch, in ms. */
  readonly timeout: number
  /** Names that match the selector at the beginning, if a write can change that. */
  readonly matching: Iterable<string>
}

type EventKind = 'ADDED' | 'MODIFIED' | 'DELETED'

/** A client that wants bookmarks gets one this often, in ms. */
const BOOKMARK_INTERVAL = 30_000
/** A refused watch is known after fewer turns than this. */
const MICROTASKS = 8
/** Events are combined to pieces of about this many bytes. */
const PIECE = 16_384

/** Opens a watch. A refusal is thrown before the stream begins, so that it is answered with its own status. */
export async function watchLeases(caller: FaceCaller, request: WatchRequest): Promise<AsyncIterable<Uint8Array>> {
  const { clock, lessor, signal } = caller
  const stop = new AbortController()
  const end = () => stop.abort()
  signal.addEventListener('abort', end)
  if (signal.aborted) end()
  const prefix = request.namespace === undefined ? PREFIX : `${PREFIX}/${request.namespace}`
  const revisions = lessor.watch(prefix, { after: request.after, types: ['put', 'deleted'], signal: stop.signal })
  const feed = new RevisionFeed(revisions[Symbol.asyncIterator](), clock, request.bookmarks ? BOOKMARK_INTERVAL : request.timeout)
  await feed.begin()
  return stream(caller, request, feed, stop, () => signal.removeEventListener('abort', end))
}

async function* stream(
  caller: FaceCaller,
  request: WatchRequest,
  feed: RevisionFeed,
  stop: AbortController,
  unlink: () => void,
): AsyncGenerator<Uint8Array, void, void> {
  const { clock, lessor } = caller
  const cancel = clock.after(request.timeout, () => stop.abort())
  const writer = new EventWriter(request, clock)
  try {
    for (const lease of request.initial?.items ?? []) {
      if (!writer.add('ADDED', lease)) continue
      yield writer.take()
      await caller.nextTurn?.()
    }
    if (request.marksInitial) writer.bookmark(request.after, true)
    if (writer.ready) yield writer.take()
    const translator = new EventTranslator(request)
    let passed = request.after
    let known = request.after
    for (;;) {
      const events = await feed.next()
      if (events === 'ended') return
      if (events === 'quiet') {
        if (stop.signal.aborted) return
        if (!request.bookmarks) continue
        // The newest revision of one interval ago has been delivered since: a bookmark never promises more than was sent.
        passed = Math.max(passed, known)
        known = (await lessor.read<'summary'>({ kind: 'summary' }, { signal: stop.signal })).revision
        writer.bookmark(passed, false)
      } else {
        for (const event of events) {
          if (event.type === 'resync') throw expired(`too old resource version: ${passed} (${event.revision})`)
          passed = event.revision
          const told = translator.translate(event)
          if (told !== undefined && writer.add(told.kind, told.lease)) yield writer.take()
        }
      }
      if (writer.ready) yield writer.take()
    }
  } catch (error) {
    if (stop.signal.aborted) return
    const failure = toldFailure(error)
    if (failure === undefined) throw error
    yield writer.error(failure)
  } finally {
    cancel()
    unlink()
    stop.abort()
  }
}

/** The revisions of a watch, and the intervals in which none came. */
class RevisionFeed {
  readonly #revisions: AsyncIterator<readonly Event[]>
  readonly #clock: Clock
  readonly #interval: number
  #pending: Promise<readonly Event[] | 'ended'> | undefined

  constructor(revisions: AsyncIterator<readonly Event[]>, clock: Clock, interval: number) {
    this.#revisions = revisions
    this.#clock = clock
    this.#interval = interval
  }

  /** Asks for the first revision. Throws if the watch is refused, which happens at once. */
  async begin(): Promise<void> {
    let refused: { readonly error: unknown } | undefined
    this.#ask().catch(error => {
      refused = { error }
    })
    for (let turns = 0; turns < MICROTASKS && refused === undefined; turns++) await Promise.resolve()
    if (refused !== undefined) throw refused.error
  }

  #ask(): Promise<readonly Event[] | 'ended'> {
    this.#pending ??= this.#revisions.next().then(({ done, value }) => (done === true ? 'ended' : value))
    return this.#pending
  }

  async next(): Promise<readonly Event[] | 'ended' | 'quiet'> {
    const pending = this.#ask()
    let cancel = () => {}
    const quiet = new Promise<'quiet'>(resolve => {
      cancel = this.#clock.after(this.#interval, () => resolve('quiet'))
    })
    try {
      const first = await Promise.race([pending, quiet])
      if (first !== 'quiet') this.#pending = undefined
      return first
    } finally {
      cancel()
    }
  }
}

/** Turns events of entries into events of objects. */
class EventTranslator {
  readonly #selector: LeaseSelector
  /** Objects that matched when the client heard of them last. Only kept if a write can change that. */
  readonly #matching: Set<string>
  /** Objects whose deletion was delivered, and whose entry is removed next. */
  readonly #deleted = new Set<string>()

  constructor({ selector, matching }: WatchRequest) {
    this.#selector = selector
    this.#matching = new Set(matching)
  }

  translate({ type, key = '', value = '', lease: attachedTo, revision }: Event): { kind: EventKind; lease: KubeLease } | undefined {
    const name = nameOf(key)
    if (name === undefined || attachedTo !== 0) return undefined
    if (type === 'deleted') return this.#deleted.delete(key) ? undefined : this.#tell('DELETED', key, bare(name, revision))
    const stored = storedLease(value, revision)
    if (stored === undefined) return undefined
    const { mark, lease } = stored
    if (mark === '-') this.#deleted.add(key)
    else this.#deleted.delete(key)
    return this.#tell(mark === '+' ? 'ADDED' : mark === '=' ? 'MODIFIED' : 'DELETED', key, lease)
  }

  #tell(kind: EventKind, key: string, lease: KubeLease): { kind: EventKind; lease: KubeLease } | undefined {
    const { varies } = this.#selector
    const matches = this.#selector.matches(lease)
    if (!varies) return matches ? { kind, lease } : undefined
    const matched = this.#matching.has(key)
    if (kind === 'DELETED' || !matches) {
      this.#matching.delete(key)
      return matched ? { kind: 'DELETED', lease } : undefined
    }
    this.#matching.add(key)
    return { kind: matched ? 'MODIFIED' : 'ADDED', lease }
  }
}

/** An object whose entry was removed without this face. */
function bare({ namespace, name }: ObjectName, revision: number): KubeLease {
  return { kind: 'Lease', apiVersion: API_VERSION, metadata: { name, namespace, resourceVersion: String(revision) }, spec: {} }
}

/** Collects events in the form that the client asked for. */
class EventWriter {
  readonly #request: WatchRequest
  readonly #clock: Clock
  #pieces: Uint8Array[] = []
  #bytes = 0
  #tables = 0

  constructor(request: WatchRequest, clock: Clock) {
    this.#request = request
    this.#clock = clock
  }

  get ready(): boolean {
    return this.#bytes > 0
  }

  /** Adds an event of an object. True: take what there is. */
  add(kind: EventKind, lease: KubeLease): boolean {
    this.#push(kind, this.#formed(lease))
    return this.#bytes >= PIECE
  }

  #formed(lease: KubeLease): object {
    const { as } = this.#request.form
    if (as === undefined) return lease
    return as === 'Table' ? this.#table([lease], { resourceVersion: lease.metadata.resourceVersion }) : partialLease(lease)
  }

  #table(leases: readonly KubeLease[], metadata: object): object {
    return leaseTable(leases, { wall: this.#clock.wall(), include: this.#request.include, metadata, columns: this.#tables++ === 0 })
  }

  /** Tells how far the watch has come. */
  bookmark(revision: number, endsInitial: boolean): void {
    const metadata = {
      resourceVersion: String(revision),
      ...(endsInitial && { annotations: { 'k8s.io/initial-events-end': 'true' } }),
    }
    const lease: KubeLease = { kind: 'Lease', apiVersion: API_VERSION, metadata, spec: {} }
    this.#push('BOOKMARK', this.#request.form.as === 'Table' ? this.#table([], metadata) : this.#formed(lease))
  }

  /** The last event of a watch that fails. */
  error(failure: StatusFailure): Uint8Array {
    this.#push('ERROR', failure.status)
    return this.take()
  }

  #push(type: string, object: object): void {
    const piece =
      this.#request.form.type === PROTOBUF_TYPE
        ? encodeEvent(type, object as JsonObject)
        : Buffer.from(`${JSON.stringify({ type, object })}\n`)
    this.#pieces.push(piece)
    this.#bytes += piece.length
  }

  take(): Uint8Array {
    const all = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#bytes)
    this.#pieces = []
    this.#bytes = 0
    return all
  }
}
