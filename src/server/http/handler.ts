/**
 * Handles one HTTP request: checks its origin, finds the route, identifies the caller, checks query and body, and calls the route. Every failure
 * becomes a response with an error code. Nothing is thrown.
 */
import { turn } from '../../clock.ts'
import { MAX_PROPOSALS } from '../../wire/http/schema.ts'
import { anonymousCaller, type Caller } from '../access-control.ts'
import { partyOf } from '../caller-turns.ts'
import { type ListenerContext, LOG_WENT_BACK } from '../listener.ts'
import { parseBody } from './body.ts'
import { bearerSecret, FaceHandler } from './face-handler.ts'
import { failureResponse, HttpFailure, isInternalError } from './failure.ts'
import { OriginCheck } from './origin-check.ts'
import { check, decoded, parseId, parseQuery } from './parse.ts'
import type { HttpRequest, HttpResponse, Route, RouteContext } from './route.ts'
import { Router } from './router.ts'
import { ROUTES } from './routes.ts'

export interface HttpHandlerOptions {
  /** Names of this server, in addition to its addresses. @default none */
  readonly hosts?: readonly string[]
  /** Routes in addition to `ROUTES`. @default none */
  readonly routes?: readonly Route[]
  /** Counts a request by route, by result code and by the id of its key. */
  readonly count?: (route: string, code: string, key: number) => void
}

const EMPTY_QUERY = Object.freeze({})
const WITNESS_HEADER = 'leasehold-witness'
/** The header's value of a client that has no witness yet and wants one. */
const NO_WITNESS = 'none'

export class HttpHandler {
  readonly #context: ListenerContext
  readonly #originCheck: OriginCheck
  readonly #router: Router
  readonly #faces: FaceHandler
  readonly #count: (route: string, code: string, key: number) => void
  /** Callers without a key, by connection: they are limited per connection. */
  readonly #anonymous = new WeakMap<object, Caller>()

  /** Connections with a request that waits for its turn. */
  readonly #waiting = new WeakSet<object>()

  constructor(context: ListenerContext, { hosts = [], routes = [], count = () => {} }: HttpHandlerOptions = {}) {
    this.#context = context
    this.#originCheck = new OriginCheck(hosts)
    this.#router = new Router([...ROUTES, ...routes])
    this.#faces = new FaceHandler(context)
    this.#count = count
  }

  async handle(request: HttpRequest): Promise<HttpResponse> {
    let routeName = 'none'
    let key = 0
    try {
      const { host, path, query, target } = targetOf(request)
      this.#originCheck.check(request, host, target)
      const match = this.#router.find(request.method, path)
      const face = match === undefined ? this.#faces.find(path) : undefined
      if (face !== undefined) {
        routeName = `face ${face.name}`
        const response = await this.#faces.handle(face, request, { path, query }, async secret => {
          const caller = this.#identify(request, secret)
          key = caller.key
          await this.#turn(request, caller)
          return caller
        })
        this.#count(routeName, response.code ?? 'OK', key)
        return response
      }
      const route = match !== undefined && 'route' in match ? match.route : undefined
      if (route !== undefined) routeName = `${route.method} ${route.path}`
      // Identify the caller before the path is answered: a caller without access must not learn which paths exist.
      const caller = route?.open === true ? anonymousCaller() : this.#identify(request, bearerSecret(request))
      key = caller.key
      if (match === undefined) throw new HttpFailure('NOT_FOUND', 'there is no such path: see /openapi.json')
      if (!('route' in match))
        throw new HttpFailure('INVALID', `this path does not allow ${request.method.slice(0, 16)}: use ${match.join(', ')}`, {
          status: 405,
          headers: { Allow: match.join(', ') },
        })
      if (match.route.open !== true) await this.#turn(request, caller, match.route.urgent === true)
      const witness = route?.open === true ? undefined : request.header(WITNESS_HEADER)
      if (witness !== undefined) await this.#checkWitness(witness)
      const response = await this.#callRoute(match.route, match.raw, query, caller, request)
      this.#count(routeName, response.code ?? 'OK', key)
      return witness === undefined ? response : { ...response, headers: { ...response.headers, ...this.#witnessHeader() } }
    } catch (error) {
      const response = failureResponse(error)
      if (isInternalError(error))
        this.#context.log.error(
          { route: routeName, error: String((error as Error)?.stack ?? error) },
          'a request failed with an internal error',
        )
      this.#count(routeName, response.code!, key)
      return response
    }
  }

  /** Refuses a client that saw records which the log has lost, before its request is applied: its leases are lost, and it must learn that first. */
  async #checkWitness(witness: string): Promise<void> {
    const { guarded, log } = this.#context
    if (witness === NO_WITNESS || (await guarded.continues(witness))) return
    log.warn({}, LOG_WENT_BACK)
    throw new HttpFailure(
      'DIVERGED',
      'the log of this server went back: it does not contain records that this client saw. The request was not applied',
      {
        facts: { rewound: true },
        headers: this.#witnessHeader(),
      },
    )
  }

  /** The client sends this with its next request. It covers everything in this response. */
  #witnessHeader(): Readonly<Record<string, string>> {
    const { witness } = this.#context.guarded.lessor
    return witness === undefined ? {} : { 'Leasehold-Witness': witness }
  }

  /** Returns when it is the turn of this caller. The requests of one connection are handled in their order. */
  async #turn(request: HttpRequest, caller: Caller, urgent = false): Promise<void> {
    const { connection, peerAddress } = request
    const turn = this.#context.guarded.turns.turn(partyOf(caller, peerAddress), urgent && !this.#waiting.has(connection))
    if (turn === undefined) return
    this.#waiting.add(connection)
    await turn
    this.#waiting.delete(connection)
  }

  async #callRoute(route: Route, raw: string, query: string, caller: Caller, request: HttpRequest): Promise<HttpResponse> {
    const { guarded, clock, limits, log, figures, closing, connections } = this.#context
    const isId = route.path.includes('{id}')
    // Field by field: a spread of the context would cost as much as the rest of this function.
    const context: RouteContext = {
      guarded,
      clock,
      limits,
      log,
      figures,
      closing,
      connections,
      caller,
      request,
      query: query === '' && route.query === undefined ? EMPTY_QUERY : parseQuery(query, route.query),
      id: isId ? parseId(decoded(raw, 'the number')) : 0,
      name: isId ? '' : decoded(raw, 'the name'),
      body: await this.#readBody(route, request, caller),
    }
    return route.handle(context as RouteContext<never, never>)
  }

  async #readBody(route: Route, request: HttpRequest, caller: Caller): Promise<unknown> {
    const type = request.header('content-type')
    // Checked even without a body: a form of another site cannot send this content type.
    if (request.method !== 'GET' && request.method !== 'HEAD' && (request.hasBody || type !== undefined) && !isJson(type))
      throw new HttpFailure('INVALID', 'a request that changes something needs Content-Type: application/json', { status: 415 })
    const encoding = request.header('content-encoding')
    if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
      throw new HttpFailure('INVALID', `the content encoding ${encoding.slice(0, 32)} is not supported: send the body without one`, {
        status: 415,
        headers: { 'Accept-Encoding': 'identity' },
      })
    if (route.body === undefined) {
      if (!request.hasBody) return undefined
      const text = await request.body(this.#context.limits.body)
      if (text !== '') throw new HttpFailure('INVALID', 'this route takes no body: send none')
      return undefined
    }
    if (!request.hasBody && route.bodyOptional !== true && type === undefined)
      throw new HttpFailure('INVALID', 'the body is missing: send JSON with Content-Type: application/json', { status: 415 })
    const text = request.hasBody ? await request.body(route.maxBodyBytes?.(this.#context) ?? this.#context.limits.body) : ''
    const { depth, renewals } = this.#context.limits
    // One more than the limit: the route itself then refuses the request, with its own message.
    const nextTurn = () => this.#context.guarded.nextTurn(caller) ?? turn()
    const body =
      text === '' && route.bodyOptional === true
        ? {}
        : await parseBody(text, { depth, items: Math.max(renewals, MAX_PROPOSALS) + 1 }, nextTurn)
    check(route.body, body, 'the body')
    return body
  }

  #identify(request: HttpRequest, secret: string | undefined): Caller {
    const { access } = this.#context.guarded
    if (secret !== undefined) {
      const caller = access.identify(secret)
      request.identified?.(caller)
      return caller
    }
    const caller = this.#anonymous.get(request.connection) ?? anonymousCaller()
    this.#anonymous.set(request.connection, caller)
    access.admit(caller)
    return caller
  }
}

function isJson(type: string | undefined): boolean {
  return type !== undefined && /^application\/json[ \t]*(;|$)/i.test(type)
}

/** The parts of the request target: a path, or an absolute URL as sent to proxies, whose host takes precedence over the header Host. */
function targetOf(request: HttpRequest): {
  readonly host: string | undefined
  readonly path: string
  readonly query: string
  readonly target: string
} {
  // Nearly every target is a path.
  const [, named, rest] = (request.target.startsWith('/') ? null : /^https?:\/\/([^/?#]*)(.*)$/i.exec(request.target)) ?? []
  const target = named === undefined ? request.target : rest === '' ? '/' : rest!
  if (!target.startsWith('/')) throw new HttpFailure('INVALID', 'the target of the request must be a path or an http URL')
  const mark = target.indexOf('?')
  return {
    host: named ?? request.header('host'),
    path: mark < 0 ? target : target.slice(0, mark),
    query: mark < 0 ? '' : target.slice(mark + 1),
    target,
  }
}
