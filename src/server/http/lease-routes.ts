/** Acquiring, renewing, releasing. */
import { inUtc } from '../../clock.ts'
import { parseDuration } from '../../duration.ts'
import type { Facts } from '../../errors.ts'
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Acquire, Command, Operation } from '../../kernel/command.ts'
import { GONE, type Granted, type Outcome, type Refused } from '../../kernel/outcome.ts'
import { MAX_RENEWALS } from '../../kernel/rule/renew.ts'
import type { LeaseView, View } from '../../lessor.ts'
import * as schema from '../../wire/http/schema.ts'
import { isShort, jsonPieces } from '../json-pieces.ts'
import { accepted, Failure, refusal } from './failure.ts'
import { mustBePrefix } from './parse.ts'
import { type HttpAnswer, json, type Route, type RouteCall, route } from './route.ts'

const TTL = 30_000
/** Of one lease's number among many, with what stands between two of them. */
const ID_BYTES = 32
/** What an item of a list takes in memory, about. */
const ITEM_BYTES = 512
export const MAX_LISTED = 10_000

function operation(command: Command, op: string | undefined): { readonly op?: Operation } {
  return op === undefined ? {} : { op: operationNamed(op, command) }
}

/** Proposes in the caller's name. */
export function propose({ desk, caller }: RouteCall, command: Command, op: string | undefined): Promise<Outcome> {
  return desk.propose(caller, command, operation(command, op))
}

/** How a read is to be answered: at the log's end, or at what the asker has seen. */
export function reading({ ask, query }: RouteCall<unknown, { readonly consistent?: boolean }>): {
  readonly consistent?: boolean
  readonly atLeast?: number
} {
  const seen = ask.header('leasehold-revision')
  if (seen !== undefined && !(/^\d{1,16}$/.test(seen) && Number.isSafeInteger(Number(seen))))
    throw new Failure('INVALID', 'Leasehold-Revision must be the number of a revision')
  return { ...(query.consistent !== undefined && { consistent: query.consistent }), ...(seen !== undefined && { atLeast: Number(seen) }) }
}

/** As `reading`; nobody looks through a long list for one who has gone. */
export function listing(
  call: RouteCall<unknown, { readonly consistent?: boolean }>,
): ReturnType<typeof reading> & { readonly signal: AbortSignal } {
  return { ...reading(call), signal: call.ask.gone() }
}

/** A list under its name, at its revision. */
export function list(name: string, items: readonly object[], { revision, more }: Pick<View, 'revision' | 'more'>): HttpAnswer {
  const rest = { revision, ...(more && { more }) }
  if (isShort(items)) return json(200, { [name]: items, ...rest }, revision)
  return {
    status: 200,
    headers: { 'Leasehold-Revision': String(revision) },
    body: jsonPieces(name, items, rest),
    held: items.length * ITEM_BYTES,
  }
}

export function optionalMs(given: string | number | undefined, what: string): number | undefined {
  return given === undefined ? undefined : parseDuration(given, what)
}

/** Only what was given: the kernel knows fields that are left out, and none that are undefined. */
export function given<T extends object>(fields: T): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const found: Record<string, unknown> = {}
  for (const name in fields) if (fields[name] !== undefined) found[name] = fields[name]
  return found as never
}

function commandOf(body: schema.Static<typeof schema.Acquire>): Acquire {
  const { resources, holder, ttl = TTL, units, mode, labels, op: _, wait: __, grace, maxLife, ...rest } = body
  const shared = mode === 'shared'
  return {
    kind: 'acquire',
    holder,
    ttl: parseDuration(ttl, 'ttl'),
    wants: resources.map(resource => ({ resource, ...(units !== undefined && { units }), ...(shared && { shared }) })),
    ...rest, // of JSON, which has nothing undefined in it
    ...(labels !== undefined && { labels: Object.entries(labels) }),
    ...(grace !== undefined && { grace: parseDuration(grace, 'grace') }),
    ...(maxLife !== undefined && { maxLife: parseDuration(maxLife, 'maxLife') }),
  } as Acquire
}

async function acquire(call: RouteCall<schema.Static<typeof schema.Acquire>>): Promise<HttpAnswer> {
  const { desk, caller, body, clock, ask } = call
  const command = commandOf(body)
  const wait = optionalMs(body.wait, 'wait') ?? 0
  const signal = wait > 0 ? ask.gone() : undefined
  // How long it waits is not part of what it asks for: whoever asks again has less time left.
  const outcome = await desk.acquire(caller, command, { wait, ...operation(command, body.op), ...(signal && { signal }) })
  if (outcome.kind === 'refused') return refusal(outcome, await remaining(call, outcome))
  const { lease, incarnation, ttl, resources, tokens, revision } = accepted(outcome, 'granted')
  const { waited } = outcome as Granted & { readonly waited: boolean }
  return json(
    201,
    {
      lease,
      holder: body.holder,
      incarnation,
      ttl,
      expiresAt: inUtc(clock.wall() + ttl),
      ...(tokens.length > 0 && { token: tokens[0] }),
      // Not by assignment: a resource may be called __proto__.
      tokens: Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]])),
      waited,
      revision,
    },
    revision,
  )
}

/** The kernel knows no time: what remains is added here. Of one lease, since the queue behind it may be long. */
async function remaining({ desk }: RouteCall, { code, facts }: Refused): Promise<Facts> {
  if (code !== 'HELD' || typeof facts.lease !== 'number' || facts.lease === 0) return {}
  const { value } = await desk.lessor.read({ kind: 'lease', lease: facts.lease })
  return value === undefined ? {} : { remaining: Math.max(0, Math.round(value.remaining)) }
}

export function mayRenew({ limits: { renewals } }: RouteCall, count: number): void {
  if (count > renewals) throw new Failure('LIMIT', `at most ${renewals} renewals in one request`, { facts: { limit: renewals } })
}

/** More than one command carries are several: the limit is the server's own. */
export async function renewAll(
  call: RouteCall,
  leases: readonly number[],
  op?: string,
): Promise<{ readonly ttls: readonly number[]; readonly revision: number }> {
  const parts: Promise<Outcome>[] = []
  for (let at = 0; at === 0 || at < leases.length; at += MAX_RENEWALS) {
    const command = { kind: 'renew', leases: leases.slice(at, at + MAX_RENEWALS) } as const
    parts.push(propose(call, command, op === undefined || at === 0 ? op : `${op} ${at}`))
  }
  const outcomes = (await Promise.all(parts)).map(outcome => accepted(outcome, 'renewed'))
  return { ttls: outcomes.flatMap(({ ttls }) => ttls), revision: Math.max(...outcomes.map(({ revision }) => revision)) }
}

async function renewMany(call: RouteCall<{ readonly leases: readonly number[]; readonly op?: string }>): Promise<HttpAnswer> {
  const { leases, op } = call.body
  mayRenew(call, leases.length)
  const { ttls, revision } = await renewAll(call, leases, op)
  const renewed: { lease: number; ttl: number }[] = []
  const gone: number[] = []
  for (const [i, lease] of leases.entries()) {
    if (ttls[i] === GONE) gone.push(lease)
    else renewed.push({ lease, ttl: ttls[i]! })
  }
  return json(200, { renewed, gone, revision }, revision)
}

async function renewOne(call: RouteCall<{ readonly op?: string }>): Promise<HttpAnswer> {
  const { id } = call
  const { ttls, revision } = accepted(await propose(call, { kind: 'renew', leases: [id] }, call.body.op), 'renewed')
  if (ttls[0] === GONE) throw gone(id, revision)
  return json(200, { renewed: [{ lease: id, ttl: ttls[0] }], gone: [], revision }, revision)
}

function gone(lease: number, revision: number): Failure {
  return new Failure('GONE', `lease ${lease} has ended, or never was: acquire a new one`, {
    facts: { lease },
    headers: { 'Leasehold-Revision': String(revision) },
  })
}

async function release(call: RouteCall<unknown, { readonly resource?: string; readonly op?: string }>): Promise<HttpAnswer> {
  const { resource, op } = call.query
  const command = { kind: 'release', lease: call.id, ...(resource !== undefined && { resource }) } as const
  const { revision } = accepted(await propose(call, command, op), 'done')
  return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
}

function shown({ key: _, labels, ...lease }: LeaseView): object {
  return { ...lease, labels: Object.fromEntries(labels) }
}

export const leaseRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/leases',
    summary: 'Acquire resources, all or none; with wait, stand in the queue for them while this connection lives.',
    body: schema.Acquire,
    answer: schema.Granted,
    status: 201,
    handle: acquire,
  }),
  route({
    method: 'POST',
    path: '/v1/leases/renew',
    summary: 'Renew many at once; says which are gone.',
    body: schema.Renew,
    most: ({ limits }) => limits.body + limits.renewals * ID_BYTES,
    answer: schema.Renewed,
    handle: renewMany,
  }),
  route({
    method: 'POST',
    path: '/v1/leases/{id}/renew',
    summary: 'Renew one.',
    body: schema.RenewOne,
    bodyOptional: true,
    answer: schema.Renewed,
    handle: renewOne,
  }),
  route({
    method: 'DELETE',
    path: '/v1/leases/{id}',
    summary: 'Release a lease: its holder says that it has stopped.',
    query: schema.Releasing,
    status: 204,
    handle: release,
  }),
  route({
    method: 'GET',
    path: '/v1/leases/{id}',
    summary: 'One lease with all that hangs on it.',
    query: schema.Reading,
    answer: schema.Lease,
    handle: async call => {
      const { revision, value } = await call.desk.read<'lease'>(call.caller, { kind: 'lease', lease: call.id }, reading(call))
      if (value === undefined) throw gone(call.id, revision)
      return json(200, { ...shown(value), revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/leases',
    summary: 'Leases of a holder, or that concern names under a prefix.',
    query: schema.LeaseListing,
    answer: schema.Leases,
    handle: async call => {
      const { holder, prefix, limit = MAX_LISTED } = call.query
      if (prefix !== undefined) mustBePrefix(prefix)
      const query = { kind: 'leases', limit, ...given({ holder, prefix }) } as const
      const view = await call.desk.read<'leases'>(call.caller, query, listing(call))
      return list('leases', view.value.map(shown), view)
    },
  }),
]
