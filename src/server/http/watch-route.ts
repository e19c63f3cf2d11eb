/**
 * The route of watches, as server-sent events.
 *
 * Nothing is buffered for a client: the next events are fetched when it has read the last ones. A slow client gets the events that it missed, or a `resync`.
 * A client that reads nothing for `drainTime` is disconnected.
 *
 * The last event of a revision has the revision as its id. Events before it have the id of the previous revision. So a client that resumes from the middle of a
 * revision gets all of that revision again, and never only a part.
 */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { EVENT_TYPES, type Event, type EventType } from '../../kernel/event.ts'
import * as schema from '../../wire/http/schema.ts'
import { HttpFailure } from './failure.ts'
import { mustBePrefix } from './parse.ts'
import { type Route, type RouteContext, route } from './route.ts'

/** Interval of comments that show proxies and clients that the connection is alive, in ms. */
const KEEP_ALIVE_INTERVAL = 15_000
/** A client should wait this long before it reconnects, in ms. */
const RECONNECT_AFTER = 1_000
/** A stream waits for the next revision this many microtasks before it sends what there is: one that was decided already comes within fewer. */
const MICROTASKS = 32
/** Events are combined to pieces of about this many characters. */
const PIECE = 16_384

export function frame(event: Event, id: number): string {
  // JSON escapes line breaks, and a type is one of our words: no value can start a new field or end the event.
  return `id: ${id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
}

/** The revision to resume after, from the last event id that the client saw. */
function resumedFrom(last: string): number {
  // Ids of older versions may have a part. Then the client has not seen all of that revision.
  const [, revision, part] = /^(\d{1,16})(:\d{1,9})?$/.exec(last) ?? []
  if (revision === undefined) throw new HttpFailure('INVALID', 'the header Last-Event-ID must be an event id of this server')
  return part === undefined ? Number(revision) : Math.max(0, Number(revision) - 1)
}

function typesOf(text: string | undefined): readonly EventType[] | undefined {
  if (text === undefined || text === '') return undefined
  const types = text.split(',')
  for (const type of types)
    if (!(EVENT_TYPES as readonly string[]).includes(type))
      throw new HttpFailure('INVALID', `there is no event type ${type.slice(0, 32)}. The types are ${EVENT_TYPES.join(', ')}`)
  return types as EventType[]
}

async function watch(context: RouteContext<unknown, schema.Static<typeof schema.Watching>>) {
  const { guarded, caller, request, query, clock } = context
  const prefix = mustBePrefix(query.prefix ?? '')
  const types = typesOf(query.types)
  const last = request.header('last-event-id')
  // The first revision is fixed before the response starts: events after the response are then never missed, and a client that is cut off at once can resume.
  const after =
    last !== undefined && last !== ''
      ? resumedFrom(last)
      : (query.after ?? (await guarded.read<'summary'>(caller, { kind: 'summary' })).revision)
  const events = guarded.watch(caller, prefix, { after, signal: request.gone({ half: true }), ...(types && { types }) })
  const next = new NextRevision(events)
  // Report too many watches, or a revoked key, with a status before the stream starts.
  await Promise.resolve()
  next.throwIfFailed()
  return {
    status: 200,
    type: 'text/event-stream; charset=utf-8',
    headers: { 'Leasehold-Revision': String(after), 'X-Accel-Buffering': 'no' },
    body: stream(clock, next, after),
  }
}

async function* stream(clock: Clock, next: NextRevision, after: number): AsyncGenerator<string, void, void> {
  let piece = `retry: ${RECONNECT_AFTER}\nid: ${after}\n: from revision ${after}\n\n`
  let complete = after
  try {
    for (;;) {
      const events = next.take()
      if (events === undefined) {
        // Send what there is before waiting. If no event arrives, send a comment.
        if (piece === '' && !(await next.arrives(clock, KEEP_ALIVE_INTERVAL))) piece = ': still here\n\n'
        if (piece !== '') yield piece
        piece = ''
        continue
      }
      for (const [i, event] of events.entries()) {
        if (i === events.length - 1) complete = event.revision
        piece += frame(event, complete)
        if (piece.length < PIECE) continue
        yield piece
        piece = ''
      }
      // A revision that is ready already joins this piece. A history in pieces of one event each would be written in a single turn of the event loop.
      for (let waited = 0; waited < MICROTASKS && !next.isReady; waited++) await Promise.resolve()
    }
  } catch (error) {
    // The key was revoked, or the lessor has ended. The client learns why, by a status, when it reconnects.
    if (!(error instanceof LeaseError) && !(error instanceof WatchEnded)) throw error
  } finally {
    next.stop()
  }
}

class WatchEnded extends Error {}

/** The next revision of a watch, fetched one ahead. */
class NextRevision {
  readonly #events: AsyncGenerator<readonly Event[], void, void>
  #arrived: readonly Event[] | undefined
  #failed: unknown
  #wake = () => {}

  constructor(events: AsyncGenerator<readonly Event[], void, void>) {
    this.#events = events
    this.#fetch()
  }

  #fetch(): void {
    this.#events.next().then(
      ({ done, value }) => {
        if (done) this.#failed = new WatchEnded()
        else this.#arrived = value as readonly Event[]
        this.#wake()
      },
      error => {
        this.#failed = error
        this.#wake()
      },
    )
  }

  throwIfFailed(): void {
    if (this.#failed !== undefined && !(this.#failed instanceof WatchEnded)) throw this.#failed
  }

  take(): readonly Event[] | undefined {
    if (this.#failed !== undefined) throw this.#failed
    const events = this.#arrived
    if (events === undefined) return undefined
    this.#arrived = undefined
    this.#fetch()
    return events
  }

  /** Returns whether the next revision, or the end of the watch, arrives within `ms`. */
  arrives(clock: Clock, ms: number): Promise<boolean> {
    if (this.#arrived !== undefined || this.#failed !== undefined) return Promise.resolve(true)
    return new Promise(resolve => {
      const cancel = clock.after(ms, () => {
        this.#wake = () => {}
        resolve(false)
      })
      this.#wake = () => {
        cancel()
        resolve(true)
      }
    })
  }

  /** The next revision, or the end of the watch, is there. */
  get isReady(): boolean {
    return this.#arrived !== undefined || this.#failed !== undefined
  }

  stop(): void {
    this.#events.return().catch(() => {})
  }
}

export const watchRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/watch',
    summary: 'Events under a prefix, as server-sent events: id is the revision, event the type. After a gap, an event resync.',
    query: schema.Watching,
    type: 'text/event-stream',
    response: schema.EventData,
    handle: watch,
  }),
]
