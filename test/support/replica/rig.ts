/** Replicas on one log in memory, behind connections that can be made bad, with time moved by hand. */
import { expect } from 'vitest'
import { turn } from '../../../src/clock.ts'
import type { LeaseError } from '../../../src/errors.ts'
import { type Batch, decodeBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import type { Acquire, Command } from '../../../src/kernel/command.ts'
import type { Granted, Outcome, Queued } from '../../../src/kernel/outcome.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica, type ReplicaOptions } from '../../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { type Position, START } from '../../../src/store.ts'
import { type AppendFault, FaultyStore } from '../../../src/testing/faulty-store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** The line decides what happens to the coming calls, and keeps what was sent so far. */
export class Line {
  /** Faults of the next appends, one each. */
  readonly faults: (AppendFault | undefined)[] = []
  /** This befalls every append for which `faults` has nothing. */
  always: AppendFault | undefined
  /** Each way of an append or a read takes this long, one way after the other; then no time at all. */
  readonly ways = { append: [] as number[], read: [] as number[] }
  readonly sent: Uint8Array[] = []
  /** The process at this end was killed: nothing that it still does has an effect. */
  dead = false
  /** The engine knows this end by this store. */
  store: MemoryStore | undefined
}

const NEVER = 1e12

export class Rig {
  readonly clock = new ManualClock()
  readonly log: MemoryLog
  readonly #ages: boolean
  #owners = 0

  /** `ages: false`: an engine that does not know the age of records. */
  constructor({ ages = true }: { readonly ages?: boolean } = {}) {
    this.#ages = ages
    this.log = new MemoryLog({ clock: ages ? this.clock : new ManualClock({ seed: 2 }) })
  }

  store({ owned = false, line = new Line() }: { readonly owned?: boolean; readonly line?: Line } = {}): FaultyStore {
    const { clock, log } = this
    const inner = new MemoryStore({ log, clock, ...(owned && { own: { name: `owner ${++this.#owners}` } }) })
    line.store = inner
    Object.assign(inner.profile, { ages: this.#ages })
    return new FaultyStore(inner, {
      clock,
      append: entry => {
        line.sent.push(entry.slice())
        return line.faults.length > 0 ? line.faults.shift() : line.always
      },
      delay: call => {
        if (line.dead) return NEVER
        return call === 'snapshot' ? 0 : (line.ways[call].shift() ?? 0)
      },
    })
  }

  open({ line, ...options }: ReplicaOptions & { readonly line?: Line } = {}): Promise<Replica> {
    const { owned = false } = options
    return Replica.open(this.store({ owned, ...(line && { line }) }), { clock: this.clock, ...options })
  }

  /** kill -9 of the process that `line` belongs to. */
  kill(line: Line): void {
    line.dead = true
    this.log.dismiss(line.store!)
  }

  /** Every entry there is, decoded. */
  async entries(): Promise<readonly Batch[]> {
    return (await this.raw()).map(({ bytes }) => decodeBatch(bytes))
  }

  async raw(): Promise<readonly { readonly position: Position; readonly bytes: Uint8Array }[]> {
    // Past ownership, as one looks into a file: nothing is appended.
    const all: { position: Position; bytes: Uint8Array }[] = []
    for (;;) {
      const read = this.log.read(all.at(-1)?.position ?? START, this.#epoch())
      if (read.kind !== 'records') throw new Error(`cannot look into the log: ${read.kind}`)
      if (read.records.length === 0) return all
      all.push(...read.records)
    }
  }

  /** Commands of a kind in the order of the log. */
  async commands<K extends Command['kind']>(kind: K): Promise<readonly Extract<Command, { readonly kind: K }>[]> {
    const all = (await this.entries()).flatMap(({ proposals }) => proposals.map(({ command }) => command))
    return all.filter((command): command is Extract<Command, { readonly kind: K }> => command.kind === kind)
  }

  /** Puts bytes at the end of the log that no replica made. */
  async inject(bytes: Uint8Array): Promise<void> {
    await using store = new MemoryStore({ log: this.log, clock: this.clock })
    const { head } = await store.open()
    await store.append(bytes, head)
  }

  async injectBatch(batch: Partial<Batch>): Promise<void> {
    const { index } = this.log.head
    await this.inject(encodeBatch({ proposer: 77_777, seq: 1, applied: index, decisionHash: [0, 0], wall: 0, proposals: [], ...batch }))
  }

  #epoch(): number {
    for (let epoch = 0; ; epoch++) if (this.log.read(START, epoch).kind !== 'disowned') return epoch
  }
}

export function acquire(holder: string, resource: string, options: Partial<Acquire> = {}): Acquire {
  return { kind: 'acquire', holder, ttl: 10_000, wants: [{ resource }], ...options }
}

export function granted(outcome: Outcome): Granted {
  if (outcome.kind !== 'granted') throw new Error(`expected a grant, got ${JSON.stringify(outcome)}`)
  return outcome
}

export function queued(outcome: Outcome): Queued {
  if (outcome.kind !== 'queued') throw new Error(`expected to wait, got ${JSON.stringify(outcome)}`)
  return outcome
}

export async function renew(replica: Replica, ...leases: number[]): Promise<readonly number[]> {
  const outcome = await propose(replica, { kind: 'renew', leases })
  if (outcome.kind !== 'renewed') throw new Error(`expected a renewal, got ${JSON.stringify(outcome)}`)
  return outcome.ttls
}

export async function leases(replica: Replica): Promise<readonly string[]> {
  return (await replica.read({ kind: 'leases' })).value.map(({ holder }) => holder)
}

/** A promise one can look at without waiting for it. */
export function fate<T>(promise: Promise<T>): { readonly settled: boolean; readonly value?: T; readonly error?: LeaseError } {
  const state: { settled: boolean; value?: T; error?: LeaseError } = { settled: false }
  promise.then(
    value => Object.assign(state, { settled: true, value }),
    error => Object.assign(state, { settled: true, error }),
  )
  return state
}

/** Turns of the loop until it is so; fails when it never is. */
export async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 10_000; i++) {
    if (condition()) return
    await turn()
  }
  expect.fail('it never came to pass')
}
