/** One lease: what it holds and waits for, what hangs on it, what ends with it, and what an operator can do. */
import type { VNode } from 'preact'
import { extendLease, mayEnd, planned, releaseLease, revokeLease } from '../action.ts'
import type { LeaseAnswer } from '../answers.ts'
import { visible } from '../format.ts'
import {
  Ago,
  Button,
  CapLeft,
  Card,
  Empty,
  Exact,
  Holder,
  LabelFacts,
  LeaseLink,
  Left,
  Length,
  ResourceName,
  Tag,
  Text,
  Waiting,
} from '../part/basics.tsx'
import { useReading } from '../query.ts'

export function Lease({ name }: { readonly name: string }): VNode {
  const id = Number(name)
  const { data, at, error } = useReading<LeaseAnswer>(/^\d{1,16}$/.test(name) ? `/v1/leases/${name}` : undefined, {
    every: 1_000,
    about: ({ lease }) => lease === id,
  })
  if (data === undefined || error !== undefined)
    return (
      <>
        <h1>Lease {visible(name)}</h1>
        <Waiting error={error} />
      </>
    )
  const { lease, holder, status, ttl, since, remaining, grants, wants, entries, labels, parent, children, recalled, maxLife } = data
  const ended = status === 'frozen'
  return (
    <>
      <header class="title">
        <h1>
          Lease <span title={`lease ${lease}`}>{lease}</span>
        </h1>
        <Tag kind={status} />
        {recalled ? <Tag kind="recalled" /> : null}
        <div class="actions">
          {!ended && mayEnd('release', data) ? (
            <Button onClick={() => (planned.value = releaseLease(lease, holder))}>Release</Button>
          ) : null}
          {!ended && mayEnd('release', data) && grants.length > 0 ? (
            <Button onClick={() => (planned.value = extendLease(lease, holder))}>Extend</Button>
          ) : null}
          {!ended && mayEnd('revoke', data) ? (
            <Button kind="danger" onClick={() => (planned.value = revokeLease(lease, holder, children.length))}>
              {children.length > 0 ? 'Revoke with all below' : 'Revoke'}
            </Button>
          ) : null}
        </div>
      </header>
      <div class="columns">
        <div class="stack">
          <Card title="Holds">
            {grants.length === 0 ? (
              <Empty>It holds nothing.</Empty>
            ) : (
              <ul class="list">
                {grants.map(({ resource, token, units, shared }) => (
                  <li key={resource} class="pair">
                    <span>
                      <ResourceName name={resource} />{' '}
                      {shared ? <Tag kind="shared" /> : units > 1 ? <Tag kind="units">{`${units} units`}</Tag> : null}
                    </span>
                    <span class="number">
                      token <Exact value={token} what="token" />
                    </span>
                  </li>
                ))}
              </ul>
            )}
          </Card>
          {wants.length === 0 ? null : (
            <Card title="Waits for">
              <ul class="list">
                {wants.map(({ resource, position }) => (
                  <li key={resource} class="pair">
                    <ResourceName name={resource} />
                    <span class="number">{position === 0 ? 'next' : `${position} before it`}</span>
                  </li>
                ))}
              </ul>
            </Card>
          )}
          <Card title="Entries that end with it">
            {entries.length === 0 ? (
              <Empty>None.</Empty>
            ) : (
              <ul class="list">
                {entries.slice(0, 50).map(({ key, value }) => (
                  <li key={key}>
                    <b>
                      <Text>{key}</Text>
                    </b>
                    <span class="second wrap">
                      <Text>{value.slice(0, 400)}</Text>
                    </span>
                  </li>
                ))}
              </ul>
            )}
          </Card>
        </div>
        <div class="stack">
          <Card title="Facts">
            <dl class="facts">
              <div>
                <dt>holder</dt>
                <dd>
                  <Holder name={holder} />
                </dd>
              </div>
              <div>
                <dt>time left</dt>
                <dd>
                  <Left remaining={remaining} ttl={ttl} at={at} />
                </dd>
              </div>
              <div>
                <dt>ttl</dt>
                <dd>
                  <Length ms={ttl} />
                </dd>
              </div>
              <div>
                <dt>since</dt>
                <dd>
                  <Ago at={since} />
                </dd>
              </div>
              {maxLife === undefined ? null : (
                <div>
                  <dt>cap</dt>
                  <dd>{status === 'waiting' ? <Length ms={maxLife} /> : <CapLeft since={since} maxLife={maxLife} />}</dd>
                </div>
              )}
              <div>
                <dt>ends with</dt>
                <dd>{parent === 0 ? 'no other lease' : <LeaseLink lease={parent} />}</dd>
              </div>
              <div>
                <dt>end with it</dt>
                <dd>
                  {children.length === 0
                    ? 'no other leases'
                    : children.slice(0, 20).map(child => (
                        <span key={child} class="item">
                          <LeaseLink lease={child} />
                        </span>
                      ))}
                </dd>
              </div>
              <LabelFacts labels={labels} />
            </dl>
          </Card>
        </div>
      </div>
    </>
  )
}
