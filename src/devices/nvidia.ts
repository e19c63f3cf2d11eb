/**
 * The NVIDIA GPUs of this host, as `nvidia-smi` reports them. A member is a GPU by its UUID, or each MIG instance of a GPU that is divided.
 *
 * `nvidia-smi` may hang, disappear, print `[N/A]`, error texts or half a table. Each line is read on its own: one that cannot be understood is a
 * problem, and the others count.
 */
import { hostname } from 'node:os'
import { LeaseError } from '../errors.ts'
import type { BoundedProgram } from './bounded-program.ts'
import {
  badDeviceId,
  badLabel,
  type Device,
  type DeviceDiscovery,
  type DeviceListing,
  type DeviceProcess,
  MAX_DEVICES,
  MAX_PROCESSES,
} from './device.ts'

// The last field of each may contain commas.
const GPU_FIELDS = 'index,uuid,memory.total,memory.used,utilization.gpu,driver_version,name'
const APP_FIELDS = 'gpu_uuid,pid,used_memory,process_name'
const FORMAT = '--format=csv,noheader,nounits'
const MIB_PER_GIB = 1_024

export interface NvidiaOptions {
  /** Runs `nvidia-smi`. */
  readonly program: BoundedProgram
  /** @default 'nvidia-smi' */
  readonly path?: string | undefined
  /** The value of the label `host`. @default the name of this host */
  readonly host?: string | undefined
}

export function nvidiaDiscovery({ program, path = 'nvidia-smi', host = hostname() }: NvidiaOptions): DeviceDiscovery {
  return async signal => {
    const gpus = await program.run([path, `--query-gpu=${GPU_FIELDS}`, FORMAT], signal)
    if (/^no devices were found/im.test(gpus)) return { devices: [], problems: [] }
    // Old drivers and some containers refuse these two. The devices are known without them.
    const list = await program.run([path, '-L'], signal).catch(ifOnlyRefused)
    const apps = await program.run([path, `--query-compute-apps=${APP_FIELDS}`, FORMAT], signal).catch(ifOnlyRefused)
    return parseNvidia({ gpus, list, apps, host })
  }
}

/** A program that hangs now will hang again: the whole run has failed. */
function ifOnlyRefused(error: unknown): undefined {
  if (LeaseError.is(error, 'UNAVAILABLE') && error.reason === 'program-failed') return undefined
  throw error
}

export interface NvidiaTexts {
  readonly gpus: string
  /** The output of `nvidia-smi -L`. Left out: unknown, as if no GPU were divided. */
  readonly list?: string | undefined
  /** Left out: unknown which processes use the GPUs. */
  readonly apps?: string | undefined
  readonly host: string
}

export function parseNvidia({ gpus, list, apps, host }: NvidiaTexts): DeviceListing {
  const problems: string[] = []
  const processes = apps === undefined ? undefined : parseApps(apps, problems)
  const instances = migInstances(list ?? '')
  const devices = new Map<string, Device>()
  const add = (device: Device) => {
    if (devices.has(device.id)) problems.push(`nvidia-smi lists ${device.id} twice`)
    else if (devices.size >= MAX_DEVICES) problems.push(`nvidia-smi lists more than ${MAX_DEVICES} devices`)
    else devices.set(device.id, device)
  }
  for (const line of linesOf(gpus)) {
    const gpu = parseGpu(line, host)
    if (gpu === undefined) {
      problems.push(`nvidia-smi printed a line that is not a GPU: ${line.slice(0, 120)}`)
      continue
    }
    const divided = instances.get(gpu.id)
    if (divided === undefined) add(withProcesses(gpu, processes))
    else
      for (const { id, profile } of divided) {
        const memory = /(\d+)gb/i.exec(profile)?.[1]
        const labels = { ...gpu.labels, gpu: gpu.id, mig: profile, ...(memory !== undefined && { mem: memory }) }
        // The utilisation of the whole GPU says nothing about one instance.
        add(withProcesses({ id, labels }, processes))
      }
  }
  return { devices: [...devices.values()], problems: problems.slice(0, 20) }
}

function withProcesses(device: Device, all: ReadonlyMap<string, readonly DeviceProcess[]> | undefined): Device {
  return all === undefined ? device : { ...device, processes: all.get(device.id) ?? [] }
}

function parseGpu(line: string, host: string): Device | undefined {
  const [index = '', id = '', total = '', used = '', utilisation = '', driver = '', ...rest] = line.split(',').map(cell => cell.trim())
  const name = rest.join(', ')
  if (!/^\d{1,4}$/.test(index) || !/^GPU-[0-9a-fA-F-]{8,64}$/.test(id) || name === '') return undefined
  const memory = numberOf(total)
  const labels = {
    model: modelOf(name),
    name,
    host,
    index,
    ...(memory !== undefined && { mem: gibibytes(memory) }),
    ...(isKnown(driver) && { driver }),
  }
  if (badDeviceId(id) !== undefined || Object.entries(labels).some(([label, value]) => badLabel(label, value) !== undefined))
    return undefined
  const percent = numberOf(utilisation)
  const memoryUsed = numberOf(used)
  return {
    id,
    labels,
    ...(percent !== undefined && percent <= 100 && { utilisation: percent }),
    ...(memoryUsed !== undefined && { memoryUsed: tenths(memoryUsed / MIB_PER_GIB) }),
  }
}

/** `a100` of `NVIDIA A100-SXM4-40GB`: the word that users write. The whole name is the label `name`. */
export function modelOf(name: string): string {
  const words = name
    .toLowerCase()
    .replace(/\b(nvidia|tesla|geforce|quadro|generation|graphics|device)\b/g, ' ')
    .split(/[^\w.]+/)
    .filter(word => word !== '' && !/^(\d+gb|sxm\d*|pcie|nvl\d*|hbm\w*|max|q|laptop|gpu|mig|\d+g\.\d+gb)$/.test(word))
  if (words[0] === 'rtx' && /^a\d/.test(words[1] ?? '')) words.shift() // RTX A6000
  return words.join('') || 'unknown'
}

/** A card of 80 GB reports 79.6 GiB, and its user asks for `mem>=80`. So whole GiB, rounded. */
function gibibytes(mebibytes: number): string {
  const exact = mebibytes / MIB_PER_GIB
  return String(exact < 1 ? tenths(exact) : Math.round(exact))
}

function tenths(value: number): number {
  return Math.round(value * 10) / 10
}

function parseApps(text: string, problems: string[]): Map<string, DeviceProcess[]> {
  const found = new Map<string, DeviceProcess[]>()
  for (const line of linesOf(text)) {
    const [device = '', pidText = '', memoryText = '', ...rest] = line.split(',').map(cell => cell.trim())
    const pid = Number(pidText)
    if (!/^(GPU|MIG)-[\w/-]{8,80}$/.test(device) || !/^\d{1,9}$/.test(pidText) || pid === 0) {
      if (!/no running processes/i.test(line)) problems.push(`nvidia-smi printed a line that is not a process: ${line.slice(0, 120)}`)
      continue
    }
    const list = found.get(device) ?? []
    found.set(device, list)
    if (list.length >= MAX_PROCESSES || list.some(process => process.pid === pid)) continue
    const memory = numberOf(memoryText)
    const name = rest.join(', ')
    list.push({
      pid,
      ...(memory !== undefined && { memory: tenths(memory / MIB_PER_GIB) }),
      ...(isKnown(name) && name !== '' && { name: name.slice(0, 128) }),
    })
  }
  return found
}

/** Lines of `nvidia-smi -L`: `GPU 0: … (UUID: GPU-…)`, and below it `  MIG 3g.20gb  Device  0: (UUID: MIG-…)`. */
function migInstances(text: string): Map<string, { readonly id: string; readonly profile: string }[]> {
  const found = new Map<string, { readonly id: string; readonly profile: string }[]>()
  let gpu: string | undefined
  for (const line of text.split('\n').slice(0, 4 * MAX_DEVICES)) {
    gpu = /^GPU \d+:.*\(UUID: (GPU-[\w-]{8,64})\)/.exec(line)?.[1] ?? gpu
    const [, profile, id] = /^\s+MIG (\S{1,32})\s+Device\s+\d+: \(UUID: (MIG-[\w-]{8,80})\)/.exec(line) ?? []
    if (gpu === undefined || profile === undefined || id === undefined) continue
    const list = found.get(gpu) ?? []
    if (list.length < 64) list.push({ id, profile })
    found.set(gpu, list)
  }
  return found
}

function linesOf(text: string): string[] {
  return text
    .split('\n')
    .slice(0, 4 * MAX_DEVICES * MAX_PROCESSES)
    .map(line => line.trim())
    .filter(line => line !== '')
}

function isKnown(cell: string): boolean {
  return !/^\[?(n\/a|not supported|unknown error|insufficient permissions|not found|gpu requires reset)\]?$/i.test(cell)
}

function numberOf(cell: string): number | undefined {
  return /^\d{1,9}(\.\d{1,3})?$/.test(cell) ? Number(cell) : undefined
}
