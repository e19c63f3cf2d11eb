/** Which lines of a long list are visible, where all lines have one height: a list of any length then costs what the visible lines cost. */
import type { RefObject } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

/** Phones show a line in two rows. As in view.css. */
const narrow = matchMedia('(max-width: 46rem)')

export interface VisibleLines {
  readonly first: number
  readonly visible: number
  /** Of a line, in px. */
  readonly height: number
}

export interface LineHeights {
  readonly wide: number
  readonly narrow: number
}

/** Follows the scrolling and the size of `box`, once per animation frame. `onScroll` gets the distance from the top in px. */
export function useVisibleLines(
  box: RefObject<HTMLElement | null>,
  heights: LineHeights,
  onScroll: (top: number) => void = () => {},
): VisibleLines {
  const heightNow = () => (narrow.matches ? heights.narrow : heights.wide)
  const [lines, setLines] = useState<VisibleLines>({ first: 0, visible: 40, height: heightNow() })
  const scrolledTo = useRef(onScroll)
  scrolledTo.current = onScroll
  useLayoutEffect(() => {
    const element = box.current
    if (element === null) return
    let frame = 0
    const measure = () => {
      frame = 0
      const { scrollTop, clientHeight } = element
      const height = heightNow()
      const next = { first: Math.floor(scrollTop / height), visible: Math.ceil(clientHeight / height) + 1, height }
      setLines(last => (last.first === next.first && last.visible === next.visible && last.height === next.height ? last : next))
      scrolledTo.current(scrollTop)
    }
    const measureSoon = () => {
      frame ||= requestAnimationFrame(measure)
    }
    measure()
    const sized = new ResizeObserver(measureSoon)
    sized.observe(element)
    element.addEventListener('scroll', measureSoon, { passive: true })
    return () => {
      sized.disconnect()
      element.removeEventListener('scroll', measureSoon)
      cancelAnimationFrame(frame)
    }
  }, [])
  return lines
}
