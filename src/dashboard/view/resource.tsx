/** One resource: its holders and how the earlier ones ended, its queue and why each waiter waits, its fence, its policy, and what an operator can do. */
import type { VNode } from 'preact'
import type { Event } from '../../wire/http/client.ts'
import { breakResource, mayAct, planned, recallResource, releaseLease, setPolicy } from '../action.ts'
import type { EpisodesAnswer, EventsAnswer, HistoryAnswer, LeaseAnswer, PastHolder, PoliciesAnswer, ResourceAnswer } from '../answers.ts'
import { serverNow } from '../clock.ts'
import { duration, isUnder, pathOf } from '../format.ts'
import {
  Ago,
  Button,
  Card,
  Empty,
  Exact,
  Holder,
  Labels,
  LeaseLink,
  Left,
  Length,
  ResourceName,
  RuleValue,
  Tag,
  Text,
  Waiting,
} from '../part/basics.tsx'
import { CopyAs } from '../part/copy.tsx'
import { EventLines } from '../part/event-lines.tsx'
import { ObstacleText, obstacleOf } from '../part/obstacle.tsx'
import { isFailed, PastGrants, SHOWN_PAST } from '../part/past-grants.tsx'
import { type Span, Timeline } from '../part/timeline.tsx'
import { useReading } from '../query.ts'

/** Past holders that are read. With the runs of `leasehold run`, a server may know a thousand. */
const MAX_PAST = 200
/** Holders whose labels are read, one request each. */
const MAX_LABELLED = 8

export function Resource({ name }: { readonly name: string }): VNode {
  const about = (event: Event) => event.resource === name
  const path = pathOf(name)
  const { data, at, error } = useReading<ResourceAnswer>(`/v1/resources/${path}`, { every: 1_000, about })
  const history = useReading<HistoryAnswer>(`/v1/history/${path}?limit=${MAX_PAST}`, {
    every: 10_000,
    // The exit code of a command is written after its lease has ended.
    about: event => about(event) || event.key?.startsWith(`leasehold/runs/${name}/`) === true,
  })
  const events = useReading<EventsAnswer>(`/v1/events?limit=500&prefix=${encodeURIComponent(name)}`, { every: 10_000, about })
  const episodes = useReading<EpisodesAnswer>(`/v1/episodes/${path}`, { every: 5_000, about })
  const policies = useReading<PoliciesAnswer>('/v1/policies', { every: 30_000, about: ({ type }) => type === 'policy' })
  if (data === undefined) return <Waiting error={error} />
  const past = history.data?.history ?? []
  const own = (events.data?.events ?? []).map(event => event as unknown as Event).filter(about)
  return (
    <>
      <header class="title">
        <h1>
          <Text>{name}</Text>
        </h1>
        <Tag kind={data.grants.length > 0 ? (data.frozen ? 'frozen' : 'held') : data.coveredBy ? 'covered' : 'free'} />
        <Actions resource={data} />
      </header>
      <div class="columns">
        <div class="stack">
          <Holding resource={data} at={at} />
          <Card title="Timeline">
            {past.length + data.grants.length === 0 ? (
              <Empty>No holder is known.</Empty>
            ) : (
              <>
                <Timeline label="Holders over time" spans={spansOf(data, past.slice(-SHOWN_PAST), own)} />
                <PastGrants past={past} holder="Holder" />
              </>
            )}
          </Card>
          <Blocking episodes={episodes.data} error={episodes.error} />
        </div>
        <div class="stack">
          <Queue resource={data} past={past} />
          <Rules name={name} resource={data} policies={policies.data} />
          <Card title="Copy as">
            <CopyAs resource={name} />
          </Card>
          <Card title="Events">
            <EventLines resource={name} events={own.slice(-12).reverse()} empty="The server knows no event of this name." />
          </Card>
        </div>
      </div>
    </>
  )
}

function Actions({ resource: { resource, grants } }: { readonly resource: ResourceAnswer }): VNode {
  const held = grants.some(({ status }) => status !== 'frozen')
  return (
    <div class="actions">
      {held && mayAct('recall', resource) ? <Button onClick={() => (planned.value = recallResource(resource))}>Ask for it</Button> : null}
      {held && mayAct('break', resource) ? (
        <Button kind="danger" onClick={() => (planned.value = breakResource(resource))}>
          Break
        </Button>
      ) : null}
    </div>
  )
}

function Holding({
  resource: { resource, grants, capacity, fence, coveredBy = [], waitersAbove: [above] = [] },
  at,
}: {
  readonly resource: ResourceAnswer
  readonly at: number
}): VNode {
  const lease = grants[0]?.lease
  const first = useReading<LeaseAnswer>(lease === undefined ? undefined : `/v1/leases/${lease}`, { every: 5_000, about: () => false })
  const used = grants.reduce((sum, { units, shared }) => sum + (shared ? 0 : units), 0)
  return (
    <Card title="Held by" aside={<span class="faint">{capacity === 1 ? '' : `${used} of ${capacity} units`}</span>}>
      {grants.length + coveredBy.length === 0 ? (
        <Empty>It is free.</Empty>
      ) : (
        <ul class="list holders">
          {[...grants, ...coveredBy].map(
            ({ resource: name, lease, holder, token, since, remaining, status, units, shared, covers }, place) => (
              <li key={`${lease} ${name}`}>
                <div class="what">
                  <Holder name={holder} />
                  {shared ? <Tag kind="shared" /> : units > 1 ? <Tag kind="units">{`${units} units`}</Tag> : null}
                  {covers === true ? <Tag kind="covers" /> : null}
                  {status === 'live' ? null : <Tag kind={status} />}
                </div>
                <div class="by">
                  {name === resource ? null : (
                    <span>
                      by its claim of <ResourceName name={name} /> with all names below it
                    </span>
                  )}
                  <span>
                    lease <LeaseLink lease={lease} />, token <Exact value={token} what="token" />, for <Ago at={since} bare />
                  </span>
                  {lease === first.data?.lease ? (
                    <Labels labels={Object.entries(first.data.labels)} />
                  ) : place < MAX_LABELLED ? (
                    <LabelsOf lease={lease} />
                  ) : null}
                  {status !== 'frozen' && mayAct('release', name) ? (
                    <button type="button" class="link" onClick={() => (planned.value = releaseLease(lease, holder))}>
                      release
                    </button>
                  ) : null}
                </div>
                <Left remaining={remaining} at={at} ttl={lease === first.data?.lease ? first.data.ttl : undefined} />
              </li>
            ),
          )}
        </ul>
      )}
      {above === undefined ? null : (
        <p class="note">
          A request for it waits behind <ObstacleText name={resource} of={{ ...above, waits: true }} />.
        </p>
      )}
      <p class="note">
        {fence === 0 ? (
          'No token was shown to its fence.'
        ) : (
          <>
            Its fence has seen token <Exact value={fence} what="token" />
            {grants.some(({ token }) => token === fence) ? ', that of the present holder.' : '.'}
          </>
        )}
      </p>
    </Card>
  )
}

/** The labels of one of several holders. They change rarely. */
function LabelsOf({ lease }: { readonly lease: number }): VNode | null {
  const { data } = useReading<LeaseAnswer>(`/v1/leases/${lease}`, { every: 30_000, about: () => false })
  return data === undefined ? null : <Labels labels={Object.entries(data.labels)} />
}

/** Past grants, present ones, and the times when it was frozen, as far as the events that the server still knows say so. */
function spansOf({ grants }: ResourceAnswer, past: readonly PastHolder[], events: readonly Event[]): Span[] {
  const spans: Span[] = past.map(grant => ({
    ...{ from: grant.since, until: grant.until, holder: grant.holder, cause: grant.cause },
    ...(isFailed(grant) && { failed: `exit ${grant.exit}` }),
    key: `${grant.lease} ${grant.token}`,
  }))
  for (const { lease, token, holder, since, status } of grants)
    if (status !== 'frozen') spans.push({ from: since, holder, key: `${lease} ${token}` })
  const frozen = new Map<number, number>()
  for (const { type, lease, at } of events) {
    if (type === 'frozen') frozen.set(lease, at)
    const from = frozen.get(lease)
    if (from === undefined || (type !== 'thawed' && type !== 'released')) continue
    frozen.delete(lease)
    spans.push({ from, until: at, cause: type, key: `frozen ${lease} ${from}` })
  }
  for (const { lease, status } of grants) {
    const end = past.findLast(ended => ended.lease === lease)
    const from = frozen.get(lease) ?? end?.until
    if (status === 'frozen' && from !== undefined) spans.push({ from, key: `frozen ${lease}` })
  }
  return spans.sort((a, b) => a.from - b.from)
}

interface QueueProps {
  readonly resource: ResourceAnswer
  readonly past: readonly PastHolder[]
}

function Queue({ resource, past }: QueueProps): VNode {
  const { queue, grants } = resource
  const usual = usualHold(past)
  return (
    <Card title="Queue" aside={<span class="faint">{queue.length === 0 ? '' : `${queue.length} waiting`}</span>}>
      {queue.length === 0 ? (
        <Empty>No client waits.</Empty>
      ) : (
        <ol class="list queue">
          {queue.slice(0, 50).map(({ lease, holder, position, since, units, shared, priority, covers }) => (
            <li key={lease} class="pair">
              <span>
                <Holder name={holder} /> {priority === 0 ? null : <Tag kind="priority">{`priority ${priority}`}</Tag>}
                {shared ? <Tag kind="shared" /> : units > 1 ? <Tag kind="units">{`${units} units`}</Tag> : null}
                {covers === true ? <Tag kind="covers" /> : null}
                <span class="second">{reasonOf(position, resource)}</span>
                {usual === undefined ? null : (
                  <span class="second" title={`The median of ${usual.of} past holders is ${duration(usual.median)}`}>
                    {estimate(usual.median, position, grants)}
                  </span>
                )}
              </span>
              <span class="number">
                <Ago at={since} bare />
                <span class="second">
                  <LeaseLink lease={lease} />
                </span>
              </span>
            </li>
          ))}
          {queue.length > 50 ? <li class="faint">and {queue.length - 50} more</li> : null}
        </ol>
      )}
    </Card>
  )
}

/** Returns what is in the way of a waiter, in one sentence. */
function reasonOf(position: number, resource: ResourceAnswer): VNode {
  const { queue, capacity } = resource
  if (capacity === 0) return <>The capacity is 0: a policy must raise it.</>
  if (position > 0)
    return (
      <>
        behind {position === 1 ? '' : `${position} others, the next is `}
        <Text>{queue[position - 1]?.holder ?? 'others'}</Text>
      </>
    )
  const obstacle = obstacleOf(resource, queue[0]!)
  return obstacle === undefined ? (
    <>next, although it is not held: it waits for other names as well</>
  ) : (
    <>
      next, after <ObstacleText name={resource.resource} of={obstacle} />
    </>
  )
}

function usualHold(past: readonly PastHolder[]): { readonly median: number; readonly of: number } | undefined {
  if (past.length < 3) return undefined
  const lengths = past.map(({ since, until }) => until - since).sort((a, b) => a - b)
  return { median: lengths[Math.floor(lengths.length / 2)]!, of: lengths.length }
}

/** When a waiter probably gets it, if each holder before it takes the usual time. */
function estimate(median: number, position: number, grants: ResourceAnswer['grants']): string {
  const held = grants.length === 0 ? 0 : serverNow() - Math.min(...grants.map(({ since }) => since))
  const left = median - held
  if (left > 0) return `probably in ${duration(left + position * median)}`
  return position === 0 ? `the holder takes longer than usual (${duration(median)})` : `probably ${duration(position * median)} after that`
}

function Blocking({ episodes, error }: { readonly episodes: EpisodesAnswer | undefined; readonly error: string | undefined }): VNode {
  return (
    <Card title="Who waited for whom">
      {episodes === undefined ? (
        <Waiting error={error} />
      ) : episodes.episodes.length === 0 ? (
        <Empty>No wait is known.</Empty>
      ) : (
        <ul class="list">
          {episodes.episodes.slice(0, 20).map(({ waiter, from, until, ended, behind }) => (
            <li key={`${waiter.lease} ${from}`} class="pair">
              <span>
                <Holder name={waiter.holder} /> <Tag kind={ended ?? 'waiting'} />
                <span class="second">
                  {behind.length === 0 ? 'behind holders that are no longer known' : 'behind '}
                  {behind.slice(0, 5).map(({ lease, holder }, i) => (
                    <span key={`${lease}`}>
                      {i === 0 ? '' : ', '}
                      <Holder name={holder} />
                    </span>
                  ))}
                  {behind.length > 5 ? ` and ${behind.length - 5} more` : ''}
                </span>
              </span>
              <span class="number">
                {until === undefined ? <Ago at={from} bare /> : <Length ms={until - from} />}
                <span class="second">
                  <Ago at={until ?? from} />
                </span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

interface RulesProps {
  readonly name: string
  readonly resource: ResourceAnswer
  readonly policies: PoliciesAnswer | undefined
}

/** The rules in force, each from the longest prefix that has it. */
function Rules({ name, resource: { capacity }, policies }: RulesProps): VNode {
  const applying = (policies?.policies ?? [])
    .filter(({ prefix }) => isUnder(prefix, name))
    .sort((a, b) => b.prefix.length - a.prefix.length)
  const inForce = new Map<string, { value: unknown; prefix: string }>()
  for (const { prefix, rules } of applying)
    for (const [rule, value] of Object.entries(rules)) if (!inForce.has(rule)) inForce.set(rule, { value, prefix })
  return (
    <Card
      title="Policy in force"
      aside={
        mayAct('policy', name) ? (
          <button
            type="button"
            class="link"
            onClick={() => (planned.value = setPolicy(name, applying.find(({ prefix }) => prefix === name)?.rules ?? {}))}
          >
            set
          </button>
        ) : undefined
      }
    >
      {inForce.size === 0 ? (
        <p class="empty">No policy applies. Defaults: capacity {capacity}, ttl from 100 ms to 24 h, first come first served.</p>
      ) : (
        <dl class="facts">
          {[...inForce].map(([rule, { value, prefix }]) => (
            <div key={rule}>
              <dt>{rule}</dt>
              <dd>
                <RuleValue rule={rule} value={value} />{' '}
                <span class="faint">from {prefix === '' ? 'everything' : <Text>{prefix}</Text>}</span>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </Card>
  )
}
