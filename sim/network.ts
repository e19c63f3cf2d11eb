/**
 * The simulated network between clients and servers. Connections deliver bytes late and in pieces, break, or go silent. HTTP requests and their
 * answers get lost.
 */
import type { Replica } from '../src/replica/replica.ts'
import type { HttpRequest, HttpResponse } from '../src/server/http/route.ts'
import type { Dial } from '../src/wire/resp/dial.ts'
import type { ByteLink, ByteLinkEnd } from '../src/wire/resp/link.ts'
import type { SimulatedServer } from './server.ts'
import type { Wire } from './wire.ts'
import type { Machine, World } from './world.ts'

/** A machine that serves, while it has a replica. */
export interface Host {
  readonly machine: Machine
  readonly replica: Replica | undefined
}

/** The probability that the ends notice a loss. Otherwise the connection goes silent. */
const NOTICED = 0.7
/** The probability that a piece is split further. */
const SPLIT = 0.15

export class Network {
  readonly wire: Wire
  readonly servers = new Map<Host, SimulatedServer>()
  readonly cables = new Set<Cable>()

  constructor(wire: Wire) {
    this.wire = wire
  }

  get world(): World {
    return this.wire.world
  }

  /** The server that runs on a host now. */
  at(host: Host): SimulatedServer | undefined {
    const server = this.servers.get(host)
    return host.machine.alive && server !== undefined && server.replica === host.replica ? server : undefined
  }

  /** Returns whether a message from one machine to another gets lost: because either is cut off, or by chance. */
  loses(from: Machine, to: Machine): boolean {
    const { mute, deaf, weather } = this.wire
    return mute.has(from) || deaf.has(to) || this.world.dice.chance(weather.loss / 2)
  }

  dial(client: Machine, host: Host): Dial {
    return { name: host.machine.name, open: end => new Cable(this, client, host, end).near }
  }

  fetch(client: Machine, host: Host): typeof fetch {
    const connection = {}
    return ((url: string, init: RequestInit) => new PendingRequest(this, client, host, connection, url, init).answered) as typeof fetch
  }
}

/** One direction of a connection. It delivers pieces in order, each after a delay. */
class Way {
  readonly #cable: Cable
  readonly #from: Machine
  readonly #to: Machine
  readonly #life: number
  readonly #deliver: (bytes: Uint8Array) => void
  #last = 0
  #held: Uint8Array[] | undefined
  backlog = 0
  drained: () => void = () => {}

  constructor(cable: Cable, from: Machine, to: Machine, deliver: (bytes: Uint8Array) => void) {
    this.#cable = cable
    this.#from = from
    this.#to = to
    this.#life = to.life
    this.#deliver = deliver
  }

  send(bytes: Uint8Array): void {
    const { network } = this.#cable
    const { world, wire } = network
    if (this.#cable.over) return
    if (network.loses(this.#from, this.#to)) return this.#cable.breaks()
    // Copied, because the sender reuses its buffer.
    let rest = Uint8Array.from(bytes)
    this.backlog += rest.length
    while (rest.length > 0) {
      const size = rest.length > 1 && world.dice.chance(SPLIT) ? world.dice.whole(1, rest.length - 1) : rest.length
      const piece = rest.subarray(0, size)
      rest = rest.subarray(size)
      this.after(wire.delay(), () => this.#arrive(piece))
    }
  }

  /** Keeps the order of sending. */
  after(ms: number, then: () => void): void {
    const { world } = this.#cable.network
    this.#last = Math.max(this.#last, world.now + ms)
    world.later(this.#last - world.now, then, this.#to, false, this.#life)
  }

  #arrive(piece: Uint8Array): void {
    if (this.#cable.over) return
    if (this.#held !== undefined) return void this.#held.push(piece)
    this.backlog -= piece.length
    this.#deliver(piece)
    if (this.backlog === 0) this.drained()
  }

  pause(): void {
    this.#held ??= []
  }

  resume(): void {
    const held = this.#held ?? []
    this.#held = undefined
    for (const piece of held) this.#arrive(piece)
  }
}

/** One connection. When one end dies, the other end may or may not notice. */
class Cable {
  readonly network: Network
  readonly near: ByteLink
  readonly #there: Way
  readonly #back: Way
  readonly #end: ByteLinkEnd
  readonly #sides: readonly Machine[]
  readonly #broken = () => this.breaks()
  #far: ByteLinkEnd | undefined
  /** Delivers nothing any more. */
  over = false

  constructor(network: Network, client: Machine, host: Host, end: ByteLinkEnd) {
    this.network = network
    this.#end = end
    const { machine } = host
    this.#there = new Way(this, client, machine, bytes => this.#far?.data(bytes))
    this.#back = new Way(this, machine, client, bytes => end.data(bytes))
    this.#back.drained = () => this.#far?.drained()
    this.#there.drained = () => end.drained()
    this.near = this.#link(this.#there, this.#back)
    network.cables.add(this)
    this.#sides = [client, machine]
    for (const side of this.#sides) side.mourners.add(this.#broken)
    if (network.loses(client, machine)) this.breaks()
    else if (network.at(host) === undefined) this.sever()
    // The machine accepts the connection; its process answers when it can.
    else this.#there.after(network.wire.delay(), () => this.#answer(client, host))
  }

  #answer(client: Machine, host: Host): void {
    const server = this.network.at(host)
    if (server === undefined) this.sever()
    else if (!this.over) this.#far = server.resp.open(client.name, () => this.#link(this.#back, this.#there))
  }

  #link(out: Way, back: Way): ByteLink {
    return {
      write: bytes => out.send(bytes),
      get backlog() {
        return out.backlog
      },
      pause: () => back.pause(),
      resume: () => back.resume(),
      end: () => out.after(0, () => this.sever()),
      destroy: () => this.sever(),
    }
  }

  /** Closes the connection. Both ends are notified, each after a delay. */
  sever(): void {
    if (this.over) return
    this.silence()
    const { wire } = this.network
    this.#back.after(wire.delay(), () => this.#end.closed())
    this.#there.after(wire.delay(), () => this.#far?.closed())
  }

  /** Goes silent: neither end is notified. */
  silence(): void {
    this.over = true
    this.network.cables.delete(this)
    for (const side of this.#sides) side.mourners.delete(this.#broken)
  }

  breaks(): void {
    if (this.over) return
    if (this.network.world.dice.chance(NOTICED)) this.sever()
    else this.silence()
  }
}

/** One HTTP request and its answer, or its failure. */
class PendingRequest implements HttpRequest {
  readonly answered: Promise<Response>
  readonly method: string
  readonly target: string
  readonly connection: object
  readonly localAddress = '127.0.0.1'
  readonly #network: Network
  readonly #client: Machine
  readonly #host: Host
  readonly #life: number
  readonly #init: RequestInit
  readonly #gone = new AbortController()
  readonly #broken = () => this.#lost()
  #closing: AbortSignal | undefined
  #resolve: (answer: Response) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  /** The received pieces of a streamed answer, until they are read. */
  #body: Pieces | undefined
  #over = false

  constructor(network: Network, client: Machine, host: Host, connection: object, url: string, init: RequestInit) {
    this.#network = network
    this.#client = client
    this.#host = host
    this.#life = client.life
    this.#init = init
    this.connection = connection
    this.method = init.method!
    const { pathname, search } = new URL(url)
    this.target = pathname + search
    this.answered = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    const { signal } = init
    signal!.addEventListener('abort', () => this.#leave(signal!.reason), { once: true })
    if (signal!.aborted) this.#leave(signal!.reason)
    else this.#send()
  }

  #send(): void {
    const { world, wire } = this.#network
    const { machine } = this.#host
    if (this.#network.loses(this.#client, machine)) return this.#lost()
    machine.mourners.add(this.#broken)
    world.later(wire.delay(), () => {
      if (this.#network.at(this.#host) === undefined) return this.#fail('ECONNREFUSED', wire.delay())
      const arrive = () => {
        const server = this.#network.at(this.#host)
        if (server === undefined) return this.#lost()
        this.#closing = server.closing
        void server.http.handle(this).then(answer => this.#answer(answer))
      }
      world.later(0, arrive, machine)
    })
  }

  #answer({ status, headers = {}, body: content = '' }: HttpResponse): void {
    const { world, wire } = this.#network
    if (this.#over) return
    if (this.#network.loses(this.#host.machine, this.#client)) return this.#lost()
    const known = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
    const body = content instanceof Uint8Array ? Buffer.from(content).toString() : content
    const whole = typeof body === 'string' ? body : ''
    const pieces = new Pieces(() => this.#leave(undefined))
    const answer = {
      ok: status >= 200 && status < 300,
      status,
      headers: { get: (name: string) => known.get(name.toLowerCase()) ?? null },
      text: async () => whole,
      json: async () => JSON.parse(whole) as unknown,
      body: { getReader: () => pieces },
    }
    const arrive = () => {
      if (typeof body === 'string') this.#end()
      this.#resolve(answer as unknown as Response)
    }
    world.later(wire.delay(), arrive, this.#client, false, this.#life)
    if (typeof body === 'string') return
    this.#body = pieces
    void this.#stream(body, pieces)
  }

  async #stream(body: AsyncIterable<string | Uint8Array>, pieces: Pieces): Promise<void> {
    const { world, wire } = this.#network
    const encoder = new TextEncoder()
    let last = world.now
    const later = (then: () => void) => {
      last = Math.max(last, world.now + wire.delay())
      world.later(last - world.now, then, this.#client, false, this.#life)
    }
    for await (const piece of body) {
      if (this.#over) return
      if (this.#network.loses(this.#host.machine, this.#client)) return this.#lost()
      const bytes = typeof piece === 'string' ? encoder.encode(piece) : piece
      later(() => pieces.push(bytes))
    }
    later(() => pieces.end())
  }

  /** Fails the request with a connection error, or leaves it without an answer. */
  #lost(): void {
    if (this.#over) return
    const { dice } = this.#network.world
    if (dice.chance(NOTICED)) this.#fail('ECONNRESET', dice.between(5, 500))
    else this.#forget()
  }

  #fail(code: string, after: number): void {
    const error = new TypeError('fetch failed', { cause: { code } })
    const tell = () => {
      this.#forget()
      this.#reject(error)
      this.#body?.fail(error)
    }
    this.#network.world.later(after, tell, this.#client, false, this.#life)
  }

  #leave(reason: unknown): void {
    this.#forget()
    this.#reject(reason)
    this.#body?.fail(reason)
  }

  /** The server notices later that the client has gone. */
  #forget(): void {
    if (this.#over) return
    this.#end()
    const { world, wire } = this.#network
    world.later(wire.delay(), () => this.#gone.abort(new Error('the client has gone')), this.#host.machine)
  }

  #end(): void {
    this.#over = true
    this.#host.machine.mourners.delete(this.#broken)
    this.#closing?.removeEventListener('abort', this.#stopping)
  }

  // The request as the server sees it

  readonly #stopping = () => this.#gone.abort(this.#closing!.reason)

  header(name: string): string | undefined {
    return name === 'host' ? '127.0.0.1:7420' : (this.#init.headers as Record<string, string>)[name]
  }

  get hasBody(): boolean {
    return this.#init.body !== undefined
  }

  async body(): Promise<string> {
    return this.#init.body as string
  }

  gone(): AbortSignal {
    if (this.#closing!.aborted) this.#stopping()
    else this.#closing!.addEventListener('abort', this.#stopping, { once: true })
    return this.#gone.signal
  }
}

/** The body of a streamed answer: pieces wait here until they are read. */
class Pieces {
  readonly #waiting: Uint8Array[] = []
  readonly #cancelled: () => void
  #ended: { readonly error?: unknown } | undefined
  #wake = () => {}

  constructor(cancelled: () => void) {
    this.#cancelled = cancelled
  }

  push(bytes: Uint8Array): void {
    if (this.#ended !== undefined) return
    this.#waiting.push(bytes)
    this.#wake()
  }

  end(): void {
    this.#ended ??= {}
    this.#wake()
  }

  fail(error: unknown): void {
    this.#ended ??= { error }
    this.#wake()
  }

  async read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array }> {
    for (;;) {
      const value = this.#waiting.shift()
      if (value !== undefined) return { done: false, value }
      if (this.#ended !== undefined) {
        if ('error' in this.#ended) throw this.#ended.error
        return { done: true }
      }
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
  }

  async cancel(): Promise<void> {
    this.end()
    this.#cancelled()
  }
}
