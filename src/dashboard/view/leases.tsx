/** Every lease: held, waiting, suspect or frozen, with its labels and its place in a tree. */
import type { VNode } from 'preact'
import { mayAct, planned, revokeHolder } from '../action.ts'
import type { ShownLease } from '../answers.ts'
import { Ago, Button, Empty, Holder, LeaseLink, Left, ResourceName, Tag, Text } from '../part/basics.tsx'
import { type Column, Rows } from '../part/rows.tsx'
import { href, route } from '../route.ts'
import { Filters, filterQuery } from './filters.tsx'
import { FIRST_LINES } from './now.tsx'

const COLUMNS: readonly Column<ShownLease>[] = [
  { label: 'Holder', sort: 'holder', class: 'who-cell', cell: ({ holder }) => <Holder name={holder} /> },
  {
    label: 'Resources',
    sort: 'name',
    class: 'wide',
    cell: ({ resources, wants, more, purpose }) => (
      <>
        {resources.map(name => (
          <ResourceName key={name} name={name} />
        ))}
        {wants.length === 0 ? null : <span class="faint">waits for </span>}
        {wants.map(name => (
          <ResourceName key={name} name={name} />
        ))}
        {resources.length + wants.length === 0 ? <span class="faint">no resource: a session or a registration</span> : null}
        {more > 0 ? <span class="faint"> +{more}</span> : null}
        {purpose === undefined || purpose === '' ? null : (
          <span class="purpose">
            <Text>{purpose}</Text>
          </span>
        )}
      </>
    ),
  },
  {
    label: 'State',
    class: 'state',
    cell: ({ status, recalled }) => (
      <>
        <Tag kind={status} />
        {recalled ? <Tag kind="recalled" /> : null}
      </>
    ),
  },
  { label: 'Since', sort: 'since', class: 'since', cell: ({ since }) => <Ago at={since} bare /> },
  {
    label: 'Time left',
    sort: 'remaining',
    class: 'left-cell',
    cell: ({ remaining, ttl }, at) => <Left remaining={remaining} ttl={ttl} at={at} />,
  },
  { label: 'Lease', class: 'token', cell: ({ lease }) => <LeaseLink lease={lease} /> },
]

export function Leases(): VNode {
  const { params } = route.value
  const holder = params.get('holder') ?? ''
  const filtered = ['text', 'prefix', 'holder', 'state', 'label'].some(name => (params.get(name) ?? '') !== '')
  return (
    <div class="table-view">
      <header class="title">
        <h1>Leases</h1>
        {holder !== '' && mayAct('revoke', '') ? (
          <Button kind="danger" onClick={() => (planned.value = revokeHolder(holder))}>
            Revoke all of {holder}
          </Button>
        ) : null}
      </header>
      <Filters states={['live', 'waiting', 'suspect', 'frozen']} label />
      <Rows<ShownLease>
        of="leases"
        label="leases"
        query={filterQuery(['text', 'prefix', 'holder', 'label', 'state', 'sort'])}
        columns={COLUMNS}
        keyOf={row => String(row.lease)}
        hrefOf={row => href('lease', String(row.lease))}
        empty={
          filtered ? (
            <Empty>No lease matches the filters.</Empty>
          ) : (
            <Empty lines={FIRST_LINES}>There are no leases. These lines make some:</Empty>
          )
        }
      />
    </div>
  )
}
