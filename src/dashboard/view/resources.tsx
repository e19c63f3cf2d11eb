/** Every resource that is held or waited for: filtered and sorted by the server, any number of them. */
import type { VNode } from 'preact'
import { mayAct, planned, revokePrefix } from '../action.ts'
import type { ShownResource } from '../answers.ts'
import { Ago, Button, Empty, Exact, Holder, Left, ResourceName, Tag, Text } from '../part/basics.tsx'
import { type Column, Rows } from '../part/rows.tsx'
import { href, route } from '../route.ts'
import { hasKey } from '../server.ts'
import { Filters, filterQuery } from './filters.tsx'
import { FIRST_LINES } from './now.tsx'

const COLUMNS: readonly Column<ShownResource>[] = [
  { label: 'Resource', sort: 'name', class: 'wide', cell: row => <ResourceName name={row.resource} /> },
  {
    label: 'Holder',
    sort: 'holder',
    class: 'who-cell',
    cell: ({ holder, holders, purpose, status }) => (
      <>
        {holder === undefined || holder === '' ? <span class="faint">no holder</span> : <Holder name={holder} />}
        {holders > 1 ? <span class="faint"> +{holders - 1}</span> : null}
        {status === 'frozen' ? <Tag kind="frozen" /> : null}
        {purpose === undefined || purpose === '' ? null : (
          <span class="purpose">
            <Text>{purpose}</Text>
          </span>
        )}
      </>
    ),
  },
  { label: 'Token', sort: 'token', class: 'token', cell: ({ token = 0 }) => (token === 0 ? null : <Exact value={token} what="token" />) },
  { label: 'Held for', sort: 'since', class: 'since', cell: ({ since = 0 }) => (since === 0 ? null : <Ago at={since} bare />) },
  {
    label: 'Time left',
    sort: 'remaining',
    class: 'left-cell',
    cell: ({ holder = '', remaining = 0, ttl }, at) => (holder === '' ? null : <Left remaining={remaining} ttl={ttl} at={at} />),
  },
  {
    label: 'Waiting',
    sort: 'waiters',
    class: 'waiting',
    cell: ({ waiters, oldestWait }) =>
      waiters === 0 ? null : (
        <>
          <b>{waiters}</b>
          {oldestWait === undefined ? null : (
            <span class="faint">
              {' '}
              <Ago at={oldestWait} bare />
            </span>
          )}
        </>
      ),
  },
]

export function Resources(): VNode {
  const prefix = route.value.params.get('prefix') ?? ''
  const filtered = ['text', 'prefix', 'holder', 'state'].some(name => (route.value.params.get(name) ?? '') !== '')
  return (
    <div class="table-view">
      <header class="title">
        <h1>Resources</h1>
        {prefix !== '' && mayAct('revoke', prefix) ? (
          <Button kind="danger" onClick={() => (planned.value = revokePrefix(prefix))}>
            Revoke all under {prefix}
          </Button>
        ) : null}
      </header>
      <Filters states={['held', 'waited', 'frozen']} label={false} />
      <Rows<ShownResource>
        of="resources"
        label="resources"
        query={filterQuery(['text', 'prefix', 'holder', 'state', 'sort'])}
        columns={COLUMNS}
        keyOf={row => row.resource}
        hrefOf={row => href('resource', row.resource)}
        empty={
          filtered ? (
            <Empty>No resource matches the filters.</Empty>
          ) : (
            <Empty lines={FIRST_LINES}>
              No resource is held{hasKey.value ? ' that this key may read' : ''}. These lines fill the dashboard:
            </Empty>
          )
        }
      />
    </div>
  )
}
