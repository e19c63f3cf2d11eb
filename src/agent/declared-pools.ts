/**
 * The pools that a repository declares in `.leasehold/pools.json`, so that its agents have something to take: databases, browsers, simulators, deploy targets, ports.
 *
 * A value is a range of numbers (`"3000-3099"`), a list of members, or an object of members with their labels. Members of a range have free names (`port/3000`), the same in all
 * repositories of a machine; other members belong to the repository (`repo/…/.leasehold/pools/database/test-1`).
 */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { LeaseError } from '../errors.ts'
import type { Labels } from '../recipe/pool.ts'
import { whyBadName } from '../wording.ts'
import type { Workspace } from './names.ts'

export const POOLS_FILE = '.leasehold/pools.json'
/** The most numbers in a range, and members in a list. */
const MAX_MEMBERS = 1_024
const MAX_BYTES = 1 << 20

export interface DeclaredMember {
  readonly member: string
  readonly resource: string
  readonly labels: Labels
}

export type DeclaredPools = ReadonlyMap<string, readonly DeclaredMember[]>

/** Throws `INVALID` for a file that cannot be understood. Without a file, or with one on another machine, there are none. */
export function declaredPools({ root, prefix }: Workspace): DeclaredPools {
  const pools = new Map<string, readonly DeclaredMember[]>()
  for (const [pool, value] of Object.entries(root === '' ? {} : readPools(join(root, POOLS_FILE)))) {
    if (typeof value === 'string') {
      pools.set(pool, rangeMembers(pool, value))
      continue
    }
    const members: readonly (readonly [unknown, unknown])[] = Array.isArray(value)
      ? value.map(member => [member, {}] as const)
      : Object.entries((value ?? {}) as object)
    if (members.length === 0 || members.length > MAX_MEMBERS)
      throw flaw(`the pool ${pool} must have 1 to ${MAX_MEMBERS} members, as a list of names or an object of names and labels`)
    pools.set(
      pool,
      members.map(([member, labels]) => ({
        member: checkedName(pool, member),
        resource: `${prefix}/.leasehold/pools/${pool}/${String(member)}`,
        labels: checkedLabels(pool, labels),
      })),
    )
  }
  return pools
}

/** The members of a range such as `3000-3099`. */
export function rangeMembers(pool: string, range: string): readonly DeclaredMember[] {
  const [, from = '', to = from] = /^\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?$/.exec(range) ?? []
  const count = Number(to) - Number(from) + 1
  if (from === '' || count < 1 || count > MAX_MEMBERS)
    throw new LeaseError(
      'INVALID',
      `a range is written 3000-3099, and has at most ${MAX_MEMBERS} numbers, not ${JSON.stringify(range.slice(0, 80))}`,
      {
        facts: { option: 'range' },
      },
    )
  return Array.from({ length: count }, (_, i) => {
    const member = `${Number(from) + i}`
    return { member: checkedName(pool, member), resource: `${pool}/${member}`, labels: {} }
  })
}

function readPools(path: string): Readonly<Record<string, unknown>> {
  let text: string
  try {
    const found = statSync(path)
    if (!found.isFile() || found.size > MAX_BYTES) return {}
    text = readFileSync(path, 'utf8')
  } catch {
    return {}
  }
  let pools: unknown
  try {
    pools = JSON.parse(text)
  } catch (error) {
    throw flaw((error as Error).message)
  }
  if (typeof pools !== 'object' || pools === null || Array.isArray(pools)) throw flaw('it is not an object of pools')
  return pools as Readonly<Record<string, unknown>>
}

function checkedName(pool: string, member: unknown): string {
  const name = typeof member === 'string' ? member : ''
  const bad = name === '' ? 'is empty or no text' : whyBadName(`${pool}/${name}`)
  if (bad !== undefined) throw flaw(`the member ${JSON.stringify(member)} of the pool ${pool} ${bad}`)
  return name
}

function checkedLabels(pool: string, labels: unknown): Labels {
  const isPlain = typeof labels === 'object' && labels !== null && !Array.isArray(labels)
  if (!isPlain || Object.values(labels).some(value => typeof value !== 'string'))
    throw flaw(`the labels of the pool ${pool} must be an object of texts, such as {"url": "postgres://127.0.0.1/test_1"}`)
  return labels as Labels
}

function flaw(what: string): LeaseError {
  return new LeaseError('INVALID', `${POOLS_FILE} cannot be used: ${what}`, { facts: { option: 'pool' } })
}
