/** When a lease expires unless it is renewed, as a time of day: for people and logs. Programs count from `remaining`, since clocks differ. */
import { type Clock, inUtc } from '../clock.ts'

export function withExpiry<T extends { readonly remaining: number }>(clock: Clock, lease: T): T & { readonly expiresAt: string } {
  return { ...lease, expiresAt: inUtc(clock.wall() + lease.remaining) }
}
