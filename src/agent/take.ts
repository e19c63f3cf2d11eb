/** Takes members of a pool for an agent. Asking again for the same pool and labels is the same taking: `count` is how many the agent has in all. */
import { LeaseError } from '../errors.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import type { Leases } from '../leases.ts'
import type { Labels, Member } from '../recipe/pool.ts'
import type { ClaimBook } from './claim-book.ts'
import { oneLine } from './names.ts'

export interface AgentTakeRequest {
  readonly pool: string
  readonly match?: Labels
  /** @default 1 */
  readonly count?: number
  readonly purpose?: string
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
export async function takeFromPool(leases: Leases, book: ClaimBook, request: AgentTakeRequest): Promise<readonly TakenMember[]> {
  const { pool, match = {}, count = 1, purpose = '' } = request
  if (!Number.isSafeInteger(count) || count < 1 || count > MAX_COUNT)
    throw new LeaseError('INVALID', `count must be a whole number from 1 to ${MAX_COUNT}, not ${String(count)}`, {
      facts: { option: 'count' },
    })
  const key = JSON.stringify(Object.entries(match).sort(([a], [b]) => (a < b ? -1 : 1)))
  if (key.length > 1_000) throw new LeaseError('INVALID', 'match has too many labels: leave some out', { facts: { option: 'match' } })
  const members = await leases.pool(pool, { match }).members()
  if (members.length < count)
    throw new LeaseError('NOT_FOUND', `the pool ${pool} has ${members.length} members that match, fewer than ${count}: see look ${pool}`, {
      facts: { pool, members: members.length, count },
    })
  const taken = () => book.claims.filter(claim => claim.held && claim.pool === pool && claim.match === key)
  const have = new Set(taken().flatMap(claim => claim.resources))
  if (have.size < count) {
    const free = members.filter(({ resource }) => !have.has(resource)).slice(0, MAX_RESOURCES)
    const wants = free.map(({ resource, units }) => ({ resource, units }))
    const details = { kind: 'take', wants, any: count - have.size, purpose: oneLine(purpose, PURPOSE_CHARACTERS), expect: 0 } as const
    await book.acquire({ ...details, pool, match: key, wait: false })
  }
  const byResource = new Map(members.map(member => [member.resource, member]))
  return taken().flatMap(({ tokens }) =>
    Object.entries(tokens).map(([resource, token]) => describe(byResource.get(resource), resource, token, pool)),
  )
}

function describe(member: Member | undefined, resource: string, token: number, pool: string): TakenMember {
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
