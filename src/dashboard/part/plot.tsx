/** A plot of series over time, drawn by uPlot in the colours of the dashboard. */
import type { VNode } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { timeOfDay } from '../format.ts'
import { theme } from '../theme.ts'

export interface PlotSeries {
  readonly label: string
  /** The name of a colour of the style sheet, such as `good`. */
  readonly colour: string
  readonly values: readonly (number | null)[]
  readonly fill?: boolean
}

interface PlotProps {
  readonly label: string
  /** Wall time of the first value, and ms between two values. */
  readonly from: number
  readonly step: number
  readonly series: readonly PlotSeries[]
}

const HEIGHT = 120

/** Plots that have new values. One is drawn in each frame: all of them together would take longer than a frame lasts. */
const undrawn = new Set<() => void>()

function drawSoon(draw: () => void): () => void {
  undrawn.add(draw)
  if (undrawn.size === 1) requestAnimationFrame(drawNext)
  return () => undrawn.delete(draw)
}

function drawNext(): void {
  const [draw] = undrawn
  if (draw === undefined) return
  undrawn.delete(draw)
  draw()
  if (undrawn.size > 0) requestAnimationFrame(drawNext)
}

/** Times of day without their seconds, unless two of them would be the same. `splits`: in seconds. */
export function timesOf(splits: readonly number[]): string[] {
  const times = splits.map(at => timeOfDay(at * 1_000))
  const short = times.map(time => time.slice(0, 5))
  return new Set(short).size === short.length ? short : times
}

export function Plot({ label, from, step, series }: PlotProps): VNode {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const data: uPlot.AlignedData = [
    Float64Array.from(series[0]?.values ?? [], (_, i) => (from + i * step) / 1_000) as unknown as number[],
    ...series.map(({ values }) => values as (number | null)[]),
  ]
  const { value: colours } = theme
  const names = series.map(({ label: name }) => name).join()
  useEffect(() => {
    const element = box.current
    if (element === null) return
    const colour = (name: string) => getComputedStyle(element).getPropertyValue(`--${name}`).trim()
    const axis = { stroke: colour('faint'), grid: { stroke: colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' }
    const made = new uPlot(
      {
        width: Math.max(120, element.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, splits) => timesOf(splits) },
          {
            ...axis,
            size: 38,
            space: 32,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000],
          },
        ],
        series: [
          {},
          ...series.map(({ label: name, colour: stroke, fill = false }) => ({
            label: name,
            stroke: colour(stroke),
            width: 1.5,
            points: { show: false },
            ...(fill && { fill: `${colour(stroke)}26` }),
          })),
        ],
      },
      data,
      element,
    )
    plot.current = made
    const sized = new ResizeObserver(() => made.setSize({ width: Math.max(120, element.clientWidth), height: HEIGHT }))
    sized.observe(element)
    return () => {
      sized.disconnect()
      made.destroy()
      plot.current = undefined
    }
  }, [colours, names])
  useEffect(() => drawSoon(() => plot.current?.setData(data)), [from, step, ...series.map(({ values }) => values)])
  const last = series.map(({ label: name, values }) => `${name} ${values.findLast(value => value !== null) ?? 'unknown'}`).join(', ')
  return (
    <figure class="plot">
      <figcaption>
        <span>{label}</span>
        {series.map(({ label: name, colour, values }) => (
          <span class="legend" key={name}>
            <i class={`line ${colour}`} aria-hidden="true" />
            {name} <b>{values.findLast(value => value !== null) ?? '·'}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} role="img" aria-label={`${label}: now ${last}`} />
    </figure>
  )
}
