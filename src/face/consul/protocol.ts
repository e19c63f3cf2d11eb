/** The words of Consul's HTTP API: durations, parameters, headers and errors. */
import { LeaseError } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { refusedError } from '../../refused-error.ts'
import type { FaceCaller, HttpFaceFailure, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { joined, mapInSlices } from '../slices.ts'
import { TextFailure, textResponse } from '../text-failure.ts'

/** There is one data center and one node: the whole of this server. */
export const DATACENTER = 'dc1'
export const NODE = 'leasehold'
const MAX_DEPTH = 16

export type ConsulAnswer = HttpFaceResponse | Promise<HttpFaceResponse>

/** An endpoint: the method, the path, and what answers it. A path that ends in `/` takes the rest of the path as its name. */
export interface ConsulEndpoint {
  readonly method: 'GET' | 'PUT'
  readonly path: string
  readonly answer: (request: HttpFaceRequest, caller: FaceCaller, name: string) => ConsulAnswer
}

/** The answer to a read: `revision` is the index from which a client waits for the next change. */
export function answer(revision: number, body: unknown, { status = 200, ...more }: Partial<HttpFaceResponse> = {}): HttpFaceResponse {
  return {
    status,
    ...more,
    headers: {
      'X-Consul-Index': String(Math.max(1, revision)),
      'X-Consul-KnownLeader': 'true',
      'X-Consul-LastContact': '0',
      'X-Consul-Effective-Consistency': 'consistent',
      ...more.headers,
    },
    body: body instanceof Uint8Array || typeof body === 'string' ? body : JSON.stringify(body),
  }
}

export function json(body: unknown): HttpFaceResponse {
  return { status: 200, body: JSON.stringify(body) }
}

/** A list, which is made in slices. With `revision`, it can be waited for. */
export async function listAnswer<T>(
  caller: FaceCaller,
  items: readonly T[],
  shown: (item: T) => unknown,
  revision?: number,
): Promise<HttpFaceResponse> {
  const texts = await mapInSlices(caller, items, item => JSON.stringify(shown(item)))
  const response = { status: 200, body: joined(texts, '[', ']') }
  return revision === undefined ? response : { ...answer(revision, ''), ...response }
}

/** An object with a field for each item. Of several with the same name the last counts. */
export async function fieldsAnswer<T>(
  caller: FaceCaller,
  items: readonly T[],
  nameOf: (item: T) => string,
  shown: (item: T) => unknown,
): Promise<HttpFaceResponse> {
  const named = new Map(items.map(item => [nameOf(item), item]))
  const texts = await mapInSlices(caller, [...named], ([name, item]) => `${JSON.stringify(name)}:${JSON.stringify(shown(item))}`)
  return { status: 200, body: joined(texts, '{', '}') }
}

export const TRUE = json(true)
export const FALSE = json(false)
/** As Consul answers agents that registered something. */
export const DONE: HttpFaceResponse = { status: 200, body: '' }

/** Consul has few statuses: clients retry on 5xx, and take 403 for missing rights. */
const STATUSES: Readonly<Record<string, number>> = {
  UNAUTHENTICATED: 403,
  FORBIDDEN: 403,
  LIMIT: 429,
  TOO_LARGE: 413,
  INVALID: 400,
  NOT_FOUND: 404,
  UNAVAILABLE: 500,
  DIVERGED: 500,
  UNKNOWN: 500,
}

export function failureResponse({ code, message, status }: HttpFaceFailure): HttpFaceResponse {
  const said = code === 'UNAUTHENTICATED' || code === 'FORBIDDEN' ? `Permission denied: ${message}` : message
  return textResponse(STATUSES[code] ?? status, said)
}

/** The outcome, if it is of this kind. Throws a refusal. */
export function expected<K extends Outcome['kind']>(outcome: Outcome, kind: K): Extract<Outcome, { readonly kind: K }> {
  if (outcome.kind === kind) return outcome as Extract<Outcome, { readonly kind: K }>
  if (outcome.kind === 'refused') throw refusedError(outcome)
  throw new LeaseError('UNAVAILABLE', `nothing was done (the outcome was ${outcome.kind}): retry the request`)
}

/** Refuses what would be answered wrongly if it were ignored. */
export function checkParameters(request: HttpFaceRequest): void {
  const { query } = request
  if (query.size === 0 && request.header('x-consul-namespace') === undefined) return
  const dc = query.get('dc')
  if (dc !== null && dc !== '' && dc !== DATACENTER) throw new TextFailure(500, 'No path to datacenter')
  for (const name of ['ns', 'partition', 'peer', 'sg']) {
    const value = query.get(name) ?? (name === 'ns' ? request.header('x-consul-namespace') : undefined)
    if (value !== null && value !== undefined && value !== '' && value !== 'default')
      throw new TextFailure(400, `Invalid query parameter: "${name}" - there are no namespaces, partitions or peers here: leave it out`)
  }
  if ((query.get('filter') ?? '') !== '') throw new TextFailure(400, 'filter expressions are not answered here: leave filter out')
}

const UNITS: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }

/** Milliseconds of a duration as Go writes it, such as `1m30s`. Undefined: it is not one. */
export function goDuration(given: string): number | undefined {
  if (given === '0') return 0
  if (given.length > 64 || !/^(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+$/.test(given)) return undefined
  let ms = 0
  for (const [, amount, unit] of given.matchAll(/(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)/g)) ms += Number(amount) * UNITS[unit!]!
  return Number.isFinite(ms) ? Math.round(ms) : undefined
}

/** A duration as Go prints it. */
export function goText(ms: number): string {
  if (ms < 1_000) return ms === 0 ? '0s' : `${ms}ms`
  const hours = Math.floor(ms / 3_600_000)
  const minutes = Math.floor((ms % 3_600_000) / 60_000)
  const seconds = (ms % 60_000) / 1_000
  return `${hours > 0 ? `${hours}h` : ''}${hours > 0 || minutes > 0 ? `${minutes}m` : ''}${seconds}s`
}

/** The JSON object of a body; empty if there is none. Field names are in lower case: Consul accepts any case. */
export async function bodyFields(request: HttpFaceRequest): Promise<Readonly<Record<string, unknown>>> {
  return lowerCased((await bodyJson(request)) ?? {}, 'the body')
}

/** The JSON of a body, which is not nested too deeply. Null: there is none. */
export async function bodyJson(request: HttpFaceRequest): Promise<unknown> {
  const bytes = await request.body()
  if (bytes.length === 0) return null
  let read: unknown
  try {
    read = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw new TextFailure(400, `Request decode failed: ${(error as Error).message.slice(0, 200)}`)
  }
  if (depthOf(read) > MAX_DEPTH) throw new TextFailure(400, `Request decode failed: more than ${MAX_DEPTH} levels`)
  return read
}

function depthOf(value: unknown, depth = 0): number {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return depth
  let deepest = depth
  for (const part of Object.values(value)) deepest = Math.max(deepest, depthOf(part, depth + 1))
  return deepest
}

/** The fields of an object with their names in lower case, without underscores. */
export function lowerCased(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TextFailure(400, `Request decode failed: ${what} is not an object`)
  const fields = Object.create(null) as Record<string, unknown>
  for (const [name, field] of Object.entries(value)) fields[name.toLowerCase().replaceAll('_', '')] = field
  return fields
}

/** A text field; empty if it is missing. */
export function textField(fields: Readonly<Record<string, unknown>>, name: string): string {
  const value = fields[name.toLowerCase()]
  if (value === undefined || value === null) return ''
  if (typeof value !== 'string') throw new TextFailure(400, `Request decode failed: ${name} is not a text`)
  return value
}

/** The segments of a path, decoded. */
export function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    throw new TextFailure(400, 'Invalid path: a percent sign is not followed by two hexadecimal digits of UTF-8')
  }
}
