/** Takes members of a pool for an agent. Asking again for the same pool and labels is the same taking: `count` is how many the agent has in all. */
import { LeaseError } from '../errors.ts'
import { MAX_RESOURCES, type Want } from '../kernel/command.ts'
import type { Leases } from '../leases.ts'
import type { Labels, Member } from '../recipe/pool.ts'
import type { ClaimBook } from './claim-book.ts'
import type { ClaimRecord } from './claim-record.ts'
import { declaredPools, rangeMembers } from './declared-pools.ts'
import { oneLine, type Workspace } from './names.ts'

export interface AgentTakeRequest {
  readonly pool: string
  readonly match?: Labels
  /** Numbers such as `3000-3099`, of which free ones are taken, under the names `POOL/NUMBER`. The pool need not be offered. */
  readonly range?: string
  /** @default 1 */
  readonly count?: number
  readonly purpose?: string
  /** Returns whether a member that was free in the pool is free in fact. One that is not is given back, and another one is tried. */
  readonly isUsable?: (member: string) => Promise<boolean>
}

export interface TakenMember {
  readonly member: string
  readonly resource: string
  readonly token: number
  readonly labels: Labels
}

/** The most members of one pool that one agent takes. */
const MAX_COUNT = 64
const PURPOSE_CHARACTERS = 500

/** Throws `HELD` if too few are free, `NOT_FOUND` if the pool has no such member. */
export async function takeFromPool(
  leases: Leases,
  book: ClaimBook,
  request: AgentTakeRequest,
  workspace: Workspace | undefined,
): Promise<readonly TakenMember[]> {
  const { pool, match = {}, range, count = 1, purpose = '', isUsable } = request
  if (!Number.isSafeInteger(count) || count < 1 || count > MAX_COUNT)
    throw new LeaseError('INVALID', `count must be a whole number from 1 to ${MAX_COUNT}, not ${String(count)}`, {
      facts: { option: 'count' },
    })
  const labels = JSON.stringify(Object.entries(match).sort(([a], [b]) => (a < b ? -1 : 1)))
  const key = range === undefined ? labels : `${range} ${labels}`
  if (key.length > 1_000) throw new LeaseError('INVALID', 'match has too many labels: leave some out', { facts: { option: 'match' } })
  const members = await membersOf(leases, request, workspace)
  if (members.length < count)
    throw new LeaseError(
      'NOT_FOUND',
      `the pool ${pool} has ${members.length} members that match, fewer than ${count}: see look ${pool}${declaredHere(workspace)}`,
      {
        facts: { pool, members: members.length, count },
      },
    )
  const taken = () => book.claims.filter(claim => claim.held && claim.pool === pool && claim.match === key)
  const unusable = new Set<string>()
  for (;;) {
    const have = new Set(taken().flatMap(claim => claim.resources))
    if (have.size >= count) break
    const free = members.filter(({ resource }) => !have.has(resource) && !unusable.has(resource))
    if (free.length === 0)
      throw new LeaseError(
        'HELD',
        `every member of ${pool} that no agent holds is used by another program: stop that, or take from another range`,
        {
          facts: { pool },
        },
      )
    const details = {
      kind: 'take',
      any: count - have.size,
      purpose: oneLine(purpose, PURPOSE_CHARACTERS),
      expect: 0,
      pool,
      match: key,
    } as const
    const claim = await acquireAny(free, wants => book.acquire({ ...details, wants, wait: false }))
    if (isUsable === undefined) continue
    for (const resource of claim.resources) {
      const { member } = members.find(one => one.resource === resource)!
      if (await isUsable(member)) continue
      unusable.add(resource)
      await book.release(claim, [resource])
    }
  }
  const byResource = new Map(members.map(member => [member.resource, member]))
  return taken().flatMap(({ tokens }) =>
    Object.entries(tokens).map(([resource, token]) => describe(byResource.get(resource), resource, token, pool)),
  )
}

type PoolChoice = Pick<Member, 'member' | 'resource' | 'labels'> & { readonly units?: number }

async function membersOf(
  leases: Leases,
  { pool, match = {}, range }: AgentTakeRequest,
  workspace: Workspace | undefined,
): Promise<readonly PoolChoice[]> {
  const declared = range === undefined ? workspace && declaredPools(workspace).get(pool) : rangeMembers(pool, range)
  if (declared === undefined) return leases.pool(pool, { match }).members()
  return declared.filter(({ labels }) => Object.entries(match).every(([label, value]) => labels[label] === value))
}

/** A request names a bounded number of resources: a larger pool is tried in parts. */
async function acquireAny(free: readonly PoolChoice[], acquire: (wants: readonly Want[]) => Promise<ClaimRecord>): Promise<ClaimRecord> {
  for (let from = 0; ; from += MAX_RESOURCES) {
    const part = free.slice(from, from + MAX_RESOURCES)
    try {
      return await acquire(part.map(({ resource, units }) => ({ resource, ...(units !== undefined && { units }) })))
    } catch (error) {
      if (!LeaseError.is(error, 'HELD') || from + MAX_RESOURCES >= free.length) throw error
    }
  }
}

function declaredHere(workspace: Workspace | undefined): string {
  const pools = workspace === undefined ? [] : [...declaredPools(workspace).keys()]
  return pools.length === 0 ? '' : `. This repository declares: ${pools.join(', ')}`
}

function describe(member: PoolChoice | undefined, resource: string, token: number, pool: string): TakenMember {
  return { member: member?.member ?? resource.slice(pool.length + 1), resource, token, labels: member?.labels ?? {} }
}

/** Returns what was taken, as lines of a shell: `LEASEHOLD_GPU='0,1'`, and each label as `LEASEHOLD_GPU_MODEL`. */
export function environmentLines(pool: string, members: readonly TakenMember[]): readonly string[] {
  const name = `LEASEHOLD_${variable(pool)}`
  const lines = [`${name}=${quoted(members.map(({ member }) => member).join(','))}`]
  const labels = new Set(members.flatMap(member => Object.keys(member.labels)))
  for (const label of labels) {
    const values = members.map(member => member.labels[label] ?? '').join(',')
    lines.push(`${name}_${variable(label)}=${quoted(values)}`)
  }
  lines.push(`${name}_TOKEN=${quoted(members.map(({ token }) => `${token}`).join(','))}`)
  return lines
}

function variable(text: string): string {
  return oneLine(text, 128)
    .toUpperCase()
    .replace(/[^A-Z0-9]+/g, '_')
}

/** The owner of a member chose these values: a shell must not run them. */
function quoted(text: string): string {
  return `'${oneLine(text, 1_024).replaceAll("'", `'\\''`)}'`
}
