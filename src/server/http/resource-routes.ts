/** Looking at resources, and what operators do to them. */
import type { ResourceView } from '../../lessor.ts'
import * as schema from '../../wire/http/schema.ts'
import { accepted, Failure } from './failure.ts'
import { given, list, listing, MAX_LISTED, optionalMs, propose, reading } from './lease-routes.ts'
import { mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteCall, route } from './route.ts'

function shown(resource: ResourceView): object {
  const frozen = resource.grants.some(({ status }) => status === 'frozen')
  return frozen ? { ...resource, frozen } : resource
}

/** Who is named to those who are told: what was said, or the key's own name. */
function by({ caller }: RouteCall, said: string | undefined): { readonly by?: string } {
  return said !== undefined ? { by: said } : caller.key === 0 ? {} : { by: caller.name }
}

export const resourceRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/resources',
    summary: 'Resources that are held or wanted, under a prefix.',
    query: schema.Listing,
    answer: schema.Resources,
    handle: async call => {
      const { prefix = '', limit = MAX_LISTED } = call.query
      const query = { kind: 'resources', prefix: mustBePrefix(prefix), limit } as const
      const view = await call.desk.read<'resources'>(call.caller, query, listing(call))
      return list('resources', view.value.map(shown), view)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/resources/{name}',
    summary: 'Who has it, with which token and for how long, and who waits.',
    query: schema.Reading,
    answer: schema.Resource,
    handle: async call => {
      const query = { kind: 'resource', resource: mustBeName(call.name) } as const
      const { revision, value } = await call.desk.read<'resource'>(call.caller, query, reading(call))
      return json(200, { ...shown(value), revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/history/{name}',
    summary: 'The last holders, and how each ended.',
    query: schema.Reading,
    answer: schema.History,
    handle: async call => {
      const query = { kind: 'history', resource: mustBeName(call.name) } as const
      const { revision, value } = await call.desk.read<'history'>(call.caller, query, reading(call))
      return json(200, { resource: call.name, history: value, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/break',
    summary: 'End whoever holds a resource. A second break may only shorten.',
    body: schema.Break,
    answer: schema.Done,
    handle: async call => {
      const { resource, after, by: said, op } = call.body
      const command = { kind: 'break', resource, ...given({ after: optionalMs(after, 'after') }), ...by(call, said) } as const
      const { revision } = accepted(await propose(call, command, op), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/recall',
    summary: 'Tell the holders of a resource that someone would like it.',
    body: schema.Recall,
    answer: schema.Done,
    handle: async call => {
      const { resource, by: said, op } = call.body
      const { revision } = accepted(await propose(call, { kind: 'recall', resource, ...by(call, said) }, op), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/revoke',
    summary: 'End a lease, all leases of a holder, or all that concern names under a prefix.',
    body: schema.Revoke,
    answer: schema.Done,
    handle: async call => {
      const { lease, holder, prefix, force, by: said, op } = call.body
      const target = given({ lease, holder, prefix })
      if (Object.keys(target).length !== 1) throw new Failure('INVALID', 'name one of lease, holder and prefix')
      const command = { kind: 'revoke', target: target as { lease: number }, ...given({ force }), ...by(call, said) } as const
      const { revision } = accepted(await propose(call, command, op), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/transfer',
    summary: 'Give what a lease holds to another holder, under a new lease and new tokens.',
    body: schema.Transfer,
    answer: schema.Transferred,
    handle: async call => {
      const { op, lease, to, incarnation, stopped } = call.body
      const command = { kind: 'transfer', lease, to, ...given({ incarnation, stopped }) } as const
      const { revision, id } = accepted(await propose(call, command, op), 'done')
      return json(200, { lease: id, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/fence',
    summary: 'Has a newer token been shown for this resource? If not, this is the newest from now on.',
    body: schema.Fence,
    answer: schema.Fenced,
    handle: async call => {
      const { resource, token, op } = call.body
      const { highest, revision } = accepted(await propose(call, { kind: 'fence', resource, token }, op), 'fenced')
      return json(200, { accepted: true, highest, revision }, revision)
    },
  }),
]
