/**
 * `POST /v1/hooks/agent`: the events of coding agents, from hosts that call hooks over HTTP, and from `leasehold guard`. The body is the event as
 * the host sends it; the response is the answer that the host reads.
 *
 * A path is looked up in the file system of this machine only for callers that are on this machine too and may claim or read some path of a repository. Others say
 * which repository it is in.
 */
import { hostname } from 'node:os'
import { Type } from 'typebox'
import { LeaseError } from '../errors.ts'
import { Leases } from '../leases.ts'
import { callerLessor } from '../server/caller-lessor.ts'
import { HttpFailure } from '../server/http/failure.ts'
import { json, type Route, type RouteContext, route } from '../server/http/route.ts'
import { decide, type GuardContext, type Locate } from './guard.ts'
import type { HookProcess } from './hook-agent.ts'
import { HookAgents } from './hook-agents.ts'
import { type GuardDecision, hookAnswer } from './hook-answer.ts'
import { HOSTS, type HookEvent, readHookEvent } from './hook-event.ts'
import { locateBy, locateHere } from './locate.ts'

/** Events carry the contents of files. */
const MAX_EVENT_BYTES = 4 << 20

const text = (description: string) => Type.Optional(Type.String({ maxLength: 1_024, description }))

const Query = Type.Object(
  {
    host: Type.Optional(
      Type.Union(
        HOSTS.map(host => Type.Literal(host)),
        { description: 'The host whose form the event has. Default: claude.' },
      ),
    ),
    agent: text("The agent's name. Default: by its process, or by the session of the event."),
    root: text('The root of the repository on the machine of the agent.'),
    prefix: text('The prefix of its names, such as repo/github.com/acme/app. Together with root.'),
    pid: Type.Optional(Type.String({ pattern: '^[1-9][0-9]{0,9}$', description: 'The process of the agent: its claims end with it.' })),
    started: text('When that process was started, as its system says it.'),
    machine: text('The machine of that process.'),
    failClosed: Type.Optional(Type.Boolean({ description: 'Deny an edit that cannot be decided. Default: allow it, with a warning.' })),
    answer: Type.Optional(
      Type.Union([Type.Literal('host'), Type.Literal('decision')], { description: 'The form of the response. Default: host.' }),
    ),
  },
  { additionalProperties: false },
)
type Context = RouteContext<object, Type.Static<typeof Query>>

export function hookRoute(): Route {
  let agents: HookAgents | undefined
  const lookups = new Lookups()
  return route({
    method: 'POST',
    path: '/v1/hooks/agent',
    summary: 'An event of a coding agent: claims what it is about to write, or denies it. The response is what the host reads.',
    query: Query,
    body: Type.Object({}, { additionalProperties: true }),
    maxBodyBytes: () => MAX_EVENT_BYTES,
    response: Type.Object({}, { additionalProperties: true }),
    handle: async (context: Context) => {
      agents ??= new HookAgents(context.clock)
      const { host = 'claude', answer = 'host', failClosed = false } = context.query
      const event = eventOf(host, context.body)
      const decision = await decideFor(event, context, agents, lookups).catch(error => undecided(error, failClosed))
      return json(200, answer === 'decision' ? decision : (hookAnswer(event, decision) ?? {}))
    },
  })
}

function eventOf(host: HookEvent['host'], body: unknown): HookEvent {
  try {
    return readHookEvent(host, body)
  } catch (error) {
    throw new HttpFailure('INVALID', (error as Error).message)
  }
}

function decideFor(event: HookEvent, context: Context, agents: HookAgents, lookups: Lookups): Promise<GuardDecision> {
  const { guarded, caller, clock, query } = context
  const { agent, root, prefix } = query
  const leasesFor = () => new Leases(callerLessor(guarded, caller), { holder: `hooks of ${caller.name}`, clock })
  const process = processOf(query)
  const known = agents
  const guardContext: GuardContext = {
    leases: leasesFor(),
    ...(agent !== undefined && { agent }),
    ...(process !== undefined && { process }),
    locate:
      root !== undefined && prefix !== undefined ? locateBy(root, prefix) : isLocal(context) ? locateFor(context, lookups) : refuseToLocate,
    open: who => known.open(`${caller.key}`, leasesFor, who),
  }
  return decide(event, guardContext)
}

function processOf({ pid, started, machine }: Type.Static<typeof Query>): HookProcess | undefined {
  return pid === undefined ? undefined : { pid: Number(pid), started: started ?? '', host: machine ?? '' }
}

/** A tunnel makes callers of other machines look local: those that name their machine are believed. */
function isLocal({ request: { localAddress }, query: { machine } }: Context): boolean {
  if (machine !== undefined && machine !== hostname()) return false
  return localAddress === undefined || /^(127\.|::1$|::ffff:127\.)/.test(localAddress)
}

/** One lookup of the server at a time: one that hangs, on a lost network drive, holds up the next hook and one thread, and nothing else. */
class Lookups {
  #last: Promise<unknown> = Promise.resolve()

  run<T>(lookup: () => Promise<T>): Promise<T> {
    const done = this.#last.then(lookup)
    this.#last = done.catch(() => {})
    return done
  }
}

/** First the right, then the file system. All names that are found there begin with `repo`. */
function locateFor({ guarded, caller }: Context, lookups: Lookups): Locate {
  const locate = locateHere()
  return async (path, event) => {
    guarded.access.requireUnder(caller, event.kind === 'commit' ? 'read' : 'acquire', 'repo')
    return lookups.run(() => locate(path, event))
  }
}

async function refuseToLocate(path: string): Promise<never> {
  throw new LeaseError(
    'INVALID',
    `this server is on another machine and cannot see which repository ${JSON.stringify(path.slice(0, 120))} is in: send root and prefix, or use leasehold guard`,
    { facts: { option: 'root' } },
  )
}

function undecided(error: unknown, failClosed: boolean): GuardDecision & { readonly elsewhere?: true } {
  if (!(error instanceof LeaseError)) {
    if (!(error instanceof Error) || error.constructor !== Error) throw error
  }
  const why = (error as Error).message
  // `leasehold-guard` then finds the repositories itself.
  if (LeaseError.is(error, 'INVALID') && error.facts.option === 'root') return { ...warned(why, failClosed), elsewhere: true }
  return warned(why, failClosed)
}

function warned(why: string, failClosed: boolean): GuardDecision {
  return failClosed
    ? { allow: false, reason: `leasehold: the guard cannot decide, and is set to refuse then: ${why}` }
    : { allow: true, warning: `leasehold: THIS EDIT IS NOT GUARDED, another agent may write the same file: ${why}` }
}
