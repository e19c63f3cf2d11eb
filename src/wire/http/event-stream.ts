/**
 * Reads server-sent events from the body of a response and yields them by revision: one array for each complete revision. The last event of a
 * revision carries that revision as its id (see src/server/http/watch-route.ts).
 */
import type { Clock } from '../../clock.ts'
import type { Event } from '../../kernel/event.ts'

/** Refuse a longer event. A Leasehold server sends none: an event holds a value and a few names. */
const MAX_EVENT = 1 << 20

export class EventStream implements AsyncIterable<readonly Event[]> {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #clock: Clock
  readonly #maxSilence: number

  /** The stream fails after `maxSilence` ms without a byte. */
  constructor(body: ReadableStream<Uint8Array>, clock: Clock, maxSilence: number) {
    this.#reader = body.getReader()
    this.#clock = clock
    this.#maxSilence = maxSilence
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
      if (rest.length > MAX_EVENT) throw new Error('an event is too long')
    }
  }

  #next(): ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(this.#maxSilence, () => {
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
