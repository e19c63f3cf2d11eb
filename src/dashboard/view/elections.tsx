/** Elections: who leads since when, who stands by, and the past terms. */
import type { VNode } from 'preact'
import { breakResource, mayAct, planned } from '../action.ts'
import type { HistoryAnswer, ResourcesAnswer } from '../answers.ts'
import { pathOf, visible } from '../format.ts'
import { Ago, Empty, Exact, Holder, Left, Tag, Text, Waiting } from '../part/basics.tsx'
import { PastGrants } from '../part/past-grants.tsx'
import { Timeline } from '../part/timeline.tsx'
import { useReading } from '../query.ts'
import { href } from '../route.ts'

const LINES = [
  "leasehold elect scheduler -- sh -c 'echo leading; sleep 60'",
  "leasehold elect scheduler -- echo 'I lead when the first one ends'",
  'leasehold history election/scheduler',
]

type Office = ResourcesAnswer['resources'][number]

const about = ({ resource }: { resource?: string | undefined }) => resource?.startsWith('election/') === true

export function Elections(): VNode {
  const { data, at, error } = useReading<ResourcesAnswer>('/v1/resources?prefix=election&limit=200', { every: 1_000, about })
  if (data === undefined) return <Waiting error={error} />
  return (
    <>
      <header class="title">
        <h1>Elections</h1>
        <span class="faint">{data.resources.length === 1 ? '1 election' : `${data.resources.length} elections`}</span>
      </header>
      {data.resources.length === 0 ? <Empty lines={LINES}>No election is held. These lines hold one:</Empty> : null}
      {data.resources.map(office => (
        <OfficeCard key={office.resource} office={office} at={at} />
      ))}
    </>
  )
}

function OfficeCard({ office: { resource, grants, queue }, at }: { readonly office: Office; readonly at: number }): VNode {
  const history = useReading<HistoryAnswer>(`/v1/history/${pathOf(resource)}`, {
    every: 10_000,
    about: event => event.resource === resource,
  })
  const past = history.data?.history ?? []
  const [leader] = grants
  const title = resource.slice('election/'.length)
  const spans = past.map(({ since, until, holder, cause, token }) => ({ from: since, until, holder, cause, key: String(token) }))
  return (
    <section class="card election" aria-label={`Election ${visible(title)}`}>
      <header>
        <h2>
          <a href={href('resource', resource)}>
            <Text>{title}</Text>
          </a>
        </h2>
        {leader !== undefined && mayAct('break', resource) ? (
          <button type="button" class="link" onClick={() => (planned.value = breakResource(resource))}>
            end the term
          </button>
        ) : null}
      </header>
      <div class="term">
        {leader === undefined ? (
          <p>No leader.</p>
        ) : (
          <p>
            <Holder name={leader.holder} /> {leader.status === 'live' ? 'has led' : <Tag kind={leader.status} />} for{' '}
            <Ago at={leader.since} bare />, term <Exact value={leader.token} what="token" />
          </p>
        )}
        {leader === undefined ? null : <Left remaining={leader.remaining} at={at} />}
      </div>
      <p class="note">
        {queue.length === 0 ? 'No other candidate.' : 'Candidates: '}
        {queue.slice(0, 12).map(({ lease, holder }) => (
          <span class="item" key={lease}>
            <Holder name={holder} />
          </span>
        ))}
      </p>
      <Timeline
        label="Terms"
        spans={
          leader === undefined || leader.status === 'frozen'
            ? spans
            : [...spans, { from: leader.since, holder: leader.holder, key: String(leader.token) }]
        }
      />
      {past.length === 0 ? null : (
        <details>
          <summary>{past.length === 1 ? '1 past term' : `${past.length} past terms`}</summary>
          <PastGrants past={past} holder="Leader" />
        </details>
      )}
    </section>
  )
}
