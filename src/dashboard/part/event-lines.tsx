/**
 * Events as lines: a short list, and a tail of any length.
 *
 * The tail draws the visible lines alone, and has them by their place: when newer events push the others down, the texts of the elements change, and no
 * element is made or removed. A line that shows the same event as before is left alone.
 */
import type { VNode } from 'preact'
import { useRef, useState } from 'preact/hooks'
import type { Event } from '../../wire/http/client.ts'
import { exactTime, shortNumber, timeOfDay, visible } from '../format.ts'
import { Empty, Holder, ResourceName, Text } from './basics.tsx'
import { useVisibleLines } from './visible-lines.ts'

/** Lines that are drawn below the visible ones, and above them. */
const MARGIN = 4
/** Characters of a value that are shown. */
const MAX_VALUE = 160
const HEIGHTS = { wide: 30, narrow: 52 }

interface EventLinesProps {
  readonly events: readonly Event[]
  readonly empty: string
  /** The resource that all of them are about. Its name is left out. */
  readonly resource: string
}

/** A few events of one resource, in the order given. */
export function EventLines({ events, empty, resource }: EventLinesProps): VNode {
  const [whole, setWhole] = useState<Event | undefined>(undefined)
  if (events.length === 0) return <Empty>{empty}</Empty>
  return (
    <ol class="events">
      {events.map((event, place) => (
        <EventLine
          {...{ event, place, whole: isSame(event, whole), onExact: setWhole, known: resource }}
          key={`${event.revision} ${event.type} ${event.lease} ${event.resource ?? event.key ?? ''}`}
        />
      ))}
    </ol>
  )
}

interface EventTailProps {
  /** Oldest first. They are shown newest first. */
  readonly events: readonly Event[]
  /** This is shown when there is none. */
  readonly empty: VNode
  /** Called when the reader has scrolled away from the newest event or has a link of a line in focus, and when that is over. */
  readonly onAway: (away: boolean) => void
}

interface DrawnLine {
  readonly event: Event
  readonly whole: boolean
  readonly line: VNode
}

export function EventTail({ events, empty, onAway }: EventTailProps): VNode {
  const box = useRef<HTMLElement>(null)
  const view = useVisibleLines(box, HEIGHTS, top => onAway(isAway(top)))
  const [whole, setWhole] = useState<Event | undefined>(undefined)
  const drawn = useRef(new Map<number, DrawnLine>())
  const from = Math.max(0, Math.min(view.first, events.length - view.visible) - MARGIN)
  const to = Math.min(events.length, view.first + view.visible + MARGIN)
  const lines = new Map<number, DrawnLine>()
  for (let place = from; place < to; place++) {
    const event = events[events.length - 1 - place]!
    const known = drawn.current.get(place)
    const isWhole = isSame(event, whole)
    lines.set(
      place,
      known !== undefined && known.event === event && known.whole === isWhole
        ? known
        : { event, whole: isWhole, line: <EventLine {...{ event, place, whole: isWhole, onExact: setWhole }} key={place} /> },
    )
  }
  drawn.current = lines
  return (
    <section
      class="card tail"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
      tabIndex={0}
      aria-label="Events, newest first"
      // A line is reused for other events: the link in focus must not become another one.
      onFocusCapture={({ target }) => target !== box.current && onAway(true)}
      onBlurCapture={() => onAway(isAway(box.current?.scrollTop ?? 0))}
    >
      {events.length === 0 ? (
        empty
      ) : (
        <ol
          class="events"
          aria-label={`${events.length} events`}
          style={{ height: `${events.length * view.height}px`, paddingTop: `${from * view.height}px` }}
        >
          {[...lines.values()].map(({ line }) => line)}
        </ol>
      )}
    </section>
  )
}

function isAway(top: number): boolean {
  return top > HEIGHTS.wide / 2
}

/** Events that are read again are other objects. */
function isSame(event: Event, other: Event | undefined): boolean {
  return event === other || (event.revision === other?.revision && event.type === other.type && event.resource === other.resource)
}

interface LineProps {
  readonly event: Event
  /** True if long numbers are shown exactly. */
  readonly whole: boolean
  readonly place: number
  readonly onExact: (event: Event | undefined) => void
  /** The resource whose name is left out. */
  readonly known?: string
}

/** As few elements as can be, in one line of text: many lines change at once. */
function EventLine({ event, whole, place, onExact, known }: LineProps): VNode {
  const { type, at, holder, resource, key, value, token, cause, by, revision } = event
  // A click or a tap on a long number shows the numbers of the line exactly. Their titles do, too.
  const clicked = ({ target }: MouseEvent) => {
    if ((target as Element).classList.contains('exact')) onExact(whole ? undefined : event)
  }
  const exact = (number: number, what: string) => (
    <span class="exact" title={`${what} ${number}`}>
      {whole ? String(number) : shortNumber(number)}
    </span>
  )
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: what a click shows is in the titles
    <li data-type={type} aria-posinset={place + 1} onClick={clicked}>
      <time title={exactTime(at)}>{timeOfDay(at)}</time>
      <span class="type">{type}</span>
      <span class="about">
        {resource === undefined || resource === known ? null : <ResourceName name={resource} />}
        {key === undefined ? null : (
          <b>
            <Text>{key}</Text>
          </b>
        )}
        {holder === undefined || holder === '' ? null : <Holder name={holder} />}
        {token === undefined ? null : <span class="faint">token {exact(token, 'token')}</span>}
        {value === undefined || value === '' ? null : <span class="faint clip">{visible(value.slice(0, MAX_VALUE))}</span>}
        {cause === undefined || cause === type ? null : <span class="faint">{visible(cause)}</span>}
        {by === undefined ? null : (
          <span class="faint">
            by <Text>{by}</Text>
          </span>
        )}
      </span>
      <span class="faint rev">{exact(revision, 'revision')}</span>
    </li>
  )
}
