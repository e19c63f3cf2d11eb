/**
 * Runs one scenario: owns time and the wire, with the real server at one end and a driver at the other.
 *
 * What must never happen is checked at every moment, whatever the scenario says: two clients that hold one resource at the same time, and a
 * lease that is held again after it was lost.
 */
import type { Client, Connection, Delivery, LeaseRecord } from './conductor-state.ts'
import { Driver, type DriverEvent, type DriverMessage, type DriverReply } from './driver.ts'
import { checkExpectation } from './expectation.ts'
import type { CallStep, ClientOptions, Expectation, Scenario, Step } from './scenario.ts'
import { VirtualServer } from './server.ts'
import { type Moment, VirtualClock } from './virtual-clock.ts'

/** One way, unless the scenario says otherwise. */
const DELAY = 1
const WALL = 1_700_000_000_000
/** A client that asks for ever more turns has a mistake: at most this many in one step of a scenario, and this many at one moment. */
const TURNS = 100_000
const TURNS_STILL = 1_000

export class Conductor {
  readonly #driver: Driver
  readonly #scenario: Scenario
  readonly #clock: VirtualClock
  readonly #server: VirtualServer
  readonly #clients = new Map<string, Client>()
  readonly #deliveries: Delivery[] = []
  readonly #answers = new Map<number, DriverEvent>()
  readonly #calls = new Map<string, number>()
  readonly #names = new Map<
    number,
    {
      readonly as: string
      readonly client: string
      readonly resources: readonly string[]
      readonly permits: number
      readonly covers: boolean
    }
  >()
  readonly #leases = new Map<string, LeaseRecord>()
  readonly #positions: number[] = []
  #now = 0
  #order = 0
  #call = 0

  constructor(command: readonly string[], scenario: Scenario) {
    this.#driver = new Driver(command)
    this.#scenario = scenario
    this.#clock = new VirtualClock(this.#trueMoment())
    this.#server = new VirtualServer(this.#clock)
  }

  /** Throws an error that names the step when something is not as it must be. */
  async run(): Promise<void> {
    try {
      await this.#server.start()
      for (const [name, options] of Object.entries(this.#scenario.clients)) await this.#begin(name, options)
      await this.#advance(20)
      for (const [index, step] of this.#scenario.steps.entries()) {
        try {
          await this.#step(step)
        } catch (error) {
          throw new Error(`step ${index + 1} (${JSON.stringify(step)}) at ${this.#now} ms: ${(error as Error).message}`)
        }
      }
    } finally {
      this.#driver.close()
      this.#server.kill()
    }
  }

  // Steps

  async #step(step: Step): Promise<void> {
    if ('advance' in step) return this.#advance(step.advance)
    if ('expect' in step) return this.#expect(step.expect)
    if ('server' in step) return this.#operate(step)
    const client = this.#client(step.client)
    if ('call' in step) {
      const number = ++this.#call
      if (step.as !== undefined) {
        this.#calls.set(step.as, number)
        this.#names.set(number, {
          as: step.as,
          client: client.name,
          resources: this.#resourcesOf(step),
          permits: Number(step.args?.permits ?? 1),
          covers: step.args?.covers === true,
        })
      }
      if (step.call === 'release' || step.call === 'transfer') {
        const record = this.#leases.get(String(step.args?.lease))
        if (record !== undefined) record.released = true
      }
      const args = this.#argsOf(step)
      await this.#say(client, 'call', { call: number, method: step.call, args: { ...args, ...(step.as && { as: step.as }) } })
      return this.#settle()
    }
    if ('wire' in step) return this.#wire(client, step.wire, step.address)
    if ('stall' in step) {
      client.stalledUntil = this.#now + step.stall
      await this.#advance(step.stall - 1)
      if (step.look === true) await this.#say(client, 'look')
      return this.#advance(1)
    }
    if ('suspend' in step) {
      // True time goes on, the client's monotonic clock does not.
      client.stalledUntil = this.#now + step.suspend
      client.slept += step.suspend
      return this.#advance(step.suspend)
    }
    if ('stepWall' in step) {
      client.wallStep += step.stepWall
      return
    }
  }

  /** Returns the resources that a call is about. An adopted lease has the resources of the one that was passed on. */
  #resourcesOf({ call, args }: CallStep): readonly string[] {
    if (call === 'transfer') return this.#leases.get(String(args?.lease))?.resources ?? []
    if (call === 'adopt') return this.#names.get(this.#calls.get(String(args?.lease)) ?? 0)?.resources ?? []
    return args?.names === undefined ? [] : ([args.names].flat() as string[])
  }

  /** The arguments of a call, with numbers where the scenario has names of other calls. */
  #argsOf({ call, args }: CallStep): object | undefined {
    if (call === 'cancel') return { call: this.#calls.get(String(args?.call)) }
    if (call !== 'adopt') return args
    const transfer = this.#answers.get(this.#calls.get(String(args?.lease)) ?? 0)
    if (transfer?.value === undefined) throw new Error(`${args?.lease} is no answered transfer`)
    return { ...args, lease: (transfer.value as { readonly given: number }).given }
  }

  async #operate(step: Extract<Step, { readonly server: string }>): Promise<void> {
    if (step.server === 'kill') this.#server.kill()
    else if (step.server === 'start') await this.#server.start()
    else if (step.server === 'replaceLog') this.#server.replaceLog()
    else if (step.server === 'copyLog') this.#server.copyLog()
    else if (step.server === 'putBack') this.#server.putBack()
    else if (step.server === 'revoke') await this.#server.revoke(this.#leases.get(step.lease!)!.lease, step.by ?? 'operator')
    await this.#settle()
  }

  async #wire(client: Client, what: string, address?: number): Promise<void> {
    if (what === 'holdRequests') client.holdRequests = true
    else if (what === 'holdAnswers') client.holdAnswers = true
    else if (what === 'drip') client.drip = true
    else if (what === 'duplicate') client.duplicate = true
    else if (what === 'silence') for (const connection of client.connections.values()) connection.silent = true
    else if (what === 'refuse') client.refused = true
    else if (what === 'down') {
      client.down.add(address!)
      for (const connection of [...client.connections.values()]) if (connection.address === address) this.#cut(connection)
    } else if (what === 'cut') {
      for (const connection of [...client.connections.values()]) this.#cut(connection)
    } else if (what === 'heal') {
      client.refused = client.holdRequests = client.holdAnswers = client.drip = client.duplicate = false
      client.down.clear()
      for (const connection of client.connections.values()) this.#flush(connection)
    } else throw new Error(`there is no fault ${what}`)
    await this.#settle()
  }

  async #expect(expected: Expectation): Promise<void> {
    const looks = expected.held ?? expected.notHeld ?? expected.remaining
    checkExpectation(expected, {
      held: looks === undefined ? new Map() : await this.#look(),
      answer: as => this.#answers.get(this.#calls.get(as) ?? 0),
      granted: as => this.#leases.has(as),
      lost: as => this.#leases.get(as)?.lost,
      positions: this.#positions,
    })
  }

  // Clients

  async #begin(name: string, options: ClientOptions): Promise<void> {
    const client: Client = {
      ...{ name, options, connections: new Map(), slept: 0, wallStep: 0, next: undefined, stalledUntil: 0 },
      ...{ refused: false, down: new Set<number>(), holdRequests: false, holdAnswers: false, drip: false, duplicate: false },
    }
    this.#clients.set(name, client)
    await this.#say(client, 'client', { options: { holder: name, addresses: 1, ...options } })
  }

  #client(name: string): Client {
    const client = this.#clients.get(name)
    if (client === undefined) throw new Error(`there is no client ${name}`)
    return client
  }

  #trueMoment(): Moment {
    return { monotonic: this.#now + 10_000, boottime: this.#now + 10_000, wall: WALL + this.#now }
  }

  #moment({ options, slept, wallStep }: Client): Moment {
    const ran = (this.#now - slept) * (options.rate ?? 1)
    return { monotonic: ran + 50_000, boottime: ran + slept + 50_000, wall: WALL + this.#now + wallStep }
  }

  async #say(client: Client, what: DriverMessage['do'], more: object = {}): Promise<DriverReply> {
    const reply = await this.#driver.say({ do: what, client: client.name, at: this.#moment(client), ...more })
    for (const [name, next] of Object.entries(reply.next)) {
      const { slept, options } = this.#client(name)
      // A fraction later rather than earlier: a timer that fires early is set again and again.
      this.#client(name).next = next === null ? undefined : Math.ceil((next - 50_000) / (options.rate ?? 1) + slept)
    }
    for (const { client: name, connection, address } of reply.open) this.#open(this.#client(name), connection, address)
    for (const { client: name, connection, data } of reply.send) this.#send(this.#client(name).connections.get(connection), data)
    for (const { client: name, connection } of reply.close) this.#cut(this.#client(name).connections.get(connection), 'client')
    for (const event of reply.events) this.#heard(event)
    return reply
  }

  #heard(event: DriverEvent): void {
    if (event.event === 'position') this.#positions.push(event.position!)
    else if (event.event === 'lost') {
      const record = this.#leases.get(event.lease!)
      if (record !== undefined) record.lost ??= event
    } else {
      this.#answers.set(event.call!, event)
      const asked = this.#names.get(event.call!)
      const lease = (event.value as { lease?: number } | null | undefined)?.lease
      if (asked !== undefined && lease !== undefined) this.#leases.set(asked.as, { ...asked, lease, lost: undefined, released: false })
    }
  }

  /** Asks each client which leases it holds. Two that say so of one resource is what everything here is about. */
  async #look(): Promise<Map<string, number>> {
    const held = new Map<string, number>()
    for (const client of this.#clients.values()) {
      // One that stands still looks when it goes on, and not before.
      if (client.stalledUntil > this.#now) continue
      const reply = await this.#say(client, 'look')
      for (const [as, remaining] of Object.entries(reply.held ?? {})) if (remaining > 0) held.set(as, remaining)
    }
    const holders = new Map<string, { readonly as: string; readonly permits: number }[]>()
    for (const as of held.keys()) {
      const record = this.#leases.get(as)!
      if (record.lost !== undefined) throw new Error(`${as} is held again after it was lost`)
      for (const resource of record.resources) {
        const all = [...(holders.get(resource) ?? []), { as, permits: record.permits }]
        if (all.length > Math.min(...all.map(({ permits }) => permits)))
          throw new Error(`${all.map(({ as }) => as).join(' and ')} hold ${resource} at the same time`)
        holders.set(resource, all)
      }
    }
    this.#judgeCovered([...held.keys()])
    return held
  }

  /** What a lease covers is held by no other client. */
  #judgeCovered(held: readonly string[]): void {
    const records = held.map(as => ({ as, ...this.#leases.get(as)! }))
    for (const { as, client, resources } of records.filter(({ covers }) => covers))
      for (const other of records) {
        const isBelow = other.resources.some(name => resources.some(above => name.startsWith(`${above}/`)))
        if (isBelow && other.client !== client) throw new Error(`${as} and ${other.as}, which is below it, are held at the same time`)
      }
  }

  // The wire

  #open(client: Client, number: number, address: number): void {
    const connection: Connection = {
      client,
      number,
      address,
      far: undefined,
      twin: undefined,
      open: true,
      broken: false,
      silent: false,
      there: [],
      back: [],
    }
    client.connections.set(number, connection)
    this.#later(DELAY, async () => {
      if (!connection.open) return
      if (client.refused || client.down.has(address) || !this.#server.running) return this.#refuse(connection)
      this.#server.open(
        client.name,
        end => {
          connection.far = end
          return {
            write: bytes => this.#push(connection, 'back', Uint8Array.from(bytes)),
            backlog: 0,
            pause: () => {},
            resume: () => {},
            end: () => this.#cut(connection, 'server'),
            destroy: () => this.#cut(connection, 'server'),
          }
        },
        () => this.#cut(connection, 'server'),
      )
      await this.#say(client, 'opened', { connection: number })
      this.#flush(connection)
    })
  }

  async #refuse(connection: Connection): Promise<void> {
    connection.open = false
    connection.client.connections.delete(connection.number)
    await this.#say(connection.client, 'failed', { connection: connection.number, reason: 'connection refused' })
  }

  #send(connection: Connection | undefined, data: string): void {
    if (connection?.open) this.#push(connection, 'there', Buffer.from(data, 'base64'))
  }

  #push(connection: Connection, way: 'there' | 'back', bytes: Uint8Array): void {
    if (!connection.open || connection.silent) return
    connection[way].push(bytes)
    this.#flush(connection)
  }

  #flush(connection: Connection): void {
    const { client } = connection
    if (connection.silent) {
      connection.there.length = connection.back.length = 0
      return
    }
    if (!client.holdRequests && connection.far !== undefined)
      for (const bytes of connection.there.splice(0)) {
        this.#later(DELAY, () => this.#arrive(connection, bytes))
        if (client.duplicate) this.#later(2 * DELAY, () => this.#arriveAgain(connection, bytes))
      }
    if (!client.holdAnswers)
      for (const bytes of connection.back.splice(0))
        for (const piece of client.drip ? [...bytes].map(byte => Uint8Array.of(byte)) : [bytes])
          this.#later(DELAY, () => this.#deliver(connection, piece))
  }

  #arrive(connection: Connection, bytes: Uint8Array): void {
    if (!connection.broken && !connection.silent) connection.far?.data(bytes)
  }

  #arriveAgain(connection: Connection, bytes: Uint8Array): void {
    const nothing = () => {}
    const link = { write: nothing, backlog: 0, pause: nothing, resume: nothing, end: nothing, destroy: nothing }
    if (connection.twin === undefined && this.#server.running)
      this.#server.open(
        connection.client.name,
        end => {
          connection.twin = end
          return link
        },
        nothing,
      )
    connection.twin?.data(bytes)
  }

  async #deliver(connection: Connection, bytes: Uint8Array): Promise<void> {
    const { client } = connection
    // A process that stands still reads what has come when it goes on.
    if (client.stalledUntil > this.#now) return this.#later(client.stalledUntil - this.#now, () => this.#deliver(connection, bytes))
    if (connection.broken || connection.silent) return
    await this.#say(client, 'bytes', { connection: connection.number, data: Buffer.from(bytes).toString('base64') })
  }

  /** `by`: the end that closed it, and is not told. */
  #cut(connection: Connection | undefined, by?: 'client' | 'server'): void {
    if (connection === undefined || !connection.open) return
    connection.open = false
    // An end that closes sends what it has written before; a broken wire loses it.
    connection.broken = by === undefined
    const { client, number, far } = connection
    client.connections.delete(number)
    if (by !== 'server' && !connection.silent) this.#later(DELAY, () => far?.closed())
    if (by !== 'client') this.#tellClosed(client, number)
  }

  #tellClosed(client: Client, number: number): void {
    this.#later(Math.max(DELAY, client.stalledUntil - this.#now), async () => {
      await this.#say(client, 'closed', { connection: number, reason: 'the connection broke' })
    })
  }

  // Time

  #later(ms: number, then: () => void | Promise<void>): void {
    this.#deliveries.push({ at: this.#now + ms, order: this.#order++, then })
  }

  async #settle(): Promise<void> {
    await this.#clock.settle()
  }

  async #advance(ms: number): Promise<void> {
    const end = this.#now + ms
    await this.#settle()
    let still = 0
    for (let turns = 0; ; turns++) {
      const next = this.#nextTime()
      if (next === undefined || next > end) break
      still = next > this.#now ? 0 : still + 1
      if (turns > TURNS || still > TURNS_STILL) throw new Error(`time does not pass: ${this.#whatIsNext()}`)
      this.#now = Math.max(this.#now, next)
      await this.#moveOn()
    }
    this.#now = end
    this.#clock.set(this.#trueMoment())
    await this.#settle()
  }

  #nextTime(): number | undefined {
    const times = this.#deliveries.map(({ at }) => at)
    if (this.#clock.next !== undefined) times.push(this.#clock.next - 10_000)
    for (const { next, stalledUntil } of this.#clients.values()) if (next !== undefined) times.push(Math.max(next, stalledUntil))
    return times.length === 0 ? undefined : Math.min(...times)
  }

  #whatIsNext(): string {
    const clients = [...this.#clients.values()].map(({ name, next, stalledUntil }) => ({ name, next, stalledUntil }))
    return JSON.stringify({ now: this.#now, server: this.#clock.next, deliveries: this.#deliveries.map(({ at }) => at), clients })
  }

  async #moveOn(): Promise<void> {
    this.#clock.set(this.#trueMoment())
    // What has arrived is read before timers fire: after a stall an answer may be waiting.
    const due = this.#deliveries.filter(({ at }) => at <= this.#now).sort((a, b) => a.at - b.at || a.order - b.order)
    for (const delivery of due) this.#deliveries.splice(this.#deliveries.indexOf(delivery), 1)
    for (const { then } of due) {
      await then()
      await this.#settle()
    }
    this.#clock.fire()
    await this.#settle()
    for (const client of this.#clients.values())
      if (client.next !== undefined && client.next <= this.#now && client.stalledUntil <= this.#now) {
        client.next = undefined
        await this.#say(client, 'tick')
      }
    await this.#settle()
    if (this.#scenario.looks !== false) await this.#look()
  }
}
