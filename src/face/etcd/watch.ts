/**
 * Watches: a stream of changes of keys. The requests of a stream are in the body of one HTTP request, one after another; the answers follow as they happen,
 * until the client disconnects.
 */
import type { Event } from '../../kernel/event.ts'
import type { FaceCaller } from '../face.ts'
import { EtcdFailure, failureOfError } from './failure.ts'
import { KeyTracker, type TrackedBytes, type TrackedKey } from './key-tracker.ts'
import { KeyView } from './key-view.ts'
import type { Message } from './message.ts'
import { base64, bytesOfValue, inSpan, type KeySpan, keyOf, prefixOf } from './names.ts'

/** Items that wait for a client that reads slowly. */
const MAX_QUEUED = 64
/** As in etcd: a watch that asked for it is told that nothing happened. */
const PROGRESS_EVERY = 600_000
const FILTERS = ['NOPUT', 'NODELETE'] as const

interface WatchAsked {
  readonly id: number
  readonly span: KeySpan
  readonly start: number
  readonly prevKv: boolean
  readonly progress: boolean
  readonly without: ReadonlySet<(typeof FILTERS)[number]>
}

interface OpenWatch {
  readonly stop: AbortController
  cancelProgress: () => void
}

type HeaderOf = (revision: number) => object

/** The answers to the requests of one stream, as lines of JSON. */
export async function* watchLines(
  messages: readonly Message[],
  caller: FaceCaller,
  headerOf: HeaderOf,
  budget: TrackedBytes,
): AsyncGenerator<string, void, void> {
  const stream = new WatchStream(caller, headerOf, budget)
  try {
    for (const message of messages) await stream.request(message)
    yield* stream.lines()
  } catch (error) {
    if (!caller.signal.aborted) yield `${JSON.stringify(failureOfError(error).item)}\n`
  } finally {
    stream.close()
  }
}

class WatchStream {
  readonly #caller: FaceCaller
  readonly #headerOf: HeaderOf
  readonly #budget: TrackedBytes
  readonly #open = new Map<number, OpenWatch>()
  readonly #queue: string[] = []
  #next = 0
  #ended = false
  #wake = () => {}
  #room = () => {}
  readonly #leave = () => this.close()

  constructor(caller: FaceCaller, headerOf: HeaderOf, budget: TrackedBytes) {
    this.#caller = caller
    this.#headerOf = headerOf
    this.#budget = budget
    caller.signal.addEventListener('abort', this.#leave)
    if (caller.signal.aborted) this.close()
  }

  async *lines(): AsyncGenerator<string, void, void> {
    for (;;) {
      const line = this.#queue.shift()
      if (line !== undefined) {
        this.#room()
        yield line
      } else if (this.#ended) return
      else await new Promise<void>(resolve => (this.#wake = resolve))
    }
  }

  close(): void {
    this.#ended = true
    this.#caller.signal.removeEventListener('abort', this.#leave)
    for (const { stop, cancelProgress } of this.#open.values()) {
      stop.abort()
      cancelProgress()
    }
    this.#open.clear()
    this.#wake()
    this.#room()
  }

  #push(item: object): void {
    this.#queue.push(`${JSON.stringify(item)}\n`)
    this.#wake()
  }

  #result(revision: number, id: number, body: object): void {
    this.#push({ result: { header: this.#headerOf(revision), ...(id !== 0 && { watch_id: String(id) }), ...body } })
  }

  async request(message: Message): Promise<void> {
    const { lessor, signal } = this.#caller
    const create = message.message('create_request')
    const cancel = message.message('cancel_request')
    if (create !== undefined) return this.#create(create)
    const { revision } = await lessor.read<'summary'>({ kind: 'summary' }, { signal })
    if (cancel !== undefined) return this.#cancel(cancel.int('watch_id'), revision)
    // Clients that read progress know that all watches of the stream are meant.
    if (message.message('progress_request') !== undefined) this.#result(revision, -1, {})
  }

  #cancel(id: number, revision: number): void {
    const watch = this.#open.get(id)
    if (watch === undefined) return
    this.#drop(id)
    this.#result(revision, id, { canceled: true })
  }

  #drop(id: number): void {
    const watch = this.#open.get(id)
    watch?.stop.abort()
    watch?.cancelProgress()
    this.#open.delete(id)
  }

  async #create(message: Message): Promise<void> {
    const asked = this.#asked(message)
    const { lessor } = this.#caller
    const watch: OpenWatch = { stop: new AbortController(), cancelProgress: () => {} }
    const view = await KeyView.read(this.#caller, [asked.span])
    const tracker = new KeyTracker(this.#budget, view.revision, view.within(asked.span), asked.prevKv)
    this.#open.set(asked.id, watch)
    this.#result(view.revision, asked.id, { created: true })
    if (asked.progress) this.#remind(asked.id, watch)
    const after = asked.start > 0 ? asked.start - 1 : view.revision
    const events = lessor.watch(prefixOf(asked.span), { after, types: ['put', 'deleted'], signal: watch.stop.signal })
    void this.#follow(asked, events, tracker)
  }

  #asked(message: Message): WatchAsked {
    const key = message.bytes('key')
    const end = message.bytes('range_end')
    const given = message.int('watch_id')
    while (given === 0 && this.#open.has(this.#next)) this.#next++
    const id = given === 0 ? this.#next++ : given
    if (this.#open.has(id)) throw new EtcdFailure('FAILED_PRECONDITION', 'mvcc: duplicate watch ID provided on the WatchStream')
    return {
      id,
      span: end === '' ? { key: key === '' ? '\0' : key } : { key: key === '' ? '\0' : key, end },
      start: Math.max(0, message.int('start_revision')),
      prevKv: message.flag('prev_kv'),
      progress: message.flag('progress_notify'),
      without: new Set(message.choices('filters', FILTERS)),
    }
  }

  #remind(id: number, watch: OpenWatch): void {
    const { clock, lessor, signal } = this.#caller
    watch.cancelProgress = clock.after(PROGRESS_EVERY, async () => {
      try {
        const { revision } = await lessor.read<'summary'>({ kind: 'summary' }, { signal })
        if (this.#open.get(id) !== watch) return
        if (this.#queue.length === 0) this.#result(revision, id, {})
        this.#remind(id, watch)
      } catch {
        // The watch itself fails as well, and reports it.
      }
    })
  }

  async #follow(asked: WatchAsked, revisions: AsyncIterable<readonly Event[]>, tracker: KeyTracker): Promise<void> {
    try {
      for await (const events of revisions) {
        const [{ type, revision }] = events as [Event]
        if (type === 'resync') {
          this.#drop(asked.id)
          return this.#result(0, asked.id, { canceled: true, compact_revision: String(revision) })
        }
        const shown = events.flatMap(event => eventJson(asked, event, tracker))
        if (shown.length > 0) this.#result(revision, asked.id, { events: shown })
        while (this.#queue.length >= MAX_QUEUED && !this.#ended) await new Promise<void>(resolve => (this.#room = resolve))
      }
    } catch (error) {
      // After the first bytes of a stream, a failure is an item of it.
      if (!this.#ended) this.#push(failureOfError(error).item)
      this.close()
    } finally {
      tracker[Symbol.dispose]()
    }
  }
}

function eventJson(
  { span, prevKv, without }: WatchAsked,
  { type, key: name, value, lease, revision }: Event,
  tracker: KeyTracker,
): object[] {
  const key = keyOf(name ?? '')
  if (key === undefined || !inSpan(span, key)) return []
  if (type === 'put') {
    const { now, before } = tracker.put(key, bytesOfValue(value ?? ''), lease, revision)
    if (without.has('NOPUT')) return []
    return [{ kv: trackedJson(now), ...(prevKv && before !== undefined && { prev_kv: trackedJson(before) }) }]
  }
  const before = tracker.delete(key, revision)
  if (without.has('NODELETE')) return []
  const kv = { key: base64(key), mod_revision: String(revision) }
  return [{ type: 'DELETE', kv, ...(prevKv && before !== undefined && { prev_kv: trackedJson(before) }) }]
}

function trackedJson({ key, value, lease, mod, created, version }: TrackedKey): object {
  return {
    key: base64(key),
    ...(created !== undefined && { create_revision: String(created) }),
    mod_revision: String(mod),
    ...(version !== undefined && { version: String(version) }),
    ...(value !== '' && { value: base64(value) }),
    ...(lease !== 0 && { lease: String(lease) }),
  }
}
