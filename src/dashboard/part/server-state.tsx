/** The state of the server and its store, in the header of every view: a dashboard must not look well while nothing can be granted. */
import { signal } from '@preact/signals'
import type { VNode } from 'preact'
import { useEffect } from 'preact/hooks'
import type { StateAnswer } from '../answers.ts'
import { second, serverNow } from '../clock.ts'
import { calmDuration, timeOfDay, visible } from '../format.ts'
import { revision } from '../live.ts'
import { useReading } from '../query.ts'
import { failure, staleSince, stream } from '../server.ts'
import { Exact } from './basics.tsx'

/** Ms between two questions. The server shares one check of its store between all who ask at a time. */
const EVERY = 3_000

const state = signal<StateAnswer | undefined>(undefined)

/** Asks for the state while the dashboard is shown. */
export function StateReader(): null {
  const { data } = useReading<StateAnswer>('/v1/state', { every: EVERY, about: () => false })
  useEffect(() => {
    if (data !== undefined) state.value = data
  }, [data])
  return null
}

type Kind = 'lost' | 'down' | 'warn' | 'live' | 'connecting' | 'denied'

function status(): { readonly kind: Kind; readonly text: string } {
  const stale = staleSince.value
  const { store, quiet, stopping } = state.value ?? {}
  if (store?.up === false) return { kind: 'down', text: `not writable for ${calmDuration(serverNow() - store.since)}` }
  if (stale !== undefined) return { kind: 'lost', text: `stale since ${calmDuration(performance.now() - stale)}` }
  if (stopping === true) return { kind: 'warn', text: 'stopping' }
  if (quiet === true) return { kind: 'warn', text: 'grants nothing yet' }
  const kind = stream.value
  return { kind, text: { connecting: 'connecting', live: 'live', denied: 'polling' }[kind] }
}

export function Status(): VNode {
  second.value // the age is drawn again every second
  const { kind, text } = status()
  return (
    <p class="status" id="status" role="status" data-state={kind}>
      <i class="lamp" aria-hidden="true" />
      <span>{text}</span>
      {revision.value === 0 ? null : (
        <span class="revision">
          rev <Exact value={revision.value} what="revision" />
        </span>
      )}
    </p>
  )
}

/** Says what does not work, and what still does. */
export function Notices(): VNode | null {
  const { store, quiet, stopping } = state.value ?? {}
  if (store?.up === false)
    return (
      <p class="notice warn" id="store-down" role="alert">
        <b>The store accepts no writes</b> since {timeOfDay(store.since)}
        {store.reason === undefined ? '' : `: ${visible(store.reason)}`}. Nothing is granted, released or ended.{' '}
        {store.renewals
          ? 'Renewals are answered: this server owns the store and keeps them in memory, so holders keep their leases.'
          : 'No renewal is answered: each holder keeps its lease until its term is over by its own clock, and stops then.'}{' '}
        This page shows what was known last.
      </p>
    )
  if (staleSince.value !== undefined)
    return (
      <p class="notice warn" id="stale" role="alert">
        The server does not answer{failure.value === undefined ? '' : `: ${visible(failure.value)}`}. What you see may be out of date; the
        page reconnects by itself.
      </p>
    )
  if (stopping === true)
    return (
      <p class="notice" id="stopping" role="status">
        This server is stopping. Clients go on with another server of the same store; their leases stay.
      </p>
    )
  if (quiet === true)
    return (
      <p class="notice warn" id="quiet" role="status">
        The log lost records, or was restored. Nothing is granted until every holder that this log does not know has stopped. Renewals and
        releases work.
      </p>
    )
  if (stream.value === 'denied') return <p class="notice">This key may not watch events. The dashboard reads again every few seconds.</p>
  return null
}
