/** Measures the store or server that a command uses: how long a write and a read take, how late timers fire here, and how the clocks run. */
import { type Clock, pause } from '../clock.ts'
import type { Leases } from '../leases.ts'

export interface PlaceMeasurement {
  /** Of a write to the log, in ms: half of them took less, and the longest. */
  readonly write: Spread
  /** Of a read at the end of the log. */
  readonly read: Spread
  /** The latest timer of this process, in ms. */
  readonly stall: number
  /** By how much the wall clock and the monotonic clock of this machine run apart, in parts per million. */
  readonly drift: number
}

export interface Spread {
  readonly median: number
  readonly longest: number
}

/** A timer that should fire after this many ms. */
const BEAT = 20
/** Rates are compared over at least this long: clocks are read in steps of a millisecond. */
const LONG_ENOUGH = 1_000

/** `rounds` writes and reads. The lease for that has no resources, and is released at the end. */
export async function measurePlace(leases: Leases, rounds: number): Promise<PlaceMeasurement> {
  const { lessor, clock } = leases
  const writes: number[] = []
  const reads: number[] = []
  const began = { now: clock.now(), wall: clock.wall() }
  const beats = beat(clock)
  const lease = await leases.grant({ ttl: '30s' })
  try {
    for (let i = 0; i < rounds; i++) {
      const sent = clock.now()
      await lease.put(`leasehold-plan/${lease.id}`, String(i))
      writes.push(clock.now() - sent)
      const asked = clock.now()
      await lessor.read({ kind: 'summary' }, { consistent: true })
      reads.push(clock.now() - asked)
    }
    const left = LONG_ENOUGH - (clock.now() - began.now)
    if (left > 0) await pause(clock, left, undefined, { ref: true })
  } finally {
    beats.stop()
    await lease.release()
  }
  const ran = clock.now() - began.now
  return { write: spreadOf(writes), read: spreadOf(reads), stall: beats.latest(), drift: ((clock.wall() - began.wall - ran) / ran) * 1e6 }
}

function spreadOf(list: readonly number[]): Spread {
  const sorted = [...list].sort((a, b) => a - b)
  return { median: sorted[Math.floor(sorted.length / 2)] ?? 0, longest: sorted.at(-1) ?? 0 }
}

function beat(clock: Clock): { latest(): number; stop(): void } {
  let latest = 0
  let cancel = () => {}
  const next = () => {
    const due = clock.now() + BEAT
    cancel = clock.after(BEAT, () => {
      latest = Math.max(latest, clock.now() - due)
      next()
    })
  }
  next()
  return { latest: () => latest, stop: () => cancel() }
}
