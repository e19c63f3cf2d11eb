/**
 * Devices of one host as a discovery reports them: what identifies a device, its labels, and how it is used at this moment. Everything here comes
 * from programs that may hang, fail or lie, so it is bounded and checked before anything is offered.
 */

/** Limits of one discovery. */
export const MAX_DEVICES = 256
export const MAX_PROCESSES = 64
export const MAX_DEVICE_LABELS = 24
export const LABEL_NAME_LENGTH = 64
export const LABEL_VALUE_LENGTH = 256

export interface DeviceProcess {
  readonly pid: number
  /** Memory of the device that the process uses, in GiB. */
  readonly memory?: number
  readonly name?: string
}

export interface Device {
  /** The name of the member. It stays the same when the device changes its place: the UUID of a GPU, not its index. */
  readonly id: string
  readonly labels: Readonly<Record<string, string>>
  /** @default 1 */
  readonly units?: number
  /** Percent. Left out: the device does not tell. */
  readonly utilisation?: number
  /** In GiB. */
  readonly memoryUsed?: number
  /** The processes that use the device. Left out: the device does not tell. */
  readonly processes?: readonly DeviceProcess[]
}

/** The answer of one run of a discovery. */
export interface DeviceListing {
  readonly devices: readonly Device[]
  /** The discovery could not understand this. With problems, a device that is not listed may still be there. */
  readonly problems: readonly string[]
}

/** Finds the devices of this host. Rejects if that failed: then nothing is known about any device. */
export type DeviceDiscovery = (signal: AbortSignal) => Promise<DeviceListing>

/** Returns what is wrong with the name of a member, or undefined. It is one segment of a resource's name. */
export function badDeviceId(id: unknown): string | undefined {
  if (typeof id !== 'string' || id === '') return 'is not a text'
  if (id.length > 128) return 'is longer than 128 characters'
  if (id === '.' || id === '..') return 'is . or ..'
  return /^[\w.:@+=-]+$/.test(id) ? undefined : 'contains other characters than letters, digits and . : @ + = _ -'
}

/** Returns what is wrong with a label, or undefined. */
export function badLabel(name: string, value: unknown): string | undefined {
  if (!/^[\w./-]+$/.test(name) || name.length > LABEL_NAME_LENGTH)
    return `the label ${JSON.stringify(name.slice(0, LABEL_NAME_LENGTH))} has a name that is not 1 to ${LABEL_NAME_LENGTH} letters, digits and . / _ -`
  if (typeof value !== 'string' || value.length > LABEL_VALUE_LENGTH)
    return `the label ${name} is not a text of at most ${LABEL_VALUE_LENGTH} characters`
  return /[\u0000-\u001f\u007f-\u009f]/.test(value) || !value.isWellFormed() ? `the label ${name} contains control characters` : undefined
}
