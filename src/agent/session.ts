/**
 * The session of an agent: one lease on `agents/NAME`, and everything that the agent claims is a child of it. So one name belongs to one live
 * agent, another process finds the claims of an agent by its name alone, and all of them end with the session in one revision.
 */
import { LeaseError } from '../errors.ts'
import { refused } from '../holder/operations.ts'
import type { LeaseView } from '../lessor.ts'
import { kindOfLease, labelOf } from './claim-record.ts'
import type { AgentLog } from './log.ts'

/** A process that must be alive. A pid alone may have been given to another process. */
export interface BoundProcess {
  readonly host: string
  readonly pid: number
  /** When it was started, as its system says it; empty if unknown. */
  readonly started: string
}

/** Which clock keeps the session alive: a process that renews, or the agent's own calls. */
export type AliveBy = 'process' | 'calls'

export interface AgentSession {
  /** Not the name that was asked for if another live agent has that. */
  readonly name: string
  readonly lease: number
  readonly incarnation: number
  readonly ttl: number
  readonly aliveBy: AliveBy
  readonly process: BoundProcess | undefined
  /** The session lease of the parent agent; 0: none. */
  readonly parent: number
}

export interface SessionRequest {
  readonly name: string
  readonly ttl: number
  readonly aliveBy: AliveBy
  readonly process?: BoundProcess | undefined
  readonly parent?: number | undefined
  /** Of the session that this one continues. */
  readonly incarnation?: number | undefined
}

/** How many agents of one name get numbers after it. */
const MAX_NAMESAKES = 99

export function agentResource(name: string): string {
  return `agents/${name}`
}

/**
 * Opens a session under this name. If another live agent has it, the name gets a number: `planner-2`. A live session of the same bound process
 * is the same agent, whose MCP server was started again: it is shared.
 */
export async function openSession(log: AgentLog, request: SessionRequest): Promise<AgentSession> {
  for (let number = 1; number <= MAX_NAMESAKES; number++) {
    const name = number === 1 ? request.name : `${request.name}-${number}`
    const opened = await tryOpen(log, { ...request, name })
    if (opened !== undefined) return opened
    const present = await findSession(log, name)
    if (present !== undefined && isSameProcess(present.process, request.process)) return present
  }
  throw new LeaseError('LIMIT', `${MAX_NAMESAKES} agents are named ${request.name}: choose another name with --agent`, {
    facts: { limit: MAX_NAMESAKES },
  })
}

/** The live session of this name, or a new one. */
export async function joinSession(log: AgentLog, request: SessionRequest): Promise<AgentSession> {
  for (;;) {
    const present = (await findSession(log, request.name)) ?? (await tryOpen(log, request))
    if (present !== undefined) return present
    const [grant] = (await log.resource(agentResource(request.name))).grants
    // It ended, or another process opened it, between the two requests.
    if (grant === undefined || (await log.lease(grant.lease)) !== undefined) continue
    throw new LeaseError('HELD', `the name ${request.name} belongs to an agent with another key: choose another agent name`, {
      facts: { resource: agentResource(request.name) },
    })
  }
}

/** Undefined: the name is taken. */
async function tryOpen(log: AgentLog, request: SessionRequest): Promise<AgentSession | undefined> {
  const { name, ttl, aliveBy, process, parent = 0, incarnation } = request
  const outcome = await log.decide({
    kind: 'acquire',
    holder: name,
    ttl,
    wants: [{ resource: agentResource(name) }],
    labels: [
      ['kind', 'agent'],
      ['alive', aliveBy],
      ...(process === undefined
        ? []
        : [['host', process.host] as const, ['pid', `${process.pid}`] as const, ['started', process.started] as const]),
    ],
    ...(parent > 0 && { parent }),
    ...(incarnation !== undefined && { incarnation }),
  })
  if (outcome.kind === 'granted') {
    await log.renew([outcome.lease])
    return { name, lease: outcome.lease, incarnation: outcome.incarnation, ttl, aliveBy, process, parent }
  }
  if (outcome.kind === 'refused' && outcome.code === 'HELD') return undefined
  throw refused(outcome)
}

/** The live session of an agent. Undefined if there is none, or it belongs to another key. */
export async function findSession(log: AgentLog, name: string): Promise<AgentSession | undefined> {
  const { grants } = await log.resource(agentResource(name))
  const grant = grants.find(({ status }) => status === 'live' || status === 'suspect')
  const view = grant && (await log.lease(grant.lease))
  return view && sessionOf(view)
}

/** Undefined for a lease that is no live session of an agent. */
export function sessionOf(view: LeaseView): AgentSession | undefined {
  if (kindOfLease(view) !== 'agent' || (view.status !== 'live' && view.status !== 'suspect')) return undefined
  const pid = Number(labelOf(view, 'pid'))
  return {
    name: view.holder,
    lease: view.lease,
    incarnation: view.incarnation,
    ttl: view.ttl,
    aliveBy: labelOf(view, 'alive') === 'process' ? 'process' : 'calls',
    process: pid > 0 ? { host: labelOf(view, 'host'), pid, started: labelOf(view, 'started') } : undefined,
    parent: view.parent,
  }
}

function isSameProcess(one: BoundProcess | undefined, other: BoundProcess | undefined): boolean {
  if (one === undefined || other === undefined || one.started === '') return false
  return one.host === other.host && one.pid === other.pid && one.started === other.started
}
