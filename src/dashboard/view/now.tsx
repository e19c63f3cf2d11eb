/** The first view: what is held, who waits longest, what was lost, and how the last minutes went. */
import type { VNode } from 'preact'
import type { ActivityAnswer, OverviewAnswer, RowsAnswer, ShownLease } from '../answers.ts'
import { calmDuration, count, visible } from '../format.ts'
import { Ago, Card, Empty, Exact, Holder, Labels, Left, Length, ResourceName, Tag, Text, Waiting } from '../part/basics.tsx'
import { Plot } from '../part/plot.tsx'
import { useReading } from '../query.ts'
import { href, route, setParams } from '../route.ts'

export const FIRST_LINES = [
  'leasehold run jobs/nightly --ttl 30s -- sleep 60   # holds it for a minute',
  'leasehold run jobs/nightly -- echo next            # waits behind it',
  'leasehold demo                                     # a whole lively world',
]

const SPANS = [
  ['15m', '15 min', '1s'],
  ['24h', '24 h', '1m'],
] as const

export function Now(): VNode {
  const overview = useReading<OverviewAnswer>('/v1/overview', { every: 2_000 })
  const { data } = overview
  if (data === undefined) return <Waiting error={overview.error} />
  return (
    <>
      <h1 class="hidden">Now</h1>
      <Figures {...data} />
      {ACTIVITY}
      <div class="columns">
        {HOLDERS}
        <div class="stack">
          <OldestWaits {...data} />
          <Contended {...data} />
          <LostToday {...data} />
          <Health {...data} />
        </div>
      </div>
    </>
  )
}

/** Read by themselves, and drawn only for what they have read: a constant element is not drawn again with the rest. */
const ACTIVITY = <Activity />
const HOLDERS = <Holders />

function Activity(): VNode | null {
  const span = SPANS.find(([last]) => last === route.value.params.get('last')) ?? SPANS[0]
  const { data } = useReading<ActivityAnswer>(`/v1/activity?last=${span[0]}&step=${span[2]}`, {
    every: span[2] === '1s' ? 1_000 : 20_000,
    about: () => false,
  })
  return data === undefined ? null : <Plots activity={data} span={span[0]} />
}

function Figures({ leases, lost, waits, now }: OverviewAnswer): VNode {
  const oldest = waits[0]
  return (
    <dl class="figures">
      {leases === undefined ? null : (
        <>
          <div>
            <dt>held</dt>
            <dd id="figure-held">{count(leases.live)}</dd>
          </div>
          <div>
            <dt>waiting</dt>
            <dd id="figure-waiting">{count(leases.waiting)}</dd>
          </div>
          <div data-kind={leases.suspect + leases.frozen > 0 ? 'warn' : ''}>
            <dt>suspect, frozen</dt>
            <dd>
              {count(leases.suspect)}
              <small>, {count(leases.frozen)}</small>
            </dd>
          </div>
        </>
      )}
      <div>
        <dt>oldest wait</dt>
        <dd title={oldest === undefined ? '' : `${oldest.holder} waits for ${oldest.resource}`}>
          {oldest === undefined ? 'none' : calmDuration(now - oldest.since)}
        </dd>
      </div>
      <div data-kind={lost.total > 0 ? 'bad' : ''}>
        <dt>lost in 24 h</dt>
        <dd>{count(lost.total)}</dd>
      </div>
    </dl>
  )
}

/** Steps that are shown at least, even if less is known. */
const FEWEST_STEPS = 120

/** Without the steps of which nothing is known, because the server has not run for that long. */
function known({ from, step, series }: ActivityAnswer): Pick<ActivityAnswer, 'from' | 'series'> {
  const first = series.granted.findIndex(value => value !== null)
  const skip = Math.max(0, Math.min(first < 0 ? series.granted.length : first, series.granted.length - FEWEST_STEPS))
  const cut = Object.entries(series).map(([name, values]) => [name, values.slice(skip)])
  return { from: from + skip * step, series: Object.fromEntries(cut) as ActivityAnswer['series'] }
}

function Plots({ activity, span }: { readonly activity: ActivityAnswer; readonly span: string }): VNode {
  const { step } = activity
  const { from, series } = known(activity)
  const per = step === 1_000 ? 'per second' : 'per minute'
  return (
    <Card
      title="Activity"
      class="activity"
      aside={
        <fieldset class="choice" aria-label="Span of time">
          {SPANS.map(([last, title]) => (
            <button type="button" key={last} aria-pressed={span === last} onClick={() => setParams({ last })}>
              {title}
            </button>
          ))}
        </fieldset>
      }
    >
      <div class="plots">
        <Plot
          label={`Grants ${per}`}
          from={from}
          step={step}
          series={[{ label: 'granted', colour: 'good', values: series.granted, fill: true }]}
        />
        <Plot
          label={`Lost ${per}`}
          from={from}
          step={step}
          series={[
            { label: 'lost', colour: 'bad', values: series.lost, fill: true },
            { label: 'lapsed', colour: 'warn', values: series.lapsed },
          ]}
        />
        <Plot
          label="Leases"
          from={from}
          step={step}
          series={[
            { label: 'held', colour: 'info', values: series.live, fill: true },
            { label: 'waiting', colour: 'warn', values: series.waiting },
          ]}
        />
      </div>
    </Card>
  )
}

const SHOWN_HOLDERS = 40
/** The order of holders, by its place in the address. The first is the default. */
const ORDERS = [
  ['newest', 'newest first', '-since'],
  ['longest', 'longest held', 'since'],
] as const

function Holders(): VNode {
  const [order, , sort] = ORDERS.find(([name]) => name === route.value.params.get('order')) ?? ORDERS[0]
  const { data, at, error } = useReading<RowsAnswer<ShownLease>>(`/v1/rows?of=leases&state=live&sort=${sort}&limit=${SHOWN_HOLDERS}`, {
    every: 1_000,
  })
  return (
    <Card
      title="Holders"
      aside={
        <span class="beside">
          <fieldset class="choice" aria-label="Order of holders">
            {ORDERS.map(([name, title]) => (
              <button type="button" key={name} aria-pressed={order === name} onClick={() => setParams({ order: name })}>
                {title}
              </button>
            ))}
          </fieldset>
          <a href={href('leases', '', { state: 'live' })}>all {data === undefined ? '' : count(data.total)}</a>
        </span>
      }
    >
      {data === undefined ? (
        <Waiting error={error} />
      ) : data.rows.length === 0 ? (
        <Empty lines={FIRST_LINES}>Nothing is held. These lines fill the dashboard:</Empty>
      ) : (
        <ul class="list holders">
          {data.rows.map(row => (
            <li key={row.lease}>
              <div class="what">
                {row.resources.length === 0 ? (
                  <a href={href('lease', String(row.lease))}>no resource: a session or a registration</a>
                ) : (
                  row.resources.map(name => <ResourceName key={name} name={name} />)
                )}
                {row.more > 0 ? <span class="faint"> +{row.more}</span> : null}
                {row.recalled ? <Tag kind="recalled" /> : null}
              </div>
              <div class="by">
                <Holder name={row.holder} />
                <Labels labels={row.labels} />
              </div>
              <Left remaining={row.remaining} ttl={row.ttl} at={at} />
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function OldestWaits({ waits }: OverviewAnswer): VNode {
  return (
    <Card title="Oldest wait of each prefix">
      {waits.length === 0 ? (
        <Empty>No client waits.</Empty>
      ) : (
        <ul class="list">
          {waits.map(({ prefix, resource, lease, holder, since }) => (
            <li key={prefix} class="pair">
              <span>
                <ResourceName name={resource} />
                <span class="second">
                  <Holder name={holder} />{' '}
                  <span class="faint">
                    lease <Exact value={lease} what="lease" />
                  </span>
                </span>
              </span>
              <span class="number" title={`The oldest wait under ${visible(prefix)}`}>
                <Ago at={since} bare />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Contended({ contended }: OverviewAnswer): VNode {
  const most = Math.max(1, ...contended.map(({ waiters }) => waiters))
  return (
    <Card title="Most contended">
      {contended.length === 0 ? (
        <Empty>No name has a queue.</Empty>
      ) : (
        <ul class="list">
          {contended.slice(0, 8).map(({ resource, waiters, holder }) => (
            <li key={resource} class="pair">
              <span>
                <ResourceName name={resource} />
                {holder === undefined ? null : (
                  <span class="second">
                    held by <Holder name={holder} />
                  </span>
                )}
              </span>
              <span class="number" title={`${waiters} waiters`}>
                <span class="meter" aria-hidden="true">
                  <span style={{ width: `${(100 * waiters) / most}%` }} />
                </span>
                {count(waiters)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function LostToday({ lost: { total, causes, last } }: OverviewAnswer): VNode {
  return (
    <Card
      title="Lost today, and why"
      aside={<span class="faint">{total === 0 ? '' : causes.map(({ cause, count: n }) => `${n} ${cause}`).join(', ')}</span>}
    >
      {last.length === 0 ? (
        <Empty>No lease was ended against its holder.</Empty>
      ) : (
        <ul class="list">
          {last.slice(0, 8).map(({ at, resource, lease, holder, token, cause, by, held }) => (
            <li key={`${lease} ${resource} ${token}`} class="pair">
              <span>
                <ResourceName name={resource} /> <Tag kind={cause} />
                <span class="second">
                  <Holder name={holder} />
                  {held === undefined ? null : (
                    <>
                      {' '}
                      held <Length ms={held} />
                    </>
                  )}
                  {by === undefined ? null : (
                    <>
                      , by <Text>{by}</Text>
                    </>
                  )}
                </span>
              </span>
              <span class="number">
                <Ago at={at} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

const FIGURE_NAMES: Readonly<Record<string, string>> = {
  applyLag: 'behind the log',
}

function Health({ store, since, figures = {}, revision }: OverviewAnswer): VNode {
  const shown = Object.entries(figures).slice(0, 12)
  return (
    <Card title="Store and replica" aside={<Tag kind={store.up ? 'up' : 'down'} />}>
      <dl class="facts">
        <div>
          <dt>store</dt>
          <dd>{store.up ? 'answers' : <Text>{store.reason ?? 'does not answer'}</Text>}</dd>
        </div>
        {store.quiet ? (
          <div>
            <dt>quiet</dt>
            <dd>The log lost records: nothing is granted until the longest ttl has passed.</dd>
          </div>
        ) : null}
        <div>
          <dt>known since</dt>
          <dd>
            <Ago at={since} />
          </dd>
        </div>
        <div>
          <dt>revision</dt>
          <dd>
            <Exact value={revision} what="revision" />
          </dd>
        </div>
        {shown.map(([name, value]) => (
          <div key={name}>
            <dt>{FIGURE_NAMES[name] ?? name.replaceAll(/([A-Z_])/g, found => (found === '_' ? ' ' : ` ${found.toLowerCase()}`))}</dt>
            <dd title={String(value)}>{Number.isInteger(value) ? count(value) : value.toFixed(2)}</dd>
          </div>
        ))}
      </dl>
    </Card>
  )
}
