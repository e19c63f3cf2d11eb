/**
 * The arguments and results of the tools, as JSON schemas. They are part of every conversation, so each word costs: arguments say what a model needs to call, and results
 * only what their fields are. What a field means, its name says.
 */
import { type Static, Type } from 'typebox'
import { MAX_WAIT_SECONDS } from '../agent/agent.ts'
import { MAX_NAMES } from '../agent/names.ts'

const text = (description: string) => Type.String({ description })
const some = Type.Optional

const subAgent = some(text('Sub-agents only: your short name.'))
const purpose = Type.String({ description: 'Why, in a few words. Others see it.', maxLength: 500 })

export const ARGUMENTS = {
  claim: Type.Object({
    names: Type.Array(Type.String({ minLength: 1 }), {
      description: 'Paths in the repository ("src/server.ts"), or "name:…" for anything else ("name:deploy/prod").',
      minItems: 1,
      maxItems: MAX_NAMES,
    }),
    mode: some(
      Type.Union([Type.Literal('exclusive'), Type.Literal('shared')], { description: 'shared: to rely on it not being changed.' }),
    ),
    purpose,
    until: some(
      Type.Union([Type.Literal('turn'), Type.Literal('release')], {
        description: 'When it ends. Default: turn for paths, release for other names.',
      }),
    ),
    expect_minutes: some(Type.Number({ description: 'About how long you need it.', minimum: 0, maximum: 10_080 })),
    wait_seconds: some(Type.Number({ description: 'How long to wait if it is held.', minimum: 0, maximum: MAX_WAIT_SECONDS })),
    sub_agent: subAgent,
  }),
  mine: Type.Object({ sub_agent: subAgent }),
  release: Type.Object({
    names: some(Type.Array(Type.String(), { description: 'Default: everything.', maxItems: MAX_NAMES })),
    sub_agent: subAgent,
  }),
  look: Type.Object({
    name: some(text('A name, or a folder or prefix of names. Default: the whole repository.')),
    sub_agent: subAgent,
  }),
  ask: Type.Object({
    name: text('The name that you need.'),
    message: Type.String({ description: 'Why, for its holder.', maxLength: 500 }),
    sub_agent: subAgent,
  }),
  take: Type.Object({
    pool: text('Such as "port", "database", "simulator" or "gpu".'),
    range: some(text('Numbers to choose from, such as "3000-3099" for a port.')),
    match: some(Type.Record(Type.String(), Type.String(), { description: 'Labels that the member must have.' })),
    count: some(Type.Integer({ description: 'How many you need in all.', minimum: 1, maximum: 64 })),
    purpose: some(purpose),
    sub_agent: subAgent,
  }),
  whoami: Type.Object({ sub_agent: subAgent }),
}

export type ToolArguments = { readonly [T in keyof typeof ARGUMENTS]: Static<(typeof ARGUMENTS)[T]> }

const array = some(Type.Unsafe<readonly unknown[]>({ type: 'array' }))
const object = some(Type.Unsafe<object>({ type: 'object' }))

/** Every result: its own fields, the failure, and the notices last. The fields within are not described: each says in its text what it is. */
const result = (statuses: string, fields: Parameters<typeof Type.Object>[0]) =>
  Type.Object({
    status: text(`${statuses} or refused`),
    ...fields,
    error: object,
    notices: Type.Unsafe<readonly unknown[]>({ type: 'array' }),
  })

export const RESULTS = {
  claim: result('held, queued', { tokens: object, ends: array, position: some(Type.Integer()), waits_for: array }),
  mine: result('ok', { held: array, queued: array, lost: array }),
  release: result('ok', { released: array, not_held: array }),
  look: result('ok', { names: array, more: some(Type.Boolean()) }),
  ask: result('asked', { holders: array }),
  take: result('taken', { members: array, environment: array, ends: array }),
  whoami: result('ok', { agent: some(Type.String()) }),
}
