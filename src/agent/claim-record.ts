/** A claim as it is kept in the log: a lease under the agent's session, whose labels say what it is for. */
import type { Mode } from '../holder/acquire-options.ts'
import type { LeaseView } from '../lessor.ts'

/** The labels of a lease of an agent say this: it is its session, or something it claimed or took. */
export type AgentLeaseKind = 'agent' | 'claim' | 'take'

export interface ClaimRecord {
  readonly lease: number
  readonly resources: readonly string[]
  readonly mode: Mode
  readonly purpose: string
  /** The agent expects to need it for this long, in ms; 0: it did not say. */
  readonly expect: number
  /** The pool it was taken from, and by which labels; empty for a claim of names. */
  readonly pool: string
  readonly match: string
  /** The conversation of its host that it belongs to; empty: all of them. */
  readonly conversation: string
  /** It ends with the turn of its agent. */
  readonly forTurn: boolean
  /** Granted. False: it waits. */
  readonly held: boolean
  readonly tokens: Readonly<Record<string, number>>
  /** The highest of its places; 0 is next. */
  readonly position: number
  /** Wall time in ms since it was granted, or has waited, for display only. */
  readonly since: number
  /** Another agent waits or has asked for it. */
  readonly recalled: boolean
}

export function labelOf({ labels }: Pick<LeaseView, 'labels'>, name: string): string {
  return labels.find(([label]) => label === name)?.[1] ?? ''
}

export function kindOfLease(view: Pick<LeaseView, 'labels'>): string {
  return labelOf(view, 'kind')
}

/** Undefined for a lease that is no claim, or has ended. */
export function claimRecord(view: LeaseView): ClaimRecord | undefined {
  const kind = kindOfLease(view)
  if ((kind !== 'claim' && kind !== 'take') || view.status === 'frozen') return undefined
  const held = view.status !== 'waiting'
  const parts: readonly { readonly resource: string; readonly shared: boolean }[] = held ? view.grants : view.wants
  return {
    lease: view.lease,
    resources: parts.map(({ resource }) => resource),
    mode: parts[0]?.shared === true ? 'shared' : 'exclusive',
    purpose: labelOf(view, 'purpose'),
    expect: expectOf(view),
    pool: labelOf(view, 'pool'),
    match: labelOf(view, 'match'),
    conversation: labelOf(view, 'conversation'),
    forTurn: labelOf(view, 'until') === 'turn',
    held,
    tokens: Object.fromEntries(view.grants.map(({ resource, token }) => [resource, token])),
    position: view.wants.reduce((highest, { position }) => Math.max(highest, position), 0),
    since: view.since,
    recalled: view.recalled,
  }
}

/** Returns how long the holder expects to need it, in ms; 0: it did not say. */
export function expectOf(view: Pick<LeaseView, 'labels'>): number {
  const ms = Number(labelOf(view, 'expect'))
  return Number.isSafeInteger(ms) && ms > 0 ? ms : 0
}

/** Returns whether a claim is one of this conversation: its own, or one for all conversations of the agent. Empty: the agent as a whole. */
export function isSameConversation(claim: Pick<ClaimRecord, 'conversation'>, conversation: string): boolean {
  return claim.conversation === '' || conversation === '' || claim.conversation === conversation
}
