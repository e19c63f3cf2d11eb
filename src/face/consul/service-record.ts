/**
 * A service as Consul describes it, and the registration that it becomes. `Meta` becomes the metadata; what only Consul knows of is kept in its field
 * `consul`. An instance that another client registered is described as well as it can be.
 */
import { badName } from '../../kernel/name.ts'
import { type DeclaredStatus, type HealthCheck, type Json, type RegistrationData, registrationOf, STATUSES } from '../../registry/entry.ts'
import type { Instance } from '../../registry/match.ts'
import { TextFailure } from '../text-failure.ts'
import { DATACENTER, goDuration, lowerCased, NODE, textField } from './protocol.ts'

export type ConsulStatus = 'passing' | 'warning' | 'critical'

/** A check as it was registered. */
export interface ConsulCheck {
  readonly id: string
  readonly name: string
  readonly notes?: string
  /** Of a check that the service passes itself. */
  readonly ttl?: number
  /** Of a check that a server makes. */
  readonly probe?: HealthCheck
  readonly removeAfter?: number
  readonly status?: ConsulStatus
}

/** The registry has no field for this. */
export interface ServiceRecord {
  readonly address: string
  readonly port: number
  readonly checks: readonly ConsulCheck[]
  /** Only if a tag is not a tag of the registry. */
  readonly tags?: readonly string[]
}

/** A service without a check of its own is kept for so long, unless it is registered again. */
const UNCHECKED_TTL = 86_400_000
/** A service stays listed as critical this long after its last pass, unless it says so itself. */
const REMOVE_AFTER = 600_000

/** A service to register, with its term. */
export interface ServiceRegistration {
  readonly registration: RegistrationData
  readonly ttl: number
  readonly grace: number
  /** A new service declares this; one that is registered again keeps what it has. */
  readonly status: DeclaredStatus
}

export function registrationFrom(fields: Readonly<Record<string, unknown>>, peer: string): ServiceRegistration {
  const service = textField(fields, 'Name')
  if (service === '') throw new TextFailure(400, 'Missing service name')
  for (const name of ['kind', 'proxy', 'connect'])
    if (fields[name] !== undefined && fields[name] !== null && fields[name] !== '')
      throw new TextFailure(400, `Request decode failed: there is no service mesh here: leave ${name} out`)
  const instance = textField(fields, 'ID') || service
  const port = fields.port ?? 0
  if (!Number.isSafeInteger(port) || (port as number) < 0 || (port as number) > 65_535) throw new TextFailure(400, 'Invalid service port')
  const given = fields.checks ?? []
  if (!Array.isArray(given)) throw new TextFailure(400, 'Request decode failed: Checks is not a list')
  const single = fields.check === undefined || fields.check === null ? [] : [fields.check]
  const all = [...single, ...given]
  const checks = all.map((check, i) => checkFrom(check, instance, all.length > 1 ? i + 1 : 0))
  const tags = fields.tags ?? []
  if (!Array.isArray(tags) || tags.some(tag => typeof tag !== 'string'))
    throw new TextFailure(400, 'Request decode failed: Tags is not a list of texts')
  const weights = fields.weights === undefined || fields.weights === null ? {} : lowerCased(fields.weights, 'Weights')
  return built({
    service,
    instance,
    meta: metaFrom(fields.meta),
    tags: tags as string[],
    weight: weights.passing ?? 1,
    record: { address: textField(fields, 'Address'), port: port as number, checks },
    peer,
  })
}

/** A registration is built from these parts. */
interface ServiceParts {
  readonly service: string
  readonly instance: string
  readonly meta: Readonly<Record<string, string>>
  readonly tags: readonly string[]
  readonly weight: unknown
  readonly record: ServiceRecord
  readonly peer: string
}

function built({ service, instance, meta, tags, weight, record, peer }: ServiceParts): ServiceRegistration {
  const { checks, port } = record
  const timed = checks.filter(({ ttl }) => ttl !== undefined)
  const probed = checks.filter(({ probe }) => probe !== undefined)
  if (timed.length > 1 || probed.length > 1) throw new TextFailure(400, 'a service has at most one TTL check, and one of HTTP, TCP or GRPC')
  const [beat, probe] = [timed[0], probed[0]]
  const words = tags.filter(tag => tag.length <= 64 && badName(tag) === undefined)
  const host = record.address || peer
  const kept: ServiceRecord = { ...record, ...(words.length < tags.length && { tags }) }
  const registration = registrationOf({
    service,
    instance,
    addresses: port > 0 && host !== '' ? [`${host.includes(':') ? `[${host}]` : host}:${port}`] : [],
    tags: words,
    weight: weight as number,
    metadata: { ...meta, consul: JSON.parse(JSON.stringify(kept)) as Json },
    ...(probe !== undefined && {
      check: { ...probe.probe!, ...(probe.removeAfter !== undefined && { endAfter: probe.removeAfter }) },
    }),
  })
  return {
    registration,
    ttl: beat?.ttl ?? UNCHECKED_TTL,
    grace: beat === undefined ? 0 : (beat.removeAfter ?? REMOVE_AFTER),
    // A TTL check begins critical, as in Consul, unless it says otherwise.
    status: beat === undefined ? 'passing' : (beat.status ?? 'critical'),
  }
}

/** A registered service with other checks. */
export function withChecks(instance: Instance, checks: readonly ConsulCheck[]): ServiceRegistration {
  const record = recordOf(instance)
  const { service, instance: id, weight } = instance
  return built({
    service,
    instance: id,
    meta: metaOf(instance),
    tags: tagsOf(instance),
    weight,
    record: { ...record, checks },
    peer: record.address,
  })
}

function metaFrom(given: unknown): Readonly<Record<string, string>> {
  if (given === undefined || given === null) return {}
  if (typeof given !== 'object' || Array.isArray(given) || Object.values(given).some(value => typeof value !== 'string'))
    throw new TextFailure(400, 'Request decode failed: Meta is not a map of texts')
  if (Object.hasOwn(given, 'consul'))
    throw new TextFailure(400, 'Request decode failed: Meta has a field consul, which is kept for Consul itself')
  return given as Record<string, string>
}

export function checkFrom(given: unknown, service: string, number: number): ConsulCheck {
  const fields = lowerCased(given, 'a check')
  for (const name of ['args', 'script', 'dockercontainerid', 'aliasservice', 'aliasnode', 'udp', 'osservice', 'h2ping'])
    if (fields[name] !== undefined && fields[name] !== null && fields[name] !== '')
      throw new TextFailure(400, `Request decode failed: checks are TTL, HTTP, TCP or GRPC here, not ${name}`)
  const time = (name: string) => {
    const value = textField(fields, name)
    const ms = value === '' ? undefined : goDuration(value)
    if (value !== '' && (ms === undefined || ms > UNCHECKED_TTL))
      throw new TextFailure(400, `Request decode failed: ${name} is not a duration of at most 24h`)
    return ms
  }
  const [ttl, interval, timeout] = [time('TTL'), time('Interval'), time('Timeout')]
  const [http, tcp, grpc] = [textField(fields, 'HTTP'), textField(fields, 'TCP'), textField(fields, 'GRPC')]
  const url = http || (tcp && `tcp://${tcp}`) || (grpc && `grpc://${grpc}`)
  if ((ttl === undefined) === (url === ''))
    throw new TextFailure(400, 'Invalid check: TTL, or one of HTTP, TCP and GRPC with an Interval, must be set')
  const status = textField(fields, 'Status')
  if (!['', 'passing', 'warning', 'critical'].includes(status)) throw new TextFailure(400, 'Invalid check status')
  const removeAfter = time('DeregisterCriticalServiceAfter')
  const notes = textField(fields, 'Notes')
  return {
    id: textField(fields, 'CheckID') || textField(fields, 'ID') || `service:${service}${number > 0 ? `:${number}` : ''}`,
    name: textField(fields, 'Name') || `Service '${service}' check`,
    ...(notes !== '' && { notes }),
    ...(ttl !== undefined && { ttl }),
    ...(url !== '' && { probe: { url, ...(interval !== undefined && { interval }), ...(timeout !== undefined && { timeout }) } }),
    ...(removeAfter !== undefined && { removeAfter }),
    ...(status !== '' && { status: status as ConsulStatus }),
  }
}

/** Returns what is kept of an instance; of one that another client registered, what its address says. */
export function recordOf({ metadata, address, instance }: Instance): ServiceRecord {
  const [, host = '', port = '0'] = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(\[[^\]]+\]|[^:/?#]+)(?::(\d+))?/i.exec(address) ?? []
  const read = {
    address: host.replace(/^\[|\]$/g, ''),
    port: Number(port),
    checks: [{ id: `service:${instance}`, name: 'Leasehold lease' }],
  }
  const kept = isRecord(metadata) ? metadata.consul : undefined
  if (!isRecord(kept)) return read
  // Any client with a key for the entry may have written it.
  const checks = Array.isArray(kept.checks) ? kept.checks.filter(isRecord).filter(check => typeof check.id === 'string') : []
  return {
    address: typeof kept.address === 'string' ? kept.address : read.address,
    port: Number.isSafeInteger(kept.port) ? (kept.port as number) : read.port,
    checks: checks as unknown as readonly ConsulCheck[],
    ...(Array.isArray(kept.tags) && { tags: kept.tags.filter(tag => typeof tag === 'string') as string[] }),
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, Json>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function metaOf({ metadata }: Instance): Readonly<Record<string, string>> {
  if (!isRecord(metadata)) return {}
  return Object.fromEntries(
    Object.entries(metadata).flatMap(([name, value]) =>
      name === 'consul' ? [] : [[name, typeof value === 'string' ? value : JSON.stringify(value)]],
    ),
  )
}

export function tagsOf(instance: Instance): readonly string[] {
  return recordOf(instance).tags ?? instance.tags
}

/** Consul knows three: what no client should be sent to is critical. */
export function statusOf({ status }: Instance): ConsulStatus {
  return status === 'passing' || status === 'warning' ? status : 'critical'
}

/** `pass`, `warn` and `fail` of a TTL check. */
export function declaredBy(word: string): DeclaredStatus | undefined {
  const status = { pass: 'passing', warn: 'warning', fail: 'critical' }[word] ?? word
  return STATUSES.slice(0, 3).find(known => known === status)
}

// As Consul shows them

export function shownService(instance: Instance): object {
  const { address, port } = recordOf(instance)
  return {
    ...{ ID: instance.instance, Service: instance.service, Tags: tagsOf(instance), Meta: metaOf(instance), Port: port, Address: address },
    ...{ Weights: { Passing: instance.weight, Warning: 1 }, EnableTagOverride: false, Datacenter: DATACENTER },
    ...{ CreateIndex: instance.lease, ModifyIndex: instance.revision },
  }
}

export function shownChecks(instance: Instance): readonly object[] {
  const { checks } = recordOf(instance)
  const { status, reason, service, instance: id, revision, lease } = instance
  const said = reason || (status === 'passing' || status === 'warning' || status === 'critical' ? '' : status)
  const shown = (check: ConsulCheck, type: string) => ({
    ...{ Node: NODE, CheckID: check.id, Name: check.name, Status: statusOf(instance), Notes: check.notes ?? '', Output: said },
    ...{ ServiceID: id, ServiceName: service, ServiceTags: tagsOf(instance), Type: type, Definition: {} },
    ...{ CreateIndex: lease, ModifyIndex: revision },
  })
  if (status === 'maintenance') return [shown({ id: `_service_maintenance:${id}`, name: 'Service Maintenance Mode' }, 'maintenance')]
  if (checks.length === 0 && status !== 'passing') return [shown({ id: `service:${id}`, name: 'Leasehold lease' }, 'ttl')]
  return checks.map(check =>
    shown(check, check.probe === undefined ? 'ttl' : (check.probe.url.split(':')[0] ?? '').replace('https', 'http')),
  )
}
