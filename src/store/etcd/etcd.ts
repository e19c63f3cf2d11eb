/**
 * A log in etcd, shared by any number of replicas, through its JSON gateway.
 *
 * Not guaranteed: that a cluster restored from a backup has the records acknowledged after it (replicas that had seen them notice it); ages.
 * A cluster of one or two members does not survive the loss of a machine.
 *
 * The layout of the keys is in `keys.ts`, appending in `append.ts`, the watch in `tail.ts`.
 */
import { readFile } from 'node:fs/promises'
import { systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import {
  type Appended,
  LARGE_ANSWER,
  type LogRecord,
  type Opened,
  type Position,
  type Profile,
  type Read,
  type RenewalMark,
  type Snapshot,
  type Store,
  type Waker,
} from '../../store.ts'
import { unreachableWithCode } from '../../unreachable-error.ts'
import { storeClosed, storeNotOpened } from '../closed.ts'
import { WaitingReaders } from '../waiting-readers.ts'
import { EtcdAppender } from './append.ts'
import { Gateway, type Tls } from './gateway.ts'
import { EtcdKeys, FORMAT } from './keys.ts'
import { EtcdLog } from './log.ts'
import type { RangeAnswer } from './message.ts'
import type { EtcdStoreOptions } from './options.ts'
import { EtcdSnapshots } from './snapshots.ts'
import { EtcdTail } from './tail.ts'
import { EtcdWaker } from './waker.ts'

/** Members are counted this often, in ms. */
const COUNT_AGAIN = 10_000

/** Everything that exists between opening and closing. */
interface InUse {
  readonly gateway: Gateway
  readonly log: EtcdLog
  readonly appender: EtcdAppender
  readonly tail: EtcdTail
  readonly snapshots: EtcdSnapshots
}

/** A store on a log in an etcd cluster. */
export class EtcdStore implements Store {
  readonly #options: Required<Omit<EtcdStoreOptions, 'user' | 'tls'>> & Pick<EtcdStoreOptions, 'user' | 'tls'>
  readonly passesRenewals = true
  readonly #keys: EtcdKeys
  readonly #closing = new AbortController()
  readonly #readers: WaitingReaders
  readonly #waker: EtcdWaker
  #members = 0
  #countedAt = 0
  #inUse: InUse | undefined

  constructor({ name = 'leasehold', timeout = 5_000, poll = 1_000, clock = systemClock, ...options }: EtcdStoreOptions) {
    this.#options = { ...options, name, timeout, poll, clock }
    this.#keys = new EtcdKeys(name)
    const isFollowing = () => this.#readers.some
    this.#waker = new EtcdWaker({ clock, keys: this.#keys, gateway: () => this.#inUse?.gateway, isFollowing })
    this.#readers = new WaitingReaders(clock, () => {
      this.#waker.look()
      if (isFollowing()) return
      this.#inUse?.tail.rest()
      this.#inUse?.gateway.rest()
    })
  }

  get waker(): Waker {
    return this.#waker
  }

  get profile(): Profile {
    return {
      store: 'etcd',
      durable: true,
      failover: this.#members >= 3,
      push: true,
      shared: true,
      ages: false,
      notes: [
        'Durable on a majority, unless a member runs with --unsafe-no-fsync, which cannot be seen from here.',
        'A cluster of one or two members does not survive the loss of one; how many there are is seen within about 10 s.',
        'Every append stays in etcd until it is compacted: set --auto-compaction-retention.',
      ],
    }
  }

  async open(): Promise<Opened> {
    if (this.#closing.signal.aborted) throw storeClosed()
    const { clock, endpoints, timeout, user } = this.#options
    const keys = this.#keys
    const rereadTls = this.#options.tls && (() => this.#certificates())
    const mayRest = () => !this.#readers.some && this.#waker.isNeeded
    const gateway = new Gateway({ endpoints, clock, timeout, user, tls: await this.#certificates(), rereadTls, mayRest })
    try {
      const log = new EtcdLog({ gateway, keys })
      const head = await log.open()
      await this.#mustBeOurs(gateway)
      this.#members = await countMembers(gateway)
      this.#countedAt = clock.now()
      const snapshots = new EtcdSnapshots({ gateway, keys, clock, log })
      const snapshot = await snapshots.newest()
      if (this.#closing.signal.aborted) throw storeClosed()
      this.#inUse = { gateway, log, snapshots, appender: new EtcdAppender({ log, clock }), tail: new EtcdTail({ gateway, log, clock }) }
      this.#waker.look()
      return snapshot ? { snapshot, head } : { head }
    } catch (error) {
      gateway.close()
      throw nothingDone(error)
    }
  }

  async append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    const { appender, tail } = this.#open()
    const appended = await appender.append(record, after, renewal)
    if (appended.kind === 'appended' || appended.kind === 'behind') tail.confirm(appended.position)
    return appended
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    wait?.throwIfAborted()
    return wait === undefined ? this.#look(after) : this.#readers.during(() => this.#readWaiting(after, wait))
  }

  async #readWaiting(after: Position, wait: AbortSignal): Promise<Read> {
    for (let heard: 'news' | 'silence' = 'news'; ; heard = await this.#open().tail.next(this.#options.poll, wait)) {
      const { log, tail } = this.#open()
      this.#countAgain()
      const watched = tail.following(after)
      if (watched !== undefined && watched.length > 0)
        return { kind: 'records', records: await log.records(watched).catch(rethrowNothingDone) }
      if (watched !== undefined && heard === 'news') continue
      const read = await this.#look(after, tail)
      wait.throwIfAborted()
      if (read.kind === 'records' && read.records.length === 0) continue
      // The poll found a record that the watch did not deliver: the watch is dead.
      if (watched !== undefined) tail.restart()
      return read
    }
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#open().snapshots.keep(at, bytes)
  }

  async newest(): Promise<Snapshot | undefined> {
    return this.#open().snapshots.newest().catch(rethrowNothingDone)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closing.signal.aborted) return
    this.#closing.abort(storeClosed())
    this.#readers.close()
    this.#waker.close()
    this.#inUse?.tail.close()
    this.#inUse?.gateway.close()
  }

  /** Starts the watch, if there is none, when the read reaches the end of the log. */
  async #look(after: Position, tail?: EtcdTail): Promise<Read> {
    const { log } = this.#open()
    try {
      const looked = await log.look(after)
      if (looked.kind !== 'found') return looked
      if (looked.records.length === 0) tail?.begin(after, looked.revision)
      const records = await log.records(looked.records)
      // The number of records to ask for was estimated by the size of earlier ones.
      for (let there = looked.count; records.length < there && isSmall(records); ) {
        const more = await log.look(records.at(-1)!.position)
        if (more.kind !== 'found' || more.records.length === 0) break // the next read finds out why
        there = records.length + more.count
        records.push(...(await log.records(more.records)))
      }
      return { kind: 'records', records }
    } catch (error) {
      throw nothingDone(error)
    }
  }

  /** Members may be added and removed. Counted by the reads that wait, so never for a caller. */
  #countAgain(): void {
    const now = this.#options.clock.now()
    if (now - this.#countedAt < COUNT_AGAIN) return
    this.#countedAt = now
    countMembers(this.#open().gateway).then(
      members => (this.#members = members),
      () => {}, // tried again
    )
  }

  #open(): InUse {
    if (this.#closing.signal.aborted) throw storeClosed()
    if (this.#inUse === undefined) throw storeNotOpened()
    return this.#inUse
  }

  async #certificates(): Promise<Tls | undefined> {
    const { tls } = this.#options
    if (tls === undefined) return undefined
    const read = async ([what, path]: [string, string]): Promise<[string, Buffer]> => {
      try {
        return [what, await readFile(path)]
      } catch (cause) {
        throw new LeaseError('INVALID', `${path}, the ${what} for etcd, cannot be read: ${(cause as Error).message}`, {
          cause,
          facts: { path },
        })
      }
    }
    return Object.fromEntries(await Promise.all(Object.entries(tls).map(read)))
  }

  async #mustBeOurs(gateway: Gateway): Promise<void> {
    const { kvs: [kv] = [] } = await gateway.call<RangeAnswer>('/kv/range', { key: this.#keys.format })
    const format = Buffer.from(kv?.value ?? '', 'base64').toString()
    if (format === FORMAT) return
    throw new LeaseError(
      'UNSUPPORTED',
      `the log ${this.#keys.prefix} in etcd has format '${format}', and this version knows ${FORMAT}: use the version that wrote it`,
      { reason: 'newer', facts: { format } },
    )
  }
}

/** A user who may not list the members gets 1, so the profile promises no more than for a single member. */
async function countMembers(gateway: Gateway): Promise<number> {
  try {
    const { members = [] } = await gateway.call<{ members?: readonly { isLearner?: boolean }[] }>('/cluster/member/list', {})
    return members.filter(({ isLearner }) => !isLearner).length
  } catch (error) {
    if (error instanceof LeaseError && error.reason === 'permission') return 1
    throw error
  }
}

/** A read changes nothing, so its failure is `UNAVAILABLE`. */
function nothingDone(error: unknown): unknown {
  if (!(error instanceof LeaseError) || error.code !== 'UNKNOWN') return error
  if (error.cause instanceof LeaseError) return error.cause // what the last copy was refused with
  if (error.reason === 'unreachable') return unreachableWithCode(error, 'UNAVAILABLE')
  const { message, cause, reason, facts } = error
  return new LeaseError('UNAVAILABLE', message, { cause, reason, facts })
}

function rethrowNothingDone(error: unknown): never {
  throw nothingDone(error)
}

function isSmall(records: readonly LogRecord[]): boolean {
  return records.length < LARGE_ANSWER.records && records.reduce((size, { bytes }) => size + bytes.length, 0) < LARGE_ANSWER.bytes
}
