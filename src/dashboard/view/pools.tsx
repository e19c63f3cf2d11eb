/** Pools: one square for each member, filled by its holders; real use, use without a lease, the queue with estimates, and reservations on an axis of time. */
import type { VNode } from 'preact'
import type { Event } from '../../wire/http/client.ts'
import { extendLease, mayAct, planned, revokeLease } from '../action.ts'
import type { MemberReport, PoolAnswerView, PoolExplanation, PoolsAnswer, PoolWaiter, ShownMember } from '../answers.ts'
import { accountHues, count, duration, hueOf, pathOf, visible } from '../format.ts'
import { Ago, Card, Empty, HolderLink, LabelFacts, LeaseLink, Length, ResourceName, Tag, Text, Waiting } from '../part/basics.tsx'
import { useReading } from '../query.ts'
import { href, route, setParams } from '../route.ts'

const LINES = [
  'leasehold pool offer gpus --discover nvidia        # on each host',
  'leasehold pool take gpus -n 2 -- python train.py   # waits, takes, frees at the end',
  'node examples/gpu-lab.mjs                          # two fake hosts, three users',
]

/** The list draws the members of this many pools, and this many members of each. */
const MAX_POOLS_DRAWN = 12
const MAX_SQUARES = 256

export function Pools({ name }: { readonly name: string }): VNode {
  return name === '' ? <AllPools /> : <OnePool name={name} />
}

function AllPools(): VNode {
  const { data, error } = useReading<PoolsAnswer>('/v1/pools', { every: 3_000 })
  if (data === undefined) return <Waiting error={error} />
  return (
    <>
      <header class="title">
        <h1>Pools</h1>
      </header>
      {data.pools.length === 0 ? <Empty lines={LINES}>There is no pool. These lines make one:</Empty> : null}
      <div class="grid-of-cards wide-cards">
        {data.pools.map(({ pool, members, units, used, waiting, reservations }, place) => (
          <section class="card" key={pool} aria-label={visible(pool)}>
            <header>
              <h2>
                <a href={href('pools', pool)}>
                  <Text>{pool}</Text>
                </a>
              </h2>
              <span class="faint">{count(members)} members</span>
            </header>
            <div class="meter tall" role="img" aria-label={`${used} of ${units} units are held`}>
              <span style={{ width: `${units === 0 ? 0 : (100 * used) / units}%` }} />
            </div>
            {place < MAX_POOLS_DRAWN ? <PoolSquares pool={pool} /> : null}
            <p class="note">
              {count(used)} of {count(units)} units held, {count(waiting)} waiting, {count(reservations)} reserved
            </p>
          </section>
        ))}
      </div>
    </>
  )
}

/** The members of a pool, each as a small square in the colour of its account. The view of the pool has their names. */
function PoolSquares({ pool }: { readonly pool: string }): VNode | null {
  const { data } = useReading<PoolAnswerView>(`/v1/pools/${pathOf(pool)}`, { every: 3_000, about: aboutPool(pool) })
  if (data === undefined) return null
  const hues = huesOf(data)
  const unleased = unleasedOf(data)
  return (
    <>
      <div class="minis" aria-hidden="true">
        {data.members.slice(0, MAX_SQUARES).map(member => (
          <i
            key={member.resource}
            class={`mini ${colourOf(member, hues)}`}
            data-status={member.status}
            data-unleased={(reportOf(member).unleased ?? 0) > 0}
            title={titleOf(member)}
          />
        ))}
      </div>
      {unleased > 0 ? <Tag kind="unleased">{`${unleased} used without a lease`}</Tag> : null}
    </>
  )
}

function aboutPool(name: string): (event: Event) => boolean {
  return event => event.resource?.startsWith(name) === true || event.key?.includes(`/${name}/`) === true
}

function unleasedOf({ members }: PoolAnswerView): number {
  return members.filter(member => (reportOf(member).unleased ?? 0) > 0).length
}

function OnePool({ name }: { readonly name: string }): VNode {
  const about = aboutPool(name)
  const { data, error } = useReading<PoolAnswerView>(`/v1/pools/${pathOf(name)}`, { every: 2_000, about })
  const explained = useReading<PoolExplanation>(
    data !== undefined && data.queue.length > 0 ? `/v1/pools/${pathOf(name)}/explain?limit=20` : undefined,
    {
      every: 5_000,
      about,
    },
  )
  if (data === undefined) return <Waiting error={error} />
  const chosen = data.members.find(({ member }) => member === route.value.params.get('member'))
  const hues = huesOf(data)
  const unleased = unleasedOf(data)
  return (
    <>
      <header class="title">
        <h1>
          <a href={href('pools')}>Pools</a> / <Text>{name}</Text>
        </h1>
        <span class="faint">
          {count(data.members.filter(({ used }) => used > 0).length)} of {count(data.members.length)} in use
        </span>
        {unleased > 0 ? <Tag kind="unleased">{`${unleased} used without a lease`}</Tag> : null}
      </header>
      <Card title="Members">
        {data.members.length === 0 ? (
          <Empty lines={LINES}>No host offers a member.</Empty>
        ) : (
          <ul class="members">
            {data.members.slice(0, 1_000).map(member => (
              <MemberSquare key={member.resource} member={member} chosen={member === chosen} hues={hues} />
            ))}
          </ul>
        )}
        <p class="note key-of-colours">
          <i class="sample hue-3" /> taken, in the colour of its account <i class="sample free" /> free <i class="sample suspect" /> silent{' '}
          <i class="sample unleased" /> used without a lease
        </p>
      </Card>
      {chosen === undefined ? null : <MemberCard member={chosen} pool={name} hues={hues} />}
      <div class="columns">
        <QueueCard pool={data} explained={explained.data} hues={hues} />
        <div class="stack">
          <Reservations pool={data} hues={hues} />
          <Accounts pool={data} hues={hues} />
        </div>
      </div>
    </>
  )
}

function reportOf({ report }: ShownMember): MemberReport {
  return (report ?? {}) as MemberReport
}

type Hues = ReadonlyMap<string, number>

function huesOf({ accounts }: PoolAnswerView): Hues {
  return accountHues(accounts.map(({ account }) => account))
}

/** Whose a lease is: its account's, or its holder's if it took a member by its name. */
function ownerOf({ account, holder }: { readonly account: string; readonly holder: string }): string {
  return account === '' ? holder : account
}

function hueIn(hues: Hues, owner: string): number {
  return hues.get(owner) ?? hueOf(owner)
}

/** An account as it is written, with its colour: the same in members, queue, reservations and table. */
function Account({ name, hues }: { readonly name: string; readonly hues: Hues }): VNode {
  return (
    <span class="holder" title={visible(name)}>
      <i class={`dot hue-${hueIn(hues, name)}`} aria-hidden="true" />
      <Text>{name}</Text>
    </span>
  )
}

/** The host and the kind of a member, as far as its labels say; otherwise empty. */
function placeOf({ labels }: ShownMember, { host }: MemberReport): { readonly host: string; readonly kind: string } {
  const named = new Map(Object.entries(labels))
  const shown = (text: unknown) => (typeof text === 'string' ? visible(text) : '')
  return { host: shown(host ?? named.get('host')), kind: shown(named.get('model') ?? named.get('kind')) }
}

interface MemberSquareProps {
  readonly member: ShownMember
  readonly chosen: boolean
  readonly hues: Hues
}

function colourOf({ grants: [first] }: ShownMember, hues: Hues): string {
  return first === undefined ? 'free' : `hue-${hueIn(hues, ownerOf(first))}`
}

/** Returns what a member is used for, in one line. */
function titleOf(member: ShownMember): string {
  const { member: name, grants, units, used } = member
  const report = reportOf(member)
  const { utilisation, unleased = 0 } = report
  const { host, kind } = placeOf(member, report)
  const place = [host, kind].filter(text => text !== '').join(', ')
  const holders = grants.map(({ holder }) => visible(holder)).join(', ')
  const use = utilisation === undefined ? '' : `, ${Math.round(utilisation)} % in use`
  const wild = unleased > 0 ? `, ${unleased} processes without a lease` : ''
  return `${visible(name)}${place === '' ? '' : ` (${place})`}: ${grants.length === 0 ? 'free' : `${used} of ${units} units, ${holders}`}${use}${wild}`
}

function MemberSquare({ member, chosen, hues }: MemberSquareProps): VNode {
  const { member: name, grants, status } = member
  const report = reportOf(member)
  const { utilisation, unleased = 0 } = report
  const { host, kind } = placeOf(member, report)
  const [first] = grants
  return (
    <li>
      <button
        type="button"
        class={`member ${colourOf(member, hues)}`}
        data-status={status}
        data-unleased={unleased > 0}
        aria-pressed={chosen}
        title={titleOf(member)}
        onClick={() => setParams({ member: chosen ? '' : name })}
      >
        <span class="member-head">
          <span class="member-name">{visible(name)}</span>
          {kind === '' ? null : <span class="member-place">{kind}</span>}
        </span>
        {host === '' ? null : <span class="member-place">{host}</span>}
        <span class="member-who">{first === undefined ? (status === 'live' ? 'free' : status) : visible(first.holder)}</span>
        {unleased > 0 ? <span class="member-alarm">no lease</span> : null}
        {utilisation === undefined ? null : (
          <span class="member-use" aria-hidden="true">
            <span style={{ width: `${Math.min(100, Math.max(0, utilisation))}%` }} />
          </span>
        )}
      </button>
    </li>
  )
}

function MemberCard({ member, pool, hues }: { readonly member: ShownMember; readonly pool: string; readonly hues: Hues }): VNode {
  const { resource, labels, units, used, status, offeredBy, grants, waiting } = member
  const { host, utilisation, memoryUsed, processes = [], idle, stage, problem } = reportOf(member)
  return (
    <Card title={visible(member.member)} aside={<Tag kind={status} />}>
      <div class="halves">
        <dl class="facts">
          <div>
            <dt>resource</dt>
            <dd>
              <ResourceName name={resource} />
            </dd>
          </div>
          <div>
            <dt>units</dt>
            <dd>
              {used} of {units} held{waiting > 0 ? `, ${waiting} wait for it by name` : ''}
            </dd>
          </div>
          <div>
            <dt>offered by</dt>
            <dd>
              <Text>{offeredBy}</Text>
              {host === undefined ? null : <span class="faint"> on {visible(host)}</span>}
            </dd>
          </div>
          <LabelFacts labels={labels} />
        </dl>
        <dl class="facts">
          <div>
            <dt>real use</dt>
            <dd>
              {utilisation === undefined ? 'not reported' : `${Math.round(utilisation)} %`}
              {memoryUsed === undefined ? '' : `, ${memoryUsed.toFixed(1)} GiB`}
              {idle !== undefined && idle > 0 ? `, idle for ${duration(idle)}` : ''}
              {stage === undefined || stage === 'none' ? '' : ` (${visible(stage)})`}
            </dd>
          </div>
          {problem === undefined ? null : (
            <div>
              <dt>problem</dt>
              <dd class="problem">{visible(problem)}</dd>
            </div>
          )}
          {processes.slice(0, 8).map(({ pid, user, name, lease = 0 }) => (
            <div key={String(pid)}>
              <dt>process {pid}</dt>
              <dd>
                {visible(`${user ?? ''} ${name ?? ''}`)} {lease === 0 ? <Tag kind="unleased">no lease</Tag> : <LeaseLink lease={lease} />}
              </dd>
            </div>
          ))}
          {grants.map(({ lease, holder, account, held, expect, since, preemptible, yields, borrows, recalled }) => (
            <div key={lease}>
              <dt>
                <Account name={ownerOf({ account, holder })} hues={hues} />
              </dt>
              <dd>
                <HolderLink name={holder} />, for <Length ms={held} />, since <Ago at={since} />
                {expect > 0 ? `, expects ${duration(expect)}` : ''} {preemptible ? <Tag kind="preemptible" /> : null}
                {yields ? <Tag kind="yields" /> : null} {borrows ? <Tag kind="borrows" /> : null}{' '}
                {recalled ? <Tag kind="recalled" /> : null}
                {mayAct('release', pool) ? (
                  <button type="button" class="link" onClick={() => (planned.value = extendLease(lease, holder))}>
                    extend
                  </button>
                ) : null}
                {mayAct('revoke', pool) ? (
                  <button type="button" class="link" onClick={() => (planned.value = revokeLease(lease, holder, 0))}>
                    revoke
                  </button>
                ) : null}
              </dd>
            </div>
          ))}
        </dl>
      </div>
    </Card>
  )
}

interface QueueCardProps {
  readonly pool: PoolAnswerView
  readonly explained: PoolExplanation | undefined
  readonly hues: Hues
}

function wantOf({ request }: PoolWaiter): string {
  const { count: members = 1, units, total, near } = request as { count?: number; units?: number; total?: number; near?: string }
  const what = total !== undefined && total > 0 ? `${total} units` : `${members} ${members === 1 ? 'member' : 'members'}`
  return `${what}${units !== undefined && units > 0 ? ` of ${units} units` : ''}${near !== undefined && near !== '' ? `, near by ${visible(near)}` : ''}`
}

function QueueCard({ pool: { queue: places, reservations, waiting }, explained, hues }: QueueCardProps): VNode {
  // Reservations have places in the queue, and a card of their own.
  const reserved = new Set(reservations.map(({ lease }) => lease))
  const queue = places.filter(({ lease }) => !reserved.has(lease))
  const total = waiting - reservations.length
  return (
    <Card title="Queue" aside={<span class="faint">{total === 0 ? '' : `${total} waiting`}</span>}>
      {queue.length === 0 ? (
        <Empty>No client waits.</Empty>
      ) : (
        <ol class="list queue">
          {queue.slice(0, 50).map(waiter => {
            const why = explained?.waiters.find(({ lease }) => lease === waiter.lease)
            return (
              <li key={waiter.lease} class="pair">
                <span>
                  <Account name={ownerOf(waiter)} hues={hues} />{' '}
                  <span class="faint">
                    {wantOf(waiter)}
                    {waiter.account === '' || waiter.holder === waiter.account ? null : (
                      <>
                        , for <HolderLink name={waiter.holder} />
                      </>
                    )}
                  </span>
                  {waiter.possible ? null : <Tag kind="impossible" />}
                  {(why?.reasons ?? []).slice(0, 3).map(({ cause, text }) => (
                    <span class="second" key={`${cause} ${text}`}>
                      <Text>{text}</Text>
                    </span>
                  ))}
                  {(why?.alternatives ?? []).slice(0, 2).map(({ change, start }) => (
                    <span class="second hint" key={change}>
                      {visible(change)}: starts {startText(start)}
                    </span>
                  ))}
                </span>
                <span class="number">
                  {why?.start === undefined ? '' : startText(why.start)}
                  <span class="second">
                    waits <Ago at={waiter.since} bare />
                  </span>
                </span>
              </li>
            )
          })}
        </ol>
      )}
    </Card>
  )
}

function startText({
  low,
  median,
  high,
}: {
  readonly low: number | null
  readonly median: number | null
  readonly high: number | null
}): string {
  if (median === null) return 'never, as far as is known'
  if (low !== null && high !== null && high - low > 1_000) return `in ${duration(low)} to ${duration(high)}`
  return median < 1_000 ? 'any moment now' : `in about ${duration(median)}`
}

function Reservations({ pool: { reservations }, hues }: { readonly pool: PoolAnswerView; readonly hues: Hues }): VNode {
  const spans = reservations.map(waiter => {
    const from = (waiter.request as { from?: number }).from ?? 0
    return { waiter, from, until: from + waiter.maxLife }
  })
  const end = Math.max(3_600_000, ...spans.map(({ until }) => until))
  return (
    <Card title="Reservations">
      {spans.length === 0 ? (
        <Empty>Nothing is reserved.</Empty>
      ) : (
        <div class="timeline reservations">
          <ol aria-label="Reservations from now on" style={{ height: `${spans.length * 30}px` }}>
            {spans.map(({ waiter: { lease, holder, account, maxLife }, from, until }, i) => (
              <li
                key={lease}
                class={`hue-${hueIn(hues, ownerOf({ account, holder }))}`}
                title={`${account === '' || account === holder ? '' : `${visible(account)}, `}${visible(holder)}: begins in ${duration(from)}, lasts ${duration(maxLife)}`}
                style={{ left: `${(100 * from) / end}%`, width: `${Math.max(1, (100 * (until - from)) / end)}%`, top: `${i * 30}px` }}
              >
                <span>{visible(ownerOf({ account, holder }))}</span>
              </li>
            ))}
          </ol>
          <div class="axis" aria-hidden="true">
            {Array.from({ length: 5 }, (_, i) => (
              <span key={String(i)}>{i === 0 ? 'now' : `+${duration((end * i) / 4)}`}</span>
            ))}
          </div>
        </div>
      )}
    </Card>
  )
}

/** The units that an account may hold, and borrow, and of each kind with a quota what it holds: `4 +2 · h100 1 of 2`. */
function quotaText({ quota, borrow, kinds = [] }: PoolAnswerView['accounts'][number]): string {
  const all = quota === 0 ? [] : [`${quota}${borrow > 0 ? ` +${borrow}` : ''}`]
  return [...all, ...kinds.map(({ kind, held, quota }) => `${kind} ${held} of ${quota}`)].join(' · ') || '·'
}

function Accounts({ pool: { accounts }, hues }: { readonly pool: PoolAnswerView; readonly hues: Hues }): VNode {
  const used = accounts.reduce((sum, { usage }) => sum + usage, 0)
  const hasWeeks = accounts.some(({ week }) => week !== undefined)
  return (
    <Card title="Accounts">
      {accounts.length === 0 ? (
        <Empty>No account has used it.</Empty>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
        <section class="scroll" aria-label="Accounts" tabIndex={0}>
          <table class="plain">
            <thead>
              <tr>
                <th>Account</th>
                <th class="end">Held</th>
                <th class="end">Waiting</th>
                <th class="end">Quota</th>
                {hasWeeks ? <th class="end">Week</th> : null}
                <th class="end">Weight</th>
                <th class="end">Used</th>
              </tr>
            </thead>
            <tbody>
              {accounts.slice(0, 50).map(of => (
                <tr key={of.account}>
                  <td>
                    <Account name={of.account} hues={hues} />
                  </td>
                  <td class="end">{of.held}</td>
                  <td class="end">{of.waiting}</td>
                  <td class="end">{quotaText(of)}</td>
                  {hasWeeks ? (
                    <td class="end" title={of.week && of.week.again > 0 ? `some of it is free again in ${duration(of.week.again)}` : ''}>
                      {of.week === undefined ? '·' : `${duration(of.week.used)} of ${duration(of.week.quota)}`}
                    </td>
                  ) : null}
                  <td class="end">{of.weight}</td>
                  <td class="end" title={`${of.usage} unit-ms, decayed`}>
                    {duration(of.usage)}
                    <span class="second">{used === 0 ? '' : `${Math.round((100 * of.usage) / used)} %`}</span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </Card>
  )
}
