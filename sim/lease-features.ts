/** Reads from the state of the kernel which features are in force on a lease, and from a request which features it has. */
import type { Acquire } from '../src/kernel/command.ts'
import { rule } from '../src/kernel/rule/policy.ts'
import { BREAK, FROZEN, type LeaseState, PREEMPT, type State, WAITING } from '../src/kernel/state.ts'
import { FEATURES, type Feature, MARKS_LABEL } from './features.ts'
import { bringsChanges } from './transactions.ts'

const FACES = ['kubernetes/', 'etcd/', 'consul/', 'redis/']
const KNOWN: ReadonlySet<string> = new Set(FEATURES)

/** Returns what a simulated program says of its request: features that the kernel cannot see. */
function marksIn(labels: readonly (readonly [string, string])[] = []): Feature[] {
  const text = labels.find(([name]) => name === MARKS_LABEL)?.[1] ?? ''
  return text.split(' ').filter((name): name is Feature => KNOWN.has(name))
}

function hasQuota(state: State, names: readonly string[], pool?: { readonly pool: string; readonly account?: string }): boolean {
  const account = pool?.account
  if (pool !== undefined && account !== undefined) {
    const { quotaUnits = 0, quotaWeek = 0 } = state.policies.get(`${pool.pool}/accounts/${account}`) ?? {}
    if (quotaUnits + quotaWeek > 0 || [...state.policies.keys()].some(prefix => prefix.startsWith(`${pool.pool}/kinds/`))) return true
  }
  return names.some(name => rule(state, name, 'quota') > 0)
}

function isFace(names: readonly string[]): boolean {
  return names.some(name => FACES.some(prefix => name.startsWith(prefix)))
}

/** The features of a request, apart from what becomes of it. */
export function requestFeatures(state: State, command: Acquire): Set<Feature> {
  const { wants, pool, entries = [], labels } = command
  const names = wants.map(({ resource }) => resource)
  const found = new Set<Feature>(marksIn(labels))
  found.add(command.wait === true ? 'wait' : 'no-wait')
  if (command.any !== undefined) found.add('any')
  if (wants.some(({ units = 1 }) => units > 1)) found.add('units')
  if (command.permits !== undefined) found.add('permits')
  if (command.covers === true) found.add('covers')
  if (wants.some(({ shared = false }) => shared)) found.add('shared')
  if (command.parent !== undefined) found.add('parent')
  if (entries.length > 0 || bringsChanges(command)) found.add('entries')
  if (pool !== undefined || entries.some(({ key }) => key.startsWith('pool/'))) found.add('pool-member')
  if (pool?.from !== undefined) found.add('reservation')
  if (pool?.preemptible === true) found.add('preemptible')
  if (hasQuota(state, names, pool)) found.add('quota')
  if (command.steal !== undefined) found.add('steal')
  if ((command.grace ?? 0) > 0) found.add('grace')
  if ((command.maxLife ?? 0) > 0) found.add('cap')
  if (isFace(names) || isFace(entries.map(({ key }) => key))) found.add('face-lease')
  return found
}

/** The features that the state itself shows to be in force on a lease. */
export function featuresInState(state: State, lease: LeaseState): Set<Feature> {
  const { extras, grants, status } = lease
  const names = [...grants.map(({ resource }) => resource.name), ...(extras?.wants ?? []).map(({ resource }) => resource)]
  const found = new Set<Feature>()
  if (status === WAITING) found.add('wait')
  if (grants.some(({ units, shared }) => units > 1 && !shared)) found.add('units')
  if (grants.some(({ shared }) => shared)) found.add('shared')
  if (isFace(names)) found.add('face-lease')
  if (grants.some(({ resource }) => rule(state, resource.name, 'lockDelay') > 0)) found.add('lock-delay')
  if (extras === undefined) return found
  const { pool, timers, cause } = extras
  for (const mark of marksIn(extras.labels)) found.add(mark)
  if (status === WAITING && extras.any > 0) found.add('any')
  if (status === WAITING && extras.wants.some(({ units, shared }) => units > 1 && !shared)) found.add('units')
  if (status === WAITING && extras.wants.some(({ shared }) => shared)) found.add('shared')
  if (extras.parent !== undefined || (extras.children?.size ?? 0) > 0) found.add('parent')
  if ((extras.entries?.size ?? 0) > 0 || extras.pending.length > 0) found.add('entries')
  if (pool !== undefined || [...(extras.entries ?? [])].some(key => key.startsWith('pool/'))) found.add('pool-member')
  if ((pool?.from ?? 0) > 0) found.add('reservation')
  if (pool?.preemptible === true) found.add('preemptible')
  if (pool?.borrows === true && status !== WAITING) found.add('borrowed')
  if (hasQuota(state, names, pool)) found.add('quota')
  if (extras.permits > 0 && !extras.covers) found.add('permits')
  if (extras.covers) found.add('covers')
  if (extras.grace > 0) found.add('grace')
  if (extras.maxLife > 0) found.add('cap')
  if (extras.open) found.add('adopt-by-name')
  if (extras.handed) found.add('transfer')
  if (hasBreak(timers, pool === undefined) || (status === FROZEN && cause === 'break')) found.add('break')
  if (status === FROZEN && cause === 'stolen') found.add('steal')
  if (status === FROZEN && cause === 'revoked') found.add('revoke')
  return found
}

function hasBreak(timers: readonly unknown[] | undefined, plain: boolean): boolean {
  return timers?.some((timer, slot) => timer !== undefined && slot >= BREAK && (plain || slot !== PREEMPT)) === true
}
