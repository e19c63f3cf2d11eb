/** Routes of resources: reading them, and what operators do to them. */
import type { Clock } from '../../clock.ts'
import type { GrantView, ResourceView } from '../../lessor.ts'
import * as schema from '../../wire/http/schema.ts'
import { withExpiry } from '../expiry.ts'
import { expectOutcome, HttpFailure } from './failure.ts'
import { whenChanged } from './long-poll.ts'
import { mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteContext, route } from './route.ts'
import { DEFAULT_LIST_LIMIT, defined, list, listOptions, propose, proposeBody, readOptions } from './route-operations.ts'

function toJson(clock: Clock, resource: ResourceView): object {
  const frozen = resource.grants.some(({ status }) => status === 'frozen')
  const { grants, coveredBy, heldBelow } = resource
  const dated = (some: readonly GrantView[] | undefined) => some?.map(grant => withExpiry(clock, grant))
  return {
    ...resource,
    grants: dated(grants),
    ...defined({ coveredBy: dated(coveredBy), heldBelow: dated(heldBelow) }),
    ...(frozen && { frozen }),
  }
}

/** The name that holders and waiters see as the author, unless the request names another. */
function author({ caller }: RouteContext): { readonly by?: string } {
  return caller.key === 0 ? {} : { by: caller.name }
}

/** Past holders of a resource in one answer, unless the request says otherwise. */
const DEFAULT_HISTORY = 100

export const resourceRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/resources',
    summary: 'Resources under a prefix that are held or waited for.',
    query: schema.WaitedListing,
    response: schema.Resources,
    handle: async context => {
      const { prefix = '', limit = DEFAULT_LIST_LIMIT } = context.query
      const query = { kind: 'resources', prefix: mustBePrefix(prefix), limit } as const
      const changed = await whenChanged(context, prefix)
      const view = await context.guarded.read<'resources'>(context.caller, query, { ...listOptions(context), ...changed })
      return list(context, 'resources', view, resource => toJson(context.clock, resource))
    },
  }),
  route({
    method: 'GET',
    path: '/v1/resources/{name}',
    summary: 'The holders of a resource, with tokens and remaining times, and its waiters.',
    query: schema.WaitedReading,
    response: schema.Resource,
    handle: async context => {
      const query = { kind: 'resource', resource: mustBeName(context.name) } as const
      const changed = await whenChanged(context, context.name)
      const { revision, value } = await context.guarded.read<'resource'>(context.caller, query, { ...readOptions(context), ...changed })
      return json(200, { ...toJson(context.clock, value), revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/history/{name}',
    summary: 'The last holders of a resource, and how each lease ended.',
    query: schema.HistoryReading,
    response: schema.History,
    handle: async context => {
      const { limit = DEFAULT_HISTORY } = context.query
      const query = { kind: 'history', resource: mustBeName(context.name), limit } as const
      const { revision, value } = await context.guarded.read<'history'>(context.caller, query, readOptions(context))
      return json(200, { resource: context.name, history: value, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/break',
    summary: 'End the leases that hold a resource. A second break may only shorten the delay.',
    body: schema.Break,
    response: schema.Done,
    handle: async context => {
      const { revision } = expectOutcome(await proposeBody(context, 'break', author(context)), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/recall',
    summary: 'Ask the holders of a resource to release it.',
    body: schema.Recall,
    response: schema.Done,
    handle: async context => {
      const { revision } = expectOutcome(await proposeBody(context, 'recall', author(context)), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/revoke',
    summary: 'End one lease, all leases of a holder, or all leases with names under a prefix.',
    body: schema.Revoke,
    response: schema.Revoked,
    handle: async context => {
      const { lease, holder, prefix, op, ...rest } = context.body
      const target = defined({ lease, holder, prefix })
      if (Object.keys(target).length !== 1) throw new HttpFailure('INVALID', 'the body must name exactly one of lease, holder and prefix')
      const command = { kind: 'revoke', target: target as { lease: number }, ...author(context), ...rest } as const
      const { revision, id } = expectOutcome(await propose(context, command, op), 'done')
      return json(200, { revision, ended: id ?? (lease === undefined ? 0 : 1) }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/transfer',
    summary: 'Transfer the resources of a lease to another holder, under a new lease with new tokens.',
    body: schema.Transfer,
    response: schema.Transferred,
    handle: async context => {
      const { revision, id } = expectOutcome(await proposeBody(context, 'transfer'), 'done')
      return json(200, { lease: id, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/fence',
    summary: 'Accept a token unless a newer one was shown for this resource. An accepted token is the newest from then on.',
    body: schema.Fence,
    response: schema.Fenced,
    handle: async context => {
      const { highest, revision } = expectOutcome(await proposeBody(context, 'fence'), 'fenced')
      return json(200, { accepted: true, highest, revision }, revision)
    },
  }),
]
