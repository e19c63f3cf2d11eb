/** Routes of policies, entries and keys (key-routes.ts). */
import { MAX_TRANSACTION_BYTES, type PolicyRules } from '../../kernel/command.ts'
import { policyRules } from '../../kernel/command-table.ts'
import { normalPrefix } from '../../kernel/name.ts'
import * as schema from '../../wire/http/schema.ts'
import { expectOutcome, HttpFailure } from './failure.ts'
import { keyRoutes } from './key-routes.ts'
import { whenChanged } from './long-poll.ts'
import { mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, route } from './route.ts'
import { DEFAULT_LIST_LIMIT, defined, fieldsFrom, list, propose, proposeBody, readOptions } from './route-operations.ts'

const policies: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/policies',
    summary: 'All policies.',
    query: schema.Reading,
    response: schema.Policies,
    handle: async context => {
      const { revision, value } = await context.guarded.read<'policies'>(context.caller, { kind: 'policies' }, readOptions(context))
      return json(200, { policies: value, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/policies/{prefix}',
    summary: 'The rules of one prefix itself. The empty prefix applies to everything.',
    query: schema.Reading,
    response: schema.PolicyView,
    handle: async context => {
      const prefix = normalPrefix(mustBePrefix(context.name))
      context.guarded.access.require(context.caller, 'read', prefix)
      const { revision, value } = await context.guarded.read<'policies'>(context.caller, { kind: 'policies' }, readOptions(context))
      const policy = value.find(found => found.prefix === prefix)
      if (policy === undefined)
        throw new HttpFailure('NOT_FOUND', `there is no policy for ${prefix === '' ? 'the empty prefix' : `the prefix ${prefix}`}`)
      return json(200, { ...policy, revision }, revision)
    },
  }),
  route({
    method: 'PUT',
    path: '/v1/policies/{prefix}',
    summary: 'Set the rules for all names under a prefix. They never shorten an acknowledged ttl.',
    body: schema.Rules,
    response: schema.PolicyView,
    handle: async context => {
      const { op, ...body } = context.body
      const rules: PolicyRules = fieldsFrom(policyRules.fields, body)
      const { revision } = expectOutcome(await propose(context, { kind: 'policy', prefix: context.name, rules }, op), 'done')
      return json(200, { prefix: normalPrefix(context.name), rules, revision }, revision)
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/policies/{prefix}',
    summary: 'Delete the rules of a prefix.',
    query: schema.Changing,
    status: 204,
    handle: async context => {
      const { revision } = expectOutcome(await propose(context, { kind: 'policy', prefix: context.name }, context.query.op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]

const entries: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/entries',
    summary: 'Entries under a prefix, with the leases they are attached to.',
    query: schema.WaitedListing,
    response: schema.Entries,
    handle: async context => {
      const { prefix = '', limit = DEFAULT_LIST_LIMIT } = context.query
      const query = { kind: 'entries', prefix: mustBePrefix(prefix), limit } as const
      const changed = await whenChanged(context, prefix)
      const view = await context.guarded.read<'entries'>(context.caller, query, { ...readOptions(context), ...changed })
      return list(context, 'entries', view)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/entries/{name}',
    summary: 'One entry.',
    query: schema.Reading,
    response: schema.Entry,
    handle: async context => {
      const key = mustBeName(context.name)
      context.guarded.access.require(context.caller, 'read', key)
      const { revision, value } = await context.guarded.read<'entries'>(
        context.caller,
        { kind: 'entries', prefix: key, limit: 1 },
        readOptions(context),
      )
      const entry = value.find(found => found.key === key)
      if (entry === undefined) throw new HttpFailure('NOT_FOUND', `there is no entry ${key}`, { facts: { key } })
      return json(200, entry, revision)
    },
  }),
  route({
    method: 'PUT',
    path: '/v1/entries/{name}',
    summary: 'Attach a value to a lease, under a key. It ends in the same revision as the lease.',
    body: schema.Put,
    response: schema.Done,
    handle: async context => {
      const { revision } = expectOutcome(await proposeBody(context, 'put', { key: context.name }), 'done')
      return json(200, { revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/transactions',
    summary: 'Compare entries, then put and delete some, all or none, in one revision. A policy must allow it (freeEntries).',
    body: schema.Transaction,
    maxBodyBytes: ({ limits }) => limits.body + 2 * MAX_TRANSACTION_BYTES,
    response: schema.Transacted,
    handle: async context => {
      const { succeeded, revision } = expectOutcome(await proposeBody(context, 'transaction'), 'transacted')
      return json(200, { succeeded, revision }, revision)
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/entries/{name}',
    summary: 'Delete an entry. With lease, only if it is still attached to that lease.',
    query: schema.Deleting,
    status: 204,
    handle: async context => {
      const { lease, op } = context.query
      const { revision } = expectOutcome(await propose(context, { kind: 'delete', key: context.name, ...defined({ lease }) }, op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]

export const governRoutes: readonly Route[] = [...policies, ...entries, ...keyRoutes]
