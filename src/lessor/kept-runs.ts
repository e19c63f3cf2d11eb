/**
 * Commands leave a record of what they did while they held a lease: for how long they ran and with which code they ended. The kernel keeps the last 8 grants of a resource,
 * which is eight minutes of a job that runs every minute. So `leasehold run` writes an entry for each run, and the history of a resource shows both.
 *
 * The entries belong to no lease (docs/library.md), so policies bound them: `freeEntries` and `freeBytes` of `leasehold/runs` in all, and `maxLife` says
 * how long a run is kept. Of each name the last 1,000 are kept, in slots that are used again. They are for people: a key that may
 * register there can write anything, and nothing is decided by them.
 *
 * For NAME, `leasehold/runs/NAME/~` has the numbers of the first and the next run, and `leasehold/runs/NAME/~SLOT` has one run.
 */
import type { Command, EntryChange, PolicyRules } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { rule } from '../kernel/rule/policy.ts'
import type { Lessor, PastGrant } from '../lessor.ts'
import { propose } from './propose.ts'

/** The prefix of the entries, and of the policy that bounds them. */
export const RUNS = 'leasehold/runs'
/** The policy that the first run sets where none says otherwise. */
export const RUN_RULES: PolicyRules = { freeEntries: 10_000, maxLife: 30 * 86_400_000 }

const RUNS_PER_NAME = 1_000
/** Of a lease on more resources, the first ones get an entry. */
const MOST_NAMES = 32
/** Old runs that one new run may remove. */
const REMOVED_AT_ONCE = 2
const REMOVED_WHEN_FULL = 64
const ATTEMPTS = 4
const LONGEST_KEY = 512
const LONGEST_TEXT = 512
/** A reader parses up to 1,000 of them in one turn of the event loop. A longer one was not written here. */
const LONGEST_VALUE = 2_048

/** A command that ran under a lease. */
export interface KeptRun extends Pick<PastGrant, 'lease' | 'holder' | 'since' | 'until' | 'cause'> {
  /** Ms that the command ran, by the holder's own clock. */
  readonly ran: number
  /** The exit code of the command; 128 + the signal that ended it. */
  readonly exit: number
  /** The program, without its arguments. */
  readonly command: string
}

/** The numbers of the runs of a name: from `first` to before `next`. */
interface RunNumbers {
  readonly first: number
  readonly next: number
}

/** The newest `most` runs of a resource, oldest first. `get` returns the value of an entry. Runs that ended before `since` (wall time) are left out. */
export function keptRuns(get: (key: string) => string | undefined, resource: string, since: number, most: number): readonly PastGrant[] {
  const numbers = numbersOf(get(numbersKey(resource)))
  if (numbers === undefined) return []
  const runs: PastGrant[] = []
  for (let i = Math.max(numbers.first, numbers.next - Math.min(most, RUNS_PER_NAME)); i < numbers.next; i++) {
    const run = runOf(get(runKey(resource, i)))
    if (run !== undefined && run.until >= since) runs.push(run)
  }
  return runs
}

/** The history that the kernel knows, with the kept runs: those that it has forgotten come first. */
export function withRuns(past: readonly PastGrant[], runs: readonly PastGrant[]): readonly PastGrant[] {
  if (runs.length === 0) return past
  const byToken = new Map(runs.map(run => [run.token, run]))
  const known = past.map(grant => {
    const run = byToken.get(grant.token)
    if (run === undefined || run.lease !== grant.lease) return grant
    byToken.delete(grant.token)
    const { exit, ran, command } = run
    return { ...grant, exit, ran, command } as PastGrant
  })
  return [...[...byToken.values()].sort((a, b) => a.token - b.token), ...known]
}

/** Keeps a run for each resource, by their tokens. `off`: policies or the caller's key do not allow it. */
export async function keepRun(
  lessor: Pick<Lessor, 'read' | 'submit'>,
  tokens: Readonly<Record<string, number>>,
  run: KeptRun,
  options: { readonly signal?: AbortSignal } = {},
): Promise<'kept' | 'off'> {
  const names = Object.keys(tokens)
    .filter(name => Buffer.byteLength(runKey(name, RUNS_PER_NAME - 1)) <= LONGEST_KEY)
    .slice(0, MOST_NAMES)
  if (names.length === 0) return 'off'
  try {
    return await tryToKeep(lessor, names, tokens, run, options)
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === 'FORBIDDEN') return 'off'
    throw error
  }
}

async function tryToKeep(
  lessor: Pick<Lessor, 'read' | 'submit'>,
  names: readonly string[],
  tokens: Readonly<Record<string, number>>,
  run: KeptRun,
  options: { readonly signal?: AbortSignal },
): Promise<'kept' | 'off'> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const outcome = await propose(lessor, await entriesOf(lessor, names, tokens, run, options), options)
    if (outcome.kind === 'transacted' && outcome.succeeded) return 'kept'
    // Another run of the same name was faster: its number is taken.
    if (outcome.kind === 'transacted') continue
    if (outcome.kind !== 'refused') return 'off'
    const goesOn = outcome.code === 'LIMIT' ? await removeOldest(lessor, options) : await allowRuns(lessor, outcome, options)
    if (!goesOn) return 'off'
  }
  return 'off'
}

async function entriesOf(
  lessor: Pick<Lessor, 'read'>,
  names: readonly string[],
  tokens: Readonly<Record<string, number>>,
  run: KeptRun,
  options: { readonly signal?: AbortSignal },
): Promise<Command> {
  const read = (key: string) =>
    lessor.read({ kind: 'entries', prefix: key, limit: 1 }, options).then(({ value }) => value.find(entry => entry.key === key))
  const [{ value: policies }, ...known] = await Promise.all([
    lessor.read<'policies'>({ kind: 'policies' }, options),
    ...names.map(name => read(numbersKey(name))),
  ])
  const parts = await Promise.all(
    names.map(async (name, i) => {
      const entry = known[i]
      const keepFor = keptFor(policies, name)
      const { first, next } = numbersOf(entry?.value) ?? { first: 0, next: 0 }
      const value = JSON.stringify({ token: tokens[name], ...run })
      // Runs in slots that come round again are overwritten. Others are removed when they are too old.
      let kept = Math.max(first, next + 1 - RUNS_PER_NAME)
      const removed: EntryChange[] = []
      while (kept < next && removed.length < REMOVED_AT_ONCE) {
        const old = runOf((await read(runKey(name, kept)))?.value)
        if (old !== undefined && old.until >= run.until - keepFor) break
        removed.push({ key: runKey(name, kept), delete: true })
        kept++
      }
      const numbers = JSON.stringify({ first: kept, next: next + 1 } satisfies RunNumbers)
      return {
        compare: { key: numbersKey(name), field: 'revision', is: 'equal', number: entry?.revision ?? 0 } as const,
        changes: [...removed, { key: numbersKey(name), value: numbers }, { key: runKey(name, next), value }],
      }
    }),
  )
  return { kind: 'transaction', compare: parts.map(({ compare }) => compare), success: parts.flatMap(({ changes }) => changes) }
}

/** Sets the policy for runs where none says anything about them. An operator who does not want them sets `freeEntries=0`. */
async function allowRuns(
  lessor: Pick<Lessor, 'read' | 'submit'>,
  { code, facts }: Extract<Outcome, { readonly kind: 'refused' }>,
  options: { readonly signal?: AbortSignal },
): Promise<boolean> {
  if (code !== 'INVALID' || typeof facts?.key !== 'string') return false
  const { value: policies } = await lessor.read<'policies'>({ kind: 'policies' }, { consistent: true, ...options })
  if (policies.some(({ prefix, rules }) => (prefix === RUNS || prefix.startsWith(`${RUNS}/`)) && rules.freeEntries !== undefined))
    return false
  const own = policies.find(({ prefix }) => prefix === RUNS)?.rules
  const set = await propose(lessor, { kind: 'policy', prefix: RUNS, rules: { ...RUN_RULES, ...own } }, options)
  return set.kind !== 'refused'
}

/** Makes room where policies allow no more entries: the oldest go, whatever their name. */
async function removeOldest(lessor: Pick<Lessor, 'read' | 'submit'>, options: { readonly signal?: AbortSignal }): Promise<boolean> {
  const { value } = await lessor.read({ kind: 'entries', prefix: RUNS, limit: 20_000 }, options)
  const oldest = [...value].sort((a, b) => a.revision - b.revision).slice(0, REMOVED_WHEN_FULL)
  if (oldest.length === 0) return false
  const removed = await propose(lessor, { kind: 'transaction', success: oldest.map(({ key }) => ({ key, delete: true })) }, options)
  return removed.kind !== 'refused'
}

/** Returns how long runs are kept, in ms. */
function keptFor(policies: readonly { readonly prefix: string; readonly rules: PolicyRules }[], name: string): number {
  const life = rule({ policies: new Map(policies.map(({ prefix, rules }) => [prefix, rules])) }, numbersKey(name), 'maxLife')
  return life === 0 ? Number.POSITIVE_INFINITY : life
}

/** The entry of a name, which also tells which policy is in force for its runs. */
export function numbersKey(resource: string): string {
  return `${RUNS}/${resource}/~`
}

function runKey(resource: string, number: number): string {
  return `${RUNS}/${resource}/~${number % RUNS_PER_NAME}`
}

function numbersOf(value: string | undefined): RunNumbers | undefined {
  const { first, next } = parsed(value)
  return isCount(first) && isCount(next) && first <= next ? { first, next } : undefined
}

function runOf(value: string | undefined): PastGrant | undefined {
  const { lease, holder, token, since, until, cause, exit, ran, command } = parsed(value)
  if (![lease, token, since, until, exit, ran].every(isCount) || ![holder, cause, command].every(isText)) return undefined
  return { lease, holder, token, since, until, cause, exit, ran, command, revision: 0 } as PastGrant
}

function parsed(value: string | undefined): Readonly<Record<string, unknown>> {
  if (value === undefined || value.length > LONGEST_VALUE) return {}
  try {
    const found: unknown = JSON.parse(value)
    return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= LONGEST_TEXT
}
