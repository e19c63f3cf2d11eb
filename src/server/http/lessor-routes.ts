/** Everything a lessor can do, for clients that are lessors themselves: commands, questions and backups whole. */
import type { Command } from '../../kernel/command.ts'
import type { Query } from '../../lessor.ts'
import * as schema from '../../wire/http/schema.ts'
import { VERSION } from '../version.ts'
import { failure, isOurMistake } from './failure.ts'
import { given, list, reading } from './lease-routes.ts'
import { check, mustBeName, mustBePrefix } from './parse.ts'
import { json, type Route, type RouteCall, route } from './route.ts'

/** Commands that are checked and handed over in one turn of the loop. */
const STRIDE = 64

/** What only has the form of a question is one: a bad name or prefix is refused and never looked up. */
function mustMakeSense(query: Query): Query {
  if ('resource' in query) mustBeName(query.resource)
  if ('prefix' in query && query.prefix !== undefined) mustBePrefix(query.prefix)
  if ('within' in query) for (const prefix of query.within ?? []) mustBePrefix(prefix)
  return query
}

/** Not async: all of them are handed over in their order before the first is waited for. */
function proposed({ desk, caller }: RouteCall, proposal: unknown): Promise<object> {
  const failed = (error: unknown) => {
    if (isOurMistake(error)) throw error
    return JSON.parse(failure(error).body as string) as object
  }
  try {
    check(schema.Proposal, proposal, 'the proposal')
    const { command, op, key } = proposal as schema.Static<typeof schema.Proposal>
    return desk.propose(caller, command as Command, given({ op, key }) as object).then(outcome => ({ outcome }), failed)
  } catch (error) {
    return Promise.resolve(failed(error))
  }
}

export const lessorRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/about',
    summary: 'What this server is, and what its store promises.',
    answer: schema.About,
    handle: async ({ desk, caller }) => {
      const { revision } = await desk.read<'summary'>(caller, { kind: 'summary' })
      return json(200, { name: 'leasehold', version: VERSION, profile: desk.lessor.profile, keys: desk.gate.closed, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/propose',
    summary: 'Commands of the kernel, whole, in one order. Each has its own answer; a refusal is an outcome, too, and comes with 200.',
    body: schema.Propose,
    // As large as the other wire carries it: a command may have many names and entries.
    most: ({ limits }) => limits.command,
    answer: schema.Proposed,
    handle: async call => {
      const answers: Promise<object>[] = []
      for (const proposal of call.body.proposals) {
        if (answers.length % STRIDE === STRIDE - 1) await new Promise<void>(resolve => call.clock.soon(resolve))
        const answer = proposed(call, proposal)
        // It is awaited below. Until then a mistake of ours must not count as one that nobody handles.
        answer.catch(() => {})
        answers.push(answer)
      }
      return json(200, { answers: await Promise.all(answers) })
    },
  }),
  route({
    method: 'POST',
    path: '/v1/read',
    summary: 'One question to the state, whole.',
    body: schema.Read,
    answer: schema.ReadAnswer,
    handle: async call => {
      const { query, consistent, atLeast } = call.body
      const options = { ...reading({ ...call, query: {} }), ...given({ consistent, atLeast }) }
      const view = await call.desk.read(call.caller, mustMakeSense(query as Query) as never, options)
      return Array.isArray(view.value) ? list('value', view.value, view) : json(200, view, view.revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/backup',
    summary: 'Everything, as a backup file: for an administrator of everything.',
    type: 'application/octet-stream',
    // Each is a copy of everything, made one after another: none is made for one who has left.
    handle: ({ desk, caller, ask }) => ({
      status: 200,
      type: 'application/octet-stream',
      body: desk.backup(caller, ask.gone({ half: true })),
    }),
  }),
]
