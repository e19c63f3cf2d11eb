/** Filters instances, orders them by distance and by fitness: the same rules for the library's cache and for the server's lists and feeds. */
import { LeaseError } from '../errors.ts'
import { INSTANCE_STATUSES, type InstanceStatus, type RegistrationData } from './entry.ts'

/** An instance as clients see it. */
export interface Instance extends RegistrationData {
  /** The first of its addresses; empty if it has none. */
  readonly address: string
  readonly status: InstanceStatus
  /** Why a check failed, or that no check was made yet; otherwise empty. */
  readonly reason: string
  /** It is this busy, as it last reported. */
  readonly load: number
  readonly lease: number
  readonly holder: string
  /** The revision of its last change. */
  readonly revision: number
}

/**
 * Selects instances. All given fields must match.
 *
 * @example
 * leases.registry.discover({ service: 'critic', capability: 'review', zone: 'eu/fra' })
 */
export interface Filter {
  /** @default all services */
  readonly service?: string
  /** One capability, or several, all of which are required. */
  readonly capability?: string | readonly string[]
  /** A list: all of them are required. An object: all of `all`, and at least one of `any`. */
  readonly capabilities?: readonly string[] | { readonly all?: readonly string[]; readonly any?: readonly string[] }
  /** One tag, or several, all of which are required. */
  readonly tag?: string | readonly string[]
  /** The zone of the client. Lists put the nearest first, picks use only the nearest. No instance is excluded by it. */
  readonly zone?: string
  /**
   * One status, or several, any of which matches.
   * @default every status
   */
  readonly status?: InstanceStatus | readonly InstanceStatus[]
}

/** A checked filter, with one form for each field. */
export interface InstanceMatcher {
  readonly service: string | undefined
  readonly all: readonly string[]
  readonly any: readonly string[]
  readonly tags: readonly string[]
  readonly zone: string
  readonly statuses: readonly InstanceStatus[]
}

const FIELDS = ['service', 'capability', 'capabilities', 'tag', 'zone', 'status']

/** Throws `INVALID` for a filter with an unknown field or status. */
export function matcherOf(filter: Filter): InstanceMatcher {
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

/** The number of segments of `zone` that `other` does not share. 0: the same zone, or no zone is given. */
export function distance(zone: string, other: string): number {
  if (zone === '' || zone === other) return 0
  const mine = zone.split('/')
  const theirs = other.split('/')
  let shared = 0
  while (shared < mine.length && mine[shared] === theirs[shared]) shared++
  return mine.length - shared
}

/** Sorts in place: nearest first, then by name. */
export function nearestFirst(zone: string, instances: Instance[]): Instance[] {
  const distances = new Map<string, number>()
  const away = (instance: Instance): number => {
    const known = distances.get(instance.zone) ?? distance(zone, instance.zone)
    distances.set(instance.zone, known)
    return known
  }
  const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
  return instances.sort((a, b) => away(a) - away(b) || compare(a.service, b.service) || compare(a.instance, b.instance))
}

/**
 * The order of preference, smaller first; undefined: never picked. A suspect instance is picked only when no healthy one is left, a suppressed
 * one only when no suspect is left either: an instance that may fail is better than none. `critical`, `draining` and `maintenance` are never
 * picked, and neither is an instance that waits for its first check.
 */
export function tierOf(status: InstanceStatus): number | undefined {
  if (status === 'passing' || status === 'warning') return 0
  if (status === 'suspect') return 1
  return status === 'suppressed' ? 2 : undefined
}

/** The instances that may be picked now: the nearest of the best tier that has any. */
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
