/** The Consul face: finds what a path asks for. Paths that are not answered say what is. */
import type { Face, FaceCaller, HttpFace, HttpFaceRequest } from '../face.ts'
import { TextFailure, textResponse } from '../text-failure.ts'
import { AgentIndex, agentEndpoints } from './agent.ts'
import { CATALOG_ENDPOINTS } from './catalog.ts'
import { KV_METHODS, keyValueAnswer } from './kv.ts'
import { type ConsulAnswer, type ConsulEndpoint, checkParameters, decodedPath, failureResponse } from './protocol.ts'
import { MAX_LOCK_TTL, Sessions } from './sessions.ts'
import { keyTransaction } from './txn.ts'

/** Keys that there may be, and the bytes of all keys and values together, unless a policy for `consul` says otherwise. */
const FREE_ENTRIES = 100_000
const FREE_BYTES = 256 * 1_024 * 1_024

/** Of the API that is answered, as clients ask for it. */
const VERSION = '1.20.6'

export function consulFace(): Face {
  return { name: 'consul', rules: { freeEntries: FREE_ENTRIES, freeBytes: FREE_BYTES, ttlMax: MAX_LOCK_TTL }, http: consulHttp() }
}

const SESSION_ENDPOINTS: readonly ConsulEndpoint[] = [
  { method: 'PUT', path: '/v1/session/create', answer: (request, caller) => new Sessions(caller).create(request) },
  { method: 'PUT', path: '/v1/session/renew/', answer: (_, caller, id) => new Sessions(caller).renew(id) },
  { method: 'PUT', path: '/v1/session/destroy/', answer: (_, caller, id) => new Sessions(caller).destroy(id) },
  { method: 'GET', path: '/v1/session/info/', answer: (request, caller, id) => new Sessions(caller).info(request, id) },
  { method: 'GET', path: '/v1/session/list', answer: (request, caller) => new Sessions(caller).list(request) },
  { method: 'GET', path: '/v1/session/node/', answer: (request, caller, node) => new Sessions(caller).list(request, node) },
]

/** A path that ends in a slash is followed by a name. */
function named({ method, path }: ConsulEndpoint): string {
  return `${method} ${path}${path.endsWith('/') ? '{name}' : ''}`
}

function consulHttp(): HttpFace {
  const endpoints: readonly ConsulEndpoint[] = [
    ...SESSION_ENDPOINTS,
    { method: 'PUT', path: '/v1/txn', answer: keyTransaction },
    ...agentEndpoints(new AgentIndex(), VERSION),
    ...CATALOG_ENDPOINTS,
  ]
  const paths = ['/v1/kv/', '/v1/txn', ...new Set(endpoints.map(({ path }) => path.split('/').slice(0, 3).join('/').concat('/')))]
  return {
    paths,
    operations: [...KV_METHODS.map(method => `${method} /v1/kv/{key}`), ...endpoints.map(named)],
    secret: secretOf,
    async answer(request, caller) {
      try {
        checkParameters(request)
        if (request.path.startsWith('/v1/kv/'))
          return await keyValueAnswer(request, caller, decodedPath(request.path.slice('/v1/kv/'.length)))
        return await answerOf(endpoints, request, caller)
      } catch (error) {
        if (error instanceof TextFailure) return error.response
        throw error
      }
    },
    failure: failureResponse,
  }
}

function answerOf(endpoints: readonly ConsulEndpoint[], request: HttpFaceRequest, caller: FaceCaller): ConsulAnswer {
  const { path } = request
  const matches = endpoints.filter(known => (known.path.endsWith('/') ? path.startsWith(known.path) : path === known.path))
  const method = request.method === 'HEAD' ? 'GET' : request.method
  const found = matches.find(known => known.method === method)
  if (found !== undefined) return found.answer(request, caller, decodedPath(path.slice(found.path.length)))
  if (matches.length > 0) return textResponse(405, `method ${method.slice(0, 16)} not allowed`)
  return textResponse(404, 'Leasehold answers locks, sessions, services and health of Consul, and not this path: see docs/faces/consul.md')
}

/** `X-Consul-Token` or `Authorization: Bearer`: the secret of a key. The server refuses one in a URL. */
function secretOf(request: HttpFaceRequest): string | undefined {
  const token = request.header('x-consul-token')
  if (token !== undefined) return token === '' ? undefined : token.slice(0, 512)
  const authorization = request.header('authorization')
  if (authorization === undefined) return undefined
  return /^Bearer +([\x21-\x7e]{1,512})$/i.exec(authorization)?.[1] ?? ''
}
