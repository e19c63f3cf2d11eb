/**
 * A registration as it stands in the log: what one instance of a service says of itself, for as long as its lease lives.
 *
 * | key                            | value                                             | written by                     |
 * |--------------------------------|---------------------------------------------------|--------------------------------|
 * | `services/SERVICE/INSTANCE`    | `Registration` less its names, as JSON            | the instance                   |
 * | `services/SERVICE/INSTANCE/state` | `{status, load}`: what changes often, kept small | the instance                |
 * | `services/SERVICE/INSTANCE/check` | `{status, reason?}`: what a health check found | whoever probes it, on its lease |
 * | `services/SERVICE/INSTANCE/beat` | the number of a signed datagram                | a server that hears them (server/registry/udp.ts) |
 *
 * All hang on the registration's lease, and the first three carry its generation as a field of the *entry*, which is where the kernel compares it: an
 * older one never writes over a newer one. (The value names it again, for those who read.) `state` and `check` count only while they hang on the same lease as the registration itself.
 * Service and instance are one segment of a name each.
 */
import { LeaseError } from '../errors.ts'
import type { Attachment } from '../kernel/command.ts'
import { badName, utf8Length } from '../kernel/name.ts'

export const SERVICES = 'services'

export const MAX_METADATA = 8_192
export const MAX_DEPTH = 16
const MAX_WORDS = 64
const WORD_BYTES = 128
const MAX_ADDRESSES = 16
const MAX_WEIGHT = 65_535
const MAX_LOAD = 1e9

/** What an instance says of itself, or a check of it. `draining`, `maintenance` and `critical` are listed and not picked. */
export const STATUSES = ['passing', 'warning', 'critical', 'draining', 'maintenance'] as const
export type DeclaredStatus = (typeof STATUSES)[number]

/**
 * What others see: `unknown` asked for a check that has not been made yet, `suspect` has missed a renewal and is in its grace, `suppressed` has
 * come and gone too often.
 */
export type InstanceStatus = DeclaredStatus | 'unknown' | 'suspect' | 'suppressed'
export const INSTANCE_STATUSES: readonly InstanceStatus[] = [...STATUSES, 'unknown', 'suspect', 'suppressed']

/** The reason of one that has no result yet. */
export const UNCHECKED = 'not checked yet'

/** Each server that makes health checks has an entry under this prefix, for as long as it lives. */
export const CHECKERS = 'leasehold/checks/servers'

export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json }

/** A probe made by the server, where its operator allows it. Durations are whole milliseconds. */
export interface HealthCheck {
  /** `http(s)://host:port/path`, `tcp://host:port` or `grpc://host:port[/service]`. */
  readonly url: string
  readonly interval?: number
  readonly timeout?: number
  /** So many in a row until it counts as failing, or as well again. */
  readonly fall?: number
  readonly rise?: number
  /** Critical for so long, its lease is ended; left out: it is only marked. */
  readonly endAfter?: number
}

export interface Registration {
  readonly service: string
  readonly instance: string
  /** The first is the one that is meant when only one can be. */
  readonly addresses: readonly string[]
  readonly capabilities: readonly string[]
  readonly tags: readonly string[]
  /** Anything, kept as it is: an A2A agent card, say. */
  readonly metadata: Json
  /** A share of what is picked by weight; 0 is picked only when there is nothing else. */
  readonly weight: number
  /** From the outside in: `eu/fra/rack-7`. Who shares more of the beginning is nearer. */
  readonly zone: string
  /** A newer one takes the name over from an older one, whoever holds that. */
  readonly generation: number
  readonly check: HealthCheck | undefined
}

/** As people and routes give it: `address` for one, and whatever is left out by default. */
export interface RegistrationInput extends Partial<Omit<Registration, 'service' | 'instance' | 'check'>> {
  readonly service: string
  readonly instance: string
  readonly address?: string
  /** As an object, or just its url. */
  readonly check?: HealthCheck | string | undefined
}

export interface InstanceState {
  readonly status: DeclaredStatus
  /** Any measure of how busy it is, smaller being freer. */
  readonly load: number
}

export interface CheckResult {
  readonly status: 'passing' | 'warning' | 'critical'
  readonly reason?: string
}

export const UNKNOWN_STATE: InstanceState = { status: 'passing', load: 0 }

export function keyOf({ service, instance }: Pick<Registration, 'service' | 'instance'>, part?: 'state' | 'check'): string {
  return part === undefined ? `${SERVICES}/${service}/${instance}` : `${SERVICES}/${service}/${instance}/${part}`
}

/** What a key of the log is about; undefined when it is none of the registry's. */
export function partsOf(
  key: string,
): { readonly service: string; readonly instance: string; readonly part: '' | 'state' | 'check' } | undefined {
  const [root, service, instance, part = '', ...more] = key.split('/')
  if (root !== SERVICES || service === undefined || instance === undefined || more.length > 0) return undefined
  return part === '' || part === 'state' || part === 'check' ? { service, instance, part } : undefined
}

/** Checks everything there is to be checked about what somebody wants to register. Throws `INVALID`, naming the field and what is expected. */
export function registrationOf(input: RegistrationInput): Registration {
  const registration = formed(input)
  for (const address of registration.addresses) mustNameHost(address)
  if (registration.check !== undefined) mustNameHost(registration.check.url)
  return registration
}

function formed(input: RegistrationInput): Registration {
  closed(input, INPUT, 'a registration')
  const { service, instance, address, addresses = address === undefined ? [] : [address] } = input
  if (address !== undefined && input.addresses !== undefined) throw invalid('give address or addresses, not both')
  const { capabilities = [], tags = [], metadata = null, weight = 1, zone = '', generation = 0, check } = input
  const names = { service: segment(service, 'service'), instance: segment(instance, 'instance') }
  const bad = badName(keyOf(names))
  if (bad !== undefined) throw invalid(`the names of service and instance together: ${bad}`)
  // Field by field: to spread into it costs more than to check all of it, and a client reads a hundred thousand of them at once.
  return {
    service: names.service,
    instance: names.instance,
    addresses: list(addresses, MAX_ADDRESSES, 'addresses').map(addressOf),
    capabilities: words(capabilities, 'capabilities'),
    tags: words(tags, 'tags'),
    metadata: metadataOf(metadata),
    weight: whole(weight, 0, MAX_WEIGHT, 'weight'),
    zone: zone === '' ? '' : zoneOf(zone),
    generation: whole(generation, 0, Number.MAX_SAFE_INTEGER, 'generation'),
    check: check === undefined ? undefined : checkOf(check),
  }
}

/** What the log keeps of it. What is as it is by default takes no room. */
export function entryOf(registration: Registration): Attachment {
  const { addresses, capabilities, tags, metadata, weight, zone, generation, check } = registration
  const value = JSON.stringify({
    addresses,
    ...(capabilities.length > 0 && { capabilities }),
    ...(tags.length > 0 && { tags }),
    ...(metadata !== null && { metadata }),
    ...(weight !== 1 && { weight }),
    ...(zone !== '' && { zone }),
    ...(generation > 0 && { generation }),
    ...(check !== undefined && { check }),
  })
  return { key: keyOf(registration), value, ...(generation > 0 && { generation }) }
}

export function stateEntryOf(registration: Registration, { status, load }: InstanceState): Attachment {
  const { generation } = registration
  return { key: keyOf(registration, 'state'), value: JSON.stringify({ status, load }), ...(generation > 0 && { generation }) }
}

export function stateOf(input: Partial<InstanceState>, before: InstanceState = UNKNOWN_STATE): InstanceState {
  closed(input, ['status', 'load'], 'a state')
  const { status = before.status, load = before.load } = input
  if (!STATUSES.includes(status)) throw invalid(`status must be one of ${STATUSES.join(', ')}, not ${show(status)}`)
  if (typeof load !== 'number' || !(load >= 0 && load <= MAX_LOAD))
    throw invalid(`load must be a number from 0 to ${MAX_LOAD}, not ${show(load)}`)
  return { status, load }
}

/**
 * The value of an entry, as someone wrote it: whoever may write entries may write anything, so it is checked again. Undefined when it is not
 * a registration; then it is not listed.
 */
export function readRegistration(key: string, value: string): Registration | undefined {
  const parts = partsOf(key)
  if (parts === undefined) return undefined
  try {
    const read: unknown = JSON.parse(value)
    if (!isObject(read)) return undefined
    // What is refused today may stand in the log since an earlier version: it stays listed.
    return formed(Object.assign(read as Partial<Registration>, { service: parts.service, instance: parts.instance }))
  } catch {
    return undefined
  }
}

export function readState(value: string): InstanceState {
  try {
    return stateOf(JSON.parse(value) as Partial<InstanceState>)
  } catch {
    return UNKNOWN_STATE
  }
}

export function readCheck(value: string): CheckResult | undefined {
  try {
    const { status, reason } = JSON.parse(value) as CheckResult
    if (status !== 'passing' && status !== 'warning' && status !== 'critical') return undefined
    return typeof reason === 'string' ? { status, reason } : { status }
  } catch {
    return undefined
  }
}

const INPUT = [
  ...['service', 'instance', 'address', 'addresses', 'capabilities', 'tags', 'metadata', 'weight', 'zone', 'generation', 'check'],
] as const
const CHECK = ['url', 'interval', 'timeout', 'fall', 'rise', 'endAfter'] as const

function closed(input: object, known: readonly string[], what: string): void {
  if (!isObject(input)) throw invalid(`${what} is an object, not ${show(input)}`)
  for (const name of Object.keys(input))
    if (!known.includes(name)) throw invalid(`${what} has no field ${show(name)}; it has ${known.join(', ')}`)
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Names that a plain object takes for its own: refused everywhere, so that nobody downstream has to think of them. */
const TREACHEROUS = new Set(['__proto__', 'constructor', 'prototype'])

function segment(name: unknown, what: string): string {
  const bad = badName(name) ?? ((name as string).includes('/') ? 'contains a slash' : undefined)
  if (bad !== undefined) throw invalid(`the name of the ${what} ${bad}`)
  if (TREACHEROUS.has(name as string)) throw invalid(`${show(name)} is no name for a ${what}`)
  return name as string
}

function list(value: unknown, most: number, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw invalid(`${what} must be a list, not ${show(value)}`)
  if (value.length > most) throw invalid(`${what} has ${value.length} items, and at most ${most} are allowed`)
  return value
}

function words(value: unknown, what: string): readonly string[] {
  const given = list(value, MAX_WORDS, what).map(item => {
    const bad = badName(item) ?? (utf8Length(item as string) > WORD_BYTES ? `is longer than ${WORD_BYTES} bytes` : undefined)
    if (bad !== undefined) throw invalid(`${show(item)} in ${what} ${bad}`)
    if (TREACHEROUS.has(item as string)) throw invalid(`${what} cannot have ${show(item)}`)
    return item as string
  })
  return [...new Set(given)]
}

function zoneOf(zone: unknown): string {
  const bad = badName(zone) ?? (utf8Length(zone as string) > WORD_BYTES ? `is longer than ${WORD_BYTES} bytes` : undefined)
  if (bad !== undefined) throw invalid(`the zone ${bad}`)
  return zone as string
}

/** `scheme://host[:port][/…]`, or `host:port`. Only its form: whether anyone is there is what checks are for. */
function addressOf(address: unknown): string {
  if (typeof address !== 'string' || address.length > 512)
    throw invalid(`an address is text of at most 512 characters, not ${show(address)}`)
  const wrong = (why: string) => invalid(`the address ${show(address)} ${why}: write http://10.0.0.7:8080, tcp://host:5000 or host:5000`)
  if (/[\u0000-\u0020\u007f-\u009f<>"'`\\^{|}]/.test(address)) throw wrong('contains a character that no address has')
  const [, scheme, rest] = /^([a-z][a-z0-9+.-]{0,31}):\/\/(.*)$/i.exec(address) ?? [undefined, undefined, address]
  const authority = rest!.split(/[/?#]/, 1)[0]!
  if (scheme === undefined && authority !== rest) throw wrong('has a path and no scheme')
  if (authority.includes('@')) throw wrong('carries a name or a password')
  const [, host, port] = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/i.exec(authority) ?? []
  if (host === undefined) throw wrong('has no host')
  if (scheme === undefined && port === undefined) throw wrong('has neither a scheme nor a port')
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535)) throw wrong('has a port that is none')
  return address
}

/** A host that no resolver could look up, and no name server could tell, is a mistake; it is told to who makes it, not found out by who asks. */
function mustNameHost(address: string): void {
  const host = /^(?:[a-z][a-z0-9+.-]*:\/\/)?([^:/?#[\]]+)/i.exec(address)?.[1]?.replace(/\.$/, '')
  if (host === undefined) return // an IPv6 address
  const labels = host.split('.')
  if (utf8Length(host) > 253 || labels.some(label => label === '' || utf8Length(label) > 63))
    throw invalid(`the host of the address ${show(address)} is none: parts between dots have 1 to 63 bytes, and all of it at most 253`)
}

function metadataOf(metadata: unknown): Json {
  tree(metadata, 1)
  if (utf8Length(JSON.stringify(metadata)) > MAX_METADATA) throw invalid(`metadata is longer than ${MAX_METADATA} bytes of JSON`)
  return metadata as Json
}

function tree(value: unknown, depth: number): void {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw invalid(`metadata has the number ${value}, which JSON cannot carry`)
    return
  }
  if (typeof value !== 'object') throw invalid(`metadata has a ${typeof value}, which JSON cannot carry`)
  if (depth > MAX_DEPTH) throw invalid(`metadata is nested deeper than ${MAX_DEPTH}`)
  if (Array.isArray(value)) {
    for (const item of value) tree(item, depth + 1)
    return
  }
  if (Object.getPrototypeOf(value) !== Object.prototype && Object.getPrototypeOf(value) !== null)
    throw invalid('metadata has an object that is not plain data')
  for (const name of Object.keys(value)) {
    if (TREACHEROUS.has(name)) throw invalid(`metadata has a field ${show(name)}`)
    tree((value as Record<string, unknown>)[name], depth + 1)
  }
}

function checkOf(given: unknown): HealthCheck {
  const check = typeof given === 'string' ? { url: given } : (given as HealthCheck)
  closed(check, CHECK, 'a check')
  const { url, interval, timeout, fall, rise, endAfter } = check
  if (typeof url !== 'string' || !/^(https?|tcp|grpc):\/\//i.test(url))
    throw invalid(`a check needs an url that begins with http://, https://, tcp:// or grpc://, not ${show(url)}`)
  return {
    url: addressOf(url),
    ...(interval !== undefined && { interval: whole(interval, 100, 86_400_000, 'check.interval') }),
    ...(timeout !== undefined && { timeout: whole(timeout, 1, 60_000, 'check.timeout') }),
    ...(fall !== undefined && { fall: whole(fall, 1, 100, 'check.fall') }),
    ...(rise !== undefined && { rise: whole(rise, 1, 100, 'check.rise') }),
    ...(endAfter !== undefined && { endAfter: whole(endAfter, 0, 86_400_000, 'check.endAfter') }),
  }
}

function whole(value: unknown, low: number, high: number, what: string): number {
  if (Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high) return value as number
  throw invalid(`${what} must be a whole number from ${low} to ${high}, not ${show(value)}`)
}

function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 64))
  return typeof value === 'object' ? (value === null ? 'null' : 'an object') : String(value)
}

function invalid(message: string): LeaseError {
  return new LeaseError('INVALID', message)
}
