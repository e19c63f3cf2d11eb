/** The picture: lanes, bars that run down, messages, and the resource that accepts and refuses. */
import type { SVGAttributes } from 'preact'
import type { Bar, Condition, Mark, Message } from '../history.ts'
import { LOCK, LOG, RESOURCE } from '../links.ts'
import type { PlaygroundWorld } from '../world.ts'
import { endOf, type Layout, layoutOf, messagesOf, type Overlap, overlapsOf } from './layout.ts'
import type { Pointed } from './pointed.ts'

interface StageProps {
  readonly world: PlaygroundWorld
  readonly width: number
  readonly selected: string | undefined
  readonly onPoint: (pointed: Pointed | undefined) => void
  readonly onSelect: (lane: string) => void
}

const CONDITION_TEXT: Readonly<Record<Condition['kind'], string>> = {
  paused: 'stands still',
  suspended: 'asleep',
  dead: 'dead',
  cut: 'cut off',
  stopped: 'no answers',
  quiet: 'quiet: nothing is granted',
}

export function Stage({ world, width, selected, onPoint, onSelect }: StageProps) {
  const layout = layoutOf(world, width)
  const { history, now } = world
  const since = now - layout.past
  const overlaps = overlapsOf(world).filter(({ to }) => to > since)
  const point = (pointed: Pointed) => ({
    onPointerEnter: () => onPoint(pointed),
    onClick: () => onPoint(pointed),
  })
  return (
    <svg
      class={layout.isDense ? 'stage dense' : 'stage'}
      width={width}
      height={layout.height}
      viewBox={`0 0 ${width} ${layout.height}`}
      role="img"
      aria-label="What the processes do, in time. The list below says the same in words."
    >
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="6" height="6" class="hatch-back" />
          <rect width="2" height="6" class="hatch-line" />
        </pattern>
        <clipPath id="window">
          <rect x={layout.left} y={0} width={width - layout.left} height={layout.height} />
        </clipPath>
      </defs>
      {layout.lanes.map(lane => (
        <g key={lane.name} class={lane.name === selected ? 'lane selected' : 'lane'}>
          <rect x={0} y={lane.top} width={width} height={lane.height} rx={6} />
        </g>
      ))}
      <g clip-path="url(#window)">
        <rect
          class="future"
          x={layout.present}
          y={layout.top - 2}
          width={width - layout.present}
          height={layout.height - layout.top - 18}
        />
        <Axis layout={layout} now={now} />
        {history.conditions
          .filter(({ to }) => (to ?? now) > since)
          .map(condition => (
            <ConditionBox layout={layout} now={now} condition={condition} />
          ))}
        {overlaps.map(({ from, to, bars }) => (
          <rect
            class="shared"
            x={layout.x(Math.max(from, since))}
            y={Math.min(...bars.map(bar => layout.y(bar)))}
            width={layout.x(to) - layout.x(Math.max(from, since))}
            height={Math.abs(layout.y(bars[0]) - layout.y(bars[1])) + layout.track}
          />
        ))}
        {messagesOf(world, layout)
          .filter(({ arrivesAt }) => arrivesAt > since)
          .map(message => (
            <MessageLine layout={layout} now={now} message={message} point={point({ kind: 'message', message })} />
          ))}
        {history.bars
          .filter(bar => endOf(bar, now) > since)
          .map(bar => (
            <BarBox layout={layout} now={now} bar={bar} point={point({ kind: 'bar', bar })} />
          ))}
        {overlaps.map(overlap => (
          <OverlapBox layout={layout} overlap={overlap} />
        ))}
        {[...history.marks]
          .filter(({ at }) => at > since)
          .sort((a, b) => Number(a.kind !== 'accepted') - Number(b.kind !== 'accepted'))
          .map(mark => (
            <MarkShape layout={layout} mark={mark} isNamed={isFirstOfItsKind(history.marks, mark)} point={point({ kind: 'mark', mark })} />
          ))}
        <line class="present" x1={layout.present} x2={layout.present} y1={layout.top - 6} y2={layout.height - 18} />
        <Notes world={world} layout={layout} since={since} />
      </g>
      {layout.lanes.map(lane => {
        const isProcess = ![LOG, LOCK, RESOURCE].includes(lane.name)
        const choose = {
          onClick: () => (isProcess ? onSelect(lane.name) : onPoint({ kind: 'lane', name: lane.name })),
          onPointerEnter: () => onPoint({ kind: 'lane', name: lane.name }),
        }
        return (
          <g class={isProcess ? 'name process' : 'name'} {...choose}>
            <rect x={0} y={lane.top} width={layout.left - 6} height={lane.height} />
            <text x={10} y={lane.middle + 4}>
              {isProcess && !layout.isDense && layout.left > 80 ? `process ${lane.title}` : lane.title}
            </text>
          </g>
        )
      })}
    </svg>
  )
}

function Axis({ layout, now }: { readonly layout: Layout; readonly now: number }) {
  const first = Math.max(0, Math.ceil((now - layout.past) / 5_000) * 5_000)
  const last = now + (layout.width - layout.present) / layout.scale
  const ticks: number[] = []
  for (let at = first; at <= last; at += 5_000) ticks.push(at)
  return (
    <g class="axis">
      {ticks.map(at => (
        <g key={at}>
          <line x1={layout.x(at)} x2={layout.x(at)} y1={layout.top - 2} y2={layout.height - 18} />
          <text x={layout.x(at)} y={layout.height - 5} text-anchor="middle">
            {at / 1_000} s
          </text>
        </g>
      ))}
    </g>
  )
}

function ConditionBox({
  layout,
  now,
  condition: { lane, kind, from, to },
}: {
  readonly layout: Layout
  readonly now: number
  readonly condition: Condition
}) {
  const place = layout.lane(lane)
  if (place === undefined) return null
  const x = Math.max(layout.x(from), layout.left)
  const width = Math.max(0, layout.x(Math.min(to ?? now, now)) - x)
  return (
    <g class={`condition ${kind}`}>
      <rect x={x} y={place.top} width={width} height={place.height} rx={4} />
      {!layout.isDense && width > 60 && (
        <text x={x + 6} y={place.top + place.height - 4}>
          {CONDITION_TEXT[kind]}
        </text>
      )}
    </g>
  )
}

/** Two bars of which only one may be there: both are marked, and joined. */
function OverlapBox({ layout, overlap: { from, to, bars } }: { readonly layout: Layout; readonly overlap: Overlap }) {
  const x = Math.max(layout.x(from), layout.left)
  const width = Math.max(0, layout.x(to) - x)
  const [first, second] = bars.map(bar => layout.y(bar)).sort((a, b) => a - b) as [number, number]
  return (
    <g class="overlap" data-overlap="">
      {[first, second].map(y => (
        <rect key={y} x={x} y={y} width={width} height={layout.track} rx={layout.isDense ? 2 : 5} />
      ))}
      {width > 84 && !layout.isDense && (
        <text x={x + width - 8} y={second + layout.track / 2 + 4} text-anchor="end">
          two holders
        </text>
      )}
    </g>
  )
}

/** Words beside each of a row of equal marks would cover each other. */
const NAMED_AGAIN = 7_000

function isFirstOfItsKind(marks: readonly Mark[], { kind, side, at }: Mark): boolean {
  return !marks.some(mark => mark.kind === kind && mark.side === side && mark.at < at && mark.at > at - NAMED_AGAIN)
}

type Pointing = Pick<SVGAttributes<SVGGElement>, 'onPointerEnter' | 'onClick'>

function BarBox({
  layout,
  now,
  bar,
  point,
}: {
  readonly layout: Layout
  readonly now: number
  readonly bar: Bar
  readonly point: Pointing
}) {
  const y = layout.y(bar)
  const end = endOf(bar, now)
  const x = layout.x(bar.from)
  const solid = Math.max(2, layout.x(Math.min(end, now)) - x)
  const shownFrom = Math.max(x, layout.left)
  const room = x + solid - shownFrom
  const token = bar.side === 'lease' && bar.token > 0 ? ` · token ${bar.token}` : ''
  return (
    <g
      class={`bar ${bar.side} ${bar.state}${bar.ended === undefined ? '' : ' over'}`}
      data-bar={`${bar.lane} ${bar.side} ${bar.state}`}
      {...point}
    >
      <rect class="past" x={x} y={y} width={solid} height={layout.track} rx={layout.isDense ? 2 : 5} />
      {end > now && (
        <rect
          class="rest"
          x={layout.present}
          y={y}
          width={Math.max(0, layout.x(end) - layout.present)}
          height={layout.track}
          rx={layout.isDense ? 2 : 5}
        />
      )}
      {!layout.isDense && room > 44 && (
        <text x={shownFrom + 6} y={y + layout.track / 2 + 4}>
          {shorten(bar.state === 'waiting' ? `waits for ${bar.label}` : `${bar.label}${token}`, room - 10)}
        </text>
      )}
    </g>
  )
}

/** A text that fits into so many pixels. */
function shorten(text: string, room: number): string {
  const most = Math.floor(room / 6.8)
  return text.length <= most ? text : most < 4 ? '' : `${text.slice(0, most - 1)}…`
}

function MessageLine({
  layout,
  now,
  message,
  point,
}: {
  readonly layout: Layout
  readonly now: number
  readonly message: Message
  readonly point: Pointing
}) {
  const [from, to] = [layout.lane(message.from), layout.lane(message.to)]
  if (from === undefined || to === undefined) return null
  // Lines begin at the edges of lanes, so that bars stay readable.
  const [y1, y2] = from.top < to.top ? [from.top + from.height - 4, to.top + 4] : [from.top + 4, to.top + to.height - 4]
  const duration = message.arrivesAt - message.sentAt
  const part = Math.min(1, (now - message.sentAt) / duration, message.isLost ? 0.55 : 1)
  const [x1, xEnd] = [layout.x(message.sentAt), layout.x(message.arrivesAt)]
  const [x2, y] = [x1 + (xEnd - x1) * part, y1 + (y2 - y1) * part]
  const isUnderWay = part < 1 && !message.isLost
  return (
    <g class={`message ${message.side}${message.isLost ? ' lost' : ''}`} {...point}>
      <line class="hit" x1={x1} y1={y1} x2={x2} y2={y} />
      <line x1={x1} y1={y1} x2={x2} y2={y} />
      {isUnderWay && <circle cx={x2} cy={y} r={layout.isDense ? 1.5 : 3} />}
      {message.isLost && part >= 0.55 && <path d={`M${x2 - 3.5} ${y - 3.5}l7 7m0 -7l-7 7`} />}
    </g>
  )
}

function MarkShape({
  layout,
  mark,
  isNamed,
  point,
}: {
  readonly layout: Layout
  readonly mark: Mark
  readonly isNamed: boolean
  readonly point: Pointing
}) {
  const lane = layout.lane(mark.lane)
  if (lane === undefined || mark.kind === 'violation') return null
  const x = layout.x(mark.at)
  const isResource = mark.lane === RESOURCE
  const y = isResource ? lane.top + (mark.side === 'lease' ? 18 : 41) : lane.middle
  const word = isNamed && (mark.kind === 'refused' || mark.kind === 'overwrote') ? mark.kind : ''
  return (
    <g class={`mark ${mark.side} ${mark.kind}`} data-mark={`${mark.side} ${mark.kind}`} {...point}>
      <circle class="hit" cx={x} cy={y} r={9} />
      {mark.kind === 'accepted' && <path d={`M${x - 4} ${y}l3 3.5l5 -7`} />}
      {mark.kind === 'event' && <circle cx={x} cy={y} r={3.2} />}
      {(mark.kind === 'refused' || mark.kind === 'overwrote' || mark.kind === 'loss') && (
        <>
          <circle class="seal" cx={x} cy={y} r={7.5} />
          <path d={mark.kind === 'overwrote' ? `M${x} ${y - 4}v4.6m0 2.6v.8` : `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`} />
        </>
      )}
      {word !== '' && (
        <text x={x - 11} y={y + 4} text-anchor="end">
          {word}
        </text>
      )}
    </g>
  )
}

function Notes({ world, layout, since }: { readonly world: PlaygroundWorld; readonly layout: Layout; readonly since: number }) {
  const notes = world.history.notes.filter(({ at }) => at > since)
  const ends = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY]
  return (
    <g class="notes">
      {notes.map(({ at, text }) => {
        const x = layout.x(at)
        const row = ends.findIndex(end => end < x)
        if (row >= 0) ends[row] = x + text.length * 5.6 + 14
        return (
          <g key={`${at} ${text}`}>
            <line x1={x} x2={x} y1={row < 0 ? layout.top - 4 : 12 + row * 11} y2={layout.height - 18} />
            {row >= 0 && (
              <text x={x + 3} y={10 + row * 11}>
                {text}
              </text>
            )}
          </g>
        )
      })}
    </g>
  )
}
