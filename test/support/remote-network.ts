/** A network for real clients and real servers in one process: bytes late, in pieces, or never; connections cut, or dead without a word. */
import type { Clock } from '../../src/clock.ts'
import type { RespListener } from '../../src/server/resp/resp-listener.ts'
import type { Dial } from '../../src/wire/resp/dial.ts'
import type { ByteLink, ByteLinkEnd } from '../../src/wire/resp/link.ts'

export interface Weather {
  /** Mean delay of a chunk, one way, in ms. */
  delay: number
}

/** One direction: chunks arrive in order, each at its time, cut anywhere, and none while the server stands still. */
class Way {
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
    // Sent as they are now: the sender uses its buffer again.
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
  /** Nothing arrives any more, and nobody is told. */
  dead = false
  /** What the client sends is lost. What the server sends arrives. */
  mute = false
  readonly #over: (() => void)[] = []
  cut = false

  constructor(server: string) {
    this.server = server
  }

  onCut(then: () => void): void {
    this.#over.push(then)
  }

  /** Both sides learn of it, each when it does. */
  sever(): void {
    if (this.cut) return
    this.cut = true
    for (const then of this.#over) then()
  }
}

export class Network {
  readonly clock: Clock
  readonly weather: Weather
  readonly cables = new Set<Cable>()
  /** Servers that are there; connecting to others fails. */
  readonly doors = new Map<string, RespListener>()
  /** Servers that stand still: what is sent to them waits. */
  readonly stalled = new Set<string>()
  readonly #random: () => number
  connections = 0

  constructor(clock: Clock, random: () => number, weather: Weather) {
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
    const door = this.doors.get(server)
    const cable = new Cable(server)
    this.cables.add(cable)
    this.connections++
    let far: ByteLinkEnd | undefined
    const there = new Way(this, cable, bytes => (cable.mute ? undefined : far?.data(bytes)))
    const back = new Way(this, cable, bytes => near.data(bytes))
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
      there.closed = true
      far?.closed()
    }
    cable.onCut(() => {
      this.cables.delete(cable)
      clock.after(this.delay(), endNear)
      clock.after(this.delay(), endFar)
    })
    if (door === undefined) clock.after(this.delay(), () => cable.sever())
    else
      far = door.open('simulated', () => ({
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
      write: bytes => there.send(bytes),
      get backlog() {
        return there.waiting
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
