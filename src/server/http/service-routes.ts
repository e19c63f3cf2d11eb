/** Routes of services: registration, heartbeats, discovery, and feeds for Prometheus and Envoy. */
import { createHash } from 'node:crypto'
import { inUtc } from '../../clock.ts'
import { parseDuration } from '../../duration.ts'
import { GONE } from '../../kernel/outcome.ts'
import type { Directory } from '../../registry/directory.ts'
import { CHECKERS, type InstanceStatus, keyOf, registrationOf } from '../../registry/entry.ts'
import type { Filter, Instance } from '../../registry/match.ts'
import * as schema from '../../wire/http/schema.ts'
import { Catalog } from '../registry/catalog.ts'
import { clusterLoadAssignment, EDS, httpSd } from '../registry/discovery-formats.ts'
import { deregister, type HeartbeatRequest, heartbeat, gone as instanceGone, register } from '../registry/registration-requests.ts'
import { HttpFailure } from './failure.ts'
import { mayRenew, renewAll } from './lease-routes.ts'
import { mustBeName } from './parse.ts'
import { type HttpResponse, json, type Route, type RouteContext, route } from './route.ts'
import { DEFAULT_LIST_LIMIT, defined, optionalMs, readOptions } from './route-operations.ts'

const DEFAULT_TTL = 30_000
/** Bytes of one heartbeat in a list: two names, status and load. */
const HEARTBEAT_BYTES = 512
/** Heartbeats, or instances of a feed, that are handled in one turn of the event loop. */
const ITEMS_PER_TURN = 100

/** Splits `SERVICE/INSTANCE`, the variable part of the path. */
function namesIn(name: string): { readonly service: string; readonly instance: string } {
  const [service, instance, ...more] = name.split('/')
  if (!service || !instance || more.length > 0)
    throw new HttpFailure('INVALID', 'the path must name a service and one instance: /v1/services/SERVICE/INSTANCE')
  return { service, instance }
}

function catalogOf({ guarded: { lessor }, clock, closing }: RouteContext): Catalog {
  return Catalog.of({ lessor, clock, closing })
}

async function put(context: RouteContext<schema.Static<typeof schema.Register>>): Promise<HttpResponse> {
  const { ttl = DEFAULT_TTL, grace, status, load, op, ...fields } = context.body
  const registration = registrationOf({ ...(defined(fields) as object), ...namesIn(context.name) })
  const { metadata: limit } = context.limits
  if (Buffer.byteLength(JSON.stringify(registration.metadata)) > limit)
    throw new HttpFailure('TOO_LARGE', `metadata has more than ${limit} bytes of JSON, the limit`, { facts: { limit } })
  const ms = parseDuration(ttl, 'ttl')
  const { created, ...kept } = await register(context, registration, defined({ status, load }), {
    ttl: ms,
    grace: optionalMs(grace, 'grace') ?? Math.floor(ms / 2),
    ...(op !== undefined && { op }),
  })
  const checkers = registration.check === undefined ? {} : { checkers: await checkersOf(context) }
  return json(created ? 201 : 200, { ...kept, expiresAt: inUtc(context.clock.wall() + kept.ttl), ...checkers }, kept.revision)
}

/** The number of servers that run health checks. */
async function checkersOf({ guarded }: RouteContext): Promise<number> {
  const { value } = await guarded.lessor.read({ kind: 'entries', prefix: CHECKERS })
  return value.length
}

async function heartbeatOne(context: RouteContext<schema.Static<typeof schema.Heartbeat>>): Promise<HttpResponse> {
  // A repeated renewal has the same effect, so the op is not needed.
  const { op: _, ...fields } = context.body
  const kept = await heartbeat(context, { ...namesIn(context.name), ...(defined(fields) as object) })
  return json(200, { ...kept, expiresAt: inUtc(context.clock.wall() + kept.ttl) }, kept.revision)
}

/** Statuses that only the instance itself declares. The others may be the result of a health check. */
const DECLARED_STATUSES: ReadonlySet<string> = new Set(['passing', 'draining', 'maintenance'])

/** Heartbeats without a change are renewed in one command. The others are few, and handled one by one. */
async function heartbeatMany(context: RouteContext<schema.Static<typeof schema.Heartbeats>>): Promise<HttpResponse> {
  mayRenew(context, context.body.instances.length)
  const { directory } = await catalogOf(context).ready()
  const renewed: object[] = []
  const gone: object[] = []
  const stale: object[] = []
  const unchanged: { readonly request: HeartbeatRequest; readonly lease: number }[] = []
  const changed: HeartbeatRequest[] = []
  for (const request of context.body.instances as readonly HeartbeatRequest[]) {
    const known = directory.get(request.service, request.instance)
    const changes =
      known === undefined ||
      (request.status !== undefined && (request.status !== known.status || !DECLARED_STATUSES.has(request.status))) ||
      (request.load !== undefined && request.load !== known.load) ||
      (request.generation ?? 0) < known.generation
    if (changes) changed.push(request)
    else unchanged.push({ request, lease: known.lease })
  }
  const { ttls, revision: first } = await renewAll(
    context,
    unchanged.map(({ lease }) => lease),
  )
  let revision = first
  for (const [i, { request, lease }] of unchanged.entries()) {
    const { service, instance } = request
    // The instance may have registered again since the catalog was updated. A single heartbeat reads the log.
    if (ttls[i] === GONE) changed.push(request)
    else renewed.push({ service, instance, lease, ttl: ttls[i] })
  }
  const single = async (request: HeartbeatRequest) => {
    const { service, instance } = request
    try {
      const { revision: at, ...kept } = await heartbeat(context, request)
      revision = Math.max(revision, at)
      renewed.push({ service, instance, ...kept })
    } catch (error) {
      const { code, facts } = error as HttpFailure
      if (code === 'GONE') gone.push({ service, instance })
      else if (code === 'STALE') stale.push({ service, instance, generation: facts.generation })
      else throw error
    }
  }
  for (let at = 0; at < changed.length; at += ITEMS_PER_TURN) {
    if (at > 0) await context.guarded.nextTurn(context.caller)
    await Promise.all(changed.slice(at, at + ITEMS_PER_TURN).map(single))
  }
  return json(200, { renewed, gone, stale, revision }, revision)
}

async function remove(context: RouteContext<unknown, schema.Static<typeof schema.Leaving>>): Promise<HttpResponse> {
  const { op, generation } = context.query
  // The session contains the name: the commands of a deregistration depend on the state, so they cannot identify a repeated request.
  const operation = op === undefined ? undefined : { session: `leave ${digest(context.name)} ${op}`, seq: 1, acked: 0, again: true }
  const revision = await deregister(context, { ...namesIn(context.name), ...defined({ generation }) }, operation)
  return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
}

// Discovery

type DiscoverQuery = schema.Static<typeof schema.Discovering> & { readonly consistent?: boolean }

function filterOf({ service, capability, any, tag, zone, status }: DiscoverQuery): Filter {
  const words = (text: string | undefined) => (text === undefined ? [] : text.split(',').filter(word => word !== ''))
  return {
    ...(service !== undefined && { service }),
    capabilities: { all: words(capability), any: words(any) },
    tag: words(tag),
    ...(zone !== undefined && { zone }),
    status: words(status) as InstanceStatus[],
  }
}

/** The catalog of this server, or, for a consistent read, the log. */
async function directoryOf(context: RouteContext<unknown, DiscoverQuery>, service: string | undefined): Promise<Directory> {
  const catalog = catalogOf(context)
  const options = readOptions(context)
  await catalog.ready()
  const behind = options.consistent === true || (options.atLeast ?? 0) > catalog.directory.revision
  return behind ? catalog.listAt(service, options) : catalog.directory
}

async function listed(
  context: RouteContext<unknown, DiscoverQuery>,
  {
    service = context.query.service,
    defaultLimit = DEFAULT_LIST_LIMIT,
  }: { readonly service?: string; readonly defaultLimit?: number } = {},
): Promise<{ instances: Instance[]; revision: number; more: boolean }> {
  const { guarded, caller, query } = context
  guarded.access.admit(caller)
  const directory = await directoryOf(context, service)
  const all = directory.list(filterOf({ ...query, ...(service !== undefined && { service }) }))
  const visible = all.filter(instance => guarded.access.may(caller, 'read', keyOf(instance)))
  const { limit = defaultLimit } = query
  return { instances: visible.slice(0, limit), revision: directory.revision, more: visible.length > limit }
}

async function show(context: RouteContext<unknown, DiscoverQuery>): Promise<HttpResponse> {
  mustBeName(context.name)
  if (context.name.includes('/')) {
    const names = namesIn(context.name)
    context.guarded.access.require(context.caller, 'read', keyOf(names))
    const directory = await directoryOf(context, names.service)
    const instance = directory.get(names.service, names.instance)
    if (instance === undefined) throw new HttpFailure('NOT_FOUND', instanceGone(names).message)
    return json(200, instance, directory.revision)
  }
  const { instances, revision, more } = await listed(context, { service: context.name })
  return json(200, { service: context.name, instances, revision, ...(more && { more }) }, revision)
}

async function endpoints(context: RouteContext<schema.Static<typeof schema.DiscoveryRequest>>): Promise<HttpResponse> {
  const { resource_names: names = [], type_url: type = EDS, version_info: clientVersion } = context.body
  if (type !== EDS) throw new HttpFailure('INVALID', `the type ${type} is not supported: use ${EDS}`)
  const { guarded, caller } = context
  guarded.access.admit(caller)
  const { directory } = await catalogOf(context).ready()
  // Envoy polls over REST, and keeps its clusters on 304. The version contains the requested names: a client that adds a cluster does not have it yet.
  const version = `${directory.revision}.${digest(names.join())}`
  if (clientVersion === version) return { status: 304 }
  const mayRead = (instance: Instance) => guarded.access.may(caller, 'read', keyOf(instance))
  // A set: each cluster appears once, even if it is named twice.
  const clusters = new Set(names.length > 0 ? names : directory.services().map(({ service }) => service))
  const resources: object[] = []
  let work = 0
  for (const service of clusters) {
    const visible = directory.list({ service }).filter(mayRead)
    work += 1 + visible.length
    // A service without visible instances is listed only if the client named it: otherwise its existence would leak.
    if (names.length > 0 || visible.length > 0) resources.push(clusterLoadAssignment(service, visible))
    if (work < ITEMS_PER_TURN) continue
    work = 0
    await guarded.nextTurn(caller)
  }
  return json(200, { version_info: version, type_url: EDS, resources, nonce: version }, directory.revision)
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 16)
}

export const serviceRoutes: readonly Route[] = [
  route({
    method: 'PUT',
    path: '/v1/services/{name}',
    summary: 'Register SERVICE/INSTANCE, or change its registration. It is listed until it is deleted or its heartbeats end.',
    body: schema.Register,
    response: schema.Registered,
    status: 201,
    otherResponses: { 200: schema.Registered },
    handle: put,
  }),
  route({
    method: 'POST',
    path: '/v1/services/{name}/heartbeat',
    summary: 'Heartbeat of SERVICE/INSTANCE. 410 if it is no longer registered: register again.',
    body: schema.Heartbeat,
    bodyOptional: true,
    response: schema.Registered,
    handle: heartbeatOne,
  }),
  route({
    method: 'POST',
    path: '/v1/heartbeats',
    summary: 'Heartbeats of many instances.',
    body: schema.Heartbeats,
    maxBodyBytes: ({ limits }) => limits.body + limits.renewals * HEARTBEAT_BYTES,
    response: schema.Beaten,
    handle: heartbeatMany,
  }),
  route({
    method: 'DELETE',
    path: '/v1/services/{name}',
    summary: 'Deregister SERVICE/INSTANCE, in one revision. 410 if it was not registered.',
    query: schema.Leaving,
    status: 204,
    handle: remove,
  }),
  route({
    method: 'GET',
    path: '/v1/services',
    summary: 'All services, with the number of instances, and whether their lapses are slowed.',
    query: schema.Reading,
    response: schema.Services,
    handle: async context => {
      const { revision, value } = await context.guarded.read<'services'>(context.caller, { kind: 'services' }, readOptions(context))
      return json(200, { services: value, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/services/{name}',
    summary: 'The instances of a service, nearest first. Or one instance, by SERVICE/INSTANCE.',
    query: schema.ServiceListing,
    response: schema.ServiceOrInstance,
    handle: show,
  }),
  route({
    method: 'GET',
    path: '/v1/discover',
    summary: 'Instances of any service, by capability, tag, status and zone.',
    query: schema.Discovering,
    response: schema.ServiceView,
    handle: async context => {
      const { instances, revision, more } = await listed(context)
      return json(200, { instances, revision, ...(more && { more }) }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/http_sd',
    summary: 'Targets for Prometheus, in the format of http_sd.',
    query: schema.Discovering,
    response: schema.HttpSd,
    handle: async context => {
      // No limit: Prometheus would drop a target that is left out.
      const { instances, revision } = await listed(context, { defaultLimit: Number.POSITIVE_INFINITY })
      return json(200, httpSd(instances), revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v3/discovery:endpoints',
    summary: 'Endpoints for Envoy (EDS over REST, v3): one cluster per service.',
    body: schema.DiscoveryRequest,
    response: schema.DiscoveryResponse,
    otherResponses: { 304: null },
    handle: endpoints,
  }),
]
