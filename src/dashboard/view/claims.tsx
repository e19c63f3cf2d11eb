/** This view shows what coding agents have claimed, with the clocks that each claim depends on: alive, active, the cap, and what the agent expected. */
import type { VNode } from 'preact'
import { mayAct, mayEnd, planned, recallResource, revokeLease } from '../action.ts'
import type { LeaseAnswer, LeasesAnswer, ResourceAnswer, RowsAnswer, ShownLease } from '../answers.ts'
import { second, serverNow } from '../clock.ts'
import { calmDuration, duration, pathOf, visible } from '../format.ts'
import { Ago, CapLeft, Empty, Holder, LeaseLink, Left, ResourceName, Tag, Text, Waiting } from '../part/basics.tsx'
import { ObstacleText, obstacleOf } from '../part/obstacle.tsx'
import { useReading } from '../query.ts'

const LINES = [
  'leasehold mcp --agent planner          # in the settings of your coding agent',
  'leasehold init                         # sets up the coding agents that are here, and git',
  'node examples/claims.mjs               # three agents edit one repository',
]

const READ = 500

export function Claims(): VNode {
  const agents = useReading<LeasesAnswer>(`/v1/leases?prefix=agents&limit=${READ}`, { every: 2_000 })
  const claims = useReading<RowsAnswer<ShownLease>>(`/v1/rows?of=leases&label=kind%3Dclaim&sort=-since&limit=${READ}`, { every: 1_000 })
  const takes = useReading<RowsAnswer<ShownLease>>(`/v1/rows?of=leases&label=kind%3Dtake&sort=-since&limit=${READ}`, { every: 2_000 })
  if (agents.data === undefined || claims.data === undefined) return <Waiting error={agents.error ?? claims.error} />
  const sessions = agents.data.leases.filter(({ labels }) => labels.kind === 'agent') as unknown as readonly LeaseAnswer[]
  const rows = [...claims.data.rows, ...(takes.data?.rows ?? [])]
  const orphans = rows.filter(({ parent }) => !sessions.some(({ lease }) => lease === parent))
  return (
    <>
      <header class="title">
        <h1>Claims of coding agents</h1>
        <span class="faint">
          {sessions.length} agents, {rows.length} claims
        </span>
      </header>
      {sessions.length + rows.length === 0 ? <Empty lines={LINES}>No agent has a session. These lines start one:</Empty> : null}
      {byRepository(sessions, rows).map(([repository, group]) => (
        <section key={repository} aria-label={repository === '' ? 'No repository' : `Repository ${visible(repository)}`}>
          <h2 class="repository">
            <Text>{repository === '' ? 'no repository' : repository}</Text>
          </h2>
          {group.map(session => (
            <section class="card agent" key={session.lease} aria-label={`Agent ${visible(session.holder)}`}>
              <AgentHead session={session} at={agents.at} />
              <ClaimRows rows={rows.filter(({ parent }) => parent === session.lease)} at={claims.at} />
            </section>
          ))}
        </section>
      ))}
      <Finished sessions={sessions} />
      {orphans.length === 0 ? null : (
        <section class="card agent" aria-label="Claims of agents that this key cannot see">
          <header>
            <h2>Other claims</h2>
          </header>
          <ClaimRows rows={orphans} at={claims.at} />
        </section>
      )}
    </>
  )
}

/** Groups the agents by repository, by the paths that they claim; an agent without any, and one of several repositories, comes under the first. */
export function byRepository<S extends { readonly lease: number; readonly holder: string }>(
  sessions: readonly S[],
  rows: readonly Pick<ShownLease, 'parent' | 'resources' | 'wants'>[],
): readonly (readonly [repository: string, sessions: readonly S[]])[] {
  const groups = new Map<string, S[]>()
  for (const session of sessions) {
    const names = rows.filter(({ parent }) => parent === session.lease).flatMap(({ resources, wants }) => [...resources, ...wants])
    const repository = names.map(repositoryOf).find(found => found !== '') ?? ''
    groups.set(repository, [...(groups.get(repository) ?? []), session])
  }
  // Agents without a repository come last.
  return [...groups].sort(([a], [b]) => (a === '' ? 1 : b === '' ? -1 : a < b ? -1 : 1))
}

/** `github.com/acme/app` of `repo/github.com/acme/app/src/a.ts`; a local repository goes by its machine and folder, as far as the name shows it. */
function repositoryOf(resource: string): string {
  const [first, ...rest] = resource.split('/')
  return first === 'repo' && rest.length >= 3 ? rest.slice(0, 3).join('/') : ''
}

const FINISHED_SHOWN = 60_000
/** When each agent was last seen, and those that have gone since. */
const lastSeen = new Map<string, { at: number; present: boolean }>()

/** Returns the agents that have ended within the last minute. */
export function finishedAgents(present: readonly string[], now: number): readonly string[] {
  for (const seen of lastSeen.values()) seen.present = false
  for (const holder of present) lastSeen.set(holder, { at: now, present: true })
  for (const [holder, { at }] of lastSeen) if (now - at >= FINISHED_SHOWN) lastSeen.delete(holder)
  return [...lastSeen].filter(([, seen]) => !seen.present).map(([holder]) => holder)
}

function Finished({ sessions }: { readonly sessions: readonly LeaseAnswer[] }): VNode | null {
  second.value
  const gone = finishedAgents(
    sessions.map(({ holder }) => holder),
    serverNow(),
  )
  if (gone.length === 0) return null
  return (
    <p class="note">
      Finished: <Text>{gone.join(', ')}</Text>
    </p>
  )
}

/** Shows what the agent was last denied, and why. */
function Denied({ session: { entries, holder } }: { readonly session: LeaseAnswer }): VNode | null {
  const denial = entryOf(entries, `agents/${holder}/~denied`) as { readonly at?: unknown; readonly reason?: unknown } | undefined
  if (typeof denial?.at !== 'number' || typeof denial.reason !== 'string') return null
  return (
    <p class="note denied">
      An edit was denied <Ago at={denial.at} />: <Text>{denial.reason}</Text>
    </p>
  )
}

function entryOf(entries: LeaseAnswer['entries'], name: string): unknown {
  try {
    return JSON.parse(entries.find(({ key }) => key === name)?.value ?? '')
  } catch {
    return undefined
  }
}

/** When the agent was last active, by the mark that its hooks leave. */
function activeMark({ entries, holder }: LeaseAnswer): { readonly at: number; readonly underWay: boolean } | undefined {
  const mark = entryOf(entries, `agents/${holder}/~activity`) as { readonly at?: unknown; readonly underWay?: unknown } | undefined
  return typeof mark?.at === 'number' ? { at: mark.at, underWay: mark.underWay === true } : undefined
}

function AgentHead({ session, at }: { readonly session: LeaseAnswer; readonly at: number }): VNode {
  const { holder, lease, labels, ttl, remaining, since, parent, maxLife } = session
  const mark = activeMark(session)
  return (
    <>
      <header>
        <h2>
          <Holder name={holder} />
        </h2>
        <span class="faint">
          session <LeaseLink lease={lease} />
          {parent === 0 ? '' : ', a sub-agent'}, for <Ago at={since} bare />
          {mayEnd('revoke', session) ? (
            <button type="button" class="link" onClick={() => (planned.value = revokeLease(lease, holder, session.children.length))}>
              end it
            </button>
          ) : null}
        </span>
      </header>
      <dl class="clocks">
        <div>
          <dt>alive</dt>
          <dd>
            <Left remaining={remaining} ttl={ttl} at={at} />
            <span class="faint">
              {labels.alive === 'process'
                ? `kept by a process${labels.pid === undefined ? '' : ` (${visible(labels.host ?? '')} ${visible(labels.pid)})`}`
                : 'kept by its calls'}
            </span>
          </dd>
        </div>
        <div>
          <dt>active</dt>
          <dd>
            {mark === undefined ? (
              <span class="faint">no mark: only its own calls count</span>
            ) : (
              <>
                <Ago at={mark.at} /> {mark.underWay ? <Tag kind="working">a tool call is under way</Tag> : null}
              </>
            )}
          </dd>
        </div>
        {maxLife === undefined ? null : (
          <div>
            <dt>cap</dt>
            <dd>
              <CapLeft since={since} maxLife={maxLife} />
            </dd>
          </div>
        )}
      </dl>
      <Denied session={session} />
    </>
  )
}

function ClaimRows({ rows, at }: { readonly rows: readonly ShownLease[]; readonly at: number }): VNode {
  if (rows.length === 0) return <p class="note">It claims nothing now.</p>
  return (
    <ul class="list holders">
      {rows.map(row => (
        <li key={row.lease}>
          <div class="what">
            {row.resources.map(name => (
              <ResourceName key={name} name={name} />
            ))}
            {row.wants.map(name => (
              <ResourceName key={name} name={name} />
            ))}
            {row.covers === true ? <Tag kind="covers" /> : null}
            {row.more > 0 ? <span class="faint">+{row.more}</span> : null}
            {row.status === 'live' ? null : <Tag kind={row.status} />}
            {row.recalled ? <Tag kind="recalled">asked for</Tag> : null}
          </div>
          <div class="by">
            {row.purpose === undefined || row.purpose === '' ? null : (
              <span class="purpose">
                <Text>{row.purpose}</Text>
              </span>
            )}
            {row.status === 'waiting' ? row.wants.map(name => <InTheWay key={name} name={name} lease={row.lease} />) : null}
            <Expected row={row} />
            {row.maxLife === undefined || row.status === 'waiting' ? null : (
              <span class="faint">
                cap: <CapLeft since={row.since} maxLife={row.maxLife} />
              </span>
            )}
            {row.resources[0] !== undefined && mayAct('recall', row.resources[0]) ? (
              <button type="button" class="link" onClick={() => (planned.value = recallResource(row.resources[0]!))}>
                ask for it
              </button>
            ) : null}
          </div>
          <Left remaining={row.remaining} ttl={row.ttl} at={at} />
        </li>
      ))}
    </ul>
  )
}

/** Shows what a waiting claim waits for. Of several names usually one is in the way. */
function InTheWay({ name, lease }: { readonly name: string; readonly lease: number }): VNode | null {
  const { data } = useReading<ResourceAnswer>(`/v1/resources/${pathOf(name)}`, { every: 5_000, about: ({ resource }) => resource === name })
  const waiter = data?.queue.find(one => one.lease === lease)
  if (waiter === undefined) return null
  const before = data!.queue[waiter.position - 1]
  const obstacle = before ? { ...before, resource: name, waits: true } : obstacleOf(data!, waiter)
  return obstacle === undefined ? null : (
    <span>
      behind <ObstacleText name={name} of={obstacle} />
    </span>
  )
}

/** Shows how long the agent said that it needs it, and how much of that is over. */
function Expected({ row: { labels, since } }: { readonly row: ShownLease }): VNode {
  second.value
  const expect = Number(labels.find(([label]) => label === 'expect')?.[1])
  const age = serverNow() - since
  if (!Number.isFinite(expect) || expect <= 0)
    return (
      <span class="faint">
        for <Ago at={since} bare />
      </span>
    )
  return (
    <span class={age > expect ? 'late' : 'faint'} title={`expected ${expect} ms`}>
      {calmDuration(age)} of the {duration(expect)} it expected
    </span>
  )
}
