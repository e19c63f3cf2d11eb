/** Policies, entries and keys. */
import type { PolicyRules } from '../../kernel/command.ts'
import { normalPrefix } from '../../kernel/name.ts'
import * as schema from '../../wire/http/schema.ts'
import { hashOf, newSecret } from '../key-secret.ts'
import { accepted, Failure } from './failure.ts'
import { given, list, MAX_LISTED, optionalMs, propose, reading } from './lease-routes.ts'
import { mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteCall, route } from './route.ts'

const DURATIONS = ['ttlMin', 'ttlMax', 'lockDelay', 'grace', 'maxLife', 'maxHold', 'aging', 'flapHalfLife', 'preserveMost'] as const

function rulesOf({ op: _, ...body }: schema.Static<typeof schema.Rules>): PolicyRules {
  const inMs = Object.fromEntries(DURATIONS.map(rule => [rule, optionalMs(body[rule], rule)]))
  return given({ ...body, ...inMs }) as PolicyRules
}

const policies: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/policies',
    summary: 'All policies.',
    query: schema.Reading,
    answer: schema.Policies,
    handle: async call => {
      const { revision, value } = await call.desk.read<'policies'>(call.caller, { kind: 'policies' }, reading(call))
      return json(200, { policies: value, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/policies/{prefix}',
    summary: 'The rules of one prefix itself; the empty one is over everything.',
    query: schema.Reading,
    answer: schema.PolicyView,
    handle: async call => {
      const prefix = normalPrefix(mustBePrefix(call.name))
      call.desk.gate.demand(call.caller, 'read', prefix)
      const { revision, value } = await call.desk.read<'policies'>(call.caller, { kind: 'policies' }, reading(call))
      const policy = value.find(found => found.prefix === prefix)
      if (policy === undefined) throw new Failure('NOT_FOUND', `there is no policy for ${prefix === '' ? 'everything' : prefix}`)
      return json(200, { ...policy, revision }, revision)
    },
  }),
  route({
    method: 'PUT',
    path: '/v1/policies/{prefix}',
    summary: 'Set the rules for all names under a prefix. It never shortens what was acknowledged.',
    body: schema.Rules,
    answer: schema.PolicyView,
    handle: async call => {
      const rules = rulesOf(call.body)
      const { revision } = accepted(await propose(call, { kind: 'policy', prefix: call.name, rules }, call.body.op), 'done')
      return json(200, { prefix: normalPrefix(call.name), rules, revision }, revision)
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/policies/{prefix}',
    summary: 'Take the rules of a prefix back.',
    query: schema.Changing,
    status: 204,
    handle: async call => {
      const { revision } = accepted(await propose(call, { kind: 'policy', prefix: call.name }, call.query.op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]

const entries: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/entries',
    summary: 'Entries under a prefix, with the leases they hang on.',
    query: schema.Listing,
    answer: schema.Entries,
    handle: async call => {
      const { prefix = '', limit = MAX_LISTED } = call.query
      const query = { kind: 'entries', prefix: mustBePrefix(prefix), limit } as const
      const view = await call.desk.read<'entries'>(call.caller, query, reading(call))
      return list('entries', view.value, view)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/entries/{name}',
    summary: 'One entry.',
    query: schema.Reading,
    answer: schema.Entry,
    handle: async call => {
      const key = mustBeName(call.name)
      call.desk.gate.demand(call.caller, 'read', key)
      const { revision, value } = await call.desk.read<'entries'>(call.caller, { kind: 'entries', prefix: key, limit: 1 }, reading(call))
      const entry = value.find(found => found.key === key)
      if (entry === undefined) throw new Failure('NOT_FOUND', `there is no entry ${key}`, { facts: { key } })
      return json(200, entry, revision)
    },
  }),
  route({
    method: 'PUT',
    path: '/v1/entries/{name}',
    summary: 'Attach a value to a lease, under a key; gone in the same revision as the lease.',
    body: schema.Put,
    answer: schema.Done,
    handle: async call => {
      const { lease, value, op } = call.body
      const { revision } = accepted(await propose(call, { kind: 'put', lease, key: call.name, value }, op), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/entries/{name}',
    summary: 'Delete an entry; with lease, only if it still hangs on that.',
    query: schema.Deleting,
    status: 204,
    handle: async call => {
      const { lease, op } = call.query
      const { revision } = accepted(await propose(call, { kind: 'delete', key: call.name, ...given({ lease }) }, op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]

async function createKey(call: RouteCall<schema.Static<typeof schema.NewKey>>) {
  const { name, allow, hash, op } = call.body
  // The second copy of the question would be told another secret than the one whose hash was kept.
  if (op !== undefined && hash === undefined)
    throw new Failure('INVALID', 'a secret is told once and kept nowhere: to ask with op, make the secret yourself and send its hash')
  const secret = hash === undefined ? newSecret(call.clock) : undefined
  const command = { kind: 'key', name, hash: hash ?? hashOf(secret!), allow } as const
  const { id, revision } = accepted(await propose(call, command, op), 'done')
  return json(201, { id, name, allow, ...(secret !== undefined && { key: secret }), revision }, revision)
}

const keys: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/keys',
    summary: 'All keys and what each may do; never a secret.',
    query: schema.Reading,
    answer: schema.Keys,
    handle: async call => {
      const { revision, value } = await call.desk.read<'keys'>(call.caller, { kind: 'keys' }, reading(call))
      return json(200, { keys: value.map(({ id, name, allow }) => ({ id, name, allow })), revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/keys',
    summary: 'Create a key. From the first one on everyone needs one.',
    body: schema.NewKey,
    answer: schema.Key,
    status: 201,
    handle: createKey,
  }),
  route({
    method: 'DELETE',
    path: '/v1/keys/{id}',
    summary: 'Revoke a key: its connections are let in no more, and its leases answer to administrators alone.',
    query: schema.Changing,
    status: 204,
    handle: async call => {
      const { revision } = accepted(await propose(call, { kind: 'unkey', id: call.id }, call.query.op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]

export const governRoutes: readonly Route[] = [...policies, ...entries, ...keys]
