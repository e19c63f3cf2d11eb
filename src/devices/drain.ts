/**
 * A drain takes one device, or all devices of a host, out of a pool from a time on, until it is cancelled. It is an entry `drain/POOL/TARGET` that belongs to no
 * lease, so it outlasts the process that wrote it and the host that it is about: a host that dies and comes back does not offer its drained devices.
 *
 * The host obeys it at its next look: it withdraws the devices, so that no new taker gets them. Present holders keep them. Times are wall times of the log.
 */
const PREFIX = 'drain'
const NAME_LENGTH = 128

export type DrainTarget = { readonly host: string } | { readonly member: string }

export interface Drain {
  readonly target: DrainTarget
  /** Wall time of the log in ms from which the target is drained. */
  readonly from: number
  /** Who drains it, for people. */
  readonly by: string
}

/** The entries with the drains of a pool. */
export function drainPrefix(pool: string): string {
  return `${PREFIX}/${pool}`
}

/** The prefix of the drains of all pools, and of the policy that bounds them. */
export const DRAINS = PREFIX

export function drainKey(pool: string, target: DrainTarget): string {
  const name = 'host' in target ? `host-${target.host.replaceAll('/', '-')}` : `member-${target.member}`
  return `${drainPrefix(pool)}/${name}`
}

export function formatDrain({ target, from, by }: Drain): string {
  return JSON.stringify({ ...target, from, by: by.slice(0, NAME_LENGTH) })
}

/** Reads what `formatDrain` wrote. Undefined if it is something else. */
export function parseDrain(value: string): Drain | undefined {
  try {
    const { host, member, from, by } = JSON.parse(value) as Readonly<Record<string, unknown>>
    if (typeof from !== 'number' || !Number.isSafeInteger(from) || typeof by !== 'string') return undefined
    if (typeof host === 'string') return { target: { host }, from, by }
    return typeof member === 'string' ? { target: { member }, from, by } : undefined
  } catch {
    return undefined
  }
}

/** Returns the drain of a device that begins first. */
export function drainOf(drains: readonly Drain[], member: string, host: string | undefined): Drain | undefined {
  return drains
    .filter(({ target }) => ('host' in target ? target.host === host : target.member === member))
    .reduce<Drain | undefined>((first, drain) => (first === undefined || drain.from < first.from ? drain : first), undefined)
}
