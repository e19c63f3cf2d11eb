/**
 * Server-sent events from the body of an answer, as revisions: one array for each, and only whole ones. A revision is whole when the event has
 * come that carries its own revision as id (src/server/http/watch-route.ts says how they are sent).
 */
import type { Clock } from '../../clock.ts'
import type { Event } from '../../kernel/event.ts'

/** One event is at most about this long: a value and a few names. Whoever sends more is no server of ours. */
const LONGEST = 1 << 20

export class EventStream implements AsyncIterable<readonly Event[]> {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #clock: Clock
  readonly #silence: number

  /** `silence`: after so many ms without anything it is taken for dead. */
  constructor(body: ReadableStream<Uint8Array>, clock: Clock, silence: number) {
    this.#reader = body.getReader()
    this.#clock = clock
    this.#silence = silence
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {})
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly Event[], void, void> {
    const decoder = new TextDecoder()
    let rest = ''
    let revision: Event[] = []
    for (;;) {
      const { done, value } = await this.#next()
      if (done) return
      rest += decoder.decode(value, { stream: true })
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const { id, data } = fields(rest.slice(0, end))
        rest = rest.slice(end + 2)
        if (data === undefined) continue
        const event = JSON.parse(data) as Event
        revision.push(event)
        if (id !== String(event.revision)) continue
        yield revision
        revision = []
      }
      if (rest.length > LONGEST) throw new Error('an event without an end')
    }
  }

  #next(): ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(this.#silence, () => {
        reject(new Error('the stream fell silent'))
        this.cancel()
      })
      this.#reader.read().then(
        next => {
          cancel()
          resolve(next)
        },
        error => {
          cancel()
          reject(error)
        },
      )
    })
  }
}

function fields(block: string): { id?: string; data?: string } {
  const found: { id?: string; data?: string } = {}
  for (const line of block.split('\n')) {
    if (line.startsWith('id: ')) found.id = line.slice(4)
    else if (line.startsWith('data: ')) found.data = line.slice(6)
  }
  return found
}
