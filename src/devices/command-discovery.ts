/**
 * The devices that any command prints as JSON, for what `nvidia-smi` does not know: other accelerators, licences, test benches.
 *
 * The schema: `{"devices": [{"id": "bench-1", "labels": {"model": "x200", "mem": "16"}, "units": 1, "utilisation": 37, "memoryUsed": 3.5,
 * "processes": [{"pid": 4711, "memory": 3.2, "name": "python"}]}]}`. Only `id` is required. Utilisation is in percent, memory in GiB. Without
 * `utilisation` a device is never idle, and without `processes` its use without a lease is not seen.
 */
import { hostname } from 'node:os'
import type { BoundedProgram } from './bounded-program.ts'
import {
  badDeviceId,
  badLabel,
  type Device,
  type DeviceDiscovery,
  type DeviceListing,
  type DeviceProcess,
  MAX_DEVICE_LABELS,
  MAX_DEVICES,
  MAX_PROCESSES,
} from './device.ts'

export interface CommandDiscoveryOptions {
  readonly program: BoundedProgram
  /** Run by `/bin/sh -c`. */
  readonly command: string
  /** The value of the label `host` of devices that have none. @default the name of this host */
  readonly host?: string | undefined
}

export function commandDiscovery({ program, command, host = hostname() }: CommandDiscoveryOptions): DeviceDiscovery {
  return async signal => parseDevices(await program.run(['/bin/sh', '-c', command], signal), host)
}

/** Throws if the text has no list of devices. A device that is wrong is a problem, and the others count. */
export function parseDevices(text: string, host: string): DeviceListing {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw new Error(`the discovery printed no JSON: ${text.slice(0, 120).trim() || '(nothing)'}`)
  }
  const list = Array.isArray(parsed) ? parsed : (parsed as { readonly devices?: unknown } | null)?.devices
  if (!Array.isArray(list)) throw new Error(`the discovery printed JSON without a list of devices: ${excerpt(parsed)}`)
  const problems: string[] = []
  const devices = new Map<string, Device>()
  for (const [i, item] of list.slice(0, MAX_DEVICES).entries()) {
    const device = deviceOf(item, host)
    if (typeof device === 'string') problems.push(`device ${i + 1} of the discovery: ${device}: ${excerpt(item)}`)
    else if (devices.has(device.id)) problems.push(`the discovery lists ${device.id} twice`)
    else devices.set(device.id, device)
  }
  if (list.length > MAX_DEVICES) problems.push(`the discovery lists ${list.length} devices; only the first ${MAX_DEVICES} count`)
  return { devices: [...devices.values()], problems: problems.slice(0, 20) }
}

/** Quotes what was printed, for a message. */
function excerpt(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > 120 ? `${text.slice(0, 120)}…` : text
}

/** The device, or what is wrong with it. */
function deviceOf(item: unknown, host: string): Device | string {
  if (typeof item !== 'object' || item === null || Array.isArray(item)) return 'it is not an object'
  const { id, labels = {}, units, utilisation, memoryUsed, processes } = item as Readonly<Record<string, unknown>>
  const badId = badDeviceId(id)
  if (badId !== undefined) return `its id ${badId}`
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) return 'its labels are not an object'
  const all = { host, ...(labels as Readonly<Record<string, unknown>>) }
  const pairs = Object.entries(all).map(([name, value]) => [name, typeof value === 'number' ? String(value) : value] as const)
  if (pairs.length > MAX_DEVICE_LABELS) return `it has more than ${MAX_DEVICE_LABELS} labels`
  for (const [name, value] of pairs) {
    const bad = badLabel(name, value)
    if (bad !== undefined) return bad
  }
  if (units !== undefined && !(Number.isSafeInteger(units) && (units as number) > 0 && (units as number) <= 1_000_000))
    return 'its units are not a whole number from 1 to 1000000'
  if (processes !== undefined && !Array.isArray(processes)) return 'its processes are not a list'
  return {
    id: id as string,
    labels: Object.fromEntries(pairs) as Record<string, string>,
    ...(units !== undefined && { units: units as number }),
    ...(isAmount(utilisation) && utilisation <= 100 && { utilisation }),
    ...(isAmount(memoryUsed) && { memoryUsed }),
    ...(processes !== undefined && { processes: processesOf(processes as readonly unknown[]) }),
  }
}

function processesOf(list: readonly unknown[]): DeviceProcess[] {
  const found = new Map<number, DeviceProcess>()
  for (const item of list.slice(0, MAX_PROCESSES)) {
    const { pid, memory, name } = (item ?? {}) as Readonly<Record<string, unknown>>
    if (!(Number.isSafeInteger(pid) && (pid as number) > 0 && (pid as number) < 1e9)) continue
    found.set(pid as number, {
      pid: pid as number,
      ...(isAmount(memory) && { memory }),
      ...(typeof name === 'string' && name !== '' && { name: name.slice(0, 128) }),
    })
  }
  return [...found.values()]
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 && value < 1e9
}
