/** Sessions and the leases below them: what ends with what. */
import type { VNode } from 'preact'
import { mayEnd, planned, revokeLease } from '../action.ts'
import type { LeaseAnswer, LeasesAnswer } from '../answers.ts'
import { visible } from '../format.ts'
import { Ago, Empty, Holder, LeaseLink, Left, ResourceName, Tag, Text, Waiting } from '../part/basics.tsx'
import { useReading } from '../query.ts'

/** Leases that are read to find the trees among them. */
const READ = 2_000
/** Trees that are shown, and leases of one tree. */
const SHOWN_TREES = 100
const SHOWN_LEASES = 200

const LINES = [
  "await using session = await leases.session({ ttl: '20m', labels: { user: 'ann' } })",
  "await session.acquire('documents/42')   // ends with the session",
  'session.touch()                          // activity renews it',
]

type ListedLease = LeasesAnswer['leases'][number]

export function Sessions(): VNode {
  const { data, at, error } = useReading<LeasesAnswer>(`/v1/leases?limit=${READ}`, { every: 2_000 })
  if (data === undefined) return <Waiting error={error} />
  const byId = new Map(data.leases.map(lease => [lease.lease, lease]))
  const roots = data.leases.filter(({ lease, parent, children, grants, wants, status }) => {
    if (parent !== 0 && byId.has(parent)) return false
    // A session holds no resource itself.
    return (
      children.length > 0 ||
      parent !== 0 ||
      (status !== 'frozen' && grants.length + wants.length === 0 && !isRegistration(byId.get(lease)!))
    )
  })
  return (
    <>
      <header class="title">
        <h1>Sessions and trees</h1>
        <span class="faint">A lease ends with everything below it, in one revision.</span>
      </header>
      {data.more === true ? <p class="notice">There are more than {READ} leases. Only trees among the first ones are shown.</p> : null}
      {roots.length === 0 ? <Empty lines={LINES}>No lease has others below it. A session does:</Empty> : null}
      {roots.slice(0, SHOWN_TREES).map(root => (
        <section class="card tree" key={root.lease} aria-label={`Tree of ${visible(root.holder)}`}>
          <ul>
            <Node lease={root} byId={byId} at={at} left={{ count: SHOWN_LEASES }} />
          </ul>
        </section>
      ))}
      {roots.length > SHOWN_TREES ? <p class="note">and {roots.length - SHOWN_TREES} more</p> : null}
    </>
  )
}

function isRegistration({ entries }: ListedLease): boolean {
  return entries.some(({ key }) => /^(services|pool|board)\//.test(key))
}

interface NodeProps {
  readonly lease: ListedLease
  readonly byId: ReadonlyMap<number, ListedLease>
  readonly at: number
  /** How many more leases of this tree may be shown. */
  readonly left: { count: number }
}

function Node({ lease: view, byId, at, left }: NodeProps): VNode | null {
  if (left.count-- <= 0) return null
  const { lease, holder, status, ttl, remaining, since, grants, wants, entries, labels, children } = view as LeaseAnswer
  const below = children.map(child => byId.get(child)).filter(found => found !== undefined)
  const names = [...grants, ...wants].map(({ resource }) => resource)
  return (
    <li>
      <div class="node">
        <span class="node-what">
          <Holder name={holder} /> <LeaseLink lease={lease} /> {status === 'live' ? null : <Tag kind={status} />}
          {Object.entries(labels)
            .slice(0, 4)
            .map(([label, value]) => (
              <Tag key={label} kind="label">{`${visible(label)}=${visible(value.slice(0, 60))}`}</Tag>
            ))}
          <span class="second">
            {names.slice(0, 6).map(name => (
              <span class="item" key={name}>
                <ResourceName name={name} />
              </span>
            ))}
            {names.length > 6 ? `and ${names.length - 6} more ` : ''}
            {entries.slice(0, 3).map(({ key }) => (
              <span class="item" key={key}>
                <Text>{key}</Text>
              </span>
            ))}
            {names.length + entries.length === 0 ? <span class="faint">holds nothing itself</span> : null}
          </span>
        </span>
        <span class="faint">
          <Ago at={since} bare />
        </span>
        <Left remaining={remaining} ttl={ttl} at={at} />
        {status !== 'frozen' && mayEnd('revoke', names) ? (
          <button type="button" class="link" onClick={() => (planned.value = revokeLease(lease, holder, children.length))}>
            {children.length > 0 ? `end ${children.length + 1}` : 'end'}
          </button>
        ) : (
          <span />
        )}
      </div>
      {below.length === 0 ? null : (
        <ul>
          {below.map(child => (
            <Node key={child.lease} lease={child} byId={byId} at={at} left={left} />
          ))}
        </ul>
      )}
    </li>
  )
}
