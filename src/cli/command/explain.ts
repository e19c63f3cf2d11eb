/** Why one waits, or why a resource is free, held or frozen: in sentences. */
import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import type { PolicyRules } from '../../kernel/command.ts'
import { under } from '../../kernel/name.ts'
import type { GrantView, PastGrant, ResourceView, Summary, View } from '../../lessor.ts'
import { listed } from '../format.ts'
import { completed } from '../hints.ts'
import { common, invoke } from '../invocation.ts'
import { mustName } from '../name.ts'
import { clean } from '../output.ts'
import { inPairs } from './policy.ts'
import { taken, unitsOf } from './show.ts'

export function explain(program: Command): void {
  common(program.command('explain'))
    .summary('why it is free, held or frozen, who is ahead, what would end it')
    .argument('<name>', 'a resource')
    .action(async (name: string, _: unknown, self: Command) => {
      mustName(name)
      await invoke(self, async ({ read, lessor, out, clock }) => {
        const { revision, value: resource } = await read({ kind: 'resource', resource: name })
        // At that revision or later: all of it has been applied here.
        const [summary, history, policies] = [
          (await lessor.read({ kind: 'summary' }, { atLeast: revision })).value,
          (await lessor.read({ kind: 'history', resource: name }, { atLeast: revision })).value,
          (await lessor.read({ kind: 'policies' }, { atLeast: revision })).value,
        ]
        const sentences = explanation({ resource, summary, history, policies, now: clock.wall() })
        if (out.json) await out.data({ ...resource, explanation: sentences, revision })
        else await out.text(sentences.map(clean).join('\n'))
      })
    })
}

export interface ExplainedFacts {
  readonly resource: ResourceView
  readonly summary: Pick<Summary, 'quiet'>
  readonly history: readonly PastGrant[]
  readonly policies: View<'policies'>['value']
  readonly now: number
}

export function explanation(known: ExplainedFacts): string[] {
  const { resource, summary } = known
  const { grants, queue } = resource
  return [
    ...(summary.quiet
      ? [
          'Nothing at all is granted at the moment: the log lost entries or was restored, and waits until nobody can believe in what was lost.',
        ]
      : []),
    ...(grants.length === 0 ? free(known) : grants.flatMap(grant => heldBy(grant, known))),
    ...room(resource),
    ...(queue.length > 0 ? waiters(known) : []),
    ...(grants.length > 0 ? endings(known) : []),
    ...rules(known),
  ]
}

function free({ resource, history, now }: ExplainedFacts): string[] {
  const last = history.at(-1)
  const before =
    last === undefined
      ? 'Nobody who held it is remembered.'
      : `The last to hold it was ${last.holder} (token ${last.token}), until ${inWords(Math.max(0, now - last.until))} ago: ${ended(last)}.`
  return [`${resource.resource} is free. ${before}`]
}

function ended({ cause, by }: PastGrant): string {
  return by === undefined ? cause : `${cause} by ${by}`
}

function heldBy(
  { resource, holder, lease, token, status, remaining, since, units, shared }: GrantView,
  { history, now }: ExplainedFacts,
): string[] {
  const who = `${holder} (lease ${lease}, token ${token})`
  const long = inWords(Math.max(0, now - since))
  const left = inWords(remaining)
  if (status === 'frozen') {
    const end = history.findLast(past => past.lease === lease)
    if (end?.cause === 'lapsed')
      return [`${resource} is withheld for another ${left}: the lease of ${who} lapsed, and the lock-delay of its policy follows a lapse.`]
    const how = end === undefined ? 'was ended' : `was ended (${ended(end)})`
    return [
      `${resource} is frozen: the lease of ${who} ${how}, but its holder may still believe in it.`,
      `It is free when that holder says that it has stopped, and in ${left} at the latest.`,
    ]
  }
  if (status === 'suspect')
    return [`${resource} is held by ${who}, whose ttl has run out; within its grace, for another ${left}, a renewal brings it back.`]
  const how = shared ? 'shared by' : units > 1 ? `held with ${units} units by` : 'held by'
  return [`${resource} is ${how} ${who} for ${long}; ${left} are left unless it renews.`]
}

function room({ capacity, grants, queue }: ResourceView): string[] {
  const used = taken(grants)
  if (capacity === 0) return ['Its capacity is 0: nothing is granted until a policy raises it.']
  if (capacity === 1) return []
  const first = queue[0]
  const wants = first === undefined || first.shared ? '' : `; the first who waits wants ${first.units}`
  return [`${used} of ${capacity} units are taken${wants}.`]
}

function waiters({ resource: { queue, grants }, now }: ExplainedFacts): string[] {
  const ahead = queue.slice(0, 5).map(({ holder, since, priority, ...want }) => {
    const wants = want.shared || want.units > 1 ? `, wants ${unitsOf(want)}` : ''
    return `${holder} (for ${inWords(Math.max(0, now - since))}${priority === 0 ? '' : `, priority ${priority}`}${wants})`
  })
  const more = queue.length > ahead.length ? ` Behind them are ${queue.length - ahead.length} more.` : ''
  const one = queue.length === 1
  const why = grants.length === 0 ? ', though nobody holds it' : ''
  return [
    `${queue.length} ${one ? 'waits' : 'wait'}${why}: ${one ? '' : 'first '}${listed(ahead)}.${more} Whoever asks now comes after them, unless with a higher priority.`,
  ]
}

function endings({ resource: { resource, grants } }: ExplainedFacts): string[] {
  const live = grants.filter(({ status }) => status === 'live' || status === 'suspect')
  if (live.length === 0) return []
  const soonest = Math.min(...live.map(({ remaining }) => remaining))
  const leases = live.map(({ lease }) => `leasehold revoke ${lease}`)
  return [
    completed(
      `It ends when its holder gives it back, or when nobody renews it for ${inWords(soonest)}; an operator ends it with ${leases[0]} or leasehold break ${resource}.`,
    ),
  ]
}

/** Each rule is taken from the longest prefix that has it. */
function rules({ resource: { resource }, policies }: ExplainedFacts): string[] {
  const over = policies.filter(({ prefix }) => under(prefix, resource)).sort((a, b) => b.prefix.length - a.prefix.length)
  if (over.length === 0)
    return ['No policy applies: the defaults hold (ttl from 100 ms to 24 h, capacity 1, no lock-delay, first come first served).']
  const taken = new Set<string>()
  return over.flatMap(({ prefix, rules }) => {
    const own = Object.entries(rules).filter(([name, value]) => value !== undefined && name !== 'leases' && !taken.has(name))
    for (const [name] of own) taken.add(name)
    return own.length === 0
      ? []
      : [`The policy of ${prefix === '' ? 'everything' : prefix} applies: ${inPairs(Object.fromEntries(own) as PolicyRules)}.`]
  })
}
