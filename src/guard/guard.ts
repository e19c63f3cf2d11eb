/**
 * Decides about the events of coding agents: before an edit, a free path is claimed by itself, and a path that another agent holds is denied; after
 * it, activity is noted; at the end of a turn everything is released.
 *
 * A path is keyed by its repository (`repo/ORIGIN/PATH`), whatever the working directory is. A claim of a folder covers what is in it. Paths
 * outside of any repository are not guarded.
 *
 * Not promised: that a write which the host does not announce is seen. A shell command can write anything.
 */
import { posix } from 'node:path'
import { Agent } from '../agent/agent.ts'
import { inWords } from '../duration.ts'
import { isRefusal, LeaseError } from '../errors.ts'
import type { Leases } from '../leases.ts'
import { propose } from '../lessor/propose.ts'
import type { GrantView, ResourceView } from '../lessor.ts'
import { whyBadName } from '../wording.ts'
import { agentOf } from './hook-agent.ts'
import type { GuardDecision } from './hook-answer.ts'
import type { HookEvent } from './hook-event.ts'
import type { AgentProcess } from './host-process.ts'

export interface GuardContext {
  readonly leases: Leases
  /** The agent's name. Left out: by its process, or by its session. */
  readonly agent?: string
  /** The process of the agent, if it runs on this machine. */
  readonly process?: AgentProcess
  /** The resources that a write to a path changes, and the roots of their repositories' names; none: outside of any repository. */
  readonly locate: Locate
  /** Opens the agent, or finds the one that was opened before. @default `Agent.join` */
  readonly open?: (name: string) => Promise<Agent>
}

export type Locate = (path: string, event: Pick<HookEvent, 'cwd' | 'kind'>) => Promise<readonly GuardedPath[]>

export interface GuardedPath {
  readonly resource: string
  /** The prefix of its repository. */
  readonly prefix: string
}

const ALLOW: GuardDecision = { allow: true }
/** Names below one path that are looked at. */
const MAX_BELOW = 1_000
const MAX_LISTED = 10

export async function decide(event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const name = agentOf(event, context)
  switch (event.kind) {
    case 'before':
    case 'after': {
      if (event.problem !== undefined) throw new Error(event.problem)
      const paths = await locateAll(event, context)
      if (paths.length === 0) return ALLOW
      const agent = await openAgent(name, event, context)
      try {
        return event.kind === 'before' ? await beforeEdit(agent, event, paths, context) : await afterEdit(agent, paths, context)
      } finally {
        if (context.open === undefined) agent.detach()
      }
    }
    case 'begin':
      return beginSession(name, event, context)
    case 'turn':
    case 'stop':
      return endWork(name, event, context)
    case 'commit':
      return checkCommit(name, event, context)
    case 'other': {
      const agent = await findAgent(name, event, context)
      await agent?.noteActivity({ underWay: true })
      if (context.open === undefined) agent?.detach()
      return ALLOW
    }
  }
}

/** One path after another: a lookup may take a thread of the process until it is done. */
async function locateAll(event: HookEvent, { locate }: GuardContext): Promise<readonly GuardedPath[]> {
  const all = new Map<string, GuardedPath>()
  for (const path of event.paths)
    for (const found of await locate(path, event)) {
      const bad = whyBadName(found.resource)
      if (bad !== undefined)
        throw new LeaseError('INVALID', `the path ${JSON.stringify(found.resource.slice(0, 120))} ${bad}: use another file name`)
      all.set(found.resource, found)
    }
  return [...all.values()]
}

async function openAgent(name: string, event: HookEvent, context: GuardContext): Promise<Agent> {
  const { leases, process, open } = context
  const bound = process && { process }
  const agent = await (open === undefined ? Agent.join(leases, { name, ...bound }) : open(name))
  return event.subAgent === undefined ? agent : agent.child(subAgentName(event.subAgent))
}

function subAgentName(id: string): string {
  return id.replace(/[^\p{L}\p{N}_@+:-]/gu, '-').slice(0, 32)
}

/** The agent if it is present: the end of a turn must not open a session. */
async function findAgent(name: string, event: HookEvent, context: GuardContext): Promise<Agent | undefined> {
  const whole = event.subAgent === undefined ? name : `${name}/${subAgentName(event.subAgent)}`
  const { value } = await context.leases.read({ kind: 'resource', resource: `agents/${whole}` }, { consistent: true })
  return value.grants.some(({ status }) => status !== 'frozen') ? openAgent(name, event, context) : undefined
}

/** A path, the folders above it, and what is held of them. */
async function viewsOf({ resource, prefix }: GuardedPath, leases: Leases): Promise<readonly ResourceView[]> {
  const names = [resource]
  for (let name = resource; name.length > prefix.length; ) {
    name = posix.dirname(name)
    if (name.length >= prefix.length) names.push(name)
  }
  const views = await Promise.all(names.map(name => leases.read({ kind: 'resource', resource: name }, { consistent: true })))
  return views.map(({ value }) => value)
}

/** A name below this path that another agent holds: the path is a folder, which is about to be deleted or moved. */
async function heldBelow(agent: Agent, { resource: folder }: GuardedPath, leases: Leases): Promise<string | undefined> {
  const { value, more } = await leases.read({ kind: 'resources', prefix: folder, limit: MAX_BELOW }, { consistent: true })
  const held = value.find(({ resource, grants }) => resource !== folder && grants.some(grant => !isOwn(agent, grant)))
  if (held === undefined && more)
    throw new LeaseError('LIMIT', `more than ${MAX_BELOW} names under ${folder} are in use: release yours first`, {
      facts: { limit: MAX_BELOW },
    })
  return held?.resource
}

/** The agent itself, or the agent that it works for: what that holds, it lets its sub-agent write. */
function isOwn(agent: Pick<Agent, 'name'>, { holder }: Pick<GrantView, 'holder'>): boolean {
  return holder === agent.name || agent.name.startsWith(`${holder}/`)
}

async function beforeEdit(agent: Agent, event: HookEvent, paths: readonly GuardedPath[], { leases }: GuardContext): Promise<GuardDecision> {
  const wanted: GuardedPath[] = []
  let waits = false
  for (const path of paths) {
    const views = await viewsOf(path, leases)
    const blocking = views.flatMap(view => view.grants).find(grant => !isOwn(agent, grant))
    const blocked = blocking?.resource ?? (await heldBelow(agent, path, leases))
    if (blocked !== undefined) return deny(agent, path, blocked)
    waits ||= views[0]!.queue.some(({ holder }) => holder === agent.name)
    const covered = views.some(({ grants }) => grants.some(grant => !grant.shared && isOwn(agent, grant)))
    if (!covered || views[0]!.grants.some(({ holder }) => holder === agent.name)) wanted.push(path)
  }
  if (wanted.length === 0) {
    await agent.noteActivity({ underWay: true })
    return ALLOW
  }
  const names = wanted.map(({ resource }) => resource)
  try {
    const claim = await agent.claim(names, { purpose: `${event.tool || 'edit'} of ${shownPaths(wanted)}` })
    if (claim.status === 'held') return { allow: true, tokens: claim.tokens, ...(await noticesOf(agent)) }
    // Another agent was faster. A place in the queue that the agent asked for itself stays.
    if (!waits) await agent.release(names)
    return deny(agent, wanted[0]!, claim.waitsFor?.[0]?.resource ?? names[0]!)
  } catch (error) {
    if (!isRefusal(error)) throw error
    return { allow: false, reason: `leasehold: ${(error as LeaseError).message}` }
  }
}

/** Who, why, since when, and how to queue. */
async function deny(agent: Agent, path: GuardedPath, resource: string): Promise<GuardDecision> {
  const { names } = await agent.look(resource)
  const view = names.find(name => name.resource === resource)
  const holder = view?.holders[0]
  const isBelow = resource.startsWith(`${path.resource}/`)
  const shown = shownPath(isBelow ? { ...path, resource } : path)
  const folder = isBelow || resource === path.resource ? '' : ` (by its claim of ${shownPath({ ...path, resource })}/)`
  const who = holder === undefined ? 'by a holder that is just stopping' : `by ${holder.holder}${folder}`
  const purpose = holder?.purpose ? `, for: ${JSON.stringify(holder.purpose)}` : ''
  const since = holder === undefined ? '' : `, for ${inWords(holder.forSeconds * 1_000)}`
  const idle = holder?.idleSeconds === undefined ? '' : `, last active ${inWords(holder.idleSeconds * 1_000)} ago`
  const waiting = view?.waiters.length ? `, ${view.waiters.length} waiting` : ''
  return {
    allow: false,
    reason: `leasehold: ${shown} is held ${who}${purpose}${since}${idle}${waiting}. Do not write it in another way. Work on something else, or queue for it: call the leasehold tool claim with names [${JSON.stringify(`name:${resource}`)}] and wait_seconds 45, and edit when it is held. A person sees more with: leasehold explain ${resource}`,
  }
}

function shownPath({ resource, prefix }: GuardedPath): string {
  return resource === prefix ? '.' : resource.slice(prefix.length + 1)
}

function shownPaths(paths: readonly GuardedPath[]): string {
  const more = paths.length > MAX_LISTED ? ` and ${paths.length - MAX_LISTED} more` : ''
  return `${paths.slice(0, MAX_LISTED).map(shownPath).join(', ')}${more}`
}

async function noticesOf(agent: Agent): Promise<{ readonly context?: string }> {
  const notices = await agent.notices()
  return notices.length === 0 ? {} : { context: `leasehold: ${notices.map(({ text }) => text).join(' ')}` }
}

async function afterEdit(agent: Agent, paths: readonly GuardedPath[], { leases }: GuardContext): Promise<GuardDecision> {
  await agent.noteActivity()
  for (const path of paths) {
    const [view] = await viewsOf(path, leases)
    const other = view!.grants.find(grant => !isOwn(agent, grant))
    if (other !== undefined)
      return {
        allow: true,
        context: `leasehold: your claim of ${shownPath(path)} ended while you wrote it, and ${other.holder} holds it now: both may have written. Compare with its version before you go on, and do not commit yours without it.`,
      }
  }
  return { allow: true, ...(await noticesOf(agent)) }
}

async function beginSession(name: string, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const agent = await openAgent(name, event, context)
  try {
    const { held, queued } = await agent.mine()
    const parts = [
      ...(held.length > 0 ? [`you hold ${held.flatMap(({ names }) => names).join(', ')}`] : []),
      ...(queued.length > 0 ? [`you wait for ${queued.flatMap(({ names }) => names).join(', ')}`] : []),
    ]
    return parts.length === 0 ? ALLOW : { allow: true, context: `leasehold: as ${agent.name}, ${parts.join('; ')}.` }
  } finally {
    if (context.open === undefined) agent.detach()
  }
}

/**
 * Paths that another agent holds now, or that were written under a token older than one already committed. The tokens are shown to the fences of
 * their resources, so that an older one is refused from now on.
 */
async function checkCommit(name: string, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const { leases } = context
  const problems: string[] = []
  for (const path of await locateAll(event, context)) {
    const views = await viewsOf(path, leases)
    const other = views.flatMap(view => view.grants).find(({ holder }) => !isOwn({ name }, { holder }))
    const token = event.tokens?.[path.resource]
    if (other !== undefined) problems.push(`${shownPath(path)} is held by ${other.holder}: commit it when that agent has released it`)
    else if (token !== undefined && (await isStale(leases, path.resource, token)))
      problems.push(
        `${shownPath(path)} was written under token ${token}, and another agent has committed it under a newer one since: take over its version, then edit again`,
      )
    if (problems.length > MAX_LISTED) break
  }
  return problems.length === 0 ? ALLOW : { allow: false, reason: problems.map(problem => `leasehold: ${problem}`).join('\n') }
}

async function isStale(leases: Leases, resource: string, token: number): Promise<boolean> {
  const outcome = await propose(leases.lessor, { kind: 'fence', resource, token })
  return outcome.kind === 'refused' && outcome.code === 'STALE'
}

/** The end of a turn releases everything; the end of a session or sub-agent ends it. */
async function endWork(name: string, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const agent = await findAgent(name, event, context)
  if (agent === undefined) return ALLOW
  if (event.kind === 'stop') await agent.end()
  else {
    await agent.release()
    if (context.open === undefined) agent.detach()
  }
  return ALLOW
}
