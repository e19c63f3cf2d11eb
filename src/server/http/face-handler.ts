/** Requests to the HTTP part of faces: finds the face of a path, gives it a lessor of the caller, and lets it word every failure itself. */
import { type Face, type FaceName, type HttpFace, type HttpFaceRequest, SAME_NAMES } from '../../face/face.ts'
import type { Caller } from '../access-control.ts'
import { callerLessor } from '../caller-lessor.ts'
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

  /** Answers for the face. `identify` finds the caller of a secret, or of none, and throws if it is refused. */
  async handle(
    { name, http }: FacePaths,
    request: HttpRequest,
    { path, query }: { readonly path: string; readonly query: string },
    identify: (secret: string | undefined) => Caller,
  ): Promise<HttpResponse> {
    const { guarded, clock, limits, faceNames: names = SAME_NAMES } = this.#context
    let read: Promise<Uint8Array> | undefined
    const asked: HttpFaceRequest = {
      method: request.method,
      path,
      query: query === '' ? NO_QUERY : new URLSearchParams(query),
      header: header => request.header(header),
      hasBody: request.hasBody,
      secure: request.secure === true,
      body: () => (read ??= bytesOf(request, limits.body)),
    }
    try {
      const caller = identify(http.secret === undefined ? bearerSecret(request) : await http.secret(asked))
      let gone: AbortSignal | undefined
      const { peerAddress } = request
      const answer = await http.answer(asked, {
        lessor: callerLessor(guarded, caller),
        holder: caller.key === 0 ? (peerAddress ?? 'local') : caller.name,
        address: peerAddress,
        clock,
        names,
        // Most requests never wait for anything, and listening costs more than their answer.
        get signal() {
          gone ??= request.gone()
          return gone
        },
      })
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
