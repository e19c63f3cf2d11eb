/**
 * Faces: other people's protocols, translated onto a `Lessor`. A client that was written for Redis points at Leasehold and goes on working.
 *
 * A face has no rules of its own: it turns a foreign request into commands and queries, and their outcomes into a foreign answer. It never sees the replica,
 * the log or the connection. Credentials are those of the protocol: the server knows which key they are, and gives the face a lessor that may do what the
 * key may do. A face is off unless the operator names it.
 *
 * Names of a face are under one prefix (`redis/KEY`), so that everything else sees them: the dashboard, history, explain, fences, and holders with another client. The
 * operator may map them to others (resource-names.ts).
 */
import type { Clock } from '../clock.ts'
import type { PolicyRules } from '../kernel/command.ts'
import type { Lessor } from '../lessor.ts'

export const FACE_NAMES = ['redis', 'kubernetes', 'consul', 'eureka', 'etcd'] as const
export type FaceName = (typeof FACE_NAMES)[number]

/** A face may use this much of the lessor of its caller. */
export type FaceLessor = Pick<Lessor, 'submit' | 'read' | 'watch'>

/** Which resources the names of faces stand for (resource-names.ts). */
export interface FaceNames {
  /** The resource of a name. It may be no valid name: a map can make a short name too long. */
  resource(name: string): string
  /** The prefixes of the resources that names under `prefix` stand for. */
  under(prefix: string): readonly string[]
}

/** Each name is the resource of the same name. */
export const SAME_NAMES: FaceNames = { resource: name => name, under: prefix => [prefix] }

/** One request of a client, with what the client may do. */
export interface FaceCaller {
  readonly lessor: FaceLessor
  /** The number of its key, or 0: what a face keeps for one key, it does not show to another. */
  readonly key: number
  /** The name under which its leases are held: the client's own name, or its address. */
  readonly holder: string
  /** The network address of the client, where it is known. */
  readonly address?: string | undefined
  readonly clock: Clock
  /** Leases are named by these. Entries keep the names of their face. */
  readonly names: FaceNames
  /** Fires when the client has gone. */
  readonly signal: AbortSignal
  /** Resolves in the next turn of this client: what takes long is done in slices (slices.ts). @default at once */
  nextTurn?(): Promise<void> | undefined
}

/** An answer in the words of RESP. A text is a bulk string, null the null bulk string. */
export type RespReply = string | number | null | { readonly status: string } | { readonly error: RespFailure } | readonly RespReply[]

/** An error of the foreign protocol: `ERR` and what is wrong. */
export class RespFailure extends Error {
  override readonly name = 'RespFailure'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * A command that a face adds to RESP. Commands of one connection that name the same key are carried out one after another, in the order in which they were sent;
 * others overlap, and all are answered in that order.
 */
export interface RespFaceCommand {
  /** In upper case. */
  readonly name: string
  /** The number of words, its name among them; negative: at least that many. */
  readonly arity: number
  readonly summary: string
  readonly changes?: true
  /** Which arguments are keys, as Redis counts them: the first, the last, and the step. */
  readonly names?: readonly [first: number, last: number, step: number]
  /** It waits for other clients: the commands of its connection that follow wait for it. */
  readonly waits?: true
  /** The keys that it names. @default none: it depends on no other command */
  keys?(args: readonly string[]): readonly string[]
  run(args: readonly string[], caller: FaceCaller): Promise<RespReply>
}

/** A request to the HTTP part of a face. `header` and `body` are methods: they are called on the request. */
export interface HttpFaceRequest {
  readonly method: string
  /** The path as it was sent: a face decodes its segments itself. */
  readonly path: string
  readonly query: URLSearchParams
  /** The value of a header. `name` is in lower case. */
  header(name: string): string | undefined
  readonly hasBody: boolean
  /** True if the connection is encrypted. */
  readonly secure: boolean
  /** Reads the whole body, once: later calls give the same bytes. Throws `TOO_LARGE` as soon as more bytes than the server's limit have arrived. */
  body(): Promise<Uint8Array>
}

export interface HttpFaceResponse {
  readonly status: number
  /** @default 'application/json' */
  readonly type?: string
  readonly headers?: Readonly<Record<string, string>>
  /** An iterable is sent as fast as the client reads it, and ended when the client has gone. */
  readonly body?: string | Uint8Array | AsyncIterable<string | Uint8Array>
}

/** Why a request failed, with the HTTP status that Leasehold's own API would answer. */
export interface HttpFaceFailure {
  readonly code: string
  readonly message: string
  readonly status: number
  /** The server needs no key. */
  readonly open: boolean
}

/** The part of a face that speaks HTTP. */
export interface HttpFace {
  /** The paths that it answers. One that ends in `/` stands for all paths below it. Leasehold's own paths come first. */
  readonly paths: readonly string[]
  /** Every operation that it answers, as `METHOD PATH`, with the variable parts of paths in braces. */
  readonly operations: readonly string[]
  /** The secret of a key, from the credentials of the protocol. Undefined: there are none. @default that of `Authorization: Bearer` */
  secret?(request: HttpFaceRequest): string | undefined | Promise<string | undefined>
  answer(request: HttpFaceRequest, caller: FaceCaller): HttpFaceResponse | Promise<HttpFaceResponse>
  /** A failure in the form of the protocol: a `LeaseError` that `answer` threw, or a refusal of the server itself (credentials, limits, size). */
  failure(failure: HttpFaceFailure, request: Pick<HttpFaceRequest, 'method' | 'path' | 'header'>): HttpFaceResponse
}

/** One foreign protocol. */
export interface Face {
  readonly name: FaceName
  /** Rules that names under the face's prefix (its name) need. The server sets those that no policy for this prefix sets. */
  readonly rules?: PolicyRules
  /** Commands that it adds to RESP. */
  readonly commands?: readonly RespFaceCommand[]
  readonly http?: HttpFace
}
