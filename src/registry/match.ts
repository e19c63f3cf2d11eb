/** Who is meant, and who is nearer: pure, and the same for the library's cache, the server's lists and its feeds. */
import { LeaseError } from '../errors.ts'
import { INSTANCE_STATUSES, type InstanceStatus, type Registration } from './entry.ts'

/** An instance as others see it. */
export interface Instance extends Registration {
  /** The first of its addresses, or empty. */
  readonly address: string
  readonly status: InstanceStatus
  /** Why a check says so, when it does; or that none has been made yet. */
  readonly reason: string
  readonly load: number
  readonly lease: number
  readonly holder: string
  /** Of its last change. */
  readonly revision: number
}

export interface Filter {
  readonly service?: string
  /** One, or all of several. */
  readonly capability?: string | readonly string[]
  /** All of these; or `all` and at least one of `any`. */
  readonly capabilities?: readonly string[] | { readonly all?: readonly string[]; readonly any?: readonly string[] }
  /** One, or all of several. */
  readonly tag?: string | readonly string[]
  /** Where the asker is: nearest come first, and only the nearest are picked. Nobody is left out for it. */
  readonly zone?: string
  /** One, or any of several. */
  readonly status?: InstanceStatus | readonly InstanceStatus[]
}

/** The same, with nothing left to choose. */
export interface InstanceMatcher {
  readonly service: string | undefined
  readonly all: readonly string[]
  readonly any: readonly string[]
  readonly tags: readonly string[]
  readonly zone: string
  readonly statuses: readonly InstanceStatus[]
}

const FIELDS = ['service', 'capability', 'capabilities', 'tag', 'zone', 'status']

export function wantedBy(filter: Filter): InstanceMatcher {
  for (const name of Object.keys(filter))
    if (!FIELDS.includes(name)) throw new LeaseError('INVALID', `there is no filter ${name.slice(0, 64)}; there are ${FIELDS.join(', ')}`)
  const { service, capability, capabilities = [], tag, zone = '', status } = filter
  const { all = [], any = [] } = isList(capabilities) ? { all: capabilities } : capabilities
  const statuses = several(status)
  for (const each of statuses)
    if (!INSTANCE_STATUSES.includes(each))
      throw new LeaseError('INVALID', `there is no status ${String(each).slice(0, 64)}; there are ${INSTANCE_STATUSES.join(', ')}`)
  return { service, all: [...several(capability), ...all], any, tags: several(tag), zone, statuses }
}

function isList<T>(value: T | readonly T[] | object): value is readonly T[] {
  return Array.isArray(value)
}

function several<T extends string>(value: T | readonly T[] | undefined): readonly T[] {
  return value === undefined ? [] : typeof value === 'string' ? [value] : value
}

export function matches({ service, all, any, tags, statuses }: InstanceMatcher, instance: Instance): boolean {
  const { capabilities } = instance
  return (
    (service === undefined || instance.service === service) &&
    all.every(capability => capabilities.includes(capability)) &&
    (any.length === 0 || any.some(capability => capabilities.includes(capability))) &&
    tags.every(tag => instance.tags.includes(tag)) &&
    (statuses.length === 0 || statuses.includes(instance.status))
  )
}

/** How many segments of the asker's zone the other does not share: 0 is the same zone, or no wish. */
export function distance(zone: string, other: string): number {
  if (zone === '' || zone === other) return 0
  const mine = zone.split('/')
  const theirs = other.split('/')
  let shared = 0
  while (shared < mine.length && mine[shared] === theirs[shared]) shared++
  return mine.length - shared
}

/** Nearest first, then by name. */
export function inOrder(zone: string, instances: Instance[]): Instance[] {
  const far = new Map<string, number>()
  const away = (instance: Instance): number => {
    const known = far.get(instance.zone) ?? distance(zone, instance.zone)
    far.set(instance.zone, known)
    return known
  }
  const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
  return instances.sort((a, b) => away(a) - away(b) || compare(a.service, b.service) || compare(a.instance, b.instance))
}

/**
 * Whom to prefer, smaller first; undefined: never picked. One in its grace is picked when nobody else is left, and one that flaps only
 * when not even such a one is: a bad answer may be better than none, and one that was told to leave is none. One that asked for a check
 * is not picked before its first result.
 */
export function tierOf(status: InstanceStatus): number | undefined {
  if (status === 'passing' || status === 'warning') return 0
  if (status === 'suspect') return 1
  return status === 'suppressed' ? 2 : undefined
}

/** Those that may be picked now: of the best tier that has any, the nearest. */
export function candidates<T extends { readonly instance: Instance }>(zone: string, from: Iterable<T>): readonly T[] {
  let best: T[] = []
  let bestTier = Number.POSITIVE_INFINITY
  let nearest = Number.POSITIVE_INFINITY
  for (const each of from) {
    const tier = tierOf(each.instance.status)
    if (tier === undefined || tier > bestTier) continue
    const away = distance(zone, each.instance.zone)
    if (tier === bestTier && away > nearest) continue
    if (tier < bestTier || away < nearest) best = []
    bestTier = tier
    nearest = away
    best.push(each)
  }
  return best
}
