/**
 * Watches as server-sent events.
 *
 * Nothing is kept for a reader: the next events are asked for when the last ones have been taken, so whoever is slow finds either what it missed
 * or a `resync`. A reader that takes nothing for `drainTime` is cut off.
 *
 * The last event of a revision carries the revision as its id, those before it the id that this stream stood at before: whoever resumes from the
 * middle of a revision is told all of it again, and never sees it in part.
 */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { EVENT_TYPES, type Event, type EventType } from '../../kernel/event.ts'
import * as schema from '../../wire/http/schema.ts'
import { Failure } from './failure.ts'
import { mustBePrefix } from './parse.ts'
import { type Route, type RouteCall, route } from './route.ts'

/** Comments now and then tell proxies and readers that the connection lives. */
const BEAT = 15_000
const RETRY = 1_000
/** Events are put together to pieces of about this size. */
const PIECE = 16_384

export function frame(event: Event, id: number): string {
  // JSON has no line breaks but those it escapes, and a type is one of ours: nothing can begin a field or end the event.
  return `id: ${id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
}

/** Where to go on, from what a reader last saw. */
export function resumedFrom(last: string): number {
  // With a part, as ids once were: not all of that revision was seen.
  const [, revision, part] = /^(\d{1,16})(:\d{1,9})?$/.exec(last) ?? []
  if (revision === undefined) throw new Failure('INVALID', 'Last-Event-ID must be an id that this server gave')
  return part === undefined ? Number(revision) : Math.max(0, Number(revision) - 1)
}

function typesOf(text: string | undefined): readonly EventType[] | undefined {
  if (text === undefined || text === '') return undefined
  const types = text.split(',')
  for (const type of types)
    if (!(EVENT_TYPES as readonly string[]).includes(type))
      throw new Failure('INVALID', `there are no events of type ${type.slice(0, 32)}; there are ${EVENT_TYPES.join(', ')}`)
  return types as EventType[]
}

async function begin(call: RouteCall<unknown, schema.Static<typeof schema.Watching>>) {
  const { desk, caller, ask, query, clock } = call
  const prefix = mustBePrefix(query.prefix ?? '')
  const types = typesOf(query.types)
  const last = ask.header('last-event-id')
  // Where it begins is settled before we answer: what is done after the answer has come is told, and a reader cut off at once can resume.
  const after =
    last !== undefined && last !== ''
      ? resumedFrom(last)
      : (query.after ?? (await desk.read<'summary'>(caller, { kind: 'summary' })).revision)
  const events = desk.watch(caller, prefix, { after, signal: ask.gone({ half: true }), ...(types && { types }) })
  const news = new News(events)
  // Too many watches, or a key that is gone: said with a status, before the stream begins.
  await Promise.resolve()
  news.throwIfFailed()
  return {
    status: 200,
    type: 'text/event-stream; charset=utf-8',
    headers: { 'Leasehold-Revision': String(after), 'X-Accel-Buffering': 'no' },
    body: stream(clock, news, after),
  }
}

async function* stream(clock: Clock, news: News, after: number): AsyncGenerator<string, void, void> {
  let piece = `retry: ${RETRY}\nid: ${after}\n: from revision ${after}\n\n`
  let whole = after
  try {
    for (;;) {
      const events = news.take()
      if (events === undefined) {
        // What is at hand goes out before we wait; and when nothing comes, a sign of life does.
        if (piece === '' && !(await news.within(clock, BEAT))) piece = ': still here\n\n'
        if (piece !== '') yield piece
        piece = ''
        continue
      }
      for (const [i, event] of events.entries()) {
        if (i === events.length - 1) whole = event.revision
        piece += frame(event, whole)
        if (piece.length < PIECE) continue
        yield piece
        piece = ''
      }
      // One turn of the queue: what is known already comes with it.
      await Promise.resolve()
    }
  } catch (error) {
    // The key was revoked, or the lessor ended: whoever asks again is told with a status.
    if (!(error instanceof LeaseError) && !(error instanceof Ended)) throw error
  } finally {
    news.stop()
  }
}

class Ended extends Error {}

/** The next revision of a watch: asked for one ahead, and waited for by one listener however long that takes. */
class News {
  readonly #events: AsyncGenerator<readonly Event[], void, void>
  #arrived: readonly Event[] | undefined
  #failed: unknown
  #wake = () => {}

  constructor(events: AsyncGenerator<readonly Event[], void, void>) {
    this.#events = events
    this.#ask()
  }

  #ask(): void {
    this.#events.next().then(
      ({ done, value }) => {
        if (done) this.#failed = new Ended()
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
    if (this.#failed !== undefined && !(this.#failed instanceof Ended)) throw this.#failed
  }

  take(): readonly Event[] | undefined {
    if (this.#failed !== undefined) throw this.#failed
    const events = this.#arrived
    if (events === undefined) return undefined
    this.#arrived = undefined
    this.#ask()
    return events
  }

  /** Whether something came within `ms`. */
  within(clock: Clock, ms: number): Promise<boolean> {
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

  stop(): void {
    this.#events.return().catch(() => {})
  }
}

export const watchRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/watch',
    summary: 'What happens under a prefix, as server-sent events: id the revision, event its type. After a gap, an event resync.',
    query: schema.Watching,
    type: 'text/event-stream',
    answer: schema.EventData,
    handle: begin,
  }),
]
