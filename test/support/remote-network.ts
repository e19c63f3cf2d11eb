/** A simulated network between real clients and real servers in one process: it delays, splits and drops bytes, and cuts connections. */
import type { Clock } from '../../src/clock.ts'
import type { RespListener } from '../../src/server/resp/resp-listener.ts'
import type { Dial } from '../../src/wire/resp/dial.ts'
import type { ByteLink, ByteLinkEnd } from '../../src/wire/resp/link.ts'

export interface NetworkWeather {
  /** Mean delay of a chunk, one way, in ms. */
  delay: number
}

/** One direction of a connection: chunks arrive in order, after a delay, split anywhere, and not while the server is stalled. */
class Direction {
  readonly #network: Network
  readonly #cable: Cable
  readonly #deliver: (bytes: Uint8Array) => void
  readonly #queue: { readonly bytes: Uint8Array; readonly at: number }[] = []
  #moving = false
  waiting = 0
  closed = false

  constructor(network: Network, cable: Cable, deliver: (bytes: Uint8Array) => void) {
    this.#network = network
    this.#cable = cable
    this.#deliver = deliver
  }

  send(bytes: Uint8Array): void {
    const { clock } = this.#network
    // Copy: the sender reuses its buffer.
    const copy = Uint8Array.from(bytes)
    for (let at = 0; at < copy.length; ) {
      const size = this.#network.chance(0.3) ? 1 + this.#network.below(16) : copy.length
      const chunk = copy.subarray(at, at + size)
      at += size
      this.waiting += chunk.length
      this.#queue.push({ bytes: chunk, at: Math.max(this.#queue.at(-1)?.at ?? 0, clock.now() + this.#network.delay()) })
    }
    this.#move()
  }

  #move(): void {
    const { clock, stalled } = this.#network
    const [next] = this.#queue
    if (this.#moving || next === undefined) return
    this.#moving = true
    clock.after(stalled.has(this.#cable.server) ? 5 : Math.max(0, next.at - clock.now()), () => {
      this.#moving = false
      if (this.closed || this.#cable.dead || this.#cable.cut) return
      if (!stalled.has(this.#cable.server) && next.at <= clock.now()) {
        this.#queue.shift()
        this.waiting -= next.bytes.length
        this.#deliver(next.bytes)
      }
      this.#move()
    })
  }
}

export class Cable {
  readonly server: string
  /** Nothing arrives any more, and neither side is notified. */
  dead = false
  /** Messages of the client are lost, and those of the server arrive. What the server sends arrives. */
  mute = false
  readonly #onCut: (() => void)[] = []
  cut = false

  constructor(server: string) {
    this.server = server
  }

  onCut(then: () => void): void {
    this.#onCut.push(then)
  }

  /** Closes the connection. Each side learns of it after its own delay. */
  sever(): void {
    if (this.cut) return
    this.cut = true
    for (const then of this.#onCut) then()
  }
}

export class Network {
  readonly clock: Clock
  readonly weather: NetworkWeather
  readonly cables = new Set<Cable>()
  /** Servers by name. Connecting to any other name fails. */
  readonly listeners = new Map<string, RespListener>()
  /** Servers that are stalled: bytes to them wait. */
  readonly stalled = new Set<string>()
  readonly #random: () => number
  connections = 0

  constructor(clock: Clock, random: () => number, weather: NetworkWeather) {
    this.clock = clock
    this.weather = weather
    this.#random = random
  }

  below(n: number): number {
    return Math.floor(this.#random() * n)
  }

  chance(p: number): boolean {
    return this.#random() < p
  }

  delay(): number {
    const base = this.weather.delay * (0.2 + 1.6 * this.#random())
    return this.chance(0.02) ? base * 20 : base
  }

  dial(server: string): Dial {
    return { name: server, open: end => this.#connect(server, end) }
  }

  #connect(server: string, near: ByteLinkEnd): ByteLink {
    const { clock } = this
    const listener = this.listeners.get(server)
    const cable = new Cable(server)
    this.cables.add(cable)
    this.connections++
    let far: ByteLinkEnd | undefined
    const forth = new Direction(this, cable, bytes => (cable.mute ? undefined : far?.data(bytes)))
    const back = new Direction(this, cable, bytes => near.data(bytes))
    let nearOver = false
    let farOver = false
    const endNear = () => {
      if (nearOver) return
      nearOver = true
      back.closed = true
      near.closed()
    }
    const endFar = () => {
      if (farOver) return
      farOver = true
      forth.closed = true
      far?.closed()
    }
    cable.onCut(() => {
      this.cables.delete(cable)
      clock.after(this.delay(), endNear)
      clock.after(this.delay(), endFar)
    })
    if (listener === undefined) clock.after(this.delay(), () => cable.sever())
    else
      far = listener.open('simulated', () => ({
        write: bytes => back.send(bytes),
        get backlog() {
          return back.waiting
        },
        pause() {},
        resume() {},
        end: () => cable.sever(),
        destroy: () => cable.sever(),
      }))
    return {
      write: bytes => forth.send(bytes),
      get backlog() {
        return forth.waiting
      },
      pause() {},
      resume() {},
      end: () => cable.sever(),
      destroy: () => {
        nearOver = true
        back.closed = true
        cable.sever()
      },
    }
  }
}
