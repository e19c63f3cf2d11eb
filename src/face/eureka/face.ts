/** The Eureka face: the REST operations of Eureka on the registry, in JSON and in XML. */
import { gunzipSync } from 'node:zlib'
import { entryOf } from '../../registry/entry.ts'
import type { Instance } from '../../registry/match.ts'
import { whyBadName } from '../../wording.ts'
import type { Face, FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { type FoundInstance, Registrations } from '../registrations.ts'
import { joined, mapInSlices } from '../slices.ts'
import { TextFailure, textResponse } from '../text-failure.ts'
import { appsHashCode, byApplication, DeltaMarks } from './applications.ts'
import {
  changed,
  declaredAs,
  EUREKA_STATUSES,
  fieldsOfXml,
  metadataOf,
  recordOf,
  registrationFrom,
  serviceOf,
  shownInstance,
  statusFrom,
  statusShown,
} from './instance-record.ts'
import { parseXml, toXml } from './xml.ts'

const MAX_UNZIPPED = 65_536
const DONE: HttpFaceResponse = { status: 200, body: '' }

export function eurekaFace(): Face {
  return {
    name: 'eureka',
    http: {
      paths: ['/eureka/'],
      operations: OPERATIONS.map(({ method, path }) => `${method} /eureka/${path}`),
      secret: secretOf,
      async answer(request, caller) {
        try {
          return await new EurekaRequest(request, caller).answer()
        } catch (error) {
          if (error instanceof TextFailure) return error.response
          throw error
        }
      },
      failure: ({ message, status }) => textResponse(status, message),
    },
  }
}

/** Eureka servers have a user and a password: the password is the secret of a key. */
function secretOf(request: HttpFaceRequest): string | undefined {
  const authorization = request.header('authorization')
  if (authorization === undefined) return undefined
  const [, scheme = '', given = ''] = /^(Basic|Bearer) +([\x21-\x7e]{1,1024})$/i.exec(authorization) ?? []
  if (scheme.toLowerCase() === 'bearer') return given
  const text = Buffer.from(given, 'base64').toString()
  return text.slice(text.indexOf(':') + 1).slice(0, 512)
}

/** The marks are of a clock, not of a caller: they say only how far the log was. */
const marks = new WeakMap<object, DeltaMarks>()

interface EurekaOperation {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  answer(request: EurekaRequest, first: string, second: string): Promise<HttpFaceResponse>
}

/** The first that fits a path counts. */
const OPERATIONS: readonly EurekaOperation[] = [
  { method: 'GET', path: 'apps', answer: request => request.all() },
  { method: 'GET', path: 'apps/delta', answer: request => request.delta() },
  { method: 'GET', path: 'apps/{app}', answer: (request, app) => request.application(app) },
  { method: 'GET', path: 'apps/{app}/{id}', answer: (request, app, id) => request.instance(app, id) },
  { method: 'POST', path: 'apps/{app}', answer: (request, app) => request.register(app) },
  { method: 'PUT', path: 'apps/{app}/{id}', answer: (request, app, id) => request.heartbeat(app, id) },
  { method: 'DELETE', path: 'apps/{app}/{id}', answer: (request, app, id) => request.remove(app, id) },
  { method: 'PUT', path: 'apps/{app}/{id}/status', answer: (request, app, id) => request.override(app, id, false) },
  { method: 'DELETE', path: 'apps/{app}/{id}/status', answer: (request, app, id) => request.override(app, id, true) },
  { method: 'PUT', path: 'apps/{app}/{id}/metadata', answer: (request, app, id) => request.metadata(app, id) },
  { method: 'GET', path: 'instances/{id}', answer: (request, id) => request.byId(id) },
  { method: 'GET', path: 'vips/{address}', answer: (request, address) => request.byAddress('vipAddress', address) },
  { method: 'GET', path: 'svips/{address}', answer: (request, address) => request.byAddress('secureVipAddress', address) },
]

function fits(path: string, segments: readonly string[]): boolean {
  const parts = path.split('/')
  return parts.length === segments.length && parts.every((part, i) => part.startsWith('{') || part === segments[i])
}

class EurekaRequest {
  readonly #request: HttpFaceRequest
  readonly #caller: FaceCaller
  readonly #registrations: Registrations

  constructor(request: HttpFaceRequest, caller: FaceCaller) {
    this.#request = request
    this.#caller = caller
    this.#registrations = new Registrations(caller)
  }

  answer(): Promise<HttpFaceResponse> {
    const { method, path } = this.#request
    const segments = path
      .replace(/^\/eureka(\/v2)?\//, '')
      .replace(/\/$/, '')
      .split('/')
      .map(decoded)
    if (segments.length === 2 && segments[1] === '') segments.pop()
    const asked = method === 'HEAD' ? 'GET' : method
    const operation = OPERATIONS.find(known => known.method === asked && fits(known.path, segments))
    if (operation === undefined) throw unknownPath()
    const [, first, second] = segments
    return operation.answer(this, first!, second!)
  }

  // Reads

  async #listed(): Promise<{ readonly all: readonly Instance[]; readonly revision: number }> {
    return this.#registrations.list()
  }

  async all(): Promise<HttpFaceResponse> {
    return this.#applications((await this.#listed()).all)
  }

  async delta(): Promise<HttpFaceResponse> {
    const { clock } = this.#caller
    const { all, revision } = await this.#listed()
    const known = marks.get(clock) ?? new DeltaMarks(clock)
    marks.set(clock, known)
    const since = known.since(revision)
    const recent = all.filter(instance => instance.revision > since)
    return this.#applications(all, recent, since)
  }

  async application(app: string): Promise<HttpFaceResponse> {
    const found = (await this.#listed()).all.filter(({ service }) => service.toUpperCase() === app.toUpperCase())
    if (found.length === 0) throw notFound()
    const [application] = await this.#texts([found], 0)
    const [before, after] = this.#isJson ? ['{"application":', '}'] : ['', '']
    return this.#answered(`${before}${application}${after}`)
  }

  async instance(app: string, id: string): Promise<HttpFaceResponse> {
    const { all } = await this.#listed()
    const found = all.find(({ service, instance }) => service.toUpperCase() === app.toUpperCase() && instance === id)
    if (found === undefined) throw notFound()
    return this.#shown('instance', shownInstance(found))
  }

  async byId(id: string): Promise<HttpFaceResponse> {
    const found = (await this.#listed()).all.find(({ instance }) => instance === id)
    if (found === undefined) throw notFound()
    return this.#shown('instance', shownInstance(found))
  }

  async byAddress(field: 'vipAddress' | 'secureVipAddress', address: string): Promise<HttpFaceResponse> {
    const { all } = await this.#listed()
    const isFound = await mapInSlices(this.#caller, all, instance => (recordOf(instance).texts[field] ?? '').split(',').includes(address))
    const found = all.filter((_, i) => isFound[i])
    if (found.length === 0) throw notFound()
    return this.#applications(found)
  }

  /** JSON where the client accepts it, as Eureka: otherwise XML. */
  get #isJson(): boolean {
    return (this.#request.header('accept') ?? '').includes('json')
  }

  #answered(body: string | AsyncIterable<string>): HttpFaceResponse {
    return this.#isJson ? { status: 200, body } : { status: 200, type: 'application/xml', body }
  }

  #shown(name: string, value: object): HttpFaceResponse {
    return this.#answered(this.#isJson ? JSON.stringify({ [name]: value }) : toXml(name, value))
  }

  /** `all` counts for the hash, `shown` is listed. */
  async #applications(all: readonly Instance[], shown: readonly Instance[] = all, since = 0): Promise<HttpFaceResponse> {
    const hash = appsHashCode(await mapInSlices(this.#caller, all, statusShown))
    const apps = await this.#texts(byApplication(shown), since)
    if (this.#isJson)
      return this.#answered(
        joined(apps, `{"applications":{"versions__delta":"1","apps__hashcode":${JSON.stringify(hash)},"application":[`, ']}}'),
      )
    const head = `<applications>${toXml('versions__delta', '1')}${toXml('apps__hashcode', hash)}`
    return this.#answered(joined(apps, head, '</applications>', ''))
  }

  /** Each application as text. */
  async #texts(apps: readonly (readonly Instance[])[], since: number): Promise<readonly string[]> {
    const texts: string[] = []
    const action = since > 0 ? 'MODIFIED' : 'ADDED'
    for (const instances of apps) {
      const name = instances[0]!.service.toUpperCase()
      const write = (instance: Instance) => {
        const shown = shownInstance(instance, action)
        return this.#isJson ? JSON.stringify(shown) : toXml('instance', shown)
      }
      const listed = await mapInSlices(this.#caller, instances, write)
      texts.push(
        this.#isJson
          ? `{"name":${JSON.stringify(name)},"instance":[${listed.join(',')}]}`
          : `<application>${toXml('name', name)}${listed.join('')}</application>`,
      )
    }
    return texts
  }

  // Writes

  async register(app: string): Promise<HttpFaceResponse> {
    mustBeName(app)
    const fields = await this.#fields()
    const id = typeof fields.instanceId === 'string' && fields.instanceId !== '' ? fields.instanceId : String(fields.hostName ?? '')
    mustBeName(id)
    const former = await this.#registrations.find({ service: serviceOf(app), instance: id })
    const { registration, record, ttl } = registrationFrom(app, fields, former && recordOf(former.instance))
    const state = { status: declaredAs(record), load: former?.declared.load ?? 0 }
    await this.#registrations.register(registration, state, { ttl, grace: Math.floor(ttl / 2) })
    return { status: 204 }
  }

  async #fields(): Promise<Readonly<Record<string, unknown>>> {
    const text = await this.#text()
    if ((this.#request.header('content-type') ?? '').includes('xml')) return fieldsOfXml(parseXml(text))
    try {
      const { instance } = JSON.parse(text) as { readonly instance?: unknown }
      if (typeof instance === 'object' && instance !== null && !Array.isArray(instance)) return instance as Record<string, unknown>
    } catch {
      throw new TextFailure(400, 'the body is not JSON: send {"instance": {…}}, or XML with Content-Type: application/xml')
    }
    throw new TextFailure(400, 'the body has no instance: send {"instance": {…}}')
  }

  async #text(): Promise<string> {
    const bytes = await this.#request.body()
    const encoding = this.#request.header('content-encoding')?.toLowerCase() ?? 'identity'
    try {
      if (encoding === 'gzip') return new TextDecoder('utf-8', { fatal: true }).decode(gunzipSync(bytes, { maxOutputLength: MAX_UNZIPPED }))
      if (encoding === 'identity') return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    } catch {
      throw new TextFailure(400, `the body is not ${encoding === 'gzip' ? `gzip of at most ${MAX_UNZIPPED} bytes of` : ''} UTF-8`)
    }
    throw new TextFailure(415, 'the content encoding is not supported: use gzip, or none')
  }

  /** The instance. Throws 404, which makes the client register again. */
  async #find(app: string, id: string): Promise<FoundInstance> {
    mustBeName(app)
    mustBeName(id)
    const found = await this.#registrations.find({ service: serviceOf(app), instance: id })
    if (found === undefined) throw notFound()
    return found
  }

  async heartbeat(app: string, id: string): Promise<HttpFaceResponse> {
    const found = await this.#find(app, id)
    const dirty = Number(this.#request.query.get('lastDirtyTimestamp') ?? 0)
    // The instance has changed since it was registered here, and must say how.
    if (dirty > recordOf(found.instance).dirty) throw notFound()
    if (!(await this.#registrations.keep(found))) throw notFound()
    return DONE
  }

  async remove(app: string, id: string): Promise<HttpFaceResponse> {
    await this.#registrations.remove(await this.#find(app, id))
    return DONE
  }

  async override(app: string, id: string, isOver: boolean): Promise<HttpFaceResponse> {
    const found = await this.#find(app, id)
    const { query } = this.#request
    const value = query.get('value')
    if (!isOver && !EUREKA_STATUSES.some(status => status === value))
      throw new TextFailure(400, `value is one of ${EUREKA_STATUSES.join(', ')}`)
    const record = recordOf(found.instance)
    const after = isOver
      ? { ...record, override: 'UNKNOWN' as const, ...(value !== null && { status: statusFrom(value) }) }
      : { ...record, override: statusFrom(value!) }
    const dirty = Number(query.get('lastDirtyTimestamp') ?? 0)
    const next = { ...after, dirty: Number.isSafeInteger(dirty) ? Math.max(record.dirty, dirty) : record.dirty }
    if (!(await this.#registrations.keep(found, declaredAs(next), [entryOf(changed(found.instance, next))]))) throw notFound()
    return DONE
  }

  async metadata(app: string, id: string): Promise<HttpFaceResponse> {
    const found = await this.#find(app, id)
    const { instance } = found
    const metadata = { ...metadataOf(instance), ...Object.fromEntries(this.#request.query) }
    if (!(await this.#registrations.keep(found, undefined, [entryOf(changed(instance, recordOf(instance), metadata))]))) throw notFound()
    return DONE
  }
}

function mustBeName(name: string): void {
  const bad = whyBadName(name) ?? (name.includes('/') ? 'contains a slash' : undefined)
  if (bad !== undefined) throw new TextFailure(400, `the name of an application or instance ${bad}`)
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    throw new TextFailure(400, 'a percent sign is not followed by two hexadecimal digits of UTF-8')
  }
}

function notFound(): TextFailure {
  return new TextFailure(404, '')
}

function unknownPath(): TextFailure {
  return new TextFailure(404, 'Leasehold answers /eureka/apps, /eureka/instances, /eureka/vips and /eureka/svips: see docs/faces/eureka.md')
}
