/** The driver of the TypeScript client: runs it over links and a clock that the conductor moves. See ../README.md for the messages. */
import { createInterface } from 'node:readline'
import { LeaseError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import { Leases } from '../../src/leases.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import type { Dial } from '../../src/wire/resp/dial.ts'
import type { ByteLinkEnd } from '../../src/wire/resp/link.ts'
import type { DriverEvent, DriverMessage } from '../driver.ts'
import { type Moment, VirtualClock } from '../virtual-clock.ts'

const out = {
  open: [] as object[],
  send: [] as object[],
  close: [] as object[],
  events: [] as DriverEvent[],
  next: {} as Record<string, number | null>,
}

class Client {
  readonly clock: VirtualClock
  readonly #name: string
  readonly #ends = new Map<number, ByteLinkEnd>()
  readonly #unsent = new Map<number, string[]>()
  readonly #leases = new Map<string, Lease>()
  readonly #calls = new Map<number, AbortController>()
  readonly #opening: Promise<Leases>
  #connections = 0

  constructor(name: string, at: Moment, options: { readonly holder: string; readonly addresses: number }) {
    this.#name = name
    this.clock = new VirtualClock(
      at,
      [...name].reduce((seed, letter) => seed * 31 + letter.charCodeAt(0), 7),
    )
    const dials = Array.from({ length: options.addresses }, (_, address) => this.#dial(address))
    this.#opening = RemoteLessor.open({ dials, clock: this.clock }).then(
      lessor => new Leases(lessor, { holder: options.holder, clock: this.clock }),
    )
    this.#opening.catch(() => {})
  }

  #dial(address: number): Dial {
    return {
      name: `server-${address}`,
      open: end => {
        const connection = ++this.#connections
        this.#ends.set(connection, end)
        this.#unsent.set(connection, [])
        out.open.push({ client: this.#name, connection, address })
        const gone = () => {
          if (!this.#ends.delete(connection)) return
          out.close.push({ client: this.#name, connection })
          queueMicrotask(() => end.closed())
        }
        return {
          write: bytes => {
            const data = Buffer.from(bytes).toString('base64')
            const unsent = this.#unsent.get(connection)
            if (unsent !== undefined) unsent.push(data)
            else out.send.push({ client: this.#name, connection, data })
          },
          backlog: 0,
          pause: () => {},
          resume: () => {},
          end: gone,
          destroy: gone,
        }
      },
    }
  }

  async call(number: number, method: string, args: Record<string, unknown>): Promise<void> {
    const leases = await this.#opening
    switch (method) {
      case 'acquire':
      case 'tryAcquire':
        return this.#acquire(leases, number, method, args)
      case 'release':
        await this.#leases.get(args.lease as string)!.release()
        return this.#event({ event: 'answer', call: number, value: {} })
      case 'transfer':
        return this.#event({
          event: 'answer',
          call: number,
          value: { given: await this.#leases.get(args.lease as string)!.transfer(args.to as string) },
        })
      case 'adopt':
        return this.#granted(number, args.as as string, await leases.adopt(args.lease as number))
      case 'cancel':
        this.#calls.get(args.call as number)!.abort(new LeaseError('TIMEOUT', 'cancelled'))
        return this.#event({ event: 'answer', call: number, value: {} })
      case 'close':
        await leases[Symbol.asyncDispose]()
        return this.#event({ event: 'answer', call: number, value: {} })
      default:
        throw new Error(method)
    }
  }

  async #acquire(leases: Leases, number: number, method: 'acquire' | 'tryAcquire', args: Record<string, unknown>): Promise<void> {
    const {
      names,
      as,
      parent,
      onWait: tells,
      grace,
      maxLife,
      permits,
      ...rest
    } = args as Readonly<Record<string, unknown>> & {
      readonly names: string
      readonly as: string
      readonly parent?: string
      readonly onWait?: boolean
    }
    const advanced = {
      ...(grace !== undefined && { grace }),
      ...(maxLife !== undefined && { maxLife }),
      ...(permits !== undefined && { permits }),
    }
    const stop = new AbortController()
    this.#calls.set(number, stop)
    const onWait = (place: number | { readonly position: number }) =>
      this.#event({ event: 'position', position: typeof place === 'number' ? place : place.position })
    const options = {
      ...rest,
      advanced,
      ...(parent !== undefined && { parent: this.#leases.get(parent)! }),
      signal: stop.signal,
      ...(tells && { onWait }),
    }
    const lease = method === 'acquire' ? await leases.acquire(names, options as object) : await leases.tryAcquire(names, rest as object)
    if (lease === undefined) return this.#event({ event: 'answer', call: number, value: null })
    this.#granted(number, as, lease)
  }

  #granted(number: number, as: string, lease: Lease): void {
    this.#leases.set(as, lease)
    lease.signal.addEventListener('abort', () => {
      const reason = lease.signal.reason as LeaseError
      if (reason.code === 'LOST') this.#event({ event: 'lost', lease: as, error: told(reason) })
    })
    this.#event({ event: 'answer', call: number, value: { lease: lease.id, token: lease.token } })
  }

  opened(connection: number): void {
    for (const data of this.#unsent.get(connection) ?? []) out.send.push({ client: this.#name, connection, data })
    this.#unsent.delete(connection)
  }

  closed(connection: number): void {
    const end = this.#ends.get(connection)
    this.#ends.delete(connection)
    end?.closed()
  }

  bytes(connection: number, data: string): void {
    this.#ends.get(connection)?.data(Buffer.from(data, 'base64'))
  }

  held(): Record<string, number> {
    return Object.fromEntries([...this.#leases].map(([as, lease]) => [as, lease.held ? lease.remaining() : 0]))
  }

  next(): void {
    out.next[this.#name] = this.clock.next ?? null
  }

  fail(number: number, error: unknown): void {
    this.#event({ event: 'answer', call: number, error: told(error as LeaseError) })
  }

  #event(event: Omit<DriverEvent, 'client'>): void {
    out.events.push({ ...event, client: this.#name })
  }
}

function told({ code, reason, message, facts = {} }: LeaseError): NonNullable<DriverEvent['error']> {
  return { code: code ?? 'CANCELLED', reason: reason ?? null, message, facts }
}

/** A message with all fields that any of them may have. */
interface AnyMessage extends DriverMessage {
  readonly options: { readonly holder: string; readonly addresses: number }
  readonly call: number
  readonly method: string
  readonly args: Record<string, unknown>
  readonly connection: number
  readonly data: string
}

const clients = new Map<string, Client>()
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line) as AnyMessage
  let held: Record<string, number> | undefined
  if (message.do === 'client') clients.set(message.client, new Client(message.client, message.at, message.options))
  const client = clients.get(message.client)!
  client.clock.set(message.at)
  if (message.do === 'call') client.call(message.call, message.method, message.args).catch(error => client.fail(message.call, error))
  else if (message.do === 'opened') client.opened(message.connection)
  else if (message.do === 'failed' || message.do === 'closed') client.closed(message.connection)
  else if (message.do === 'bytes') client.bytes(message.connection, message.data)
  else if (message.do === 'tick') client.clock.fire()
  else if (message.do === 'look') held = client.held()
  await client.clock.settle()
  client.next()
  process.stdout.write(`${JSON.stringify({ ...out, ...(held && { held }) })}\n`)
  for (const list of [out.open, out.send, out.close, out.events]) list.length = 0
  out.next = {}
}
process.exit()
