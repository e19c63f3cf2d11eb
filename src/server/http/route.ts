/** The types of the HTTP API: request, response and route. Routes are data: the handler serves them, OpenAPI describes them, and security tests iterate over them. */
import type { Static, TObject, TSchema } from 'typebox'
import type { Caller } from '../access-control.ts'
import type { ListenerContext } from '../listener.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

/** An HTTP request, independent of what carries it: Node's server, the simulator, or a test. */
export interface HttpRequest {
  readonly method: string
  /** Path and query exactly as they were sent, without decoding or normalization. */
  readonly target: string
  /** The value of a header. `name` is in lower case. */
  header(name: string): string | undefined
  readonly hasBody: boolean
  /** Reads the whole body. Throws `TOO_LARGE` as soon as more than `maxBytes` have arrived. */
  body(maxBytes: number): Promise<string>
  /** As `body`, for bodies that are not text. */
  bytes?(maxBytes: number): Promise<Uint8Array>
  /** Fires when the client disconnects, or the server stops. With `half`, a client that closes its sending side counts as disconnected. */
  gone(options?: { readonly half?: boolean }): AbortSignal
  /** A header that must be unique and was sent twice. */
  readonly repeatedHeader?: string | undefined
  /** The same object for every request of one connection. */
  readonly connection: object
  /** The request carried a valid key of this caller. */
  identified?(caller: Caller): void
  /** The server's own address of this connection. */
  readonly localAddress?: string | undefined
  /** True if the connection is encrypted. */
  readonly secure?: boolean | undefined
  /** The client's address. */
  readonly peerAddress?: string | undefined
}

export interface HttpResponse {
  readonly status: number
  /** The error code of a refusal or a failure. */
  readonly code?: string
  /** The content type. @default 'application/json' */
  readonly type?: string
  readonly headers?: Readonly<Record<string, string>>
  /** An iterable is sent as fast as the client reads it. Bytes are shared between responses and must not be changed. */
  readonly body?: string | Uint8Array | AsyncIterable<string | Uint8Array>
  /** Approximate memory that an iterable body takes until it is sent. */
  readonly heldBytes?: number
}

/** A route's handler gets this. Query and body have been checked against the route's schemas. */
export interface RouteContext<B = unknown, Q = unknown> extends ListenerContext {
  readonly caller: Caller
  readonly body: B
  readonly query: Q
  /** The variable part of the path: a number for `{id}`, a text otherwise. */
  readonly id: number
  readonly name: string
  readonly request: HttpRequest
}

export interface Route {
  readonly method: Method
  /** `{id}` is a number. `{name}` and `{prefix}` are the rest of the path, with unescaped slashes. */
  readonly path: string
  readonly summary: string
  readonly query?: TObject
  readonly body?: TSchema
  /** The body may be left out, and is then an empty object. */
  readonly bodyOptional?: true
  /** Maximum bytes of the body. @default the limit `body` */
  readonly maxBodyBytes?: (context: ListenerContext) => number
  readonly response?: TSchema
  /** The content type of the response. @default 'application/json' */
  readonly type?: string
  /** The status of success. @default 200 */
  readonly status?: number
  /** Other responses of success, by status. `null`: without a body. */
  readonly otherResponses?: Readonly<Record<number, TSchema | null>>
  /** Needs no key. The response must contain nothing about leases. */
  readonly open?: true
  /** Renews leases: handled before other requests of the same caller. */
  readonly urgent?: true
  readonly handle: (context: RouteContext<never, never>) => HttpResponse | Promise<HttpResponse>
}

interface TypedRoute<B extends TSchema, Q extends TObject> extends Omit<Route, 'handle' | 'body' | 'query'> {
  readonly query?: Q
  readonly body?: B
  readonly handle: (context: RouteContext<Static<B>, Static<Q>>) => HttpResponse | Promise<HttpResponse>
}

/** Declares a route whose handler is typed by its schemas. */
export function route<B extends TSchema, Q extends TObject>(typed: TypedRoute<B, Q>): Route {
  return typed as unknown as Route
}

export function json(status: number, body: object, revision?: number): HttpResponse {
  return { status, body: JSON.stringify(body), ...(revision !== undefined && { headers: { 'Leasehold-Revision': String(revision) } }) }
}
