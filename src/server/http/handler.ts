/**
 * One request, from its head to its answer: who may ask, which route it is, whether what it carries is what the route expects. Everything that can
 * go wrong has a coded answer; nothing is thrown out of here.
 */
import { MAX_PROPOSALS } from '../../wire/http/schema.ts'
import { anonymousCaller, type Caller } from '../access-control.ts'
import { type ListenerContext, LOG_WENT_BACK } from '../listener.ts'
import { parseBody } from './body.ts'
import { Failure, failure, isOurMistake } from './failure.ts'
import { OriginCheck } from './origin-check.ts'
import { check, decoded, parseId, parseQuery } from './parse.ts'
import type { HttpAnswer, HttpRequest, Route, RouteCall } from './route.ts'
import { Router, TABLE } from './router.ts'

export interface HandlerOptions {
  /** Names that this server is called by, besides loopback ones. */
  readonly hosts?: readonly string[]
  /** More routes than those of the table. */
  readonly routes?: readonly Route[]
  /** Counts what was asked, by route and outcome. */
  readonly count?: (route: string, code: string) => void
}

const NOTHING = Object.freeze({})
const WITNESS = 'leasehold-witness'
/** From a client that has seen nothing yet and wants to be told. */
const NO_WITNESS = 'none'

export class Handler {
  readonly #context: ListenerContext
  readonly #guard: OriginCheck
  readonly #router: Router
  readonly #count: (route: string, code: string) => void
  /** Who has no key is limited by connection. */
  readonly #anyone = new WeakMap<object, Caller>()

  constructor(context: ListenerContext, { hosts = [], routes = [], count = () => {} }: HandlerOptions = {}) {
    this.#context = context
    this.#guard = new OriginCheck(hosts)
    this.#router = new Router([...TABLE, ...routes])
    this.#count = count
  }

  async answer(ask: HttpRequest): Promise<HttpAnswer> {
    let asked = 'none'
    try {
      const { host, path, query, target } = targetOf(ask)
      this.#guard.check(ask, host, target)
      const match = this.#router.find(ask.method, path)
      const route = match !== undefined && 'route' in match ? match.route : undefined
      if (route !== undefined) asked = `${route.method} ${route.path}`
      // Before anything else is told: what there is, is nobody's business who may not ask.
      const caller = route?.open === true ? anonymousCaller() : this.#identify(ask)
      if (match === undefined) throw new Failure('NOT_FOUND', 'there is nothing of this name here: see /openapi.json')
      if (!('route' in match))
        throw new Failure('INVALID', `${ask.method.slice(0, 16)} cannot be asked of this: there is ${match.join(', ')}`, {
          status: 405,
          headers: { Allow: match.join(', ') },
        })
      const seen = route?.open === true ? undefined : ask.header(WITNESS)
      if (seen !== undefined) await this.#mustContinue(seen)
      const answer = await this.#call(match.route, match.raw, query, caller, ask)
      this.#count(asked, answer.code ?? 'OK')
      return seen === undefined ? answer : { ...answer, headers: { ...answer.headers, ...this.#witness() } }
    } catch (error) {
      const answer = failure(error)
      if (isOurMistake(error))
        this.#context.log.error({ route: asked, error: String((error as Error)?.stack ?? error) }, 'a request met a mistake of ours')
      this.#count(asked, answer.code!)
      return answer
    }
  }

  /** Before anything is done: whoever saw a log that is gone must not go on as if nothing had happened. */
  async #mustContinue(seen: string): Promise<void> {
    const { desk, log } = this.#context
    if (seen === NO_WITNESS || (await desk.continues(seen))) return
    log.warn({}, LOG_WENT_BACK)
    throw new Failure('DIVERGED', 'the log of this server went back: it does not contain what you saw. Nothing was done', {
      facts: { rewound: true },
      headers: this.#witness(),
    })
  }

  /** What the client shows next time. It contains all that this answer tells. */
  #witness(): Readonly<Record<string, string>> {
    const { witness } = this.#context.desk
    return witness === undefined ? {} : { 'Leasehold-Witness': witness }
  }

  async #call(route: Route, raw: string, query: string, caller: Caller, ask: HttpRequest): Promise<HttpAnswer> {
    const { desk, clock, limits, log, figures, closing, connections } = this.#context
    const isId = route.path.includes('{id}')
    // Field by field: to spread the context costs as much as all the rest of this.
    const call: RouteCall = {
      desk,
      clock,
      limits,
      log,
      figures,
      closing,
      connections,
      caller,
      ask,
      query: query === '' && route.query === undefined ? NOTHING : parseQuery(query, route.query),
      id: isId ? parseId(decoded(raw, 'the number')) : 0,
      name: isId ? '' : decoded(raw, 'the name'),
      body: await this.#body(route, ask),
    }
    return route.handle(call as RouteCall<never, never>)
  }

  async #body(route: Route, ask: HttpRequest): Promise<unknown> {
    const type = ask.header('content-type')
    // Also where there is no body: what a form of another site can send never comes by.
    if (ask.method !== 'GET' && ask.method !== 'HEAD' && (ask.hasBody || type !== undefined) && !isJson(type))
      throw new Failure('INVALID', 'what changes something is sent as Content-Type: application/json', { status: 415 })
    const encoding = ask.header('content-encoding')
    if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
      throw new Failure('INVALID', `a body is taken as it is, not as ${encoding.slice(0, 32)}`, {
        status: 415,
        headers: { 'Accept-Encoding': 'identity' },
      })
    if (route.body === undefined) {
      if (!ask.hasBody) return undefined
      const text = await ask.body(this.#context.limits.body)
      if (text !== '') throw new Failure('INVALID', 'there is nothing to say in a body here')
      return undefined
    }
    if (!ask.hasBody && route.bodyOptional !== true && type === undefined)
      throw new Failure('INVALID', 'a body is missing, and its Content-Type: application/json', { status: 415 })
    const text = ask.hasBody ? await ask.body(route.most?.(this.#context) ?? this.#context.limits.body) : ''
    const { depth, renewals } = this.#context.limits
    // One more than is allowed: the route that allows so many says so in its own words.
    const body =
      text === '' && route.bodyOptional === true ? {} : await parseBody(text, { depth, items: Math.max(renewals, MAX_PROPOSALS) + 1 })
    check(route.body, body, 'the body')
    return body
  }

  #identify(ask: HttpRequest): Caller {
    const { gate } = this.#context.desk
    const said = ask.header('authorization')
    if (said !== undefined) {
      // One answer for whatever is no key of ours: not even its form tells anything.
      const [, secret] = /^Bearer +([\x21-\x7e]{1,512})$/i.exec(said) ?? []
      const caller = gate.identify(secret ?? '')
      ask.identified?.(caller)
      return caller
    }
    const known = this.#anyone.get(ask.connection) ?? anonymousCaller()
    this.#anyone.set(ask.connection, known)
    gate.admit(known)
    return known
  }
}

function isJson(type: string | undefined): boolean {
  return type !== undefined && /^application\/json[ \t]*(;|$)/i.test(type)
}

/** Where it goes: a path, or an address as proxies are asked for it, which then goes before the header Host. */
function targetOf(ask: HttpRequest): {
  readonly host: string | undefined
  readonly path: string
  readonly query: string
  readonly target: string
} {
  const [, named, rest] = /^https?:\/\/([^/?#]*)(.*)$/i.exec(ask.target) ?? []
  const target = named === undefined ? ask.target : rest === '' ? '/' : rest!
  if (!target.startsWith('/')) throw new Failure('INVALID', 'the target of a request is a path')
  const mark = target.indexOf('?')
  return {
    host: named ?? ask.header('host'),
    path: mark < 0 ? target : target.slice(0, mark),
    query: mark < 0 ? '' : target.slice(mark + 1),
    target,
  }
}
