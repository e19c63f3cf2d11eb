/** The forms in which a client wants its answer, and in which it sent its body: JSON or protobuf, the object itself, a table of it or only its metadata. */
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { decodeObject, encodeObject, hasProtobuf } from './messages.ts'
import { checkDepth } from './patch.ts'
import { type JsonObject, ProtobufError } from './protobuf.ts'
import { badRequest, StatusFailure, unsupportedType } from './status.ts'

export const JSON_TYPE = 'application/json'
export const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf'

export interface AnswerForm {
  readonly type: typeof JSON_TYPE | typeof PROTOBUF_TYPE
  /** The server sends this instead of the object itself. */
  readonly as?: 'Table' | 'PartialObjectMetadata'
}

export const AS_JSON: AnswerForm = { type: JSON_TYPE }

/** `as` values of the header, and what they ask for. */
const VIEWS: Readonly<Record<string, AnswerForm['as']>> = {
  Table: 'Table',
  PartialObjectMetadata: 'PartialObjectMetadata',
  PartialObjectMetadataList: 'PartialObjectMetadata',
}

/** Forms by their header: clients have few, and send the same one with every request. */
const FORMS = new Map<string, AnswerForm>()
const MAX_FORMS = 64

/** The first form of the header that there is. Throws `NotAcceptable` if there is none. */
export function answerForm(accept: string | undefined, { views = true } = {}): AnswerForm {
  if (accept === undefined || accept === '') return AS_JSON
  if (!views) return readForm(accept, views)
  const known = FORMS.get(accept)
  if (known !== undefined) return known
  const form = readForm(accept, views)
  if (FORMS.size >= MAX_FORMS) FORMS.clear()
  if (accept.length < 256) FORMS.set(accept, form)
  return form
}

function readForm(accept: string, views: boolean): AnswerForm {
  for (const range of accept.slice(0, 2_048).split(',')) {
    const [type = '', ...parameters] = range.split(';').map(part => part.trim())
    const parameter = (name: string) => parameters.find(each => each.startsWith(`${name}=`))?.slice(name.length + 1)
    if (Number(parameter('q') ?? 1) === 0) continue
    const as = parameter('as')
    if (as !== undefined) {
      const view = views && Object.hasOwn(VIEWS, as) ? VIEWS[as] : undefined
      if (view !== undefined && type === JSON_TYPE && parameter('v') === 'v1' && parameter('g') === 'meta.k8s.io')
        return { type: JSON_TYPE, as: view }
    } else if (type === PROTOBUF_TYPE) return { type: PROTOBUF_TYPE }
    else if (type === JSON_TYPE || type === 'application/*' || type === '*/*') return AS_JSON
  }
  throw new StatusFailure(
    406,
    'NotAcceptable',
    `only the following media types are accepted: ${JSON_TYPE}, ${PROTOBUF_TYPE}, and ${JSON_TYPE};as=Table;v=v1;g=meta.k8s.io`,
  )
}

/** The body as an object in the form of JSON. */
export async function readBody(request: HttpFaceRequest): Promise<unknown> {
  const encoding = request.header('content-encoding') ?? 'identity'
  if (encoding.toLowerCase() !== 'identity') throw unsupportedType('the body must be sent without a content encoding')
  const type = mediaType(request.header('content-type'))
  if (type !== JSON_TYPE && type !== PROTOBUF_TYPE)
    throw unsupportedType(`the body of the request was in an unknown format - accepted media types include: ${JSON_TYPE}, ${PROTOBUF_TYPE}`)
  const bytes = await request.body()
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (type === JSON_TYPE) return parseJson(buffer)
  try {
    return decodeObject(buffer)
  } catch (error) {
    if (error instanceof ProtobufError) throw badRequest(`the body is not protobuf of this API: ${error.message}`)
    throw error
  }
}

/** The type of a header, without its parameters. */
export function mediaType(header: string | undefined): string {
  return (header ?? JSON_TYPE).split(';', 1)[0]!.trim().toLowerCase()
}

const UTF8 = new TextDecoder('utf-8', { fatal: true })

export function parseJson(bytes: Uint8Array): unknown {
  let value: unknown
  try {
    value = JSON.parse(UTF8.decode(bytes))
  } catch {
    throw badRequest('the body is not JSON')
  }
  checkDepth(value)
  return value
}

/** Answers of at least this many bytes are compressed if the client asks for it, as the API server does. */
const GZIP_FROM = 128 << 10
const compressed = promisify(gzip)

/** An object with `kind` and `apiVersion`, in the form that was asked for. */
export async function answerObject(
  request: HttpFaceRequest,
  status: number,
  object: object,
  { type }: AnswerForm,
  headers: Readonly<Record<string, string>> = {},
): Promise<HttpFaceResponse> {
  const { kind } = object as { readonly kind: string }
  const binary = type === PROTOBUF_TYPE && hasProtobuf(kind)
  const body = binary ? encodeObject(object as JsonObject) : JSON.stringify(object)
  return answerBody(request, status, body, binary ? PROTOBUF_TYPE : JSON_TYPE, headers)
}

export function wantsGzip(request: HttpFaceRequest): boolean {
  return /\bgzip\b/.test(request.header('accept-encoding') ?? '')
}

/** A body that is ready, compressed if that is worth it. */
export async function answerBody(
  request: HttpFaceRequest,
  status: number,
  body: string | Uint8Array,
  type: AnswerForm['type'],
  headers: Readonly<Record<string, string>>,
): Promise<HttpFaceResponse> {
  const answer = { status, type, headers }
  if (body.length < GZIP_FROM || !wantsGzip(request)) return { ...answer, body }
  const bytes = await compressed(body, { level: 1 })
  return { ...answer, headers: { ...headers, 'Content-Encoding': 'gzip', Vary: 'Accept-Encoding' }, body: bytes }
}
