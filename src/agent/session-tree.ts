/** A session with its claims, and the sessions of sub-agents below it: all that one call of an agent reads and renews. */
import type { LeaseView } from '../lessor.ts'
import { type ClaimRecord, claimRecord } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import { type AgentSession, sessionOf } from './session.ts'

/** Sub-agents of sub-agents, at most. */
const MAX_DEPTH = 4

export interface SessionTree {
  readonly session: AgentSession
  readonly view: LeaseView
  readonly claims: readonly ClaimRecord[]
  readonly children: readonly SessionTree[]
}

/** `known`: views of children that were read before. */
export async function readTree(
  log: AgentLog,
  view: LeaseView,
  session: AgentSession,
  known: readonly LeaseView[] = [],
  depth = 0,
): Promise<SessionTree> {
  const byId = new Map(known.map(child => [child.lease, child]))
  for (const child of await log.leasesOf(view.children.filter(id => !byId.has(id)))) byId.set(child.lease, child)
  const views = view.children.flatMap(id => byId.get(id) ?? [])
  const claims = views.flatMap(child => claimRecord(child) ?? [])
  const below = depth < MAX_DEPTH ? views.flatMap(child => (sessionOf(child) === undefined ? [] : [child])) : []
  const children = await Promise.all(below.map(child => readTree(log, child, sessionOf(child)!, [], depth + 1)))
  return { session, view, claims, children }
}

/** The session of the agent above, if there is one: its sub-agents keep it alive. */
export function aboveOf({ parent }: AgentSession): readonly number[] {
  return parent > 0 ? [parent] : []
}

/** All leases of a tree, the session first. */
export function leasesOf(tree: SessionTree): number[] {
  return [...sessionsOf(tree), ...claimsOf(tree).map(({ lease }) => lease)]
}

/**
 * The leases to renew before the tree is read again: its sessions, and the claims that were held. Not those that waited: a grant must be seen before a renewal
 * confirms it. `claims`: those of its own session now.
 */
export function heldIn(tree: SessionTree, claims: readonly ClaimRecord[]): readonly number[] {
  const held = [...claims, ...tree.children.flatMap(claimsOf)].filter(claim => claim.held)
  return [...aboveOf(tree.session), ...sessionsOf(tree), ...held.map(({ lease }) => lease)]
}

function sessionsOf({ session, children }: SessionTree): number[] {
  return [session.lease, ...children.flatMap(sessionsOf)]
}

function claimsOf({ claims, children }: SessionTree): ClaimRecord[] {
  return [...claims, ...children.flatMap(claimsOf)]
}
