/**
 * The session of an agent: one lease on `agents/NAME`, and everything that the agent claims is a child of it. So one name belongs to one live
 * agent, another process finds the claims of an agent by its name alone, and all of them end with the session in one revision.
 */
import { LeaseError } from '../errors.ts'
import { refused } from '../holder/operations.ts'
import type { LeaseView } from '../lessor.ts'
import { kindOfLease, labelOf } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import { AGENTS } from './names.ts'

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
  /** No person chose the name: it is made of the pid. Then the process keeps the name that it has. */
  readonly unnamed?: boolean | undefined
}

/** The largest number that is put after a name, if several agents have it. */
const MAX_NAMESAKES = 99
/** A name that is neither free nor in use is looked at again this many times. */
const MAX_TRIES = 5
/** Names of one process that are looked at. */
const MAX_NAMES_OF_PROCESS = 16

export function agentResource(name: string): string {
  return `${AGENTS}/${name}`
}

/**
 * Opens a session under this name. If another live agent has it, the name gets a number: `planner-2`. A live session of the same bound process
 * is the same agent, whose MCP server was started again, or whose hook came first: it is shared.
 */
export async function openSession(log: AgentLog, request: SessionRequest): Promise<AgentSession> {
  if (request.parent === undefined) await requireOwnAncestors(log, request.name)
  const known = await sessionOfProcess(log, request)
  if (known !== undefined) return known
  for (let number = 1; number <= MAX_NAMESAKES; number++) {
    const name = number === 1 ? request.name : `${request.name}-${number}`
    const opened = await tryOpen(log, { ...request, name })
    if (opened !== undefined) return earliest(log, request, opened)
    const present = await findSession(log, name)
    if (present !== undefined && isSameProcess(present.process, request.process) && (await isOwn(log, present))) return present
  }
  throw new LeaseError('LIMIT', `${MAX_NAMESAKES} agents are named ${request.name}: choose another name with --agent`, {
    facts: { limit: MAX_NAMESAKES },
  })
}

/**
 * The live session of this name, or a new one. A session of another process is another agent, so this one gets a number. Throws `HELD` if the name, or
 * that of an agent above it, belongs to another key: what an agent holds, its sub-agents may write.
 */
export async function joinSession(log: AgentLog, request: SessionRequest): Promise<AgentSession> {
  if (request.parent === undefined) await requireOwnAncestors(log, request.name)
  const known = await sessionOfProcess(log, request)
  if (known !== undefined) return known
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const own = await ownSession(log, request.name)
    if (own !== undefined && isOtherProcess(own.process, request.process)) return openSession(log, request)
    if (own !== undefined) return own
    const opened = await tryOpen(log, request)
    if (opened !== undefined) return earliest(log, request, opened)
    // Undefined: it ended, or another process opened it, between the two requests.
  }
  throw taken(request.name)
}

/** Returns the live session that `joinSession` would share. Undefined: there is none. */
export async function presentSession(log: AgentLog, request: SessionRequest): Promise<AgentSession | undefined> {
  const known = await sessionOfProcess(log, request)
  if (known !== undefined) return known
  const own = await ownSession(log, request.name)
  return own === undefined || isOtherProcess(own.process, request.process) ? undefined : own
}

/** Returns the live sessions of a process, the first one first. Usually there is one. */
export async function sessionsOfProcess(log: AgentLog, process: BoundProcess): Promise<readonly AgentSession[]> {
  if (process.started === '') return []
  const entries = await log.entries(`${processKey(process)}/`, MAX_NAMES_OF_PROCESS)
  const names = [...entries].sort((a, b) => a.created - b.created).map(({ value }) => value)
  // Another key can have written the entry: only the session itself says whose it is.
  const sessions = await Promise.all(names.map(name => findSession(log, name)))
  return sessions.filter(session => session !== undefined && isSameProcess(session.process, process)) as AgentSession[]
}

/**
 * The session of the process that asks. One process is one agent: if a person gave a name, the agent of that name (or of that name with a number, or the
 * one that was opened before the name was known); otherwise its first.
 */
async function sessionOfProcess(
  log: AgentLog,
  { process, name, unnamed = false, parent }: SessionRequest,
): Promise<AgentSession | undefined> {
  if (process === undefined || parent !== undefined) return undefined
  for (const session of await sessionsOfProcess(log, process)) {
    const isNamed = session.name === name || session.name.replace(/-\d+$/, '') === name || session.name === defaultName(process)
    if ((unnamed || isNamed) && (await isOwn(log, session))) return session
  }
  return undefined
}

/** Two callers of one process may open a session under different names at the same moment. The first in the log stays. */
async function earliest(log: AgentLog, request: SessionRequest, opened: AgentSession): Promise<AgentSession> {
  const first = await sessionOfProcess(log, request)
  if (first === undefined || first.lease === opened.lease) return opened
  await log.release(opened.lease)
  return first
}

/** Returns the name of a process without a given name. */
export function defaultName({ pid }: Pick<BoundProcess, 'pid'>): string {
  return `agent-${pid}`
}

/** Returns the key under which the agents of one process are found. No agent can have such a name. */
function processKey({ host, pid, started }: BoundProcess): string {
  const plain = (text: string) => text.replace(/[^\p{L}\p{N}_.-]+/gu, '-')
  return `${AGENTS}/~process/${plain(host) || '-'}/${pid}-${plain(started)}`
}

async function requireOwnAncestors(log: AgentLog, name: string): Promise<void> {
  for (let at = name.indexOf('/'); at >= 0; at = name.indexOf('/', at + 1)) await ownSession(log, name.slice(0, at))
}

/** The live session of an agent, if there is one. Throws `HELD` if it is not of this key, even if the key may read it. */
async function ownSession(log: AgentLog, name: string): Promise<AgentSession | undefined> {
  const lease = await liveLease(log, name)
  if (lease === undefined) return undefined
  const view = await log.lease(lease)
  const session = view && sessionOf(view)
  if (session !== undefined && (await isOwn(log, session))) return session
  // A lease that has ended meanwhile looks like one of another key.
  if ((await liveLease(log, name)) === lease) throw taken(name)
  return undefined
}

async function liveLease(log: AgentLog, name: string): Promise<number | undefined> {
  const { grants } = await log.resource(agentResource(name))
  return grants.find(({ status }) => status === 'live' || status === 'suspect')?.lease
}

/** Only its own key, or an administrator of its name, can renew a lease. */
async function isOwn(log: AgentLog, { lease }: AgentSession): Promise<boolean> {
  return !(await log.renew([lease])).has(lease)
}

function taken(name: string): LeaseError {
  return new LeaseError('HELD', `the name ${name} belongs to an agent with another key, or is not free yet: choose another agent name`, {
    facts: { resource: agentResource(name) },
  })
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
    // A key that may not register entries can claim all the same: then its process is known by the name of its agent alone.
    if (process !== undefined && process.started !== '' && parent === 0)
      await log.decide({ kind: 'put', lease: outcome.lease, key: `${processKey(process)}/${name}`, value: name }).catch(() => {})
    return { name, lease: outcome.lease, incarnation: outcome.incarnation, ttl, aliveBy, process, parent }
  }
  if (outcome.kind === 'refused' && outcome.code === 'HELD') return undefined
  throw refused(outcome)
}

/** The live session of an agent. Undefined if there is none, or it belongs to another key. */
async function findSession(log: AgentLog, name: string): Promise<AgentSession | undefined> {
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

/** Returns whether both are known, and certainly not the same. */
function isOtherProcess(one: BoundProcess | undefined, other: BoundProcess | undefined): boolean {
  if (one === undefined || other === undefined) return false
  return one.host !== other.host || one.pid !== other.pid || (one.started !== '' && other.started !== '' && one.started !== other.started)
}
