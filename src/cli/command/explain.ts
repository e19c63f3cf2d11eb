/** `leasehold explain`: says in sentences why a resource is free, held or frozen, and why waiters wait. */
import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { PolicyRules } from '../../kernel/command.ts'
import { under } from '../../kernel/name.ts'
import type { GrantView, LeaseView, Lessor, View } from '../../lessor.ts'
import { withStoreFlags } from '../hints.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { requireValidName } from '../name.ts'
import { clean } from '../output.ts'
import { type ExplainedFacts, type LabelsByLease, resourceSentences } from '../resource-sentences.ts'
import { explainTermOf } from '../term-explanation.ts'
import { formatRules } from './policy.ts'
import { freeMembers } from './pool/reservations.ts'

export function explain(program: Command): void {
  addGlobalOptions(program.command('explain'))
    .summary('say why a resource is free, held or frozen, and who waits for it')
    .argument('<name>', 'the resource')
    .option('--term', 'say which terms a lease with --ttl auto would get, and why')
    .option('--class <class>', 'with --term: the class of work (default: the name up to its last slash)')
    .action(async (name: string, { term, class: chosen }: { readonly term?: boolean; readonly class?: string }, self: Command) => {
      requireValidName(name)
      await invoke(self, async invocation => {
        if (term === true) return explainTermOf(invocation, name, chosen)
        const { read, lessor, out, clock } = invocation
        const { revision, value: resource } = await read({ kind: 'resource', resource: name })
        // All at that revision or later, so that the sentences fit together.
        const [summary, history, policies] = [
          (await lessor.read({ kind: 'summary' }, { atLeast: revision })).value,
          (await lessor.read({ kind: 'history', resource: name }, { atLeast: revision })).value,
          (await lessor.read({ kind: 'policies' }, { atLeast: revision })).value,
        ]
        const pool = await poolSentence(lessor, name, revision)
        const labels = await labelsOf(lessor, resource.grants, revision)
        const sentences = pool
          ? [pool, ...poolRules(name, policies)]
          : explanation({ resource, summary, history, policies, labels, now: clock.wall() })
        if (out.json) await out.data({ ...resource, explanation: sentences, revision })
        else await out.text(sentences.map(clean).join('\n'))
      })
    })
}

/** Says that the name is that of a pool, and how to see more. Undefined for other names. */
async function poolSentence(lessor: Lessor, name: string, atLeast: number): Promise<string | undefined> {
  const { value } = await lessor.read({ kind: 'pool', pool: name, limit: 0 }, { atLeast })
  const { members, waiting } = value
  if (members.length === 0 && waiting === 0) return undefined
  return withStoreFlags(
    `${name} is a pool: ${freeMembers(members).length} of ${members.length} members are free, ${waiting} waiting. To see who has them, run: leasehold pool ls ${name}; why others wait: leasehold pool queue ${name} --explain`,
  )
}

/** Holders whose labels are read. */
const MAX_LABELLED = 8

/** The labels of the leases that hold the resource, by lease. A lease that has ended meanwhile, or that may not be read, has none. */
async function labelsOf(lessor: Lessor, grants: readonly GrantView[], atLeast: number): Promise<LabelsByLease> {
  const found = new Map<number, LeaseView['labels']>()
  for (const { lease } of grants.slice(0, MAX_LABELLED)) {
    const { value } = await lessor.read({ kind: 'lease', lease }, { atLeast }).catch(withoutAnswer)
    if (value !== undefined && value.labels.length > 0) found.set(lease, value.labels)
  }
  return found
}

function withoutAnswer(error: unknown): { readonly value?: undefined } {
  if (LeaseError.is(error, 'FORBIDDEN') || LeaseError.is(error, 'NOT_FOUND')) return {}
  throw error
}

export interface ExplainedRules extends ExplainedFacts {
  readonly policies: View<'policies'>['value']
}

export function explanation(known: ExplainedRules): string[] {
  return [
    ...resourceSentences(known),
    ...(known.resource.grants.length > 0 ? endings(known) : []),
    ...rules(known.resource.resource, known.policies),
  ]
}

function endings({ resource: { resource, grants } }: ExplainedRules): string[] {
  const live = grants.filter(({ status }) => status === 'live' || status === 'suspect')
  if (live.length === 0) return []
  const soonest = Math.min(...live.map(({ remaining }) => remaining))
  const revoke = `leasehold revoke ${live[0]!.lease}`
  return [
    withStoreFlags(
      `It ends when the holder releases it, or if it is not renewed for ${inWords(soonest)}. To end it now, run: ${revoke} or leasehold break ${resource}`,
    ),
  ]
}

/** Policies that are listed for a pool. */
const MAX_POLICIES = 20

/** Policies for the pool, and those below it for kinds and accounts. */
function poolRules(pool: string, policies: ExplainedRules['policies']): string[] {
  const own = policies.filter(({ prefix }) => under(prefix, pool) || under(pool, prefix)).slice(0, MAX_POLICIES)
  if (own.length === 0) return ['No policy applies: first come first served, without preemption and quotas.']
  return own.map(
    ({ prefix, rules: { leases: _, ...set } }) => `The policy of ${prefix === '' ? 'everything' : prefix} applies: ${formatRules(set)}.`,
  )
}

/** Each rule applies from the longest prefix that has it. */
function rules(resource: string, policies: ExplainedRules['policies']): string[] {
  const applying = policies.filter(({ prefix }) => under(prefix, resource)).sort((a, b) => b.prefix.length - a.prefix.length)
  if (applying.length === 0)
    return ['No policy applies. Defaults: ttl from 100 ms to 24 h, capacity 1, no lock-delay, first come first served.']
  const seen = new Set<string>()
  return applying.flatMap(({ prefix, rules }) => {
    const own = Object.entries(rules).filter(([name, value]) => value !== undefined && name !== 'leases' && !seen.has(name))
    for (const [name] of own) seen.add(name)
    return own.length === 0
      ? []
      : [`The policy of ${prefix === '' ? 'everything' : prefix} applies: ${formatRules(Object.fromEntries(own) as PolicyRules)}.`]
  })
}
