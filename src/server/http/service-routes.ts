/** Agents and services: registering, heartbeats, lists, and the feeds of those who balance load. */
import { createHash } from 'node:crypto'
import { inUtc, turn } from '../../clock.ts'
import { milliseconds } from '../../duration.ts'
import { GONE } from '../../kernel/outcome.ts'
import type { Directory } from '../../registry/directory.ts'
import { CHECKERS, type InstanceStatus, keyOf, registrationOf } from '../../registry/entry.ts'
import type { Filter, Instance } from '../../registry/match.ts'
import * as schema from '../../wire/http/schema.ts'
import { Catalog } from '../registry/catalog.ts'
import { clusterLoadAssignment, EDS, httpSd } from '../registry/discovery-formats.ts'
import { deregister, gone, type HeartbeatRequest, heartbeat, register } from '../registry/registration-requests.ts'
import { Failure } from './failure.ts'
import { given, MAX_LISTED, mayRenew, optionalMs, reading, renewAll } from './lease-routes.ts'
import { mustBeName } from './parse.ts'
import { type HttpAnswer, json, type Route, type RouteCall, route } from './route.ts'

const TTL = 30_000
/** Of one heartbeat among many: two names and what it says of itself. */
const BEAT_BYTES = 512
/** Heartbeats, and services of a feed, that are looked up in one turn of the loop. */
const STRIDE = 256

/** `SERVICE/INSTANCE`, as the path carries it. */
function namesIn(name: string): { readonly service: string; readonly instance: string } {
  const [service, instance, ...more] = name.split('/')
  if (!service || !instance || more.length > 0)
    throw new Failure('INVALID', 'name a service and one instance of it: /v1/services/SERVICE/INSTANCE')
  return { service, instance }
}

function catalogOf({ desk: { lessor }, clock, closing }: RouteCall): Catalog {
  return Catalog.of({ lessor, clock, closing })
}

async function put(call: RouteCall<schema.Static<typeof schema.Register>>): Promise<HttpAnswer> {
  const { ttl = TTL, grace, status, load, op, ...said } = call.body
  const registration = registrationOf({ ...(given(said) as object), ...namesIn(call.name) })
  const { metadata: most } = call.limits
  if (Buffer.byteLength(JSON.stringify(registration.metadata)) > most)
    throw new Failure('TOO_LARGE', `metadata has more than ${most} bytes of JSON, as many as are allowed here`, { facts: { limit: most } })
  const ms = milliseconds(ttl, 'ttl')
  const { created, ...kept } = await register(call, registration, given({ status, load }), {
    ttl: ms,
    grace: optionalMs(grace, 'grace') ?? Math.floor(ms / 2),
    ...(op !== undefined && { op }),
  })
  const checkers = registration.check === undefined ? {} : { checkers: await checkersOf(call) }
  return json(created ? 201 : 200, { ...kept, expiresAt: inUtc(call.clock.wall() + kept.ttl), ...checkers }, kept.revision)
}

/** How many servers make health checks now. */
async function checkersOf({ desk }: RouteCall): Promise<number> {
  const { value } = await desk.lessor.read({ kind: 'entries', prefix: CHECKERS })
  return value.length
}

async function beat(call: RouteCall<schema.Static<typeof schema.Heartbeat>>): Promise<HttpAnswer> {
  // To renew twice is to renew: an op needs no memory here.
  const { op: _, ...said } = call.body
  const kept = await heartbeat(call, { ...namesIn(call.name), ...(given(said) as object) })
  return json(200, { ...kept, expiresAt: inUtc(call.clock.wall() + kept.ttl) }, kept.revision)
}

/** Listed so, it said so itself: the others may be what a check found. */
const OF_ITS_OWN: ReadonlySet<string> = new Set(['passing', 'draining', 'maintenance'])

/** Those that say nothing new are renewed in one command; the others are few. */
async function beatMany(call: RouteCall<schema.Static<typeof schema.Heartbeats>>): Promise<HttpAnswer> {
  mayRenew(call, call.body.instances.length)
  const { directory } = await catalogOf(call).ready()
  const renewed: object[] = []
  const absent: object[] = []
  const stale: object[] = []
  const plain: { readonly beat: HeartbeatRequest; readonly lease: number }[] = []
  const others: HeartbeatRequest[] = []
  for (const one of call.body.instances as readonly HeartbeatRequest[]) {
    const there = directory.get(one.service, one.instance)
    const says =
      there === undefined ||
      (one.status !== undefined && (one.status !== there.status || !OF_ITS_OWN.has(one.status))) ||
      (one.load !== undefined && one.load !== there.load) ||
      (one.generation ?? 0) < there.generation
    if (says) others.push(one)
    else plain.push({ beat: one, lease: there.lease })
  }
  const { ttls, revision: first } = await renewAll(
    call,
    plain.map(({ lease }) => lease),
  )
  let revision = first
  for (const [i, { beat, lease }] of plain.entries()) {
    const { service, instance } = beat
    // Perhaps registered anew since the catalog heard of it: the log itself says.
    if (ttls[i] === GONE) others.push(beat)
    else renewed.push({ service, instance, lease, ttl: ttls[i] })
  }
  const one = async (beat: HeartbeatRequest) => {
    const { service, instance } = beat
    try {
      const { revision: at, ...kept } = await heartbeat(call, beat)
      revision = Math.max(revision, at)
      renewed.push({ service, instance, ...kept })
    } catch (error) {
      const { code, facts } = error as Failure
      if (code === 'GONE') absent.push({ service, instance })
      else if (code === 'STALE') stale.push({ service, instance, generation: facts.generation })
      else throw error
    }
  }
  for (let at = 0; at < others.length; at += STRIDE) {
    if (at > 0) await turn()
    await Promise.all(others.slice(at, at + STRIDE).map(one))
  }
  return json(200, { renewed, gone: absent, stale, revision }, revision)
}

async function leave(call: RouteCall<unknown, schema.Static<typeof schema.Leaving>>): Promise<HttpAnswer> {
  const { op, generation } = call.query
  // The name is part of it: what leaving takes differs with what is there, so the command cannot say whether it is the same question.
  const operation = op === undefined ? undefined : { session: `leave ${digest(call.name)} ${op}`, seq: 1, acked: 0, again: true }
  const revision = await deregister(call, { ...namesIn(call.name), ...given({ generation }) }, operation)
  return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
}

// Lists

type Asked = schema.Static<typeof schema.Discovering> & { readonly consistent?: boolean }

function filterOf({ service, capability, any, tag, zone, status }: Asked): Filter {
  const words = (text: string | undefined) => (text === undefined ? [] : text.split(',').filter(word => word !== ''))
  return {
    ...(service !== undefined && { service }),
    capabilities: { all: words(capability), any: words(any) },
    tag: words(tag),
    ...(zone !== undefined && { zone }),
    status: words(status) as InstanceStatus[],
  }
}

/** From what this server knows, or, where that was asked for, from the log. */
async function directoryOf(call: RouteCall<unknown, Asked>, service: string | undefined): Promise<Directory> {
  const catalog = catalogOf(call)
  const options = reading(call)
  await catalog.ready()
  const behind = options.consistent === true || (options.atLeast ?? 0) > catalog.directory.revision
  return behind ? catalog.listAt(service, options) : catalog.directory
}

async function listed(
  call: RouteCall<unknown, Asked>,
  { service = call.query.service, most = MAX_LISTED }: { readonly service?: string; readonly most?: number } = {},
): Promise<{ instances: Instance[]; revision: number; more: boolean }> {
  const { desk, caller, query } = call
  desk.gate.admit(caller)
  const directory = await directoryOf(call, service)
  const all = directory.list(filterOf({ ...query, ...(service !== undefined && { service }) }))
  const shown = all.filter(instance => desk.gate.may(caller, 'read', keyOf(instance)))
  const { limit = most } = query
  return { instances: shown.slice(0, limit), revision: directory.revision, more: shown.length > limit }
}

async function show(call: RouteCall<unknown, Asked>): Promise<HttpAnswer> {
  mustBeName(call.name)
  if (call.name.includes('/')) {
    const names = namesIn(call.name)
    call.desk.gate.demand(call.caller, 'read', keyOf(names))
    const directory = await directoryOf(call, names.service)
    const instance = directory.get(names.service, names.instance)
    if (instance === undefined) throw new Failure('NOT_FOUND', gone(names).message)
    return json(200, instance, directory.revision)
  }
  const { instances, revision, more } = await listed(call, { service: call.name })
  return json(200, { service: call.name, instances, revision, ...(more && { more }) }, revision)
}

async function endpoints(call: RouteCall<schema.Static<typeof schema.DiscoveryRequest>>): Promise<HttpAnswer> {
  const { resource_names: names = [], type_url: type = EDS, version_info: has } = call.body
  if (type !== EDS) throw new Failure('INVALID', `this serves ${EDS} alone`)
  const { desk, caller } = call
  desk.gate.admit(caller)
  const { directory } = await catalogOf(call).ready()
  // Envoy over REST asks again and again: told that it is up to date, it keeps what it has. Asking for other clusters, it has not got them.
  const version = `${directory.revision}.${digest(names.join())}`
  if (has === version) return { status: 304 }
  const mayRead = (instance: Instance) => desk.gate.may(caller, 'read', keyOf(instance))
  // Each once, however often it is named.
  const wanted = new Set(names.length > 0 ? names : directory.services().map(({ service }) => service))
  const resources: object[] = []
  let listed = 0
  for (const service of wanted) {
    const shown = directory.list({ service }).filter(mayRead)
    listed += 1 + shown.length
    // That there is one is told to those who named it, or may see something of it.
    if (names.length > 0 || shown.length > 0) resources.push(clusterLoadAssignment(service, shown))
    if (listed < STRIDE) continue
    listed = 0
    await turn()
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
    summary: 'Register SERVICE/INSTANCE, or change what it says of itself. Listed until it leaves or its heartbeats end.',
    body: schema.Register,
    answer: schema.Registered,
    status: 201,
    others: { 200: schema.Registered },
    handle: put,
  }),
  route({
    method: 'POST',
    path: '/v1/services/{name}/heartbeat',
    summary: 'SERVICE/INSTANCE lives. 410 when it is listed no more: register again.',
    body: schema.Heartbeat,
    bodyOptional: true,
    answer: schema.Registered,
    handle: beat,
  }),
  route({
    method: 'POST',
    path: '/v1/heartbeats',
    summary: 'Many live.',
    body: schema.Heartbeats,
    most: ({ limits }) => limits.body + limits.renewals * BEAT_BYTES,
    answer: schema.Beaten,
    handle: beatMany,
  }),
  route({
    method: 'DELETE',
    path: '/v1/services/{name}',
    summary: 'SERVICE/INSTANCE leaves, in one revision. 410 when it was not listed.',
    query: schema.Leaving,
    status: 204,
    handle: leave,
  }),
  route({
    method: 'GET',
    path: '/v1/services',
    summary: 'All services, how many instances each has, and whether its lapses are slowed.',
    query: schema.Reading,
    answer: schema.Services,
    handle: async call => {
      const { revision, value } = await call.desk.read<'services'>(call.caller, { kind: 'services' }, reading(call))
      return json(200, { services: value, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/services/{name}',
    summary: 'The instances of a service, nearest first; or one of them, by SERVICE/INSTANCE.',
    query: schema.ServiceListing,
    answer: schema.ServiceOrInstance,
    handle: show,
  }),
  route({
    method: 'GET',
    path: '/v1/discover',
    summary: 'Instances of any service, by capability, tag, status and zone.',
    query: schema.Discovering,
    answer: schema.ServiceView,
    handle: async call => {
      const { instances, revision, more } = await listed(call)
      return json(200, { instances, revision, ...(more && { more }) }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/http_sd',
    summary: "Targets in the words of Prometheus' http_sd.",
    query: schema.Discovering,
    answer: schema.HttpSd,
    handle: async call => {
      // A target that is left out is one that Prometheus drops.
      const { instances, revision } = await listed(call, { most: Number.POSITIVE_INFINITY })
      return json(200, httpSd(instances), revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v3/discovery:endpoints',
    summary: "Envoy's endpoints (EDS over REST, v3): one cluster for each service.",
    body: schema.DiscoveryRequest,
    answer: schema.DiscoveryResponse,
    others: { 304: null },
    handle: endpoints,
  }),
]
