/**
 * A host reports this about a device: utilisation, processes, idleness. It is the entry `devices/POOL/MEMBER` on the lease of the offer, so it ends with the
 * offer. Times are ages at the moment of the report, because the wall clocks of hosts may disagree by any amount.
 */
import type { AttributedProcess } from './attribution.ts'
import type { Device } from './device.ts'
import { IDLE_STAGES, type IdleStage } from './idle.ts'

const PREFIX = 'devices'
/** An entry's value has at most 16,384 bytes. Names of processes are the longest part. */
const MAX_REPORTED = 16
const NAME_LENGTH = 64
/** Points of utilisation, and GiB of memory, by which a report must differ to be written before its time. */
const UTILISATION_STEP = 20
const MEMORY_STEP = 1
/** Ms after which any difference is written. */
export const REFRESH = 300_000

/** The entries with the reports on the devices of a pool. */
export function reportPrefix(pool: string): string {
  return `${PREFIX}/${pool}`
}

export function reportKey(pool: string, member: string): string {
  return `${PREFIX}/${pool}/${member}`
}

export interface ReportedProcess {
  readonly pid: number
  readonly user: string
  readonly name?: string
  /** GiB of the device. */
  readonly memory?: number
  /** Ticks since the host booted. */
  readonly started: number
  /** Ms that it had run when it was reported. */
  readonly age: number
  /** The lease it runs under; 0: none. */
  readonly lease: number
}

export interface DeviceReport {
  readonly host: string
  /** Percent; left out if the device does not tell. */
  readonly utilisation?: number
  /** GiB. */
  readonly memoryUsed?: number
  /** The first processes; `more` says how many are left out. */
  readonly processes: readonly ReportedProcess[]
  readonly more: number
  /** The number of processes that use the device without a lease. */
  readonly unleased: number
  /** Ms that the device has been idle under its holder, as of this report. */
  readonly idle: number
  readonly stage: IdleStage
  /** Why nothing newer is known: the discovery fails or hangs. */
  readonly problem?: string
}

export interface ReportInput {
  readonly host: string
  readonly device: Device
  readonly processes: readonly AttributedProcess[]
  readonly idle: number
  readonly stage: IdleStage
  readonly problem?: string | undefined
}

export function reportOf({ host, device, processes, idle, stage, problem }: ReportInput): DeviceReport {
  const { utilisation, memoryUsed } = device
  // Processes without a lease first: they are what an operator looks for.
  const ordered = [...processes].sort((a, b) => Number(a.lease !== 0) - Number(b.lease !== 0) || a.pid - b.pid)
  return {
    host,
    ...(utilisation !== undefined && { utilisation }),
    ...(memoryUsed !== undefined && { memoryUsed }),
    processes: ordered.slice(0, MAX_REPORTED).map(({ pid, user, name, memory, started, age, lease }) => ({
      pid,
      user: user.slice(0, NAME_LENGTH),
      ...(name !== undefined && { name: name.slice(0, NAME_LENGTH) }),
      ...(memory !== undefined && { memory }),
      started,
      age,
      lease,
    })),
    more: Math.max(0, ordered.length - MAX_REPORTED),
    unleased: ordered.filter(({ lease }) => lease === 0).length,
    idle,
    stage,
    ...(problem !== undefined && { problem: problem.slice(0, 200) }),
  }
}

/** Returns whether a reader would act on the difference. Ages grow and utilisation flickers: a write each second would drown the log. */
export function isNews(before: DeviceReport | undefined, now: DeviceReport): boolean {
  if (before === undefined) return true
  const identity = ({ stage, unleased, problem, processes, more }: DeviceReport) =>
    JSON.stringify([stage, unleased, problem, more, processes.map(({ pid, started, lease }) => [pid, started, lease])])
  if (identity(before) !== identity(now)) return true
  return far(before.utilisation, now.utilisation, UTILISATION_STEP) || far(before.memoryUsed, now.memoryUsed, MEMORY_STEP)
}

function far(a: number | undefined, b: number | undefined, step: number): boolean {
  if (a === undefined || b === undefined) return a !== b
  return Math.abs(a - b) >= step
}

/** The report in an entry, or undefined if the value is not one. Any client that may register there can have written it. */
export function parseReport(value: string): DeviceReport | undefined {
  try {
    const { host, utilisation, memoryUsed, processes, more, unleased, idle, stage, problem } = JSON.parse(value) as Record<string, unknown>
    if (typeof host !== 'string' || !Array.isArray(processes) || !(IDLE_STAGES as readonly unknown[]).includes(stage)) return undefined
    return {
      host,
      ...(isAmount(utilisation) && { utilisation }),
      ...(isAmount(memoryUsed) && { memoryUsed }),
      processes: processes.slice(0, MAX_REPORTED).flatMap(parseProcess),
      more: isAmount(more) ? more : 0,
      unleased: isAmount(unleased) ? unleased : 0,
      idle: isAmount(idle) ? idle : 0,
      stage: stage as IdleStage,
      ...(typeof problem === 'string' && { problem }),
    }
  } catch {
    return undefined
  }
}

function parseProcess(value: unknown): ReportedProcess[] {
  const { pid, user, name, memory, started, age, lease } = (value ?? {}) as Record<string, unknown>
  if (!isAmount(pid) || typeof user !== 'string') return []
  const optional = { ...(typeof name === 'string' && { name }), ...(isAmount(memory) && { memory }) }
  return [
    { pid, user, ...optional, started: isAmount(started) ? started : 0, age: isAmount(age) ? age : 0, lease: isAmount(lease) ? lease : 0 },
  ]
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
}
