/** Routes of leases: acquire, renew, release, read. */
import { inUtc } from '../../clock.ts'
import { parseDuration } from '../../duration.ts'
import type { Facts } from '../../errors.ts'
import type { Acquire, Release } from '../../kernel/command.ts'
import { GONE, type Granted, type Outcome, type Refused } from '../../kernel/outcome.ts'
import { expectedDuration } from '../../learn/expectation.ts'
import type { TtlRange } from '../../lessor/ttl-range.ts'
import type { LeaseView } from '../../lessor.ts'
import { ACQUIRE_FIELDS } from '../../wire/acquire-fields.ts'
import * as schema from '../../wire/http/schema.ts'
import { checkedTtlRange, ownLease, withFittingTtl } from '../adjusted-acquire.ts'
import { withExpiry } from '../expiry.ts'
import { expectOutcome, HttpFailure, refusalResponse } from './failure.ts'
import { mustBePrefix } from './parse.ts'
import { type HttpResponse, json, type Route, type RouteContext, route } from './route.ts'
import {
  DEFAULT_LIST_LIMIT,
  defined,
  fieldsFrom,
  list,
  listOptions,
  operationOf,
  optionalMs,
  propose,
  readOptions,
} from './route-operations.ts'

const DEFAULT_TTL = 30_000
const AUTO = 'auto'
/** Bytes of one lease id in a list, with separators. */
const ID_BYTES = 32

type Body = schema.Static<typeof schema.Acquire>

function commandOf(body: Body): Acquire {
  const { resources = [], holder, ttl = DEFAULT_TTL, units, mode, op: _, wait: __, reuse: ___, ifAvailable: ____, ...fields } = body
  const want = { ...(units !== undefined && { units }), ...(mode === 'shared' && { shared: true }) }
  return {
    kind: 'acquire',
    holder,
    ttl: typeof ttl === 'object' ? ttlRangeOf(ttl).preferred : parseDuration(ttl, 'ttl'),
    wants: [...new Set(resources)].map(resource => ({ resource, ...want })),
    // A read adds the learned term later.
    ...fieldsFrom(ACQUIRE_FIELDS, expectsAuto(body) ? { ...fields, pool: { ...fields.pool, expect: undefined } } : fields),
  } as Acquire
}

/** The limits of `ttl: { preferred, min, max }`, in ms. */
function ttlRangeOf({ preferred, min, max }: Extract<Body['ttl'], object>): TtlRange {
  return checkedTtlRange(parseDuration(preferred, 'ttl.preferred'), optionalMs(min, 'ttl.min'), optionalMs(max, 'ttl.max'))
}

/** Renews the lease that the holder has, and answers with it. */
async function reused({ guarded, caller, clock }: RouteContext<Body>, command: Acquire): Promise<HttpResponse | undefined> {
  const own = await ownLease(guarded, caller, command)
  if (own === undefined) return undefined
  const { lease, incarnation, ttl, resources, tokens, revision } = own
  return json(
    201,
    {
      ...{ lease, holder: command.holder, incarnation, ttl, expiresAt: inUtc(clock.wall() + ttl), token: tokens[0] },
      tokens: Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]])),
      ...{ waited: false, reused: true, revision },
    },
    revision,
  )
}

function expectsAuto({ pool }: Body): boolean {
  return (pool?.expect as number | string | undefined) === AUTO
}

/** `expect: 'auto'`: adds how long work of its class (the label `learn`, otherwise the pool and the account) was held before. */
async function withExpectation({ guarded, caller, body }: RouteContext<Body>, command: Acquire): Promise<Acquire> {
  const { pool } = command
  if (pool === undefined || !expectsAuto(body)) return command
  const name = body.labels?.learn ?? (pool.account === undefined ? pool.pool : `${pool.pool}/${pool.account}`)
  const { value } = await guarded.read<'durations'>(caller, { kind: 'durations', class: name })
  const expect = expectedDuration(value)
  return expect === undefined ? command : { ...command, pool: { ...pool, expect } }
}

async function acquire(context: RouteContext<Body>): Promise<HttpResponse> {
  const { guarded, caller, body, clock, request } = context
  const asked = commandOf(body)
  const command = typeof body.ttl === 'object' ? await withFittingTtl(guarded, asked, ttlRangeOf(body.ttl)) : asked
  const own = body.reuse === true ? await reused(context, command) : undefined
  if (own !== undefined) return own
  const wait = optionalMs(body.wait, 'wait') ?? 0
  if (body.ifAvailable === true && wait > 0)
    throw new HttpFailure('INVALID', 'a request with ifAvailable does not wait: leave out wait or ifAvailable', {
      facts: { field: 'wait' },
    })
  const signal = wait > 0 ? request.gone() : undefined
  // `wait` is not part of the operation: a repeated request has less time left.
  const outcome = await guarded.acquire(caller, await withExpectation(context, command), {
    wait,
    ...operationOf(command, body.op),
    ...(signal && { signal }),
  })
  if (outcome.kind === 'refused') return refusalResponse(outcome, await remaining(context, outcome))
  const { lease, incarnation, ttl, resources, tokens, revision } = expectOutcome(outcome, 'granted')
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
      // Not by assignment: a resource may be named __proto__.
      tokens: Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]])),
      waited,
      revision,
    },
    revision,
  )
}

/** The remaining time of the holder's lease, for `HELD`. The kernel knows no time, so it is added here. Reads the lease, not the resource, whose queue may be long. */
async function remaining({ guarded }: RouteContext, { code, facts }: Refused): Promise<Facts> {
  if (code !== 'HELD' || typeof facts.lease !== 'number' || facts.lease === 0) return {}
  const { value } = await guarded.lessor.read({ kind: 'lease', lease: facts.lease })
  return value === undefined ? {} : { remaining: Math.max(0, Math.round(value.remaining)) }
}

export function mayRenew({ limits: { renewals } }: RouteContext, count: number): void {
  if (count > renewals)
    throw new HttpFailure('LIMIT', `this request renews ${count} leases, the limit is ${renewals}: send several requests`, {
      facts: { limit: renewals },
    })
}

/** Leases that one command renews. Between two commands the other clients have their turn. */
const RENEWED_AT_ONCE = 1_000

/** Renews many leases, in several commands. */
export async function renewAll(
  context: RouteContext,
  leases: readonly number[],
  op?: string,
): Promise<{ readonly ttls: readonly number[]; readonly revision: number }> {
  const parts: Promise<Outcome>[] = []
  for (let at = 0; at === 0 || at < leases.length; at += RENEWED_AT_ONCE) {
    if (at > 0) await context.guarded.nextTurn(context.caller)
    const command = { kind: 'renew', leases: leases.slice(at, at + RENEWED_AT_ONCE) } as const
    const part = propose(context, command, op === undefined || at === 0 ? op : `${op} ${at}`)
    part.catch(() => {}) // may fail before all parts are awaited
    parts.push(part)
  }
  const outcomes = (await Promise.all(parts)).map(outcome => expectOutcome(outcome, 'renewed'))
  return { ttls: outcomes.flatMap(({ ttls }) => ttls), revision: Math.max(...outcomes.map(({ revision }) => revision)) }
}

async function renewMany(context: RouteContext<{ readonly leases: readonly number[]; readonly op?: string }>): Promise<HttpResponse> {
  const { leases, op } = context.body
  mayRenew(context, leases.length)
  const { ttls, revision } = await renewAll(context, leases, op)
  const renewed: { lease: number; ttl: number }[] = []
  const gone: number[] = []
  for (const [i, lease] of leases.entries()) {
    if (ttls[i] === GONE) gone.push(lease)
    else renewed.push({ lease, ttl: ttls[i]! })
  }
  return json(200, { renewed, gone, revision }, revision)
}

async function renewOne(context: RouteContext<{ readonly op?: string }>): Promise<HttpResponse> {
  const { id } = context
  const { ttls, revision } = expectOutcome(await propose(context, { kind: 'renew', leases: [id] }, context.body.op), 'renewed')
  if (ttls[0] === GONE) throw leaseGone(id, revision)
  const ttl = ttls[0]!
  return json(200, { ttl, expiresAt: inUtc(context.clock.wall() + ttl), renewed: [{ lease: id, ttl }], gone: [], revision }, revision)
}

function leaseGone(lease: number, revision: number): HttpFailure {
  return new HttpFailure('GONE', `lease ${lease} has ended or never existed: acquire a new one`, {
    facts: { lease },
    headers: { 'Leasehold-Revision': String(revision) },
  })
}

async function release(
  context: RouteContext<unknown, Pick<Release, 'resource' | 'lost'> & { readonly op?: string }>,
): Promise<HttpResponse> {
  const { resource, lost, op } = context.query
  const command: Release = {
    kind: 'release',
    lease: context.id,
    ...(resource !== undefined && { resource }),
    ...(lost !== undefined && { lost }),
  }
  const { revision } = expectOutcome(await propose(context, command, op), 'done')
  return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
}

export function leaseJson({ clock, caller }: Pick<RouteContext, 'clock' | 'caller'>, { key, labels, grants, ...lease }: LeaseView): object {
  return {
    ...withExpiry(clock, lease),
    grants: grants.map(grant => withExpiry(clock, grant)),
    labels: Object.fromEntries(labels),
    ...(key !== 0 && key === caller.key && { own: true }),
  }
}

export const leaseRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/leases',
    summary: 'Acquire resources, or members of a pool, all or none. With wait, stay in their queue while this connection is open.',
    body: schema.Acquire,
    response: schema.Granted,
    status: 201,
    handle: acquire,
  }),
  route({
    method: 'POST',
    path: '/v1/leases/renew',
    summary: 'Renew many leases. The response lists those that are gone.',
    body: schema.Renew,
    maxBodyBytes: ({ limits }) => limits.body + limits.renewals * ID_BYTES,
    response: schema.Renewed,
    urgent: true,
    handle: renewMany,
  }),
  route({
    method: 'POST',
    path: '/v1/leases/{id}/renew',
    summary: 'Renew one lease.',
    body: schema.RenewOne,
    bodyOptional: true,
    response: schema.RenewedOne,
    urgent: true,
    handle: renewOne,
  }),
  route({
    method: 'DELETE',
    path: '/v1/leases/{id}',
    summary: 'Release a lease. Its holder has stopped its work.',
    query: schema.Releasing,
    status: 204,
    handle: release,
  }),
  route({
    method: 'GET',
    path: '/v1/leases/{id}',
    summary: 'One lease, with its grants, entries and children.',
    query: schema.Reading,
    response: schema.Lease,
    handle: async context => {
      const { revision, value } = await context.guarded.read<'lease'>(
        context.caller,
        { kind: 'lease', lease: context.id },
        readOptions(context),
      )
      if (value === undefined) throw leaseGone(context.id, revision)
      return json(200, { ...leaseJson(context, value), revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/leases',
    summary: 'The leases of a holder, or with names under a prefix.',
    query: schema.LeaseListing,
    response: schema.Leases,
    handle: async context => {
      const { holder, prefix, limit = DEFAULT_LIST_LIMIT } = context.query
      if (prefix !== undefined) mustBePrefix(prefix)
      const query = { kind: 'leases', limit, ...defined({ holder, prefix }) } as const
      const view = await context.guarded.read<'leases'>(context.caller, query, listOptions(context))
      return list(context, 'leases', view, lease => leaseJson(context, lease))
    },
  }),
]
