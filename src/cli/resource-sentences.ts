/** The state of a resource in sentences: why it is free, held or frozen, and who waits. `leasehold explain` and the playground say them. */
import { inWords } from '../duration.ts'
import { isLossCause } from '../kernel/loss-cause.ts'
import type { GrantView, LeaseView, PastGrant, ResourceView, Summary } from '../lessor.ts'
import { joinWithAnd } from './format.ts'

export type LabelsByLease = ReadonlyMap<number, LeaseView['labels']>

export interface ExplainedFacts {
  readonly resource: ResourceView
  readonly summary: Pick<Summary, 'quiet'>
  readonly history: readonly PastGrant[]
  /** Of the leases that hold it, by lease. */
  readonly labels?: LabelsByLease
  readonly now: number
}

export function resourceSentences(known: ExplainedFacts): string[] {
  const { resource, summary } = known
  const { grants, queue, coveredBy = [], waitersAbove = [], heldBelow = [] } = resource
  return [
    ...(summary.quiet
      ? ['No lease is granted at the moment: the log lost records or was restored, and holders of lost leases may still be running.']
      : []),
    ...(grants.length === 0 && coveredBy.length === 0 ? free(known) : grants.flatMap(grant => heldBy(grant, known))),
    ...coveredBy.map(grant => coveringSentence(resource.resource, grant)),
    ...waitersAbove
      .slice(0, 1)
      .map(
        ({ holder, resource: above }) =>
          `${holder} waits for ${above} with all names below it: a new request for ${resource.resource} waits behind that.`,
      ),
    ...belowSentence(resource.resource, heldBelow),
    ...room(resource),
    ...disagreement(resource),
    ...(queue.length > 0 ? waiters(known) : []),
  ]
}

function free({ resource, history, now }: ExplainedFacts): string[] {
  const last = history.at(-1)
  const lastHolder =
    last === undefined
      ? 'No past holders are recorded.'
      : `Its last holder was ${last.holder} (token ${last.token}), until ${inWords(Math.max(0, now - last.until))} ago: ${ended(last)}.`
  return [`${resource.resource} is free. ${lastHolder}`]
}

function ended({ cause, by, exit, ran = 0 }: PastGrant): string {
  const how = by === undefined ? cause : `${cause} by ${by}`
  return exit === undefined ? how : `${how}, with exit code ${exit} after ${inWords(ran)}`
}

function heldBy(
  { resource, holder, lease, token, status, remaining, since, units, shared, covers }: GrantView,
  { history, labels, now }: ExplainedFacts,
): string[] {
  const who = `${holder} (lease ${lease}, token ${token})`
  const heldFor = inWords(Math.max(0, now - since))
  const left = inWords(remaining)
  if (status === 'frozen') {
    const end = history.findLast(past => past.lease === lease)
    if (end?.cause === 'lapsed' || isLossCause(end?.cause ?? ''))
      return [`${resource} is withheld for another ${left}: the lease of ${who} lapsed, and its policy sets a lock-delay after a lapse.`]
    const how = end === undefined ? 'was ended' : `was ended (${ended(end)})`
    return [
      `${resource} is frozen: the lease of ${who} ${how}, but its holder may still be running.`,
      `It becomes free when the holder reports that it has stopped, and in ${left} at the latest.`,
    ]
  }
  if (status === 'suspect')
    return [`${resource} is held by ${who}, whose ttl has run out. Its grace lasts another ${left}; a renewal until then keeps the lease.`]
  const all = covers === true ? 'with all names below it ' : ''
  const how = shared ? `${all}shared by` : units > 1 ? `held with ${units} units by` : `held ${all}by`
  const named = (labels?.get(lease) ?? []).filter(([, value]) => value !== '').map(([key, value]) => `${key} ${value}`)
  const labelled = named.length === 0 ? '' : ` (${named.join(', ')})`
  return [`${resource} is ${how} ${who}${labelled} for ${heldFor}. Without a renewal it expires in ${left}.`]
}

/** Of a claim on a name above. */
function coveringSentence(name: string, { resource, holder, lease, token, status, remaining }: GrantView): string {
  const left = status === 'frozen' ? ', which has ended, but its holder may still be running' : ''
  return `${name} is covered: ${holder} (lease ${lease}, token ${token}) holds ${resource} with all names below it${left}. Without a renewal that ends in ${inWords(remaining)}.`
}

/** For a waiter that covers the name. */
function belowSentence(name: string, held: readonly GrantView[]): string[] {
  if (held.length === 0) return []
  const some = held.slice(0, 5).map(({ resource, holder }) => `${resource} (${holder})`)
  return [`A request for ${name} with all names below it waits for ${joinWithAnd(some)}${held.length > some.length ? ', and more' : ''}.`]
}

function room({ capacity, limit, grants, queue }: ResourceView): string[] {
  const used = unitsTaken(grants)
  if (capacity === 0) return ['Its capacity is 0: no lease is granted until a policy raises it.']
  if (capacity === 1 && limit === undefined) return []
  const first = queue[0]
  const wants = first === undefined || first.shared ? '' : `; the first waiter wants ${first.units}`
  if (limit !== undefined) return [`${used} of ${limit} permits are taken${wants}.`]
  return [`${used} of ${capacity} units are taken${wants}.`]
}

/** Clients of one semaphore that state different permits: after a change of the program, or by mistake. */
function disagreement({ limit, capacity, grants, queue }: ResourceView): string[] {
  const stated = [...grants, ...queue].filter(({ permits }) => permits !== undefined)
  const numbers = [...new Set(stated.map(({ permits }) => permits!))].sort((one, other) => one - other)
  const without = [...grants, ...queue].find(({ permits }) => permits === undefined)
  if (numbers.length === 0 || (numbers.length === 1 && without === undefined)) return []
  const said = numbers.map(number => {
    const [first, ...others] = stated.filter(({ permits }) => permits === number)
    return `${number} (${first!.holder}${others.length === 0 ? '' : ` and ${others.length} more`})`
  })
  if (without !== undefined) said.push(`none, which means ${capacity} (${without.holder})`)
  const inForce = limit === undefined ? '' : ` ${limit} is in force now.`
  return [
    `Its clients state different permits: ${joinWithAnd(said)}. A grant keeps to the smallest number of all holders and the requester.${inForce}`,
  ]
}

function waiters({ resource: { queue, grants, coveredBy, heldBelow }, now }: ExplainedFacts): string[] {
  const ahead = queue.slice(0, 5).map(({ holder, since, priority, ...want }) => {
    const wants = want.shared || want.units > 1 ? `, wants ${unitsOf(want)}` : ''
    return `${holder} (for ${inWords(Math.max(0, now - since))}${priority === 0 ? '' : `, priority ${priority}`}${wants})`
  })
  const more = queue.length > ahead.length ? ` ${queue.length - ahead.length} more are behind them.` : ''
  const one = queue.length === 1
  const isHeld = grants.length > 0 || coveredBy !== undefined || heldBelow !== undefined
  const why = isHeld ? '' : ', although it is not held'
  return [
    `${queue.length} ${one ? 'waiter' : 'waiters'}${why}: ${joinWithAnd(ahead)}.${more} A new request queues behind ${one ? 'it' : 'them'}, unless its priority is higher.`,
  ]
}

export function unitsOf({ units, shared }: { readonly units: number; readonly shared: boolean }): string {
  return shared ? 'shared' : String(units)
}

export function unitsTaken(grants: readonly GrantView[]): number {
  return grants.reduce((sum, { units, shared }) => sum + (shared ? 0 : units), 0)
}
