/** Measures an engine without faults: the latency of an append, the latency until another store reads it, and appends a second. */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { ScratchLog } from '../../store/certification.ts'
import { type LogRecord, type Position, START, type Store } from '../../store.ts'

/** In ms. */
export interface Latency {
  readonly p50: number
  readonly p99: number
  readonly samples: number
}

export interface Measured {
  /** One small entry at a time, from one store. */
  readonly commit: Latency
  /** From sending an append until another store that waits has the entry. */
  readonly push: Latency
  /** Entries of 1 KiB from several stores at once, each with one append in flight. */
  readonly throughput: { readonly perSecond: number; readonly openings: number; readonly entries: number }
  /** Tells whether those stores then read the same entries in the same order, without a gap, including all acknowledged ones. */
  readonly order: { readonly kept: boolean; readonly reason?: string }
}

const SAMPLES = 200
const OPENINGS = 4
/** Long enough to measure a busy engine, short enough not to disturb its other users. */
const BUSY_MS = 2_000
const MAX_ENTRIES = 20_000

export async function measure(log: () => ScratchLog, clock: Clock): Promise<Measured> {
  const commit = await commitLatency(log(), clock)
  const push = await pushLatency(log(), clock)
  return { commit, push, ...(await load(log(), clock)) }
}

async function commitLatency(log: ScratchLog, clock: Clock): Promise<Latency> {
  await using store = log.store()
  let { head: after } = await store.open()
  const times: number[] = []
  for (let i = 0; i < SAMPLES; i++) {
    const began = clock.now()
    after = positionOf(await store.append(small(i), after))
    times.push(clock.now() - began)
  }
  return latency(times)
}

async function pushLatency(log: ScratchLog, clock: Clock): Promise<Latency> {
  await using writer = log.store()
  await using reader = log.store()
  let { head: after } = await writer.open()
  await reader.open()
  const never = new AbortController()
  const times: number[] = []
  for (let i = 0; i < SAMPLES / 2; i++) {
    const waiting = reader.read(after, { wait: never.signal }).then(read => ({ read, at: clock.now() }))
    waiting.catch(() => {}) // if the append fails first, that error is reported
    await reader.read(after) // the waiting read has started
    const began = clock.now()
    after = positionOf(await writer.append(small(i), after))
    const { read, at } = await waiting
    if (read.kind !== 'records' || read.records.at(-1)?.position.nonce !== after.nonce)
      throw new LeaseError('DIVERGED', `a waiting read did not return the new entry: ${read.kind}`)
    times.push(at - began)
  }
  return latency(times)
}

async function load(log: ScratchLog, clock: Clock): Promise<Pick<Measured, 'throughput' | 'order'>> {
  const stores = Array.from({ length: OPENINGS }, () => log.store())
  try {
    await Promise.all(stores.map(store => store.open()))
    const began = clock.now()
    let entries = 0
    const write = async (store: Store): Promise<Position[]> => {
      const acknowledged: Position[] = []
      const entry = new Uint8Array(1_024).fill(120)
      for (let after = START; clock.now() - began < BUSY_MS && entries < MAX_ENTRIES; entries++) {
        after = positionOf(await store.append(entry, after))
        acknowledged.push(after)
      }
      return acknowledged
    }
    const acknowledged = (await Promise.all(stores.map(write))).flat()
    const seconds = (clock.now() - began) / 1_000
    const seen = await Promise.all(stores.map(store => readAll(store)))
    const reason = disorder(seen, acknowledged)
    return {
      throughput: { perSecond: Math.round(acknowledged.length / seconds), openings: OPENINGS, entries: acknowledged.length },
      order: { kept: reason === undefined, ...(reason !== undefined && { reason }) },
    }
  } finally {
    await Promise.all(stores.map(store => store[Symbol.asyncDispose]()))
  }
}

/** Why the stores did not see one order; undefined if they did. */
export function disorder(seen: readonly (readonly LogRecord[])[], acknowledged: readonly Position[]): string | undefined {
  const [first = [], ...others] = seen
  const gap = first.findIndex(({ position }, i) => position.index !== i + 1)
  if (gap !== -1) return `entry ${gap + 1} is followed by ${first[gap]!.position.index}`
  for (const other of others) {
    if (other.length !== first.length) return `one opening sees ${first.length} entries, another ${other.length}`
    const differs = other.findIndex(({ position }, i) => position.nonce !== first[i]!.position.nonce)
    if (differs !== -1) return `two openings see different entries at ${differs + 1}`
  }
  const lost = missing(first, acknowledged)
  return lost.length > 0 ? `${lost.length} acknowledged entries are not there` : undefined
}

/** Acknowledged positions that are missing, or hold another entry now. */
export function missing(entries: readonly LogRecord[], acknowledged: readonly Position[]): Position[] {
  const there = new Map(entries.map(({ position }) => [position.index, position.nonce]))
  return acknowledged.filter(({ index, nonce }) => there.get(index) !== nonce)
}

export function latency(times: readonly number[]): Latency {
  const sorted = [...times].sort((a, b) => a - b)
  const at = (share: number) => Math.round(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]! * 100) / 100
  return { p50: at(0.5), p99: at(0.99), samples: sorted.length }
}

export async function readAll(store: Store): Promise<LogRecord[]> {
  const all: LogRecord[] = []
  for (;;) {
    const read = await store.read(all.at(-1)?.position ?? START)
    if (read.kind !== 'records') throw new LeaseError('DIVERGED', `reading certify's own log returned ${read.kind}`)
    if (read.records.length === 0) return all
    all.push(...read.records)
  }
}

export function positionOf(answer: Awaited<ReturnType<Store['append']>>): Position {
  if (answer.kind === 'appended' || answer.kind === 'behind') return answer.position
  throw new LeaseError('DIVERGED', `an entry was not appended: ${answer.kind}`)
}

export function small(number: number): Uint8Array {
  return new TextEncoder().encode(`entry ${number}`.padEnd(100, '.'))
}
