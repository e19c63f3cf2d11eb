/** A real server for RESP tests: on a free loopback port, over a log in memory, with a clock of the test's choice. And a client that sends raw bytes. */
import { connect, type Socket } from 'node:net'
import { type Clock, systemClock } from '../../src/clock.ts'
import { Replica } from '../../src/replica/replica.ts'
import { type ServeOptions, type Server, serve } from '../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { type Reply, ReplyParser } from '../../src/wire/resp/reply-parser.ts'

export interface Place extends AsyncDisposable {
  readonly server: Server
  readonly lessor: Replica
  readonly port: number
}

export async function place({
  clock = systemClock,
  events,
  owned = false,
  ...options
}: Partial<ServeOptions> & { readonly clock?: Clock; readonly events?: number; readonly owned?: boolean } = {}): Promise<Place> {
  const store = new MemoryStore({ log: new MemoryLog({ clock }), clock, ...(owned && { own: { name: 'place' } }) })
  const lessor = await Replica.open(store, { clock, owned, ...(events && { events }) })
  const server = await serve({ lessor, listen: '127.0.0.1:0', clock, ...options })
  return {
    server,
    lessor,
    port: Number(server.addresses[0]?.split(':').at(-1)),
    async [Symbol.asyncDispose]() {
      await server.close()
      await lessor[Symbol.asyncDispose]()
    },
  }
}

/** A client that sends exactly the given bytes. */
export class Raw implements Disposable {
  readonly socket: Socket
  readonly replies: Reply[] = []
  ended = false
  readonly #parser = new ReplyParser()
  #wake = () => {}

  constructor(port: number) {
    this.socket = connect({ host: '127.0.0.1', port, noDelay: true })
    this.socket.on('error', () => {})
    this.socket.on('data', chunk => {
      this.#parser.feed(chunk, reply => this.replies.push(plain(reply)))
      this.#wake()
    })
    this.socket.on('close', () => {
      this.ended = true
      this.#wake()
    })
  }

  send(bytes: string | Uint8Array): void {
    this.socket.write(bytes)
  }

  /** The next reply, or 'closed' at the end of the connection. */
  async next(): Promise<Reply> {
    while (this.replies.length === 0) {
      if (this.ended) return 'closed'
      await new Promise<void>(resolve => (this.#wake = resolve))
    }
    return this.replies.shift()!
  }

  async ask(...words: (string | number)[]): Promise<Reply> {
    this.send(command(...words))
    return this.next()
  }

  [Symbol.dispose](): void {
    this.socket.destroy()
  }
}

export function command(...words: (string | number | Uint8Array)[]): Buffer {
  const parts: (string | Uint8Array)[] = [`*${words.length}\r\n`]
  for (const word of words) {
    const bytes = typeof word === 'object' ? word : Buffer.from(String(word))
    parts.push(`$${bytes.length}\r\n`, bytes, '\r\n')
  }
  return Buffer.concat(parts.map(part => (typeof part === 'string' ? Buffer.from(part) : part)))
}

/** Turns bytes into texts: the parser reuses its buffer. */
function plain(reply: Reply): Reply {
  if (reply instanceof Uint8Array) return Buffer.from(reply).toString('utf8')
  if (Array.isArray(reply)) return reply.map(plain)
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [plain(name), plain(value)]))
  if (reply !== null && typeof reply === 'object' && 'items' in reply) return { items: reply.items.map(plain) }
  return reply
}
