/** What can be asked over HTTP, as data: the handler serves it, OpenAPI describes it, and the tests of authority walk it. */
import type { Static, TObject, TSchema } from 'typebox'
import type { Caller } from '../access-control.ts'
import type { ListenerContext } from '../listener.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

/** A request, whoever carried it here. */
export interface HttpRequest {
  readonly method: string
  /** Path and query as they were sent: nothing decoded, nothing made nicer. */
  readonly target: string
  /** By its name in lower case. */
  header(name: string): string | undefined
  readonly hasBody: boolean
  /** All of the body; throws `TOO_LARGE` as soon as more than `most` bytes of it have come. */
  body(most: number): Promise<string>
  /** Fires when whoever asked has gone, or the server stops. With `half`, who closes its half of the connection has gone. */
  gone(options?: { readonly half?: boolean }): AbortSignal
  /** A header that can mean one thing only, and was said twice. */
  readonly repeated?: string | undefined
  /** The same object for every request of one connection. */
  readonly connection: object
  /** A key of this caller was accepted. */
  identified?(caller: Caller): void
  /** The address of ours that was asked. */
  readonly local?: string | undefined
}

export interface HttpAnswer {
  readonly status: number
  /** Of a refusal or a failure. */
  readonly code?: string
  /** JSON where this is left out. */
  readonly type?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent when it is at hand, or piece by piece as fast as the reader takes it. Bytes are shared by all who are sent them, and never changed. */
  readonly body?: string | Uint8Array | AsyncIterable<string | Uint8Array>
  /** About how many bytes are kept until it is sent, where the body does not show it. */
  readonly held?: number
}

/** What a route is given: everything has been checked against its schemas. */
export interface RouteCall<B = unknown, Q = unknown> extends ListenerContext {
  readonly caller: Caller
  readonly body: B
  readonly query: Q
  /** The number or the name that the path carries. */
  readonly id: number
  readonly name: string
  readonly ask: HttpRequest
}

export interface Route {
  readonly method: Method
  /** `{id}` stands for a number, `{name}` and `{prefix}` for the rest of the path, slashes as they are. */
  readonly path: string
  readonly summary: string
  readonly query?: TObject
  readonly body?: TSchema
  /** May be left out altogether: then it is an empty object. */
  readonly bodyOptional?: true
  /** Bytes of the body; the limit `body` where this is left out. */
  readonly most?: (context: ListenerContext) => number
  readonly answer?: TSchema
  /** What it answers with when it is no JSON. */
  readonly type?: string
  readonly status?: number
  /** What else it answers when all is well, by status; `null`: without a body. */
  readonly others?: Readonly<Record<number, TSchema | null>>
  /** Also for those who have no key where one is needed: it tells nothing about anybody's leases. */
  readonly open?: true
  readonly handle: (call: RouteCall<never, never>) => HttpAnswer | Promise<HttpAnswer>
}

interface Typed<B extends TSchema, Q extends TObject> extends Omit<Route, 'handle' | 'body' | 'query'> {
  readonly query?: Q
  readonly body?: B
  readonly handle: (call: RouteCall<Static<B>, Static<Q>>) => HttpAnswer | Promise<HttpAnswer>
}

/** One route, its handler typed by its schemas. */
export function route<B extends TSchema, Q extends TObject>(typed: Typed<B, Q>): Route {
  return typed as unknown as Route
}

export function json(status: number, body: object, revision?: number): HttpAnswer {
  return { status, body: JSON.stringify(body), ...(revision !== undefined && { headers: { 'Leasehold-Revision': String(revision) } }) }
}
