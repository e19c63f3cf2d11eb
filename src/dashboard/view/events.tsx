/** This view shows events as they happen: a tail that begins with what the server still knows, with a filter and a pause. */
import type { VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Event } from '../../wire/http/client.ts'
import { count } from '../format.ts'
import { KEPT_EVENTS, keptEvents, onEvents } from '../live.ts'
import { paced } from '../pace.ts'
import { Empty } from '../part/basics.tsx'
import { EventTail } from '../part/event-lines.tsx'
import { route, setParams } from '../route.ts'
import { stream } from '../server.ts'
import { FIRST_LINES } from './now.tsx'

/** Ms between two drawings. */
const PACE = 250

const GROUPS: Readonly<Record<string, readonly string[]>> = {
  grants: ['granted', 'transferred', 'recovered', 'thawed'],
  ends: ['released', 'lapsed', 'revoked', 'withdrawn'],
  trouble: ['lapsed', 'revoked', 'suspected', 'frozen', 'recalled', 'suppressed', 'preserving', 'generation', 'resync'],
  queues: ['queued', 'withdrawn', 'granted'],
  entries: ['put', 'deleted', 'kept', 'reused'],
  rules: ['policy', 'key', 'moved', 'relaxed', 'generation'],
}

/** Why the list stands still, and with which events. */
interface Still {
  readonly why: 'paused' | 'scrolled'
  readonly events: readonly Event[]
}

export function Events(): VNode {
  const { params } = route.value
  const text = params.get('text') ?? ''
  const group = params.get('types') ?? ''
  const [still, setStill] = useState<Still | undefined>(undefined)
  const [live, setLive] = useState(keptEvents)
  useEffect(() => {
    const draw = paced(PACE, () => setLive(keptEvents()))
    const stop = onEvents(draw.ask)
    draw.ask()
    return () => {
      stop()
      draw.end()
    }
  }, [])
  const events = still?.events ?? live
  const paused = still?.why === 'paused'
  const pause = () => setStill(now => (now?.why === 'paused' ? undefined : { why: 'paused', events: now?.events ?? live }))
  const toggle = useRef(pause)
  toggle.current = pause
  // A list that moves while it is read cannot be read: it stands still until its newest event is in sight again.
  const onAway = (away: boolean) =>
    setStill(now => (away ? (now ?? { why: 'scrolled', events: live }) : now?.why === 'scrolled' ? undefined : now))
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== ' ' || /^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test((event.target as HTMLElement).tagName)) return
      event.preventDefault()
      toggle.current()
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
          <button type="button" class="button plain" id="pause" aria-pressed={paused} onClick={pause}>
            {paused ? 'Go on' : 'Pause'}
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
        {still === undefined ? '' : paused ? 'Paused. ' : 'Stands still while you read. At its top it goes on. '}
        {count(found.length)} of the last {count(events.length)} events
        {events.length >= KEPT_EVENTS ? '. Older ones: leasehold watch --after REVISION' : ''}
      </p>
      {stream.value === 'denied' ? <Empty>This key may not watch events. It needs the scope watch.</Empty> : null}
      <EventTail
        events={found}
        onAway={onAway}
        empty={
          text === '' && group === '' ? (
            <Empty lines={FIRST_LINES}>Nothing has happened yet. These lines make events:</Empty>
          ) : (
            <Empty>No event matches.</Empty>
          )
        }
      />
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
