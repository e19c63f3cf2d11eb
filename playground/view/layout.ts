/** Where everything of the picture is: lanes from top to bottom, time from left to right, and the present at a fixed place. */
import type { Bar, Message } from '../history.ts'
import { NEWS } from '../linked-store.ts'
import { LOCK, LOG, RESOURCE } from '../links.ts'
import type { PlaygroundWorld } from '../world.ts'

export interface Lane {
  readonly name: string
  readonly title: string
  readonly top: number
  readonly height: number
  /** Where messages begin and end. */
  readonly middle: number
}

export interface Layout {
  readonly width: number
  readonly height: number
  readonly left: number
  readonly top: number
  readonly lanes: readonly Lane[]
  /** Where the present is. */
  readonly present: number
  /** Pixels per ms. */
  readonly scale: number
  /** The past that is visible, ms. */
  readonly past: number
  readonly track: number
  readonly isDense: boolean
  x(at: number): number
  y(bar: Bar): number
  lane(name: string): Lane | undefined
}

/** More processes than this are drawn with thin lanes. */
const DENSE = 8
const TITLES: Readonly<Record<string, string>> = { [LOG]: 'log', [LOCK]: 'SET NX PX', [RESOURCE]: 'resource' }

export function layoutOf(world: PlaygroundWorld, width: number): Layout {
  const isNarrow = width < 560
  const isDense = world.processes.length > DENSE
  const left = isNarrow ? 80 : 92
  const top = 40
  const past = isNarrow ? 14_000 : 22_000
  const present = Math.round(left + (width - left) * (isNarrow ? 0.66 : 0.72))
  const scale = (present - left) / past
  const track = isDense ? 5 : 18
  const gap = isDense ? 2 : 5
  const tracks = tracksOf(world)
  const lanes: Lane[] = []
  let y = top
  for (const name of world.lanes) {
    const isProcess = name in TITLES === false
    const count = Math.max(1, tracks.get(name)?.size ?? 1)
    const height = isProcess ? count * (track + gap) + (isDense ? 3 : 11) : name === RESOURCE ? 58 : 34
    lanes.push({ name, title: TITLES[name] ?? name, top: y, height, middle: y + height / 2 })
    y += height + (isDense ? 0 : 4)
  }
  const byName = new Map(lanes.map(lane => [lane.name, lane]))
  const now = world.now
  return {
    ...{ width, height: y + 22, left, top, lanes, present, scale, past, track, isDense },
    x: at => present + (at - now) * scale,
    y: bar => {
      const lane = byName.get(bar.lane)
      const place = tracks.get(bar.lane)?.get(trackName(bar)) ?? 0
      return (lane?.top ?? 0) + (isDense ? 1 : 6) + place * (track + gap)
    },
    lane: name => byName.get(name),
  }
}

function trackName({ side, label }: Bar): string {
  return side === 'plain' ? 'plain' : label
}

/** The tracks of each lane: one for each name that it holds or waits for. */
function tracksOf(world: PlaygroundWorld): Map<string, Map<string, number>> {
  const found = new Map<string, Map<string, number>>()
  for (const bar of world.history.bars) {
    const tracks = found.get(bar.lane) ?? new Map<string, number>()
    const name = trackName(bar)
    if (!tracks.has(name)) tracks.set(name, tracks.size)
    found.set(bar.lane, tracks)
  }
  if (world.settings.plain === 1)
    for (const { name } of world.processes) {
      // The lease is above the plain lock, whichever came first.
      const others = [...(found.get(name)?.keys() ?? [])].filter(track => track !== 'plain')
      found.set(name, new Map([...(others.length === 0 ? ['lease'] : others), 'plain'].map((track, i) => [track, i])))
    }
  return found
}

/** The end of a bar: when it ended, when its holder stops by its own clock, or the present for one that knows no end. */
export function endOf(bar: Bar, now: number): number {
  const end = Math.min(bar.ended ?? Number.POSITIVE_INFINITY, bar.deadline)
  return end === Number.POSITIVE_INFINITY ? now : end
}

export interface Overlap {
  readonly from: number
  readonly to: number
  readonly bars: readonly [Bar, Bar]
}

/** Times at which two processes held the same thing, which only one may hold. */
export function overlapsOf(world: PlaygroundWorld): readonly Overlap[] {
  const now = world.now
  const isExclusive = ({ side, label }: Bar) =>
    side === 'plain' || world.program === 'lock' || world.program === 'election' || label.startsWith('documents/')
  const held = world.history.bars.filter(bar => bar.state === 'held' && isExclusive(bar))
  const found: Overlap[] = []
  for (const [i, a] of held.entries())
    for (const b of held.slice(i + 1)) {
      if (a.lane === b.lane || a.side !== b.side || a.label !== b.label) continue
      const [from, to] = [Math.max(a.from, b.from), Math.min(endOf(a, now), endOf(b, now), now)]
      if (to > from) found.push({ from, to, bars: [a, b] })
    }
  return found
}

/** The messages that are drawn: of many processes, those that carry only what every replica reads are left out. */
export function messagesOf(world: PlaygroundWorld, { isDense }: Layout): readonly Message[] {
  return isDense ? world.history.messages.filter(({ text, isLost }) => isLost || text !== NEWS) : world.history.messages
}
