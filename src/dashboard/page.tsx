/**
 * The dashboard: who holds what, since when, who waits, and what happened. It writes data as text, never as markup, and sends requests only to the server
 * that it came from.
 */
import { render, type VNode } from 'preact'
import { Frame, KeyForm, VIEWS } from './frame.tsx'
import { Empty } from './part/basics.tsx'
import { ActionDialog, DoneLines } from './part/dialog.tsx'
import { route } from './route.ts'
import { account, epoch, keyWanted, start } from './server.ts'
import { Claims } from './view/claims.tsx'
import { Elections } from './view/elections.tsx'
import { Events } from './view/events.tsx'
import { Lease } from './view/lease.tsx'
import { Leases } from './view/leases.tsx'
import { Now } from './view/now.tsx'
import { Policies } from './view/policies.tsx'
import { Pools } from './view/pools.tsx'
import { Resource } from './view/resource.tsx'
import { Resources } from './view/resources.tsx'
import { Services } from './view/services.tsx'
import { Sessions } from './view/sessions.tsx'
import './plot.css'
import './page.css'
import './view.css'

const SHOWN: Readonly<Record<string, (props: { readonly name: string }) => VNode>> = {
  ...{ now: Now, resources: Resources, resource: Resource, leases: Leases, lease: Lease, services: Services, elections: Elections },
  ...{ pools: Pools, sessions: Sessions, claims: Claims, events: Events, policies: Policies },
}

function Page(): VNode {
  const { view, name } = route.value
  if (keyWanted.value !== undefined) return <KeyForm />
  const View = SHOWN[view]
  const title = VIEWS.find(([known]) => known === view)?.[1] ?? name
  document.title = `${title === '' ? view : title} · Leasehold`
  // Nothing is read before the server has said for whom.
  const ready = account.value !== undefined && epoch.value > 0
  return (
    <>
      <Frame>
        {!ready ? (
          <p class="empty">Connecting…</p>
        ) : View === undefined ? (
          <Empty>There is no such view.</Empty>
        ) : (
          <View name={name} key={`${view} ${name}`} />
        )}
      </Frame>
      <ActionDialog />
      <DoneLines />
    </>
  )
}

render(<Page />, document.getElementById('page')!)
void start()
