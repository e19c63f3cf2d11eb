/** The routes of our own client, which is a lessor itself: kernel commands, queries and backups in their full form. */
import type { Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Query } from '../../lessor.ts'
import * as schema from '../../wire/http/schema.ts'
import { sentenceOf } from '../../wording.ts'
import { VERSION } from '../version.ts'
import { failureResponse, isInternalError } from './failure.ts'
import { check, mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteContext, route } from './route.ts'
import { defined, list, readOptions } from './route-operations.ts'

/** Commands that are checked and proposed in one turn of the event loop. */
const COMMANDS_PER_TURN = 64

/** The schema accepts any text as a name. Refuse a bad name or prefix before it is looked up. */
function checkNames(query: Query): Query {
  if ('resource' in query) mustBeName(query.resource)
  if ('prefix' in query && query.prefix !== undefined) mustBePrefix(query.prefix)
  if ('within' in query) for (const prefix of query.within ?? []) mustBePrefix(prefix)
  return query
}

/** Not async: all commands are proposed in their order before the first outcome is awaited. */
function proposeOne({ guarded, caller }: RouteContext, proposal: unknown): Promise<object> {
  const toError = (error: unknown) => {
    if (isInternalError(error)) throw error
    return JSON.parse(failureResponse(error).body as string) as object
  }
  try {
    check(schema.Proposal, proposal, 'the proposal')
    const { command, op, key } = proposal as schema.Static<typeof schema.Proposal>
    return guarded.propose(caller, command as Command, defined({ op, key }) as object).then(toAnswer, toError)
  } catch (error) {
    return Promise.resolve(toError(error))
  }
}

/** A refusal also has its sentence, for clients that do not know its reason. */
function toAnswer(outcome: Outcome): object {
  return { outcome: outcome.kind === 'refused' ? { ...outcome, message: sentenceOf(outcome) } : outcome }
}

export const lessorRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/about',
    summary: 'The version of the server, and the guarantees of its store.',
    response: schema.About,
    handle: async ({ guarded, caller }) => {
      const { revision } = await guarded.read<'summary'>(caller, { kind: 'summary' })
      return json(
        200,
        { name: 'leasehold', version: VERSION, profile: guarded.lessor.profile, keys: guarded.access.keyRequired, revision },
        revision,
      )
    },
  }),
  route({
    method: 'POST',
    path: '/v1/propose',
    summary: 'Kernel commands, applied in this order. Each has its own answer. A refusal is an outcome as well, with status 200.',
    body: schema.Propose,
    // As large as over RESP: a command may have many names and entries.
    maxBodyBytes: ({ limits }) => limits.command,
    response: schema.Proposed,
    handle: async context => {
      const answers: Promise<object>[] = []
      for (const proposal of context.body.proposals) {
        if (answers.length % COMMANDS_PER_TURN === COMMANDS_PER_TURN - 1) await new Promise<void>(resolve => context.clock.soon(resolve))
        const answer = proposeOne(context, proposal)
        // It is awaited below. Until then a rejection must not count as unhandled.
        answer.catch(() => {})
        answers.push(answer)
      }
      return json(200, { answers: await Promise.all(answers) })
    },
  }),
  route({
    method: 'POST',
    path: '/v1/read',
    summary: 'One query, in its full form.',
    body: schema.Read,
    response: schema.ReadAnswer,
    handle: async context => {
      const { query, consistent, atLeast } = context.body
      const options = { ...readOptions({ ...context, query: {} }), ...defined({ consistent, atLeast }) }
      const view = await context.guarded.read(context.caller, checkNames(query as Query) as never, options)
      return Array.isArray(view.value) ? list(context, 'value', { ...view, value: view.value }) : json(200, view, view.revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/backup',
    summary: 'A backup file of the whole store, for keys with admin on everything.',
    type: 'application/octet-stream',
    // Backups are copies of the whole store, made one after another. None is made for a client that has disconnected.
    query: schema.BackupReading,
    handle: ({ guarded, caller, request, query: { follow = false } }) => ({
      status: 200,
      type: 'application/octet-stream',
      body: guarded.backup(caller, { follow, signal: request.gone({ half: true }) }),
    }),
  }),
]
