/** The face of Kubernetes: its paths, and which document or object each of them is. Leases are answered in lease-routes.ts. */
import type { Face, FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { DOCUMENTS, namespaceObject } from './discovery.ts'
import { isNamespace } from './lease-object.ts'
import { LeaseObjects } from './lease-objects.ts'
import { answerLeases, LEASE_OPERATIONS } from './lease-routes.ts'
import { type AnswerForm, AS_JSON, answerForm, answerObject } from './negotiation.ts'
import { OPENAPI_DOCUMENTS } from './openapi.ts'
import { failureOf, GROUP, methodNotAllowed, noSuchPath, StatusFailure, toldFailure } from './status.ts'

/** Objects that there may be, and their bytes, unless a policy for `kubernetes` says otherwise. */
const MAX_OBJECTS = 25_000
const MAX_BYTES = 64 << 20

export function kubernetesFace(): Face {
  return {
    name: 'kubernetes',
    rules: { freeEntries: MAX_OBJECTS, freeBytes: MAX_BYTES },
    http: {
      paths: ['/api', '/api/', '/apis', '/apis/', '/version', '/version/', '/openapi/v2', '/openapi/v3', '/openapi/v3/'],
      operations: [
        ...LEASE_OPERATIONS,
        'GET /api/v1/namespaces',
        'GET /api/v1/namespaces/{name}',
        ...[DOCUMENTS, OPENAPI_DOCUMENTS].flatMap(documents => Object.keys(documents).map(path => `GET ${path}`)),
      ],
      answer,
      failure({ code, message }) {
        const failure = failureOf(code, message)
        return { status: failure.code, body: JSON.stringify(failure.status) }
      },
    },
  }
}

async function answer(request: HttpFaceRequest, caller: FaceCaller): Promise<HttpFaceResponse> {
  try {
    return await routed(request, caller)
  } catch (error) {
    const failure = toldFailure(error)
    if (failure === undefined) throw error
    const { retryAfterSeconds } = failure.details ?? {}
    const headers = retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) }
    return answerObject(request, failure.code, failure.status, failureForm(request), headers as Readonly<Record<string, string>>)
  }
}

/** A failure is always told, in JSON if the client accepts nothing that there is. */
function failureForm(request: HttpFaceRequest): AnswerForm {
  try {
    return answerForm(request.header('accept'))
  } catch {
    return AS_JSON
  }
}

function routed(request: HttpFaceRequest, caller: FaceCaller): Promise<HttpFaceResponse> {
  const path = request.path.endsWith('/') ? request.path.slice(0, -1) : request.path
  const [, api, ...rest] = segments(path)
  if (api === 'apis' && rest[0] === GROUP && rest[1] === 'v1' && rest.length > 2) {
    const [resource, namespace, leases, name, ...more] = rest.slice(2)
    if (resource === 'leases' && namespace === undefined) return answerLeases(request, caller, { namespace: undefined, name: undefined })
    if (resource === 'namespaces' && leases === 'leases' && more.length === 0) return answerLeases(request, caller, { namespace, name })
    throw noSuchPath()
  }
  if (request.method !== 'GET') throw isDocument(path) ? methodNotAllowed() : noSuchPath()
  if (api === 'api' && rest[0] === 'v1' && rest[1] === 'namespaces' && rest.length <= 3) return namespaces(request, caller, rest[2])
  if (!isDocument(path)) throw noSuchPath()
  const document = DOCUMENTS[path] ?? OPENAPI_DOCUMENTS[path]!
  return answerObject(request, 200, document, path.startsWith('/openapi/') ? AS_JSON : documentForm(request))
}

function isDocument(path: string): boolean {
  return Object.hasOwn(DOCUMENTS, path) || Object.hasOwn(OPENAPI_DOCUMENTS, path)
}

/** Documents have only one form: clients that would like the aggregated one also name JSON. */
function documentForm(request: HttpFaceRequest): AnswerForm {
  answerForm(request.header('accept'), { views: false })
  return AS_JSON
}

/** The decoded segments of a path. */
function segments(path: string): readonly string[] {
  try {
    const parts = path.split('/')
    return path.includes('%') ? parts.map(decodeURIComponent) : parts
  } catch {
    throw noSuchPath()
  }
}

/** Namespaces are those of the objects; others are there as soon as an object is created in them. */
async function namespaces(request: HttpFaceRequest, caller: FaceCaller, name: string | undefined): Promise<HttpFaceResponse> {
  const form = answerForm(request.header('accept'), { views: false })
  if (name !== undefined) {
    if (!isNamespace(name))
      throw new StatusFailure(404, 'NotFound', `namespaces "${name.slice(0, 64)}" not found`, {
        name: name.slice(0, 64),
        kind: 'namespaces',
      })
    return answerObject(request, 200, namespaceObject(name), form)
  }
  const { items, revision } = await new LeaseObjects(caller).list(undefined)
  const names = new Set(['default'])
  for (const { metadata } of items) names.add(metadata.namespace!)
  return answerObject(
    request,
    200,
    {
      kind: 'NamespaceList',
      apiVersion: 'v1',
      metadata: { resourceVersion: String(revision) },
      items: [...names].sort().map(namespaceObject),
    },
    form,
  )
}
