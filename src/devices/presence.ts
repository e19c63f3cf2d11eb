/**
 * Decides which discovered devices are offered. Pure: time is an argument.
 *
 * The rule: a device is offered from the first run that lists it. It is withdrawn when two complete runs in a row do not list it. A run that failed, hung
 * or printed something that could not be understood says nothing about a device that it does not list: such a device stays offered until it was not
 * seen for `patience`. Withdrawing takes a member from the pool for new takers; present holders keep it.
 */
import type { Device, DeviceListing } from './device.ts'

/** Complete runs without a device after which it is gone. */
const ABSENCES = 2

interface SeenDevice {
  device: Device
  seenAt: number
  absences: number
}

export class DevicePresence {
  readonly #patience: number
  readonly #seen = new Map<string, SeenDevice>()

  /** `patience` in ms. */
  constructor(patience: number) {
    this.#patience = patience
  }

  /** The result of one run at `now`, in monotonic ms; undefined if the run failed. Returns the ids of the devices that are withdrawn. */
  update(now: number, listing: DeviceListing | undefined): readonly string[] {
    for (const device of listing?.devices ?? []) this.#seen.set(device.id, { device, seenAt: now, absences: 0 })
    const complete = listing !== undefined && listing.problems.length === 0
    const withdrawn: string[] = []
    for (const [id, known] of this.#seen) {
      if (known.seenAt === now) continue
      if (complete) known.absences++
      if (known.absences < ABSENCES && now - known.seenAt < this.#patience) continue
      this.#seen.delete(id)
      withdrawn.push(id)
    }
    return withdrawn
  }

  /** The devices to offer, as they were last seen. */
  get devices(): readonly Device[] {
    return [...this.#seen.values()].map(({ device }) => device)
  }
}
