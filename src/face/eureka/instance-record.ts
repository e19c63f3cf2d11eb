/**
 * An instance as Eureka describes it, and the registration that it becomes: the application APP is the service `app`. The metadata map becomes the metadata;
 * what only Eureka knows of is kept in its field `eureka`. An instance that another client registered is described as well as it can be.
 */
import { type DeclaredStatus, type Json, type RegistrationData, registrationOf } from '../../registry/entry.ts'
import type { Instance } from '../../registry/match.ts'
import { TextFailure } from '../text-failure.ts'
import type { XmlElement } from './xml.ts'

export const EUREKA_STATUSES = ['UP', 'DOWN', 'STARTING', 'OUT_OF_SERVICE', 'UNKNOWN'] as const
export type EurekaStatus = (typeof EUREKA_STATUSES)[number]

const DEFAULT_DURATION = 90
const DEFAULT_INTERVAL = 30
/** In seconds; the shortest and the longest lease of an instance. */
const DURATIONS = [1, 86_400] as const
const MY_OWN = { '@class': 'com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo', name: 'MyOwn' }
/** Fields of an instance that are kept as they are, if they are texts. */
const TEXT_FIELDS = [
  ...['hostName', 'ipAddr', 'vipAddress', 'secureVipAddress', 'homePageUrl', 'statusPageUrl', 'healthCheckUrl', 'secureHealthCheckUrl'],
  ...['appGroupName', 'asgName', 'sid'],
]

interface EurekaPort {
  readonly number: number
  readonly enabled: boolean
}

/** The registry has no field for this. */
export interface InstanceRecord {
  readonly texts: Readonly<Record<string, string>>
  readonly port: EurekaPort
  readonly securePort: EurekaPort
  readonly dataCenterInfo: Json
  readonly interval: number
  readonly duration: number
  /** When the instance last changed, by its own clock. Of an instance with a newer time the server must be told again. */
  readonly dirty: number
  readonly status: EurekaStatus
  /** `UNKNOWN`: none. */
  readonly override: EurekaStatus
}

export function serviceOf(app: string): string {
  return app.toLowerCase()
}

type EurekaFields = Readonly<Record<string, unknown>>

/** The fields of `<instance>`, in the form of Eureka's JSON. */
export function fieldsOfXml({ name, children }: XmlElement): EurekaFields {
  if (name !== 'instance') throw new TextFailure(400, `the root element is instance, not ${name.slice(0, 32)}`)
  return Object.fromEntries(children.map(child => [child.name, valueOfXml(child)]))
}

function valueOfXml({ attributes, children, text }: XmlElement): unknown {
  const own = Object.entries(attributes).map(([name, value]) => [`@${name}`, value] as const)
  if (children.length > 0) return Object.fromEntries([...own, ...children.map(child => [child.name, valueOfXml(child)] as const)])
  return own.length === 0 ? text.trim() : Object.fromEntries([...own, ['$', text.trim()]])
}

export interface EurekaRegistration {
  readonly registration: RegistrationData
  readonly record: InstanceRecord
  readonly ttl: number
}

export function registrationFrom(app: string, fields: EurekaFields, former: InstanceRecord | undefined): EurekaRegistration {
  const texts: Record<string, string> = {}
  for (const name of TEXT_FIELDS) {
    const value = fields[name]
    if (value === undefined || value === null) continue
    if (typeof value !== 'string') throw new TextFailure(400, `${name} is not a text`)
    texts[name] = value
  }
  const named = textOf(fields.app)
  if (named !== '' && named.toUpperCase() !== app.toUpperCase())
    throw new TextFailure(400, `Mismatched appName, expecting ${app.slice(0, 64)}`)
  if ((texts.hostName ?? '') === '') throw new TextFailure(400, 'Missing hostname')
  if (fields.dataCenterInfo === undefined || fields.dataCenterInfo === null) throw new TextFailure(400, 'Missing dataCenterInfo')
  const lease = isFields(fields.leaseInfo) ? fields.leaseInfo : {}
  const duration = numberOf(lease.durationInSecs, DEFAULT_DURATION)
  if (duration < DURATIONS[0] || duration > DURATIONS[1])
    throw new TextFailure(400, `durationInSecs must be from ${DURATIONS[0]} to ${DURATIONS[1]}, not ${duration}`)
  const record: InstanceRecord = {
    texts,
    port: portOf(fields.port, true),
    securePort: portOf(fields.securePort, false),
    dataCenterInfo: fields.dataCenterInfo as Json,
    interval: numberOf(lease.renewalIntervalInSecs, DEFAULT_INTERVAL),
    duration,
    dirty: numberOf(fields.lastDirtyTimestamp, 0),
    status: statusFrom(textOf(fields.status) || 'UP'),
    // An operator's override outlives a registration.
    override: former?.override ?? statusFrom(textOf(fields.overriddenStatus ?? fields.overriddenstatus) || 'UNKNOWN'),
  }
  const metadata = isFields(fields.metadata) ? fields.metadata : {}
  const instance = textOf(fields.instanceId) || texts.hostName!
  return { ...built(app, instance, metadata, record), record }
}

function built(app: string, instance: string, metadata: EurekaFields, record: InstanceRecord): Omit<EurekaRegistration, 'record'> {
  const { port, securePort, texts, duration } = record
  if (Object.hasOwn(metadata, 'eureka')) throw new TextFailure(400, 'metadata has a field eureka, which is kept for Eureka itself')
  const host = texts.ipAddr || texts.hostName || ''
  const address = (scheme: string, { number, enabled }: EurekaPort) =>
    enabled && number > 0 ? [`${scheme}://${host.includes(':') ? `[${host}]` : host}:${number}`] : []
  const registration = registrationOf({
    service: serviceOf(app),
    instance,
    addresses: [...address('http', port), ...address('https', securePort)],
    metadata: { ...(metadata as Record<string, Json>), eureka: record as unknown as Json },
  })
  return { registration, ttl: duration * 1_000 }
}

/** The registration with another record, or other metadata. */
export function changed(instance: Instance, record: InstanceRecord, metadata: EurekaFields = metadataOf(instance)): RegistrationData {
  return { ...built(instance.service, instance.instance, metadata, record).registration, addresses: instance.addresses }
}

function isFields(value: unknown): value is EurekaFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return ''
  if (typeof value !== 'string') throw new TextFailure(400, 'a field that must be a text is not one')
  return value
}

/** Clients send numbers as numbers and as texts. */
function numberOf(value: unknown, otherwise: number): number {
  if (value === undefined || value === null || value === '') return otherwise
  const number = Number(value)
  if (!Number.isSafeInteger(number) || number < 0) throw new TextFailure(400, 'a field that must be a whole number is not one')
  return number
}

function portOf(value: unknown, isUsual: boolean): EurekaPort {
  const given = isFields(value) ? value : { $: value }
  const number = numberOf(given.$, 0)
  if (number > 65_535) throw new TextFailure(400, 'a port is at most 65535')
  const enabled = given['@enabled']
  return { number, enabled: enabled === undefined ? isUsual && number > 0 : String(enabled) === 'true' }
}

export function statusFrom(text: string): EurekaStatus {
  return EUREKA_STATUSES.find(known => known === text.toUpperCase()) ?? 'UNKNOWN'
}

/** Returns what an instance declares in the registry. */
export function declaredAs({ status, override }: InstanceRecord): DeclaredStatus {
  const shown = override === 'UNKNOWN' ? status : override
  return shown === 'UP' ? 'passing' : shown === 'OUT_OF_SERVICE' ? 'maintenance' : 'critical'
}

/** Returns what is kept of an instance; of one that another client registered, what its address says. */
export function recordOf(instance: Instance): InstanceRecord {
  const { metadata, address, service } = instance
  const kept = isFields(metadata) ? (metadata.eureka as unknown) : undefined
  // Any client with a key for the entry may have written it.
  if (isFields(kept) && isFields(kept.texts) && isFields(kept.port) && isFields(kept.securePort)) return kept as unknown as InstanceRecord
  const [, scheme = '', host = '', port = '0'] = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[^\]]+\]|[^:/?#]+)(?::(\d+))?/i.exec(address) ?? []
  const isSecure = scheme === 'https'
  const number = Number(port) || (isSecure ? 443 : 80)
  return {
    texts: { hostName: host, ipAddr: host, vipAddress: service, secureVipAddress: service },
    port: { number: isSecure ? 0 : number, enabled: !isSecure && host !== '' },
    securePort: { number: isSecure ? number : 0, enabled: isSecure },
    dataCenterInfo: MY_OWN,
    interval: DEFAULT_INTERVAL,
    duration: DEFAULT_DURATION,
    dirty: 0,
    status: 'UP',
    override: 'UNKNOWN',
  }
}

export function metadataOf({ metadata }: Instance): EurekaFields {
  if (!isFields(metadata)) return {}
  return Object.fromEntries(Object.entries(metadata).filter(([name]) => name !== 'eureka'))
}

/**
 * The status that Eureka shows. An instance that missed a renewal is up until it is removed, as in Eureka. A status that another client declared comes before
 * the one that was registered.
 */
export function statusShown(instance: Instance): EurekaStatus {
  const { status } = instance
  const record = recordOf(instance)
  const own = record.override === 'UNKNOWN' ? record.status : record.override
  if (status === 'passing' || status === 'warning') return 'UP'
  if (status === 'suspect') return own
  if (status === 'critical') return own === 'UP' || own === 'OUT_OF_SERVICE' ? 'DOWN' : own
  return status === 'maintenance' || status === 'draining' ? 'OUT_OF_SERVICE' : 'DOWN'
}

/** In the form of Eureka's JSON. */
export function shownInstance(instance: Instance, action: 'ADDED' | 'MODIFIED' = 'ADDED'): object {
  const record = recordOf(instance)
  const port = ({ number, enabled }: EurekaPort) => ({ $: number, '@enabled': String(enabled) })
  const metadata = Object.entries(metadataOf(instance)).map(([name, value]) => [
    name,
    typeof value === 'string' ? value : JSON.stringify(value),
  ])
  return {
    instanceId: instance.instance,
    app: instance.service.toUpperCase(),
    ...record.texts,
    status: statusShown(instance),
    overriddenStatus: record.override,
    port: port(record.port),
    securePort: port(record.securePort),
    countryId: 1,
    dataCenterInfo: record.dataCenterInfo,
    leaseInfo: {
      ...{ renewalIntervalInSecs: record.interval, durationInSecs: record.duration },
      ...{ registrationTimestamp: 0, lastRenewalTimestamp: 0, evictionTimestamp: 0, serviceUpTimestamp: 0 },
    },
    metadata: metadata.length === 0 ? { '@class': 'java.util.Collections$EmptyMap' } : Object.fromEntries(metadata),
    isCoordinatingDiscoveryServer: 'false',
    lastUpdatedTimestamp: String(record.dirty),
    lastDirtyTimestamp: String(record.dirty),
    actionType: action,
  }
}
