/** Routes of what happened lately, of tables, and of what an action would do: the dashboard is made of them. */
import { parseDuration } from '../../duration.ts'
import { under } from '../../kernel/name.ts'
import type { GrantView, PastGrant } from '../../lessor.ts'
import * as schema from '../../wire/http/activity-schema.ts'
import { Reading, type Static } from '../../wire/http/schema.ts'
import { type LeaseLoss, ServerActivity } from '../activity/activity.ts'
import { preview } from '../activity/preview.ts'
import { MINUTES, SECONDS } from '../activity/rate-history.ts'
import { type RowRequest, rowPage } from '../activity/rows.ts'
import { treePage } from '../activity/trees.ts'
import { StoreWatch } from '../store-watch.ts'
import { HttpFailure } from './failure.ts'
import { leaseJson } from './lease-routes.ts'
import { mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteContext, route } from './route.ts'
import { defined, readOptions } from './route-operations.ts'

const DAY = 86_400_000
const MAX_WAITS = 20
const MAX_LOSSES_SHOWN = 50
const MAX_EPISODES = 50
const DEFAULT_LIMIT = 200
const DEFAULT_TREES = 25

function activityOf({ guarded, clock, log, closing }: RouteContext): Promise<ServerActivity> {
  return ServerActivity.of(guarded, { lessor: guarded.lessor, clock, log, closing }).current()
}

/** Returns whether the caller may read a name. */
function readable({ guarded: { access }, caller }: RouteContext): (name: string) => boolean {
  return name => access.may(caller, 'read', name)
}

/** The log itself knows so many past grants of a resource. Kept runs are not read: there may be many, for each of many losses. */
const LOG_HISTORY = 8

/** The loss, and for how long the lease was held, if the history of the resource still has it. */
async function withHeld({ guarded }: RouteContext, loss: LeaseLoss): Promise<object> {
  const { value } = await guarded.lessor.read<'history'>({ kind: 'history', resource: loss.resource, limit: LOG_HISTORY })
  const past = value.find(({ lease, token }) => lease === loss.lease && token === loss.token)
  return { ...loss, ...(past !== undefined && { held: Math.max(0, past.until - past.since) }) }
}

async function lossesOf(context: RouteContext, prefix: string, limit: number): Promise<LeaseLoss[]> {
  const visible = readable(context)
  const found: LeaseLoss[] = []
  const { losses } = await activityOf(context)
  for (const loss of losses.backwards()) {
    if (found.length === limit) break
    if (under(prefix, loss.resource) && visible(loss.resource)) found.push(loss)
  }
  return found
}

async function overview(context: RouteContext<unknown, Static<typeof Reading>>) {
  const { guarded, caller, clock, figures } = context
  const { access, lessor } = guarded
  access.admit(caller)
  const activity = await activityOf(context)
  const visible = readable(context)
  const everything = access.may(caller, 'read', '')
  const now = clock.wall()
  const { revision, value: summary } = await lessor.read<'summary'>({ kind: 'summary' }, readOptions(context))
  const { leases = 0, waiting = 0, suspect = 0, frozen = 0 } = summary
  const contended = await Promise.all(
    activity.waits.mostContended(visible, MAX_WAITS).map(async found => {
      const { value } = await lessor.read<'resource'>({ kind: 'resource', resource: found.resource, waiters: 0, holders: 1 })
      return { ...found, ...(value.grants[0] !== undefined && { holder: value.grants[0].holder }) }
    }),
  )
  const causes = new Map<string, number>()
  for (const { at, resource, cause } of activity.losses)
    if (at > now - DAY && visible(resource)) causes.set(cause, (causes.get(cause) ?? 0) + 1)
  const store = StoreWatch.of(guarded)?.state
  return json(
    200,
    {
      now,
      revision,
      since: activity.since,
      ...(everything && { leases: { live: leases - waiting - suspect - frozen, waiting, suspect, frozen }, figures: figures() }),
      waits: activity.waits.oldest(visible, MAX_WAITS).map(({ from, ...wait }) => ({ ...wait, since: from })),
      contended,
      lost: {
        since: Math.max(activity.since, now - DAY),
        total: [...causes.values()].reduce((sum, count) => sum + count, 0),
        causes: [...causes].map(([cause, count]) => ({ cause, count })).sort((a, b) => b.count - a.count),
        last: await Promise.all((await lossesOf(context, '', MAX_LOSSES_SHOWN)).map(loss => withHeld(context, loss))),
      },
      store: { up: store?.up ?? true, quiet: summary.quiet, ...(everything && store?.reason && { reason: store.reason }) },
    },
    revision,
  )
}

async function state({ guarded, caller, clock, closing }: RouteContext) {
  const { access, lessor } = guarded
  access.admit(caller)
  const watch = StoreWatch.of(guarded)
  await watch?.check()
  const { quiet } = (await lessor.read<'summary'>({ kind: 'summary' })).value
  const { up = true, since = clock.wall(), reason } = watch?.state ?? {}
  return json(200, {
    now: clock.wall(),
    stopping: closing.aborted,
    quiet,
    store: {
      up,
      since: Math.round(since),
      renewals: !lessor.profile.shared,
      ...(reason !== undefined && access.may(caller, 'read', '') && { reason }),
    },
  })
}

async function episodes(context: RouteContext<unknown, Static<typeof Reading>>) {
  const { guarded, caller } = context
  const resource = mustBeName(context.name)
  const { value: now } = await guarded.read<'resource'>(caller, { kind: 'resource', resource, waiters: 0 }, readOptions(context))
  const { value: past } = await guarded.read<'history'>(caller, { kind: 'history', resource }, readOptions(context))
  const held: readonly (GrantView | PastGrant)[] = [...past, ...now.grants]
  const { waits } = await activityOf(context)
  return json(200, {
    resource,
    episodes: waits.of(resource, MAX_EPISODES).map(({ lease, holder, from, until, ended }) => ({
      waiter: { lease, holder },
      from,
      ...defined({ until, ended }),
      behind: held
        .filter(other => other.lease !== lease && other.since <= (until ?? Number.POSITIVE_INFINITY) && endOf(other) > from)
        .map(other => ({ lease: other.lease, holder: other.holder, from: other.since, ...('until' in other && { until: other.until }) })),
    })),
  })
}

function endOf(grant: GrantView | PastGrant): number {
  return 'until' in grant ? grant.until : Number.POSITIVE_INFINITY
}

function needs(action: string, field: string): HttpFailure {
  return new HttpFailure('INVALID', `${action} needs the field ${field}`)
}

export const activityRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/whoami',
    summary: 'The key of this request, and what it may do.',
    response: schema.Whoami,
    handle: ({ guarded: { access }, caller }) =>
      json(200, {
        key: caller.key,
        name: caller.name,
        open: !access.keyRequired,
        ...(caller.operator && { operator: true }),
        allow: access.scopesOf(caller),
      }),
  }),
  route({
    method: 'GET',
    path: '/v1/activity',
    summary: 'How much happened, second by second or minute by minute, for keys that may read everything.',
    query: schema.ActivityQuery,
    response: schema.Activity,
    handle: async context => {
      const { guarded, caller, clock, query } = context
      guarded.access.require(caller, 'read', '')
      const { step = '1s', last } = query
      const [unit, ms, most] = step === '1s' ? (['second', 1_000, SECONDS] as const) : (['minute', 60_000, MINUTES] as const)
      const steps = last === undefined ? most : Math.min(most, Math.max(1, Math.ceil(parseDuration(last, 'last') / ms)))
      const { rates } = await activityOf(context)
      const now = clock.wall()
      return json(200, { now, ...rates.view(unit, now, steps) })
    },
  }),
  route({
    method: 'GET',
    path: '/v1/state',
    summary: 'Whether the store accepts writes, since when, and why not. Asks the store, for two seconds at most.',
    response: schema.State,
    handle: state,
  }),
  route({
    method: 'GET',
    path: '/v1/overview',
    summary: 'The oldest waits, the most contended names, what was lost in the last day and why, and the health of the store.',
    query: Reading,
    response: schema.Overview,
    handle: overview,
  }),
  route({
    method: 'GET',
    path: '/v1/losses',
    summary: 'Leases that ended against the will of their holders, newest first.',
    query: schema.LossQuery,
    response: schema.Losses,
    handle: async context => {
      const { prefix = '', limit = DEFAULT_LIMIT } = context.query
      context.guarded.access.admit(context.caller)
      const losses = await lossesOf(context, mustBePrefix(prefix), limit)
      return json(200, { losses: await Promise.all(losses.map(loss => withHeld(context, loss))) })
    },
  }),
  route({
    method: 'GET',
    path: '/v1/events',
    summary: 'The last events that the server still knows, oldest first. Continue with /v1/watch?after=REVISION.',
    query: schema.EventQuery,
    response: schema.Events,
    handle: async context => {
      const { guarded, caller, query } = context
      const { prefix = '', limit = DEFAULT_LIMIT } = query
      guarded.mayWatch(caller, mustBePrefix(prefix))
      const { events, revision } = await activityOf(context)
      const visible = guarded.access.visibleEvents(caller, [...events])
      return json(200, { events: visible.filter(({ resource, key }) => under(prefix, resource ?? key ?? '')).slice(-limit), revision })
    },
  }),
  route({
    method: 'GET',
    path: '/v1/episodes/{name}',
    summary: 'Who waited for a resource, and behind whom, newest first.',
    query: Reading,
    response: schema.Episodes,
    handle: episodes,
  }),
  route({
    method: 'GET',
    path: '/v1/strips/{name}',
    summary: 'How the status of the instances of a service changed.',
    response: schema.Strips,
    handle: async context => {
      const service = mustBeName(context.name)
      context.guarded.access.require(context.caller, 'read', `services/${service}`)
      const { strips } = await activityOf(context)
      return json(200, { service, instances: strips.of(service) })
    },
  }),
  route({
    method: 'GET',
    path: '/v1/rows',
    summary: 'A table of resources or leases, filtered and sorted by the server.',
    query: schema.RowQuery,
    response: schema.Rows,
    handle: async context => {
      const { query, request } = context
      if (query.prefix !== undefined) mustBePrefix(query.prefix)
      const page = await rowPage(context, query as RowRequest, request.gone())
      return json(200, page, page.revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/trees',
    summary: 'Trees of leases, the newest first: what ends with what.',
    query: schema.TreeQuery,
    response: schema.Trees,
    handle: async context => {
      const { guarded, caller, query, request } = context
      const { offset = 0, limit = DEFAULT_TREES } = query
      const { trees, total, revision } = await treePage(guarded, caller, { offset, limit }, request.gone())
      const shown = trees.map(({ leases, more }) => ({ leases: leases.map(lease => leaseJson(context, lease)), ...(more && { more }) }))
      return json(200, { total, offset, trees: shown, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/preview',
    summary: 'What an action would do: the leases it ends, and who gets what they hold. Nothing is changed.',
    body: schema.PreviewRequest,
    response: schema.Preview,
    handle: async context => {
      const { action, resource, lease } = context.body
      if (resource !== undefined) mustBeName(resource)
      if ((action === 'break' || action === 'recall') && resource === undefined) throw needs(action, 'resource')
      if ((action === 'release' || action === 'transfer') && lease === undefined) throw needs(action, 'lease')
      return json(200, await preview(context.guarded, context.caller, context.body))
    },
  }),
]
