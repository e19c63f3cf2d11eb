/** Sessions and the leases below them: what ends with what. */
import type { VNode } from 'preact'
import { mayEnd, planned, revokeLease } from '../action.ts'
import type { LeaseAnswer, TreesAnswer } from '../answers.ts'
import { count, visible } from '../format.ts'
import { Ago, Button, Empty, Holder, LeaseLink, Left, ResourceName, Tag, Text, Waiting } from '../part/basics.tsx'
import { useReading } from '../query.ts'
import { route, setParams } from '../route.ts'

/** Trees on one page. */
const PAGE = 25

const LINES = [
  "await using session = await leases.session({ ttl: '20m', labels: { user: 'ann' } })",
  "await session.acquire('documents/42')   // ends with the session",
  'session.touch()                          // activity renews it',
]

type ListedLease = TreesAnswer['trees'][number]['leases'][number]

export function Sessions(): VNode {
  const page = Math.max(0, Math.floor(Number(route.value.params.get('page') ?? 0)) || 0)
  const { data, at, error } = useReading<TreesAnswer>(`/v1/trees?offset=${page * PAGE}&limit=${PAGE}`, { every: 2_000 })
  if (data === undefined) return <Waiting error={error} />
  const { total, trees } = data
  const last = Math.max(0, Math.ceil(total / PAGE) - 1)
  return (
    <>
      <header class="title">
        <h1>Sessions and trees</h1>
        <span class="faint">A lease ends with everything below it, in one revision.</span>
      </header>
      {total === 0 ? <Empty lines={LINES}>No lease has others below it. A session does:</Empty> : null}
      {total > 0 && trees.length === 0 ? <Empty>There are fewer trees now.</Empty> : null}
      {trees.map(({ leases, more }) => (
        <Tree key={leases[0]!.lease} leases={leases} more={more === true} at={at} />
      ))}
      {last > 0 || page > 0 ? (
        <nav class="pager" aria-label="Pages">
          <Button disabled={page === 0} onClick={() => setParams({ page: page > 1 ? String(page - 1) : '' })}>
            Newer
          </Button>
          <span class="faint">
            {count(page * PAGE + Math.min(1, trees.length))} to {count(page * PAGE + trees.length)} of {count(total)}
          </span>
          <Button disabled={page >= last} onClick={() => setParams({ page: String(page + 1) })}>
            Older
          </Button>
        </nav>
      ) : null}
    </>
  )
}

function Tree({ leases, more, at }: { readonly leases: readonly ListedLease[]; readonly more: boolean; readonly at: number }): VNode {
  const [root] = leases
  const byId = new Map(leases.map(lease => [lease.lease, lease]))
  return (
    <section class="card tree" aria-label={`Tree of ${visible(root!.holder)}`}>
      <ul>
        <Node lease={root!} byId={byId} at={at} />
      </ul>
      {more ? <p class="note">The tree has more leases than the {count(leases.length)} that are shown.</p> : null}
    </section>
  )
}

/** Returns how many leases end with this one, as far as they are shown, itself included. */
function countOf({ children }: ListedLease, byId: ReadonlyMap<number, ListedLease>): number {
  return children.reduce((sum, child) => {
    const lease = byId.get(child)
    return lease === undefined ? sum : sum + countOf(lease, byId)
  }, 1)
}

interface NodeProps {
  readonly lease: ListedLease
  readonly byId: ReadonlyMap<number, ListedLease>
  readonly at: number
}

function Node({ lease: view, byId, at }: NodeProps): VNode {
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
        {status !== 'frozen' && mayEnd('revoke', view) ? (
          <button type="button" class="link" onClick={() => (planned.value = revokeLease(lease, holder, children.length))}>
            {below.length > 0 ? `end all ${count(countOf(view, byId))}` : 'end'}
          </button>
        ) : (
          <span />
        )}
      </div>
      {below.length === 0 ? null : (
        <ul>
          {below.map(child => (
            <Node key={child.lease} lease={child} byId={byId} at={at} />
          ))}
        </ul>
      )}
    </li>
  )
}
