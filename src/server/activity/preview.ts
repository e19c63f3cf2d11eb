/** A preview shows what an operator's action would do: which leases it ends, and which waiters get what they hold. Read from the state as it is; nothing is changed. */
import { LeaseError } from '../../errors.ts'
import type { Verb } from '../../kernel/command.ts'
import type { LeaseView } from '../../lessor.ts'
import { ACTION_VERBS, type OperatorAction } from '../../wire/http/action-verb.ts'
import type { Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'

/** Leases that are looked at. */
const MAX_LEASES = 2_000
/** Names whose queues are looked at in one slice. */
const NAMES_IN_SLICE = 100
/** Items of each list in the answer. */
const MAX_SHOWN = 50

export interface PreviewedAction {
  readonly action: OperatorAction
  readonly lease?: number
  readonly holder?: string
  readonly prefix?: string
  readonly resource?: string
  readonly to?: string
}

export interface ActionPreview {
  readonly allowed: boolean
  readonly why?: string
  readonly says: string
  readonly ends: readonly object[]
  readonly endsTotal: number
  readonly next: readonly { readonly resource: string; readonly lease: number; readonly holder: string }[]
}

export async function preview(guarded: GuardedLessor, caller: Caller, action: PreviewedAction): Promise<ActionPreview> {
  const { access } = guarded
  if (action.action === 'policy') {
    const { prefix = '' } = action
    access.requireUnder(caller, 'read', prefix)
    return {
      ...permission(access.may(caller, ACTION_VERBS.policy, prefix), caller, ACTION_VERBS.policy, prefix),
      says: `sets rules for ${prefix === '' ? 'all names' : `all names under ${prefix}`}; it never shortens a term that was acknowledged`,
      ends: [],
      endsTotal: 0,
      next: [],
    }
  }
  const targets = await targetsOf(guarded, caller, action)
  const verb = ACTION_VERBS[action.action]
  const trees = action.action === 'recall' ? [] : await treesOf(guarded, caller, targets)
  const forbidden = trees.flatMap(tree => namesBeyond(guarded, caller, action, tree))
  if (action.resource !== undefined && !access.may(caller, verb, action.resource)) forbidden.push(action.resource)
  const ending = [...new Map(trees.flat().map(lease => [lease.lease, lease])).values()]
  const next = action.action === 'transfer' ? [] : await nextHolders(guarded, caller, ending)
  return {
    ...permission(forbidden.length === 0, caller, verb, forbidden[0] ?? ''),
    says: sentence(action, targets, ending, next),
    ends: ending
      .slice(0, MAX_SHOWN)
      .map(({ lease, holder, status, ...rest }) => ({ lease, holder, status, names: namesOf(rest).slice(0, MAX_SHOWN) })),
    endsTotal: ending.length,
    next: next.slice(0, MAX_SHOWN),
  }
}

function permission(
  allowed: boolean,
  { name }: Caller,
  verb: Verb,
  forbidden: string,
): { readonly allowed: boolean; readonly why?: string } {
  return allowed ? { allowed } : { allowed, why: `${name} may not ${verb} ${forbidden === '' ? 'everything' : forbidden}` }
}

async function targetsOf(
  guarded: GuardedLessor,
  caller: Caller,
  { lease, holder, prefix, resource }: PreviewedAction,
): Promise<LeaseView[]> {
  if (resource !== undefined) {
    const { value } = await guarded.read<'resource'>(caller, { kind: 'resource', resource, waiters: 0 })
    return leasesOf(guarded, caller, new Set(value.grants.filter(({ status }) => status !== 'frozen').map(grant => grant.lease)))
  }
  if (lease !== undefined) return leasesOf(guarded, caller, new Set([lease]))
  if (holder === undefined && prefix === undefined)
    throw new LeaseError('INVALID', 'the body must name what the action is for: lease, holder, prefix or resource')
  const query = {
    kind: 'leases',
    limit: MAX_LEASES,
    ...(holder !== undefined && { holder }),
    ...(prefix !== undefined && { prefix }),
  } as const
  return [...(await guarded.read<'leases'>(caller, query)).value]
}

async function leasesOf(guarded: GuardedLessor, caller: Caller, ids: Iterable<number>): Promise<LeaseView[]> {
  const views = await Promise.all([...ids].map(lease => guarded.read<'lease'>(caller, { kind: 'lease', lease })))
  return views.flatMap(({ value }) => (value === undefined ? [] : [value]))
}

/** A lease ends with everything below it: each target, followed by what ends with it. */
async function treesOf(guarded: GuardedLessor, caller: Caller, targets: readonly LeaseView[]): Promise<LeaseView[][]> {
  const trees: LeaseView[][] = []
  let looked = 0
  for (const target of targets) {
    const tree = [target]
    for (let level: readonly LeaseView[] = tree; level.length > 0 && looked < MAX_LEASES; looked += level.length) {
      const children = level.flatMap(lease => lease.children).slice(0, MAX_LEASES - looked)
      level = await leasesOf(guarded, caller, children)
      tree.push(...level)
    }
    trees.push(tree)
  }
  return trees
}

/** The names of a tree that the caller has no right on. A key may end its own lease with all below it; a lease without names needs the right on everything. */
function namesBeyond({ access }: GuardedLessor, caller: Caller, { action }: PreviewedAction, tree: readonly LeaseView[]): string[] {
  const [root] = tree
  if (caller.key !== 0 && root!.key === caller.key) return []
  const verb = ACTION_VERBS[action]
  // Breaking asks for what is held, not for entries.
  const names = (lease: LeaseView) => namesOf(action === 'break' ? { ...lease, entries: [] } : lease)
  if (names(root!).length === 0 && !access.may(caller, verb, '')) return ['']
  return tree.flatMap(names).filter(name => !access.may(caller, verb, name))
}

/** Who is first in the queues of what ends, and does not end with it. */
async function nextHolders(guarded: GuardedLessor, caller: Caller, ending: readonly LeaseView[]) {
  const ended = new Set(ending.map(({ lease }) => lease))
  const names = new Set(ending.flatMap(({ grants }) => grants.map(({ resource }) => resource)))
  const next: { readonly resource: string; readonly lease: number; readonly holder: string }[] = []
  for (const [i, resource] of [...names].slice(0, MAX_LEASES).entries()) {
    if (i % NAMES_IN_SLICE === NAMES_IN_SLICE - 1) await guarded.nextTurn(caller)
    const { value } = await guarded.read<'resource'>(caller, { kind: 'resource', resource, waiters: MAX_LEASES })
    const first = value.queue.find(({ lease }) => !ended.has(lease))
    if (first !== undefined) next.push({ resource, lease: first.lease, holder: first.holder })
  }
  return next
}

function namesOf({ grants, wants, entries }: Pick<LeaseView, 'grants' | 'wants' | 'entries'>): string[] {
  return [...grants.map(({ resource }) => resource), ...wants.map(({ resource }) => resource), ...entries.map(({ key }) => key)]
}

/** "ends 3 leases of ci-7; 2 waiters get db/main and db/test" */
function sentence(
  { action, to }: PreviewedAction,
  targets: readonly LeaseView[],
  ending: readonly LeaseView[],
  next: readonly { readonly resource: string; readonly holder: string }[],
): string {
  if (action === 'recall') return `asks ${list(targets.map(({ holder }) => holder)) || 'no holder'} to give it back; nothing ends by that`
  if (ending.length === 0) return 'ends nothing: there is no such lease'
  const many = ending.length >= MAX_LEASES ? `at least ${MAX_LEASES}` : String(ending.length)
  const leases = `${many} ${ending.length === 1 ? 'lease' : 'leases'} of ${list(ending.map(({ holder }) => holder))}`
  if (action === 'transfer') return `gives ${leases} to ${to ?? 'another holder'}, under new tokens`
  if (next.length === 0) return `ends ${leases}; no waiter gets anything`
  const gets = next.length === 1 ? `${next[0]!.holder} gets` : `${next.length} waiters get`
  return `ends ${leases}; ${gets} ${list(next.map(({ resource }) => resource))}`
}

function list(names: readonly string[]): string {
  const different = [...new Set(names)]
  if (different.length <= 3) return different.join(', ')
  return `${different.slice(0, 3).join(', ')} and ${different.length - 3} more`
}
