/** What happens, as it happens: a tail that begins with what the server still knows, with a filter and a pause. */
import type { VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Event } from '../../wire/http/client.ts'
import { count, exactTime, timeOfDay, visible } from '../format.ts'
import { batches, KEPT_EVENTS, keptEvents } from '../live.ts'
import { Empty, Exact, Holder, ResourceName, Text } from '../part/basics.tsx'
import { route, setParams } from '../route.ts'
import { stream } from '../server.ts'

/** Lines that are drawn. The filter looks at all events that the page keeps. */
const SHOWN = 100
/** Ms between two drawings. */
const PACE = 200

const GROUPS: Readonly<Record<string, readonly string[]>> = {
  grants: ['granted', 'transferred', 'recovered', 'thawed'],
  ends: ['released', 'lapsed', 'revoked', 'withdrawn'],
  trouble: ['lapsed', 'revoked', 'suspected', 'frozen', 'recalled', 'suppressed', 'preserving', 'generation', 'resync'],
  queues: ['queued', 'withdrawn', 'granted'],
  entries: ['put', 'deleted', 'kept', 'reused'],
  rules: ['policy', 'key', 'moved', 'relaxed', 'generation'],
}

export function Events(): VNode {
  const { params } = route.value
  const text = params.get('text') ?? ''
  const group = params.get('types') ?? ''
  const [paused, setPaused] = useState<readonly Event[] | undefined>(undefined)
  const events = paused ?? keptEvents()
  const [, draw] = useState(0)
  const drawn = useRef(0)
  useEffect(() => {
    if (paused !== undefined) return
    let timer: ReturnType<typeof setTimeout> | undefined
    const stop = batches.subscribe(() => {
      timer ??= setTimeout(
        () => {
          timer = undefined
          drawn.current = performance.now()
          draw(n => n + 1)
        },
        Math.max(0, drawn.current + PACE - performance.now()),
      )
    })
    return () => {
      stop()
      clearTimeout(timer)
    }
  }, [paused])
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== ' ' || /^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test((event.target as HTMLElement).tagName)) return
      event.preventDefault()
      setPaused(now => (now === undefined ? keptEvents() : undefined))
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
  const found = matching(events, text, group)
  return (
    <>
      <header class="title">
        <h1>Events</h1>
        <div class="actions">
          <button
            type="button"
            class="button plain"
            id="pause"
            aria-pressed={paused !== undefined}
            onClick={() => setPaused(paused === undefined ? keptEvents() : undefined)}
          >
            {paused === undefined ? 'Pause' : 'Go on'}
          </button>
        </div>
      </header>
      <search class="filters" aria-label="Filters">
        <label class="filter">
          <span>Contains</span>
          <input
            id="filter-text"
            type="search"
            value={text}
            onInput={event => setParams({ text: event.currentTarget.value })}
            placeholder="name, holder, cause"
            autocomplete="off"
            spellcheck={false}
          />
        </label>
        <label class="filter">
          <span>Types</span>
          <select id="filter-types" value={group} onChange={event => setParams({ types: event.currentTarget.value })}>
            <option value="">all</option>
            {Object.keys(GROUPS).map(name => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </search>
      <p class="total" role="status">
        {paused === undefined ? '' : 'Paused. '}
        {count(found.length)} of the last {count(events.length)} events
        {found.length > SHOWN ? `, the newest ${SHOWN} are shown` : ''}
        {events.length >= KEPT_EVENTS ? '. Older ones: leasehold watch --after REVISION' : ''}
      </p>
      {stream.value === 'denied' ? <Empty>This key may not watch events. It needs the scope watch.</Empty> : null}
      <section class="card">
        <EventLines
          events={found.slice(-SHOWN).reverse()}
          empty={text === '' && group === '' ? 'Nothing has happened yet. Try: leasehold run jobs/nightly -- sleep 5' : 'No event matches.'}
        />
      </section>
    </>
  )
}

function matching(events: readonly Event[], text: string, group: string): readonly Event[] {
  const types = GROUPS[group]
  const wanted = text.toLowerCase()
  if (types === undefined && wanted === '') return events
  return events.filter(event => {
    if (types !== undefined && !types.includes(event.type)) return false
    if (wanted === '') return true
    const { type, holder = '', resource = '', key = '', cause = '', by = '' } = event
    return [type, holder, resource, key, cause, by].some(part => part.toLowerCase().includes(wanted))
  })
}

/** Events as lines, in the order given. */
export function EventLines({ events, empty }: { readonly events: readonly Event[]; readonly empty: string }): VNode {
  if (events.length === 0) return <Empty>{empty}</Empty>
  return (
    <ol class="events">
      {events.map(event => (
        <EventLine key={`${event.revision} ${event.type} ${event.lease} ${event.resource ?? event.key ?? ''}`} event={event} />
      ))}
    </ol>
  )
}

function EventLine({ event: { type, at, holder, resource, key, value, token, cause, by, revision } }: { readonly event: Event }): VNode {
  return (
    <li data-type={type}>
      <time title={exactTime(at)}>{timeOfDay(at)}</time>
      <span class="type">{type}</span>
      <span class="about">
        {resource === undefined ? null : <ResourceName name={resource} />}
        {key === undefined ? null : (
          <b>
            <Text>{key}</Text>
          </b>
        )}
        {holder === undefined || holder === '' ? null : <Holder name={holder} />}
        {token === undefined ? null : (
          <span class="faint">
            token <Exact value={token} what="token" />
          </span>
        )}
        {value === undefined || value === '' ? null : <span class="faint clip">{visible(value.slice(0, 160))}</span>}
        {cause === undefined || cause === type ? null : <span class="faint">{visible(cause)}</span>}
        {by === undefined ? null : (
          <span class="faint">
            by <Text>{by}</Text>
          </span>
        )}
      </span>
      <span class="faint rev">
        <Exact value={revision} what="revision" />
      </span>
    </li>
  )
}
