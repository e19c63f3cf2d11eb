/**
 * Decides about the events of coding agents: before an edit, a free path is claimed by itself, and a path that another agent holds is denied; after
 * it, activity is noted; at the end of a turn everything that was claimed for the turn is released.
 *
 * An agent is one host process. Conversations of it that have ids, and its sub-agents, exclude each other; a commit may contain what any of them holds.
 *
 * A path is keyed by its repository (`repo/ORIGIN/PATH`), whatever the working directory is. A claim of a folder covers what is in it, by the rules of the kernel. Paths
 * outside of any repository are not guarded.
 *
 * Not promised: that a write which the host does not announce is seen. A shell command can write anything.
 */
import { type Denial, denialKey } from '../agent/activity.ts'
import { Agent } from '../agent/agent.ts'
import { labelOf } from '../agent/claim-record.ts'
import { oneLine } from '../agent/names.ts'
import type { NameView } from '../agent/neighbours.ts'
import { namesOf, presentName } from '../agent/present.ts'
import { inWords } from '../duration.ts'
import { isRefusal, LeaseError } from '../errors.ts'
import type { Leases } from '../leases.ts'
import { propose } from '../lessor/propose.ts'
import type { GrantView, ResourceView } from '../lessor.ts'
import { whyBadName } from '../wording.ts'
import { agentOf, type HookAgent, type HookProcess } from './hook-agent.ts'
import type { GuardDecision } from './hook-answer.ts'
import type { HookEvent } from './hook-event.ts'

export interface GuardContext {
  readonly leases: Leases
  /** The agent's name. Left out: by its process, or by its session. */
  readonly agent?: string
  /** The process of the agent. */
  readonly process?: HookProcess
  /** The resources that a write to a path changes, and the roots of their repositories' names; none: outside of any repository. */
  readonly locate: Locate
  /** Opens the agent, or finds the one that was opened before. @default `Agent.join` */
  readonly open?: (agent: HookAgent) => Promise<Agent>
}

export type Locate = (path: string, event: Pick<HookEvent, 'cwd' | 'kind'>) => Promise<readonly GuardedPath[]>

export interface GuardedPath {
  readonly resource: string
  /** The prefix of its repository. */
  readonly prefix: string
  /** The folder of git of its worktree; left out if no file was looked at. */
  readonly gitDir?: string
}

const ALLOW: GuardDecision = { allow: true }
const MAX_LISTED = 10
const REASON_CHARACTERS = 500

export async function decide(event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const who = agentOf(event, context)
  switch (event.kind) {
    case 'before':
    case 'after': {
      if (event.problem !== undefined) throw new Error(event.problem)
      const paths = await locateAll(event, context)
      if (paths.length === 0) return ALLOW
      const agent = await openAgent(who, event, context)
      try {
        const edit = { agent, who, event, paths, leases: context.leases }
        return event.kind === 'before' ? await beforeEdit(edit) : await afterEdit(edit)
      } finally {
        if (context.open === undefined) agent.detach()
      }
    }
    case 'begin':
      return beginSession(who, event, context)
    case 'turn':
    case 'stop':
      return endWork(who, event, context)
    case 'commit':
      return checkCommit(who, event, context)
    case 'other': {
      const agent = await findAgent(who, event, context)
      await agent?.noteActivity({ underWay: true })
      if (context.open === undefined) agent?.detach()
      return ALLOW
    }
  }
}

/** An edit of an agent, and what it writes. */
interface Edit {
  readonly agent: Agent
  readonly who: HookAgent
  readonly event: HookEvent
  readonly paths: readonly GuardedPath[]
  readonly leases: Leases
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

async function openAgent(who: HookAgent, event: HookEvent, context: GuardContext): Promise<Agent> {
  const { leases, open } = context
  const agent = await (open === undefined ? Agent.join(leases, identityOf(who)) : open(who))
  return event.subAgent === undefined ? agent : agent.child(subAgentName(event.subAgent))
}

function identityOf({ name, unnamed, process }: HookAgent) {
  return { name, ...(unnamed && { unnamed }), ...(process !== undefined && { process }) }
}

export function subAgentName(id: string): string {
  return id.replace(/[^\p{L}\p{N}_@+:-]/gu, '-').slice(0, 32)
}

/** The agent if it is present: the end of a turn must not open a session. */
async function findAgent(who: HookAgent, event: HookEvent, context: GuardContext): Promise<Agent | undefined> {
  const name = await presentName(context.leases, identityOf(who))
  if (name === undefined) return undefined
  const whole = event.subAgent === undefined ? name : `${name}/${subAgentName(event.subAgent)}`
  const { value } = await context.leases.read({ kind: 'resource', resource: `agents/${whole}` }, { consistent: true })
  return value.grants.some(({ status }) => status !== 'frozen') ? openAgent(who, event, context) : undefined
}

/** The grants that hold a path: of its own name, or of a folder above it with all that is in it. */
async function grantsOf(
  { resource }: GuardedPath,
  leases: Leases,
): Promise<{ readonly view: ResourceView; readonly grants: readonly GrantView[] }> {
  const { value: view } = await leases.read({ kind: 'resource', resource }, { consistent: true })
  return { view, grants: [...view.grants, ...(view.coveredBy ?? [])] }
}

/** The agent itself, or the agent that it works for: what that holds, it lets its sub-agent write. But not what another conversation of it claimed. */
async function isOwn({ agent, who, leases }: Pick<Edit, 'agent' | 'who' | 'leases'>, { holder, lease }: GrantView): Promise<boolean> {
  if (holder !== agent.name && !agent.name.startsWith(`${holder}/`)) return false
  if (who.conversation === undefined) return true
  const { value } = await leases.read({ kind: 'lease', lease }, { consistent: true })
  const conversation = value === undefined ? '' : labelOf(value, 'conversation')
  return conversation === '' || conversation === who.conversation
}

async function firstOfOthers(edit: Pick<Edit, 'agent' | 'who' | 'leases'>, grants: readonly GrantView[]): Promise<GrantView | undefined> {
  for (const grant of grants) if (!(await isOwn(edit, grant))) return grant
  return undefined
}

async function beforeEdit(edit: Edit): Promise<GuardDecision> {
  const { agent, who, event, paths, leases } = edit
  const wanted: GuardedPath[] = []
  let waits = false
  for (const path of paths) {
    const { view, grants } = await grantsOf(path, leases)
    const blocking = await firstOfOthers(edit, grants)
    if (blocking !== undefined) return deny(edit, path, blocking.resource)
    waits ||= view.queue.some(({ holder }) => holder === agent.name)
    const covered = grants.some(({ shared }) => !shared)
    if (!covered || view.grants.some(({ holder }) => holder === agent.name)) wanted.push(path)
  }
  if (wanted.length === 0) {
    await agent.noteActivity({ underWay: true })
    return ALLOW
  }
  const names = wanted.map(({ resource }) => resource)
  try {
    const purpose = `${event.tool || 'edit'} of ${shownPaths(wanted)}`
    const conversation = event.subAgent === undefined ? who.conversation : undefined
    const claim = await agent.claim(names, { purpose, forTurn: true, ...(conversation !== undefined && { conversation }) })
    if (claim.status === 'held') return { allow: true, tokens: claim.tokens, ...gitDirsOf(wanted), ...(await noticesOf(agent)) }
    // Another agent was faster. A place in the queue that the agent asked for itself stays.
    if (!waits) await agent.leaveQueues(names, conversation)
    return deny(edit, wanted[0]!, claim.waitsFor?.[0]?.resource ?? names[0]!)
  } catch (error) {
    if (!isRefusal(error)) throw error
    return { allow: false, reason: `leasehold: ${(error as LeaseError).message}` }
  }
}

function gitDirsOf(paths: readonly GuardedPath[]): Pick<GuardDecision, 'gitDirs'> {
  const known = paths.flatMap(({ prefix, gitDir }) => (gitDir === undefined ? [] : [[prefix, gitDir] as const]))
  return known.length === 0 ? {} : { gitDirs: Object.fromEntries(known) }
}

/** Who, why, since when, and how to queue. */
async function deny({ agent, leases }: Edit, path: GuardedPath, resource: string): Promise<GuardDecision> {
  const { names } = await agent.look(resource)
  const why = whyDenied(
    names.find(name => name.resource === resource),
    agent.name,
    path,
    resource,
  )
  await noteDenial(agent, leases, { at: leases.clock.wall(), resource, reason: oneLine(why, REASON_CHARACTERS) })
  return {
    allow: false,
    reason: `leasehold: ${why}. Do not write it in another way. Work on something else, or queue for it: call the leasehold tool claim with names [${JSON.stringify(`name:${path.resource}`)}] and wait_seconds 45, and edit when it is held. A person sees more with: leasehold explain ${resource}`,
  }
}

function whyDenied(view: NameView | undefined, agent: string, path: GuardedPath, resource: string): string {
  const [holder, waiter] = [view?.holders[0], view?.waiters[0]]
  const purpose = (one: { readonly purpose: string }) => (one.purpose === '' ? '' : `, for: ${JSON.stringify(one.purpose)}`)
  const shown = shownPath(resource.startsWith(`${path.resource}/`) ? { ...path, resource } : path)
  if (holder === undefined && waiter !== undefined && resource !== path.resource)
    return `${shown} is behind ${waiter.holder}, who waits for ${shownPath({ ...path, resource })}${purpose(waiter)}`
  const waiting = view?.waiters.length ? `, ${view.waiters.length} waiting` : ''
  if (holder === undefined) return `${shown} is held by a holder that is just stopping${waiting}`
  const other = holder.holder === agent ? ' in another conversation of yours' : ''
  const { idleSeconds, forSeconds } = holder
  const since = forSeconds === 0 ? 'since just now' : `for ${inWords(forSeconds * 1_000)}`
  const idle = idleSeconds === undefined ? '' : idleSeconds === 0 ? ', active now' : `, last active ${inWords(idleSeconds * 1_000)} ago`
  return `${shown} is held by ${holder.holder}${other}${byFolder(path, resource)}${purpose(holder)}, ${since}${idle}${waiting}`
}

/** ` (by its claim of src/)` if a folder above the path is claimed. */
function byFolder(path: GuardedPath, resource: string): string {
  return path.resource.startsWith(`${resource}/`) ? ` (by its claim of ${shownPath({ ...path, resource })}/)` : ''
}

/** For people. A key that may not register entries is denied all the same. */
async function noteDenial({ name, session }: Agent, { lessor }: Leases, denial: Denial): Promise<void> {
  await propose(lessor, { kind: 'put', lease: session, key: denialKey(name), value: JSON.stringify(denial) }).catch(() => {})
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

async function afterEdit(edit: Edit): Promise<GuardDecision> {
  const { agent, paths, leases } = edit
  await agent.noteActivity()
  for (const path of paths) {
    const other = await firstOfOthers(edit, (await grantsOf(path, leases)).grants)
    if (other !== undefined)
      return {
        allow: true,
        context: `leasehold: your claim of ${shownPath(path)} ended while you wrote it, and ${other.holder} holds it now: both may have written. Compare with its version before you go on, and do not commit yours without it.`,
      }
  }
  return { allow: true, ...(await noticesOf(agent)) }
}

async function beginSession(who: HookAgent, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const agent = await openAgent(who, event, context)
  try {
    const { held, queued } = await agent.mine()
    const parts = [
      ...(event.subAgent === undefined
        ? []
        : [`pass sub_agent ${JSON.stringify(subAgentName(event.subAgent))} to the tools of leasehold, so that your claims are yours`]),
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
async function checkCommit(who: HookAgent, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const { leases } = context
  const problems: string[] = []
  let own: readonly string[] | undefined
  for (const path of await locateAll(event, context)) {
    const { grants } = await grantsOf(path, leases)
    if (grants.length > 0) own ??= await namesOf(leases, identityOf(who))
    const other = grants.find(({ holder }) => !own!.some(name => holder === name || holder.startsWith(`${name}/`)))
    const token = event.tokens?.[path.resource]
    if (other !== undefined)
      problems.push(
        `${shownPath(path)} is held by ${other.holder}${byFolder(path, other.resource)}: commit it when that agent has released it`,
      )
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

/**
 * The end of a turn releases what was claimed for it. The end of a sub-agent ends it; that of a conversation ends the agent, unless its host goes on: then what was claimed to
 * last stays, such as the port of a server that still runs.
 */
async function endWork(who: HookAgent, event: HookEvent, context: GuardContext): Promise<GuardDecision> {
  const agent = await findAgent(who, event, context)
  if (agent === undefined) return ALLOW
  const isOver = event.kind === 'stop'
  if (isOver && (event.subAgent !== undefined || event.hostGoesOn !== true || who.process === undefined)) await agent.end()
  else {
    await agent.endTurn({ ...(who.conversation !== undefined && { conversation: who.conversation }), everything: isOver })
    if (context.open === undefined) agent.detach()
  }
  return ALLOW
}
