/** Routes of keys. */
import type { KeyLimits, LimitKey } from '../../kernel/command.ts'
import { COMMAND_TABLE, keyLimitFields } from '../../kernel/command-table.ts'
import * as schema from '../../wire/http/key-schema.ts'
import { Changing, Done, Reading } from '../../wire/http/schema.ts'
import { expiryIn, keyAnswer } from '../key-answer.ts'
import { hashSecret, newSecret } from '../key-secret.ts'
import { expectOutcome, HttpFailure } from './failure.ts'
import { mustBeName } from './parse.ts'
import { type HttpResponse, json, type Route, type RouteContext, route } from './route.ts'
import { defined, fieldsFrom, propose, readOptions } from './route-operations.ts'

/** The hash that the client sent, or a new secret. */
function secretFor({ clock, body: { hash, op } }: RouteContext<{ readonly hash?: string; readonly op?: string }>): {
  readonly hash: string
  readonly key?: string
} {
  if (hash !== undefined) return { hash }
  // A repeated request would return another secret than the one whose hash was stored.
  if (op !== undefined)
    throw new HttpFailure(
      'INVALID',
      'the server does not store secrets, so it cannot repeat one: to use op, create the secret yourself and send its hash',
    )
  const key = newSecret(clock)
  return { hash: hashSecret(key), key }
}

function expiryOf({ clock, body: { expires } }: RouteContext<{ readonly expires?: string }>): { readonly expires?: number } {
  return expires === undefined ? {} : { expires: expiryIn(expires, clock.wall()) }
}

async function createKey(context: RouteContext<schema.Static<typeof schema.NewKey>>): Promise<HttpResponse> {
  const { name, allow, op, hash: _, expires: __, ...rest } = context.body
  const { hash, key } = secretFor(context)
  const command = { kind: 'key', name, hash, allow, ...defined(rest), ...expiryOf(context) } as const
  const { id, revision } = expectOutcome(await propose(context, command, op), 'done')
  const shown = defined({ ...rest, expires: context.body.expires })
  return json(201, { id, name, allow, ...shown, ...defined({ key }), revision }, revision)
}

async function rotateKey(context: RouteContext<schema.Static<typeof schema.Rotation>>): Promise<HttpResponse> {
  const { id, body } = context
  const { hash, key } = secretFor(context)
  const overlap = fieldsFrom(COMMAND_TABLE.rotate.fields, defined({ overlap: body.overlap }))
  const command = { kind: 'rotate', id, hash, ...overlap, ...expiryOf(context) } as const
  const { revision } = expectOutcome(await propose(context, command, body.op), 'done')
  return json(200, { id, ...defined({ key }), revision }, revision)
}

async function limit(
  context: RouteContext<schema.Static<typeof schema.Limits>>,
  target: Pick<LimitKey, 'id' | 'group'>,
): Promise<HttpResponse> {
  const { op, ...given } = context.body
  const limits: KeyLimits = fieldsFrom(keyLimitFields, given)
  const isNone = Object.keys(limits).length === 0
  const { revision } = expectOutcome(await propose(context, { kind: 'limit', ...target, ...(!isNone && { limits }) }, op), 'done')
  return json(200, { revision }, revision)
}

export const keyRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/keys',
    summary: 'All keys, without secrets: what each may do, its limits, and what it has.',
    query: Reading,
    response: schema.Keys,
    handle: async context => {
      const { revision, value } = await context.guarded.read<'keys'>(context.caller, { kind: 'keys' }, readOptions(context))
      return json(200, { keys: value.map(keyAnswer), revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/keys',
    summary: 'Create a key. Once the first key exists, every request needs one.',
    body: schema.NewKey,
    response: schema.Key,
    status: 201,
    handle: createKey,
  }),
  route({
    method: 'POST',
    path: '/v1/keys/{id}/rotate',
    summary: 'Give a key a new secret. Its leases stay; with overlap, the former secret stays valid for that time.',
    body: schema.Rotation,
    response: schema.Rotated,
    handle: rotateKey,
  }),
  route({
    method: 'PUT',
    path: '/v1/keys/{id}/limits',
    summary: 'Set the limits of a key. They end nothing that it has.',
    body: schema.Limits,
    response: Done,
    handle: context => limit(context, { id: context.id }),
  }),
  route({
    method: 'PUT',
    path: '/v1/key-groups/{name}',
    summary: 'Set the limits of all keys of a group together.',
    body: schema.Limits,
    response: Done,
    handle: context => limit(context, { group: mustBeName(context.name) }),
  }),
  route({
    method: 'DELETE',
    path: '/v1/keys/{id}',
    summary: 'Revoke a key. Its connections are refused, and only administrators may act on its leases.',
    query: Changing,
    status: 204,
    handle: async context => {
      const { revision } = expectOutcome(await propose(context, { kind: 'unkey', id: context.id }, context.query.op), 'done')
      return { status: 204, headers: { 'Leasehold-Revision': String(revision) } }
    },
  }),
]
