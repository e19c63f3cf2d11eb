/** Requests to the HTTP part of faces: finds the face of a path, gives it a lessor of the caller, and lets it word every failure itself. */
import type { Clock } from '../../clock.ts'
import {
  type Face,
  type FaceCaller,
  type FaceLessor,
  type FaceName,
  type FaceNames,
  type HttpFace,
  type HttpFaceRequest,
  SAME_NAMES,
} from '../../face/face.ts'
import type { Caller } from '../access-control.ts'
import { callerLessor } from '../caller-lessor.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'
import type { ListenerContext } from '../listener.ts'
import { failureResponse, isInternalError } from './failure.ts'
import type { HttpRequest, HttpResponse } from './route.ts'

/** A face and its HTTP part. */
export interface FacePaths {
  readonly name: FaceName
  readonly http: HttpFace
}

export class FaceHandler {
  readonly #context: ListenerContext
  readonly #faces: readonly FacePaths[]

  constructor(context: ListenerContext) {
    this.#context = context
    this.#faces = (context.faces ?? []).flatMap(({ name, http }: Face) => (http === undefined ? [] : [{ name, http }]))
  }

  /** The face that answers this path: the first that names it. */
  find(path: string): FacePaths | undefined {
    return this.#faces.find(({ http }) => http.paths.some(known => (known.endsWith('/') ? path.startsWith(known) : path === known)))
  }

  /** Answers for the face. `identify` finds the caller of a secret, or of none, and waits for its turn; it rejects if the caller is refused. */
  async handle(
    { name, http }: FacePaths,
    request: HttpRequest,
    { path, query }: { readonly path: string; readonly query: string },
    identify: (secret: string | undefined) => Promise<Caller>,
  ): Promise<HttpResponse> {
    const { guarded, limits } = this.#context
    const asked = new FaceRequest(request, path, query, limits.body)
    try {
      const secret = http.secret === undefined ? bearerSecret(request) : http.secret(asked)
      const caller = await identify(secret instanceof Promise ? await secret : secret)
      const answer = await http.answer(asked, new RequestCaller(this.#context, request, caller))
      // A face words its failures itself. They are counted by their status: codes are ours, and several share one.
      return answer.status < 400 ? answer : { ...answer, code: `HTTP_${answer.status}` }
    } catch (error) {
      const failed = failureResponse(error)
      if (isInternalError(error))
        this.#context.log.error({ face: name, error: String((error as Error)?.stack ?? error) }, 'a request failed with an internal error')
      const { message } = (JSON.parse(failed.body as string) as { error: { message: string } }).error
      const answer = http.failure({ code: failed.code!, message, status: failed.status, open: !guarded.access.keyRequired }, asked)
      return { ...answer, code: failed.code!, headers: { ...failed.headers, ...answer.headers } }
    }
  }
}

const EMPTY = new Uint8Array(0)
/** Shared: faces only read it. */
const NO_QUERY = new URLSearchParams()

/** The request as a face sees it. A class, because one is made for every request. */
class FaceRequest implements HttpFaceRequest {
  readonly path: string
  readonly query: URLSearchParams
  readonly #request: HttpRequest
  readonly #maxBytes: number
  #read: Promise<Uint8Array> | undefined

  constructor(request: HttpRequest, path: string, query: string, maxBytes: number) {
    this.#request = request
    this.path = path
    this.query = query === '' ? NO_QUERY : new URLSearchParams(query)
    this.#maxBytes = maxBytes
  }

  get method(): string {
    return this.#request.method
  }

  get hasBody(): boolean {
    return this.#request.hasBody
  }

  get secure(): boolean {
    return this.#request.secure === true
  }

  header(name: string): string | undefined {
    return this.#request.header(name)
  }

  body(): Promise<Uint8Array> {
    this.#read ??= bytesOf(this.#request, this.#maxBytes)
    return this.#read
  }
}

/** The client of a request may do this. */
class RequestCaller implements FaceCaller {
  readonly lessor: FaceLessor
  readonly key: number
  readonly holder: string
  readonly address: string | undefined
  readonly clock: Clock
  readonly names: FaceNames
  readonly #request: HttpRequest
  readonly #caller: Caller
  readonly #guarded: GuardedLessor
  #gone: AbortSignal | undefined

  constructor({ guarded, clock, faceNames = SAME_NAMES }: ListenerContext, request: HttpRequest, caller: Caller) {
    this.lessor = callerLessor(guarded, caller)
    this.key = caller.key
    this.address = request.peerAddress
    this.holder = caller.key === 0 ? (this.address ?? 'local') : caller.name
    this.clock = clock
    this.names = faceNames
    this.#request = request
    this.#caller = caller
    this.#guarded = guarded
  }

  nextTurn(): Promise<void> | undefined {
    return this.#guarded.nextTurn(this.#caller)
  }

  // Most requests never wait for anything, and listening costs more than their answer.
  get signal(): AbortSignal {
    this.#gone ??= this.#request.gone()
    return this.#gone
  }
}

async function bytesOf(request: HttpRequest, most: number): Promise<Uint8Array> {
  if (!request.hasBody) return EMPTY
  return request.bytes?.(most) ?? Buffer.from(await request.body(most))
}

/** The secret of `Authorization: Bearer`. A malformed one gets the same answer as an unknown one, so that the form of keys is not revealed. */
export function bearerSecret(request: Pick<HttpRequest, 'header'>): string | undefined {
  const authorization = request.header('authorization')
  if (authorization === undefined) return undefined
  return /^Bearer +([\x21-\x7e]{1,512})$/i.exec(authorization)?.[1] ?? ''
}
