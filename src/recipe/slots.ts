/**
 * Numbered slots: one number of a range for each holder, such as a port, a worker number or a test database.
 *
 * A slot is the resource `NAME/NUMBER`. One command asks for any of them in an order of preference, and the lessor takes the first that is free.
 * So two holders never get the same number, and none is chosen by reading first and locking afterwards.
 *
 * With `sticky`, the number is remembered under the entry `NAME/sticky/WHO`, on a lease without resources that outlives this process. A holder prefers
 * its remembered number, then numbers that are remembered for no other holder, in the order of its own rendezvous hash. So holders
 * that start for the first time rarely prefer the same number.
 *
 * Not promised: that a remembered number is still free. The memory is a preference and never withholds a number from a holder that finds no
 * other. It lasts `remember` after the last use.
 */
import { pause } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { type AcquireOptions, waitOf } from '../holder/acquire-options.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import type { Lease } from '../lease.ts'
import { propose } from '../lessor/propose.ts'
import { checkOptionNames } from '../options.ts'
import { draw, hash } from '../registry/rendezvous.ts'
import { sentenceOf } from '../wording.ts'

/** The most numbers in a range: all ports. */
const MAX_SLOTS = 65_536
/** As long as a lease lasts by default policy. */
const REMEMBER = '1d'
/** A number in hand must not wait longer than this, in ms, for its record to be written. */
const WRITE_TIMEOUT = 2_000

/** Options of `slot`. It waits by the same rule as `acquire`: until a number is free, unless `wait`, `ifAvailable` or `signal` end the wait. */
export interface SlotOptions
  extends Pick<
    AcquireOptions,
    'ttl' | 'wait' | 'ifAvailable' | 'signal' | 'priority' | 'renew' | 'maxHold' | 'parent' | 'labels' | 'onLost' | 'onWait' | 'advanced'
  > {
  /** The lowest number. */
  readonly from: number
  /** The highest number. */
  readonly to: number
  /**
   * A name that stays the same over restarts. The same name gets the same number again if it is free.
   * @default none: the lowest free number
   */
  readonly sticky?: string | undefined
  /**
   * The number is remembered this long after it was last used. Policies limit it like any ttl (by default to a day).
   * @default '1d'
   */
  readonly remember?: Duration | undefined
}

const ACQUIRE = [
  ...['ttl', 'wait', 'ifAvailable', 'signal', 'priority', 'renew', 'maxHold', 'parent', 'labels', 'onLost', 'onWait', 'advanced'],
] as const
const OPTIONS = ['from', 'to', 'sticky', 'remember', ...ACQUIRE] as const

/**
 * A number in hand.
 *
 * @example
 * await using slot = await leases.slot('ports', { from: 3000, to: 3099, sticky: 'checkout-service' })
 * server.listen(slot.number)
 */
export class NumberedSlot implements AsyncDisposable {
  readonly number: number
  readonly lease: Lease

  constructor(number: number, lease: Lease) {
    this.number = number
    this.lease = lease
  }

  /** The fencing token of the slot, greater than that of every earlier holder of this number. */
  get token(): number {
    return this.lease.token
  }

  /** Fires when the slot is lost or released. */
  get signal(): AbortSignal {
    return this.lease.signal
  }

  /** Returns whether the slot is held. Reads the clocks. */
  get held(): boolean {
    return this.lease.held
  }

  release(): Promise<void> {
    return this.lease.release()
  }

  /** The same as `release`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }
}

/** The number that a name had last, and the lease that carries the record. */
interface Remembered {
  readonly who: string
  readonly number: number
  readonly lease: number
}

/** @internal Use `leases.slot(name, options)`. */
export async function takeSlot(leases: LeaseClient, name: string, options: SlotOptions): Promise<NumberedSlot> {
  checkOptionNames('slot', options, OPTIONS)
  const { from, to, sticky, remember = REMEMBER, ...acquire } = options
  checkRange(from, to)
  const span = milliseconds(remember, 'remember')
  waitOf(acquire, 'slot')
  const memory = new Memory(leases, name)
  const remembered = await memory.read(acquire.signal)
  const order = preferences(from, to, sticky, remembered)
  const lease = await acquireAny(leases, name, order, acquire)
  const number = Number(lease.resources[0]!.slice(name.length + 1))
  if (sticky === undefined) return new NumberedSlot(number, lease)
  try {
    const record = await memory.write(sticky, number, span, remembered)
    acquire.signal?.throwIfAborted() // the slot is not in hand yet
    if (record !== undefined) void memory.keep(record, span / 2, lease.signal)
  } catch (error) {
    await lease.release().catch(() => {}) // it lapses by itself
    throw error
  }
  return new NumberedSlot(number, lease)
}

function checkRange(from: number, to: number): void {
  const whole = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  if (whole(from) && whole(to) && from <= to && to - from < MAX_SLOTS) return
  throw new LeaseError(
    'INVALID',
    `slots are numbered by whole numbers from 0, { from: 3000, to: 3099 } for example, at most ${MAX_SLOTS} of them; not from ${String(from)} to ${String(to)}`,
    { facts: { option: 'from' } },
  )
}

/**
 * The numbers in order of preference: the remembered one; those that are remembered for no other name; the others. Within each part by
 * rendezvous hash, so that the names prefer different numbers; without `sticky`, the lowest first.
 */
function preferences(from: number, to: number, sticky: string | undefined, remembered: readonly Remembered[]): readonly number[] {
  const last = remembered.find(({ who }) => who === sticky)?.number
  const foreign = new Set(remembered.filter(({ who }) => who !== sticky).map(({ number }) => number))
  const who = sticky === undefined ? undefined : hash(sticky)
  const ranked = Array.from({ length: to - from + 1 }, (_, i) => {
    const number = from + i
    const part = number === last ? 0 : foreign.has(number) ? 2 : 1
    return { number, part, draw: who === undefined ? 0 : draw(who, hash(String(number))) }
  })
  return ranked.sort((a, b) => a.part - b.part || b.draw - a.draw || a.number - b.number).map(({ number }) => number)
}

type SlotRequest = Omit<SlotOptions, 'from' | 'to' | 'sticky' | 'remember'>

/**
 * Acquires the first number that is free. One request names a limited number of them. In a longer range, it asks for free ones without waiting: others may
 * have taken all of these since the look, and then it looks again. It waits only when no number is free.
 */
async function acquireAny(leases: LeaseClient, name: string, order: readonly number[], options: SlotRequest): Promise<Lease> {
  const request = (numbers: readonly number[], settings: SlotRequest) =>
    leases.acquire(
      numbers.slice(0, MAX_RESOURCES).map(number => `${name}/${number}`),
      { ...settings, advanced: { ...settings.advanced, any: 1 } },
    )
  const { wait: _, ifAvailable: __, onWait: ___, ...now } = options
  // Each time that it fails, others have taken as many numbers as it named.
  for (let named = 0; order.length > MAX_RESOURCES && named < order.length; named += MAX_RESOURCES) {
    const free = await freeNumbers(leases, name, order, options.signal)
    if (free.length === 0) break
    try {
      return await request(free, { ...now, ifAvailable: true })
    } catch (error) {
      if (!LeaseError.is(error, 'HELD')) throw error
    }
  }
  return request(order, options)
}

/** The slots that no lease holds and none waits for, in the given order. */
async function freeNumbers({ lessor }: LeaseClient, name: string, order: readonly number[], signal: AbortSignal | undefined) {
  const query = { kind: 'resources', prefix: name } as const
  const { value } = await lessor.read(query, { consistent: true, ...(signal !== undefined && { signal }) })
  const busy = new Set(value.filter(({ grants, queue }) => grants.length + queue.length > 0).map(({ resource }) => resource))
  return order.filter(number => !busy.has(`${name}/${number}`))
}

/** Which name had which number last. A preference and nothing else: a key without rights to it, or a lessor that does not answer, only loses that. */
class Memory {
  readonly #leases: LeaseClient
  readonly #prefix: string

  constructor(leases: LeaseClient, name: string) {
    this.#leases = leases
    this.#prefix = `${name}/sticky`
  }

  async read(signal: AbortSignal | undefined): Promise<readonly Remembered[]> {
    const query = { kind: 'entries', prefix: this.#prefix } as const
    const answer = this.#leases.read(query, { consistent: true, ...(signal !== undefined && { signal }) })
    const { value } = await answer.catch(error => {
      if (LeaseError.is(error, 'FORBIDDEN')) return { value: [] }
      throw error
    })
    return value.flatMap(({ key, value: number, lease }) => {
      const who = key.slice(this.#prefix.length + 1)
      return /^\d{1,16}$/.test(number) ? [{ who, number: Number(number), lease }] : []
    })
  }

  /** Records the number, and returns the lease that carries the record. Throws `INVALID` for a name or a time that is not allowed. */
  async write(who: string, number: number, span: number, remembered: readonly Remembered[]): Promise<number | undefined> {
    const { lessor, clock } = this.#leases
    const limit = new AbortController()
    const { signal } = limit
    const cancel = clock.after(WRITE_TIMEOUT, () => limit.abort(new LeaseError('TIMEOUT', 'the record of the slot took too long')))
    const before = remembered.find(record => record.who === who)
    const key = `${this.#prefix}/${who}`
    const value = String(number)
    try {
      if (before !== undefined) {
        const put = { kind: 'put', lease: before.lease, key, value } as const
        const kept = before.number === number || (await propose(lessor, put, { signal })).kind === 'done'
        if (kept && (await this.#renew(before.lease, signal))) return before.lease
      }
      // Not an acquire of this client: closing the client must not release it.
      const labels = [['purpose', `remembers slot ${number} of ${who}`]] as const
      const made = await propose(
        lessor,
        { kind: 'acquire', holder: who, wants: [], ttl: span, entries: [{ key, value }], labels },
        { signal },
      )
      if (made.kind === 'refused' && made.code === 'INVALID')
        throw new LeaseError('INVALID', `slot ${number} cannot be remembered for ${JSON.stringify(who)}: ${sentenceOf(made)}`)
      if (made.kind !== 'granted') return undefined
      return (await this.#renew(made.lease, signal)) ? made.lease : undefined // the first term of a lease is short
    } catch (error) {
      if (LeaseError.is(error, 'INVALID')) throw error
      return undefined
    } finally {
      cancel()
    }
  }

  async #renew(lease: number, signal: AbortSignal): Promise<boolean> {
    const outcome = await propose(this.#leases.lessor, { kind: 'renew', leases: [lease] }, { signal })
    return outcome.kind === 'renewed' && outcome.ttls[0]! > 0
  }

  /** Renews the record until the slot is given back. */
  async keep(record: number, interval: number, over: AbortSignal): Promise<void> {
    try {
      do await pause(this.#leases.clock, interval, over)
      while (await this.#renew(record, over))
    } catch {
      // The slot was given back, or the lessor is gone: the record lasts for the rest of its ttl.
    }
  }
}
