/** Services and their instances: health and its history, last heartbeat, capabilities, check results and agent cards. */
import type { ComponentChildren, VNode } from 'preact'
import { deregister, planned, setStatus } from '../action.ts'
import type { EntriesAnswer, InstanceAnswer, InstancesAnswer, LeaseAnswer, ServicesAnswer, StripsAnswer } from '../answers.ts'
import { second, serverNow } from '../clock.ts'
import { calmDuration, count, duration, exactTime, pathOf, visible } from '../format.ts'
import { Ago, Button, Card, Empty, Exact, Fact, Holder, LeaseLink, Left, Tag, Text, Waiting } from '../part/basics.tsx'
import { useReading } from '../query.ts'
import { href } from '../route.ts'
import { may } from '../server.ts'

const LINES = [
  'leasehold register critic --address http://127.0.0.1:8080 --capability review',
  'leasehold discover --capability review',
  'node examples/agents.mjs      # a planner, three workers and a reviewer',
]

export function Services({ name }: { readonly name: string }): VNode {
  const [service = '', instance] = name.split('/')
  if (service === '') return <AllServices />
  return instance === undefined ? <OneService service={service} /> : <OneInstance service={service} instance={instance} />
}

function AllServices(): VNode {
  const about = ({ key, type }: { key?: string | undefined; type: string }) =>
    key?.startsWith('services/') === true || type === 'preserving'
  const { data, error } = useReading<ServicesAnswer>('/v1/services', { every: 3_000, about })
  const found = useReading<InstancesAnswer>('/v1/discover?limit=500', { every: 3_000, about })
  if (data === undefined) return <Waiting error={error} />
  return (
    <>
      <header class="title">
        <h1>Services</h1>
        <span class="faint">
          {count(data.services.length)} services, {count(data.services.reduce((sum, { instances }) => sum + instances, 0))} instances
        </span>
      </header>
      {data.services.length === 0 ? (
        <Empty lines={LINES}>No service has an instance. These lines register one:</Empty>
      ) : (
        <div class="grid-of-cards">
          {data.services.map(({ service, instances, suspect, suppressed, preserving, since, removed }) => (
            <section class="card service" key={service} aria-label={visible(service)}>
              <header>
                <h2>
                  <a href={href('services', service)}>
                    <Text>{service}</Text>
                  </a>
                </h2>
                <span class="faint">{count(instances)}</span>
              </header>
              <ul class="squares" aria-label="Instances">
                {(found.data?.instances ?? [])
                  .filter(one => one.service === service)
                  .slice(0, 60)
                  .map(one => (
                    <li key={one.instance}>
                      <a
                        href={href('services', `${service}/${one.instance}`)}
                        data-status={one.status}
                        title={`${visible(one.instance)}: ${one.status}${one.reason === '' ? '' : `, ${visible(one.reason)}`}`}
                      >
                        <span class="hidden">
                          {visible(one.instance)} {one.status}
                        </span>
                      </a>
                    </li>
                  ))}
              </ul>
              <p class="note">
                {suspect > 0 ? <Tag kind="suspect">{`${suspect} suspect`}</Tag> : null}
                {suppressed > 0 ? <Tag kind="suppressed">{`${suppressed} suppressed`}</Tag> : null}
                {preserving ? (
                  <>
                    <Tag kind="preserving" /> for <Ago at={since} bare />: too many are silent at once, so they are kept ({removed} removed)
                  </>
                ) : null}
              </p>
            </section>
          ))}
        </div>
      )}
    </>
  )
}

function OneService({ service }: { readonly service: string }): VNode {
  const about = ({ key }: { key?: string | undefined }) => key?.startsWith(`services/${service}/`) === true
  const path = pathOf(service)
  const { data, error } = useReading<InstancesAnswer>(`/v1/services/${path}?limit=500`, { every: 2_000, about })
  const strips = useReading<StripsAnswer>(`/v1/strips/${path}`, { every: 5_000, about })
  const entries = useReading<EntriesAnswer>(`/v1/entries?prefix=${encodeURIComponent(`services/${service}`)}&limit=2000`, {
    every: 2_000,
    about,
  })
  if (data === undefined) return <Waiting error={error} />
  const beats = new Map((entries.data?.entries ?? []).map(entry => [entry.key, entry]))
  const span = spanOf((strips.data?.instances ?? []).map(({ changes }) => changes))
  return (
    <>
      <header class="title">
        <h1>
          <a href={href('services')}>Services</a> / <Text>{service}</Text>
        </h1>
        <span class="faint">{count(data.instances.length)} instances</span>
      </header>
      {data.instances.length === 0 ? (
        <Empty lines={LINES}>No instance of this service is registered{(strips.data?.instances.length ?? 0) > 0 ? ' now' : ''}.</Empty>
      ) : null}
      <div class="card scroll" hidden={data.instances.length === 0}>
        <table class="plain instances">
          <thead>
            <tr>
              <th>Instance</th>
              <th>Health</th>
              <th>Last {calmDuration(Math.round(span / 60_000) * 60_000)}</th>
              <th>Address</th>
              <th>Capabilities</th>
              <th class="end">Load</th>
              <th>Listed for</th>
            </tr>
          </thead>
          <tbody>
            {data.instances.map(one => {
              const beat = beats.get(`services/${service}/${one.instance}`)
              return (
                <tr key={one.instance}>
                  <td>
                    <a href={href('services', `${service}/${one.instance}`)}>
                      <Text>{one.instance}</Text>
                    </a>
                  </td>
                  <td>
                    <Tag kind={one.status} />
                    {one.reason === '' ? null : (
                      <span class="second">
                        <Text>{one.reason}</Text>
                      </span>
                    )}
                    {beat?.flap === undefined ? null : (
                      <span class="second" title={`suppressed above ${beat.flap.suppress}, listed again at ${beat.flap.reuse}`}>
                        flap penalty {count(beat.flap.penalty)}
                      </span>
                    )}
                  </td>
                  <td>
                    <Strip span={span} changes={strips.data?.instances.find(({ instance }) => instance === one.instance)?.changes ?? []} />
                  </td>
                  <td class="address">
                    <Address text={one.address} />
                  </td>
                  <td>
                    {one.capabilities.map(word => (
                      <Tag key={word} kind="capability">
                        {visible(word)}
                      </Tag>
                    ))}
                  </td>
                  <td class="end">{one.load}</td>
                  <td>{beat === undefined ? null : <Left remaining={beat.remaining} at={entries.at} />}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <Gone strips={strips.data} present={data.instances} />
    </>
  )
}

/** Instances that are not listed any more, and of which the server still knows the history. */
function Gone({
  strips,
  present,
}: {
  readonly strips: StripsAnswer | undefined
  readonly present: readonly InstanceAnswer[]
}): VNode | null {
  const gone = (strips?.instances ?? []).filter(({ instance }) => !present.some(one => one.instance === instance))
  if (gone.length === 0) return null
  return (
    <Card title="Gone">
      <ul class="list">
        {gone.slice(0, 30).map(({ instance, changes }) => (
          <li key={instance} class="pair">
            <Text>{instance}</Text>
            <span class="number">
              <Strip changes={changes} /> <Ago at={changes.at(-1)?.at ?? 0} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  )
}

/** Only http(s) addresses are links: an instance can register anything. */
function Address({ text }: { readonly text: string }): VNode {
  const shown = visible(text)
  return /^https?:\/\/[^\s]+$/.test(text) ? (
    <a href={text} rel="noreferrer noopener" target="_blank">
      <bdi>{shown}</bdi>
    </a>
  ) : (
    <bdi>{shown}</bdi>
  )
}

type Changes = StripsAnswer['instances'][number]['changes']

/** Strips show the last hour, or less while the server knows less: at least this many ms. */
const LONGEST_STRIP = 3_600_000
const SHORTEST_STRIP = 300_000

/** The span of time that the strips of these instances show, in ms. */
function spanOf(all: readonly Changes[]): number {
  const oldest = Math.min(...all.map(changes => changes[0]?.at ?? Number.POSITIVE_INFINITY))
  return Math.min(LONGEST_STRIP, Math.max(SHORTEST_STRIP, serverNow() - oldest))
}

/** The health during the last `span` ms, from left to right. */
function Strip({ changes, span = spanOf([changes]) }: { readonly changes: Changes; readonly span?: number }): VNode {
  second.value // the present grows
  const now = serverNow()
  const begin = now - span
  const parts = changes.map(({ at, status }, i) => ({ from: Math.max(begin, at), until: changes[i + 1]?.at ?? now, status }))
  const shown = parts.filter(({ until }) => until > begin)
  const said = shown.map(({ from, status }) => `${status} since ${exactTime(from)}`).join('; ')
  return (
    <span class="strip" role="img" aria-label={said === '' ? 'no history' : `health: ${said}`.slice(0, 400)} title={said.slice(0, 600)}>
      {shown.map(({ from, until, status }) => (
        <span
          key={String(from)}
          data-status={status}
          style={{ left: `${(100 * (from - begin)) / span}%`, width: `${Math.max(0.8, (100 * (until - from)) / span)}%` }}
        />
      ))}
    </span>
  )
}

function OneInstance({ service, instance }: { readonly service: string; readonly instance: string }): VNode {
  const key = `services/${service}/${instance}`
  const about = (event: { key?: string | undefined }) => event.key?.startsWith(key) === true
  const { data, error } = useReading<InstanceAnswer>(`/v1/services/${pathOf(`${service}/${instance}`)}`, { every: 2_000, about })
  const strips = useReading<StripsAnswer>(`/v1/strips/${pathOf(service)}`, { every: 5_000, about })
  const lease = useReading<LeaseAnswer>(data === undefined ? undefined : `/v1/leases/${data.lease}`, { every: 1_000, about })
  const entries = useReading<EntriesAnswer>(`/v1/entries?prefix=${encodeURIComponent(key)}&limit=10`, { every: 3_000, about })
  const title = (
    <h1>
      <a href={href('services')}>Services</a> /{' '}
      <a href={href('services', service)}>
        <Text>{service}</Text>
      </a>{' '}
      / <Text>{instance}</Text>
    </h1>
  )
  if (data === undefined || error !== undefined)
    return (
      <>
        {title}
        <Waiting error={error} />
      </>
    )
  const changes = strips.data?.instances.find(found => found.instance === instance)?.changes ?? []
  const registration = entries.data?.entries.find(entry => entry.key === key)
  const operable = may('register', `${key}/state`) && may('admin', key)
  const out = data.status === 'maintenance' || data.status === 'draining'
  return (
    <>
      <header class="title">
        {title}
        <Tag kind={data.status} />
        {operable ? (
          <div class="actions">
            {out ? <Button onClick={() => (planned.value = setStatus(data, 'passing'))}>Back into service</Button> : null}
            {out ? null : <Button onClick={() => (planned.value = setStatus(data, 'draining'))}>Drain</Button>}
            {out ? null : <Button onClick={() => (planned.value = setStatus(data, 'maintenance'))}>Maintenance</Button>}
            <Button kind="danger" onClick={() => (planned.value = deregister(service, instance))}>
              Deregister
            </Button>
          </div>
        ) : null}
      </header>
      <div class="columns">
        <div class="stack">
          <Card title="Health">
            <Strip changes={changes} />
            <dl class="facts">
              <Fact name="status">
                <Tag kind={data.status} /> <Text>{data.reason}</Text>
              </Fact>
              <Fact name="last heartbeat">{lease.data === undefined ? '·' : <LastBeat {...lease.data} at={lease.at} />}</Fact>
              <Fact name="listed for">
                {lease.data === undefined ? '·' : <Left remaining={lease.data.remaining} ttl={lease.data.ttl} at={lease.at} />}
              </Fact>
              <Fact name="flapping">
                <FlapPenalty registration={registration} />
                <span class="second">{timesGone(changes)}</span>
              </Fact>
              <Fact name="check">
                {data.check === undefined ? (
                  'none: its heartbeats are all that is known'
                ) : (
                  <>
                    <Text>{data.check.url}</Text>
                    {data.check.interval === undefined ? null : `, every ${duration(data.check.interval)}`}
                  </>
                )}
              </Fact>
            </dl>
          </Card>
          <Card title="Changes">
            {changes.length === 0 ? (
              <Empty>No change is known.</Empty>
            ) : (
              <ul class="list">
                {[...changes]
                  .reverse()
                  .slice(0, 20)
                  .map(({ at, status }) => (
                    <li key={`${at} ${status}`} class="pair">
                      <Tag kind={status} />
                      <span class="number">
                        <Ago at={at} />
                      </span>
                    </li>
                  ))}
              </ul>
            )}
          </Card>
        </div>
        <div class="stack">
          <Card title="Registration">
            <dl class="facts">
              <Fact name="addresses">
                {data.addresses.map(address => (
                  <div key={address}>
                    <Address text={address} />
                  </div>
                ))}
              </Fact>
              <Fact name="capabilities">{tags(data.capabilities)}</Fact>
              <Fact name="tags">{tags(data.tags)}</Fact>
              <Fact name="zone">
                <Text>{data.zone}</Text>
              </Fact>
              <Fact name="weight">{data.weight}</Fact>
              <Fact name="load">{data.load}</Fact>
              <Fact name="generation">
                <Exact value={data.generation} what="generation" />
              </Fact>
              <Fact name="holder">
                <Holder name={data.holder} />
              </Fact>
              <Fact name="lease">
                <LeaseLink lease={data.lease} />
              </Fact>
            </dl>
          </Card>
          <Metadata value={data.metadata} />
        </div>
      </div>
    </>
  )
}

/** The penalty of a registration for its lapses, and what it means. */
function FlapPenalty({ registration }: { readonly registration: EntriesAnswer['entries'][number] | undefined }): VNode {
  const { flap, suppressed = false } = registration ?? {}
  if (flap === undefined) return <>no penalty</>
  return (
    <>
      penalty <b>{count(flap.penalty)}</b>
      {suppressed ? `: suppressed, and listed again at ${count(flap.reuse)}` : `: it is suppressed above ${count(flap.suppress)}`}
    </>
  )
}

function timesGone(changes: StripsAnswer['instances'][number]['changes']): string {
  const times = changes.filter(({ status }) => status === 'gone').length
  return times === 0
    ? 'never gone in what the server remembers'
    : `${times === 1 ? 'once' : `${times} times`} gone in what the server remembers`
}

function tags(words: readonly string[]): ComponentChildren {
  return words.length === 0
    ? '·'
    : words.map(word => (
        <Tag key={word} kind="capability">
          {visible(word)}
        </Tag>
      ))
}

/** Each heartbeat starts the ttl anew. */
function LastBeat({ ttl, remaining, at }: LeaseAnswer & { readonly at: number }): VNode {
  second.value
  const age = Math.max(0, ttl - remaining) + performance.now() - at
  return <span title={`${Math.round(age)} ms, of a ttl of ${ttl} ms`}>{calmDuration(age)} ago</span>
}

/** Any JSON that the instance registered. An agent card (A2A) is shown by its parts. */
function Metadata({ value }: { readonly value: unknown }): VNode | null {
  if (value === null || value === undefined) return null
  const card = (typeof value === 'object' && !Array.isArray(value) ? value : {}) as Readonly<Record<string, unknown>>
  const skills = Array.isArray(card.skills) ? (card.skills as readonly unknown[]) : []
  const isCard = typeof card.name === 'string' && (typeof card.description === 'string' || skills.length > 0)
  return (
    <Card title={isCard ? 'Agent card' : 'Metadata'}>
      {isCard ? (
        <div class="agent-card">
          <h3>
            <Text>{String(card.name)}</Text> {typeof card.version === 'string' ? <span class="faint">{visible(card.version)}</span> : null}
          </h3>
          {typeof card.description === 'string' ? (
            <p>
              <Text>{card.description}</Text>
            </p>
          ) : null}
          <ul class="list">
            {skills.slice(0, 20).map((skill, i) => {
              const { name = '', description = '' } = (typeof skill === 'object' && skill !== null ? skill : {}) as Record<string, unknown>
              return (
                <li key={`${i} ${String(name)}`}>
                  <b>
                    <Text>{String(name)}</Text>
                  </b>
                  <span class="second">
                    <Text>{String(description)}</Text>
                  </span>
                </li>
              )
            })}
          </ul>
        </div>
      ) : null}
      <details open={!isCard}>
        <summary>JSON</summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines scroll, also by keyboard */}
        <pre tabIndex={0}>
          <code>{visibleLines(JSON.stringify(value, undefined, 2))}</code>
        </pre>
      </details>
    </Card>
  )
}

function visibleLines(text: string): string {
  return text.split('\n').map(visible).join('\n')
}
