/**
 * Registrations as they are stored in the log: entries on the lease of an instance. Checks what users register, and reads entries back.
 *
 * | key                               | value                                            | written by                     |
 * |-----------------------------------|--------------------------------------------------|--------------------------------|
 * | `services/SERVICE/INSTANCE`       | the `Registration` without its names, as JSON    | the instance                   |
 * | `services/SERVICE/INSTANCE/state` | `{status, load}`: changes often, so it is small  | the instance                   |
 * | `services/SERVICE/INSTANCE/check` | `{status, reason?}`: the result of a health check | the server that probes it     |
 * | `services/SERVICE/INSTANCE/beat`  | the number of a signed datagram                  | server/registry/udp-heartbeats.ts         |
 *
 * All are attached to the registration's lease. `state` and `check` count only while they are on the same lease as the registration itself.
 * The first three carry the generation as a field of the *entry*, where the kernel compares it: an older generation never overwrites a newer
 * one. (The value repeats it for readers.) Service and instance are one segment of a name each.
 */
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Attachment } from '../kernel/command.ts'
import { utf8Length } from '../kernel/name.ts'
import { whyBadName } from '../wording.ts'

export const SERVICES = 'services'

export const MAX_METADATA = 8_192
export const MAX_DEPTH = 16
const MAX_WORDS = 64
const MAX_WORD_BYTES = 128
const MAX_ADDRESSES = 16
const MAX_WEIGHT = 65_535
const MAX_LOAD = 1e9

/** Declared by the instance, or found by a check. Instances that are `draining`, `maintenance` or `critical` are listed, and never picked. */
export const STATUSES = ['passing', 'warning', 'critical', 'draining', 'maintenance'] as const
export type DeclaredStatus = (typeof STATUSES)[number]

/**
 * The status that clients see. `unknown`: the instance asked for a check that was not made yet. `suspect`: it missed a renewal, and its grace
 * is running. `suppressed`: it lapsed and returned too often.
 */
export type InstanceStatus = DeclaredStatus | 'unknown' | 'suspect' | 'suppressed'
export const INSTANCE_STATUSES: readonly InstanceStatus[] = [...STATUSES, 'unknown', 'suspect', 'suppressed']

/** The reason of an instance that has no check result yet. */
export const UNCHECKED = 'not checked yet'

/** Each server that makes health checks has an entry under this prefix while it runs. */
export const CHECKERS = 'leasehold/checks/servers'

export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json }

/** A health check as it is stored and listed: every duration is in whole milliseconds. */
export interface HealthCheck extends HealthCheckInput {
  readonly interval?: number
  readonly timeout?: number
  readonly endAfter?: number
}

/**
 * A probe that a server makes, where its operator allows it (`leasehold serve --check-allow`).
 *
 * @example
 * const check = { url: 'http://10.0.0.7:8080/healthz', interval: '5s' }
 */
export interface HealthCheckInput {
  /** `http(s)://host:port/path`, `tcp://host:port` or `grpc://host:port[/service]`. */
  readonly url: string
  /**
   * Time between two probes.
   * @default '10s'
   */
  readonly interval?: Duration | undefined
  /**
   * A probe without an answer fails after this long.
   * @default '5s'
   */
  readonly timeout?: Duration | undefined
  /**
   * The number of failures in a row that make the instance `critical`.
   * @default 3
   */
  readonly fall?: number | undefined
  /**
   * The number of successes in a row that make it `passing` again.
   * @default 2
   */
  readonly rise?: number | undefined
  /**
   * End the lease of an instance that stays critical for this long.
   * @default never: the instance is only marked
   */
  readonly endAfter?: Duration | undefined
}

/** An instance of a service, as it was registered, with all defaults filled in. */
export interface RegistrationData {
  readonly service: string
  readonly instance: string
  /** The first one is used where only one can be. */
  readonly addresses: readonly string[]
  readonly capabilities: readonly string[]
  readonly tags: readonly string[]
  /** Any JSON, stored as it is. For example an A2A agent card. */
  readonly metadata: Json
  /** Its share of `weighted` picks. An instance of weight 0 is picked only when there is no other. */
  readonly weight: number
  /** A path from the outside in, such as `eu/fra/rack-7`. Instances that share more of its beginning are nearer. */
  readonly zone: string
  /** A higher generation takes the name over from a lower one, even if another holder has it. */
  readonly generation: number
  readonly check: HealthCheck | undefined
}

/** Users pass this to register an instance. Omitted fields have defaults. */
export interface RegistrationInput extends Partial<Omit<RegistrationData, 'service' | 'instance' | 'check'>> {
  readonly service: string
  readonly instance: string
  /** Short for `addresses: [address]`. */
  readonly address?: string
  /** A health check, or just its url. */
  readonly check?: HealthCheckInput | string | undefined
}

/** The part of a registration that changes often. */
export interface InstanceState {
  /** @default 'passing' */
  readonly status: DeclaredStatus
  /**
   * The instance is this busy, by any measure. Smaller is less busy.
   * @default 0
   */
  readonly load: number
}

export interface CheckResult {
  readonly status: 'passing' | 'warning' | 'critical'
  readonly reason?: string
}

export const DEFAULT_STATE: InstanceState = { status: 'passing', load: 0 }

export function keyOf({ service, instance }: Pick<RegistrationData, 'service' | 'instance'>, part?: 'state' | 'check'): string {
  return part === undefined ? `${SERVICES}/${service}/${instance}` : `${SERVICES}/${service}/${instance}/${part}`
}

/** The parts of a registry key; undefined for any other key. */
export function partsOf(
  key: string,
): { readonly service: string; readonly instance: string; readonly part: '' | 'state' | 'check' } | undefined {
  const [root, service, instance, part = '', ...more] = key.split('/')
  if (root !== SERVICES || service === undefined || instance === undefined || more.length > 0) return undefined
  return part === '' || part === 'state' || part === 'check' ? { service, instance, part } : undefined
}

/** Checks a registration and fills in its defaults. Throws `INVALID`, naming the field and what is expected. */
export function registrationOf(input: RegistrationInput): RegistrationData {
  const registration = normalized(input)
  for (const address of registration.addresses) mustNameHost(address)
  if (registration.check !== undefined) mustNameHost(registration.check.url)
  return registration
}

function normalized(input: RegistrationInput): RegistrationData {
  checkFields(input, REGISTRATION_FIELDS, 'a registration')
  const { service, instance, address, addresses = address === undefined ? [] : [address] } = input
  if (address !== undefined && input.addresses !== undefined) throw invalid('set address or addresses, not both')
  const { capabilities = [], tags = [], metadata = null, weight = 1, zone = '', generation = 0, check } = input
  const names = { service: segment(service, 'service'), instance: segment(instance, 'instance') }
  const bad = whyBadName(keyOf(names))
  if (bad !== undefined) throw invalid(`the names of service and instance together: ${bad}`)
  // Field by field: a spread costs more than all these checks, and a client may read a hundred thousand registrations at once.
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

/** The entry that stores a registration. Fields with default values are left out. */
export function entryOf(registration: RegistrationData): Attachment {
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

/** The entry that stores a state. */
export function stateEntryOf(registration: RegistrationData, { status, load }: InstanceState): Attachment {
  const { generation } = registration
  return { key: keyOf(registration, 'state'), value: JSON.stringify({ status, load }), ...(generation > 0 && { generation }) }
}

/** `before` with the changes of `input`. Throws `INVALID`. */
export function stateOf(input: Partial<InstanceState>, before: InstanceState = DEFAULT_STATE): InstanceState {
  checkFields(input, ['status', 'load'], 'a state')
  const { status = before.status, load = before.load } = input
  if (!STATUSES.includes(status)) throw invalid(`status must be one of ${STATUSES.join(', ')}, not ${show(status)}`)
  if (typeof load !== 'number' || !(load >= 0 && load <= MAX_LOAD))
    throw invalid(`load must be a number from 0 to ${MAX_LOAD}, not ${show(load)}`)
  return { status, load }
}

/**
 * Parses the value of an entry. A client that may write entries may write anything, so everything is checked again. Undefined: the value is
 * not a registration, and is not listed.
 */
export function readRegistration(key: string, value: string): RegistrationData | undefined {
  const parts = partsOf(key)
  if (parts === undefined) return undefined
  try {
    const read: unknown = JSON.parse(value)
    if (!isObject(read)) return undefined
    // Not `registrationOf`: the log may hold hosts that an earlier version accepted. They stay listed.
    return normalized(Object.assign(read as Partial<RegistrationData>, { service: parts.service, instance: parts.instance }))
  } catch {
    return undefined
  }
}

export function readState(value: string): InstanceState {
  try {
    return stateOf(JSON.parse(value) as Partial<InstanceState>)
  } catch {
    return DEFAULT_STATE
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

const REGISTRATION_FIELDS = [
  ...['service', 'instance', 'address', 'addresses', 'capabilities', 'tags', 'metadata', 'weight', 'zone', 'generation', 'check'],
] as const
const CHECK_FIELDS = ['url', 'interval', 'timeout', 'fall', 'rise', 'endAfter'] as const

function checkFields(input: object, known: readonly string[], what: string): void {
  if (!isObject(input)) throw invalid(`${what} is an object, not ${show(input)}`)
  for (const name of Object.keys(input))
    if (!known.includes(name)) throw invalid(`${what} has no field ${show(name)}; it has ${known.join(', ')}`)
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Names with a meaning on plain objects. Refused here, so that no reader of metadata must guard against them. */
const RESERVED_NAMES = new Set(['__proto__', 'constructor', 'prototype'])

function segment(name: unknown, what: string): string {
  const bad = whyBadName(name) ?? ((name as string).includes('/') ? 'contains a slash' : undefined)
  if (bad !== undefined) throw invalid(`the name of the ${what} ${bad}`)
  if (RESERVED_NAMES.has(name as string)) throw invalid(`${show(name)} cannot be the name of a ${what}`)
  return name as string
}

function list(value: unknown, max: number, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw invalid(`${what} must be a list, not ${show(value)}`)
  if (value.length > max) throw invalid(`${what} has ${value.length} items, and at most ${max} are allowed`)
  return value
}

function words(value: unknown, what: string): readonly string[] {
  const given = list(value, MAX_WORDS, what).map(item => {
    const bad = whyBadName(item) ?? (utf8Length(item as string) > MAX_WORD_BYTES ? `is longer than ${MAX_WORD_BYTES} bytes` : undefined)
    if (bad !== undefined) throw invalid(`${show(item)} in ${what} ${bad}`)
    if (RESERVED_NAMES.has(item as string)) throw invalid(`${what} cannot contain ${show(item)}`)
    return item as string
  })
  return [...new Set(given)]
}

function zoneOf(zone: unknown): string {
  const bad = whyBadName(zone) ?? (utf8Length(zone as string) > MAX_WORD_BYTES ? `is longer than ${MAX_WORD_BYTES} bytes` : undefined)
  if (bad !== undefined) throw invalid(`the zone ${bad}`)
  return zone as string
}

/** `scheme://host[:port][/…]`, or `host:port`. Checks only the form. */
function addressOf(address: unknown): string {
  if (typeof address !== 'string' || address.length > 512)
    throw invalid(`an address is a string of at most 512 characters, not ${show(address)}`)
  const wrong = (why: string) => invalid(`the address ${show(address)} ${why}: write http://10.0.0.7:8080, tcp://host:5000 or host:5000`)
  if (/[\u0000-\u0020\u007f-\u009f<>"'`\\^{|}]/.test(address)) throw wrong('contains a character that is not allowed in an address')
  const [, scheme, rest] = /^([a-z][a-z0-9+.-]{0,31}):\/\/(.*)$/i.exec(address) ?? [undefined, undefined, address]
  const authority = rest!.split(/[/?#]/, 1)[0]!
  if (scheme === undefined && authority !== rest) throw wrong('has a path and no scheme')
  if (authority.includes('@')) throw wrong('contains a user name or a password')
  const [, host, port] = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/i.exec(authority) ?? []
  if (host === undefined) throw wrong('has no host')
  if (scheme === undefined && port === undefined) throw wrong('has neither a scheme nor a port')
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535)) throw wrong('has a port outside 1 to 65535')
  return address
}

/** DNS could neither resolve nor return a host of another form. Refuse it here, where its author sees the error. */
function mustNameHost(address: string): void {
  const host = /^(?:[a-z][a-z0-9+.-]*:\/\/)?([^:/?#[\]]+)/i.exec(address)?.[1]?.replace(/\.$/, '')
  if (host === undefined) return // an IPv6 address
  const labels = host.split('.')
  if (utf8Length(host) > 253 || labels.some(label => label === '' || utf8Length(label) > 63))
    throw invalid(`the host of the address ${show(address)} is not valid: parts between dots have 1 to 63 bytes, and the host at most 253`)
}

function metadataOf(metadata: unknown): Json {
  checkJson(metadata, 1)
  if (utf8Length(JSON.stringify(metadata)) > MAX_METADATA) throw invalid(`metadata is longer than ${MAX_METADATA} bytes of JSON`)
  return metadata as Json
}

function checkJson(value: unknown, depth: number): void {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw invalid(`metadata has the number ${value}, which JSON cannot represent`)
    return
  }
  if (typeof value !== 'object') throw invalid(`metadata has a ${typeof value}, which JSON cannot represent`)
  if (depth > MAX_DEPTH) throw invalid(`metadata is nested deeper than ${MAX_DEPTH}`)
  if (Array.isArray(value)) {
    for (const item of value) checkJson(item, depth + 1)
    return
  }
  if (Object.getPrototypeOf(value) !== Object.prototype && Object.getPrototypeOf(value) !== null)
    throw invalid('metadata has an object that is not plain data')
  for (const name of Object.keys(value)) {
    if (RESERVED_NAMES.has(name)) throw invalid(`metadata has a field ${show(name)}, which is not allowed`)
    checkJson((value as Record<string, unknown>)[name], depth + 1)
  }
}

function checkOf(given: unknown): HealthCheck {
  const check = typeof given === 'string' ? { url: given } : (given as HealthCheckInput)
  checkFields(check, CHECK_FIELDS, 'a check')
  const { url, interval, timeout, fall, rise, endAfter } = check
  if (typeof url !== 'string' || !/^(https?|tcp|grpc):\/\//i.test(url))
    throw invalid(`a check needs a url that begins with http://, https://, tcp:// or grpc://, not ${show(url)}`)
  return {
    url: addressOf(url),
    ...(interval !== undefined && { interval: span(interval, 100, 86_400_000, 'check.interval') }),
    ...(timeout !== undefined && { timeout: span(timeout, 1, 60_000, 'check.timeout') }),
    ...(fall !== undefined && { fall: whole(fall, 1, 100, 'check.fall') }),
    ...(rise !== undefined && { rise: whole(rise, 1, 100, 'check.rise') }),
    ...(endAfter !== undefined && { endAfter: span(endAfter, 0, 86_400_000, 'check.endAfter') }),
  }
}

/** Whole milliseconds from a duration. */
function span(given: Duration, low: number, high: number, what: string): number {
  const ms = milliseconds(given, what)
  if (ms >= low && ms <= high) return ms
  throw invalid(`${what} must be from ${inWords(low)} to ${high === 86_400_000 ? '1 d' : inWords(high)}, not ${show(given)}`)
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
