/**
 * A table of any length. The server filters and sorts, the dashboard asks for the rows around those that are visible, fifty at a time, and draws only those.
 * The visible rows are read again every second, because renewals cause no events.
 */
import type { VNode } from 'preact'
import { useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks'
import type { RowsAnswer } from '../answers.ts'
import { count } from '../format.ts'
import { midway, repeat } from '../query.ts'
import { go, route, setParams } from '../route.ts'
import { epoch, get, messageOf } from '../server.ts'
import { useVisibleLines } from './visible-lines.ts'

const PAGE = 50
/** Pages that are kept while they are out of sight. */
const KEPT_PAGES = 16
/** Rows that are drawn above and below the visible ones. */
const MARGIN = 6
const EVERY = 1_000
const HEIGHTS = { wide: 36, narrow: 62 }

export interface Column<R> {
  readonly label: string
  /** The name of the order, if the server can sort by it. */
  readonly sort?: string
  readonly class?: string
  /** `at` is when the row was received. */
  readonly cell: (row: R, at: number) => VNode | string | number | null
}

interface RowsProps<R> {
  readonly of: 'resources' | 'leases'
  /** The filters, as a query. */
  readonly query: string
  readonly columns: readonly Column<R>[]
  readonly keyOf: (row: R) => string
  readonly hrefOf: (row: R) => string
  readonly empty: VNode
  readonly label: string
}

interface LoadedPage<R> {
  readonly rows: readonly R[]
  readonly at: number
}

export function Rows<R>({ of, query, columns, keyOf, hrefOf, empty, label }: RowsProps<R>): VNode {
  const box = useRef<HTMLDivElement>(null)
  const pages = useRef(new Map<number, LoadedPage<R>>())
  const asked = useRef(new Set<number>())
  const [, redraw] = useReducer((n: number) => n + 1, 0)
  const [state, setState] = useState<{ total: number | undefined; error: string | undefined; query: string }>({
    total: undefined,
    error: undefined,
    query,
  })
  const view = useVisibleLines(box, HEIGHTS)
  const [active, setActive] = useState(-1)
  const shown = useRef(view)
  shown.current = view
  const loaded = useRef<string | undefined>(undefined)
  const asking = useRef(query)
  asking.current = query

  const load = async (page: number, end?: AbortSignal): Promise<void> => {
    if (asked.current.has(page)) return
    asked.current.add(page)
    try {
      const sent = performance.now()
      const answer = await get<RowsAnswer<R>>(`/v1/rows?of=${of}&${query}&offset=${page * PAGE}&limit=${PAGE}`, end)
      // Another query has replaced this one meanwhile.
      if (asking.current !== query) return
      // The rows of the query before stay until there are others: a table that is empty for a moment flickers.
      if (loaded.current !== query) {
        pages.current.clear()
        loaded.current = query
        if (box.current !== null) box.current.scrollTop = 0
      }
      pages.current.set(page, { rows: answer.rows, at: midway(sent) })
      dropFar(pages.current, Math.floor(shown.current.first / PAGE))
      setState({ total: answer.total, error: undefined, query })
      redraw(0)
    } catch (error) {
      if (end?.aborted || asking.current !== query) return
      setState(last => ({ ...last, error: messageOf(error), query }))
    } finally {
      asked.current.delete(page)
    }
  }

  const { value: era } = epoch
  // Layout effects, because others run after the next frame: the reader would wait for it.
  useLayoutEffect(() => {
    asked.current = new Set()
    setActive(-1)
    return repeat(
      EVERY,
      () => true,
      async end => {
        // A new query begins at its first row.
        const visible = loaded.current === query ? pagesOf(shown.current) : [0]
        await Promise.all(visible.map(page => load(page, end)))
      },
    )
  }, [of, query, era])

  useLayoutEffect(() => {
    for (const page of pagesOf(view)) if (!pages.current.has(page)) void load(page)
  }, [view.first, view.visible])

  const total = state.total ?? 0
  const from = Math.max(0, view.first - MARGIN)
  const to = Math.min(total, view.first + view.visible + MARGIN)

  const rowAt = (index: number): { row: R; at: number } | undefined => {
    const page = pages.current.get(Math.floor(index / PAGE))
    const row = page?.rows[index % PAGE]
    return row === undefined ? undefined : { row, at: page!.at }
  }

  const move = (to: number) => {
    const next = Math.max(0, Math.min(total - 1, to))
    setActive(next)
    const element = box.current
    if (element === null) return
    const top = next * view.height
    const inner = element.clientHeight - view.height
    if (top < element.scrollTop) element.scrollTop = top
    else if (top > element.scrollTop + inner - view.height) element.scrollTop = top - inner + view.height
  }

  const keyed = (event: KeyboardEvent) => {
    const steps: Readonly<Record<string, number>> = {
      ...{ ArrowDown: active + 1, j: active + 1, ArrowUp: active - 1, k: active - 1 },
      ...{ PageDown: active + view.visible - 2, PageUp: active - view.visible + 2, Home: 0, End: total - 1 },
    }
    const step = steps[event.key]
    if (step !== undefined && !event.metaKey && !event.ctrlKey && !event.altKey) {
      event.preventDefault()
      move(step)
    } else if (event.key === 'Enter' && active >= 0) {
      const found = rowAt(active)
      if (found !== undefined) go(hrefOf(found.row))
    }
  }

  const indices = Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i)
  const id = `rows-${of}`
  return (
    <>
      <p class="total" role="status">
        {state.total === undefined ? 'Reading…' : `${count(total)} ${label}`}
        {state.error === undefined ? '' : `. ${state.error}`}
      </p>
      {state.total === 0 && state.query === query ? empty : null}
      {/* biome-ignore lint/a11y/useSemanticElements: only the visible rows are there, so it cannot be a table */}
      <div
        class={`rows rows-${of}`}
        ref={box}
        role="grid"
        aria-label={label}
        aria-rowcount={total + 1}
        aria-activedescendant={active >= from && active < to ? `${id}-${active}` : ''}
        tabIndex={0}
        onKeyDown={keyed}
        aria-busy={state.query !== query}
        hidden={state.total === 0 && state.query === query}
      >
        {/* biome-ignore lint/a11y/useSemanticElements: as above */}
        {/* biome-ignore lint/a11y/useFocusableInteractive: the grid has the focus */}
        <div class="row head" role="row" aria-rowindex={1}>
          {columns.map(column => (
            <Heading key={column.label} column={column} />
          ))}
        </div>
        <div class="sizer" role="presentation" style={{ height: `${total * view.height}px` }}>
          {indices.map(index => {
            const found = rowAt(index)
            return (
              // biome-ignore lint/a11y/useSemanticElements: as above
              // biome-ignore lint/a11y/useFocusableInteractive: the grid has the focus
              <div
                class={`row ${index === active ? 'active' : ''} ${index % 2 === 1 ? 'odd' : ''}`}
                role="row"
                id={`${id}-${index}`}
                key={found === undefined ? `empty-${index}` : keyOf(found.row)}
                aria-rowindex={index + 2}
                style={{ transform: `translateY(${index * view.height}px)`, height: `${view.height}px` }}
              >
                {columns.map(({ label: name, class: kind = '', cell }) => (
                  // biome-ignore lint/a11y/useSemanticElements: as above
                  // biome-ignore lint/a11y/useFocusableInteractive: the grid has the focus
                  <div class={`cell ${kind}`} role="gridcell" key={name}>
                    {found === undefined ? '' : cell(found.row, found.at)}
                  </div>
                ))}
              </div>
            )
          })}
        </div>
      </div>
    </>
  )
}

function Heading<R>({ column: { label, sort, class: kind = '' } }: { readonly column: Column<R> }): VNode {
  const now = route.value.params.get('sort') ?? 'name'
  const order = sort === undefined ? undefined : now === sort ? 'ascending' : now === `-${sort}` ? 'descending' : 'none'
  return (
    // biome-ignore lint/a11y/useSemanticElements: as above
    // biome-ignore lint/a11y/useFocusableInteractive: its button has the focus
    <div class={`cell ${kind}`} role="columnheader" {...(order === undefined ? {} : { 'aria-sort': order })}>
      {sort === undefined ? (
        label
      ) : (
        <button type="button" class="sort" onClick={() => setParams({ sort: order === 'ascending' ? `-${sort}` : sort })}>
          {label}
          <span aria-hidden="true">{order === 'ascending' ? ' ▲' : order === 'descending' ? ' ▼' : ''}</span>
        </button>
      )}
    </div>
  )
}

function pagesOf({ first, visible }: { readonly first: number; readonly visible: number }): number[] {
  const from = Math.floor(Math.max(0, first - MARGIN) / PAGE)
  const to = Math.floor((first + visible + MARGIN) / PAGE)
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}

function dropFar<R>(pages: Map<number, LoadedPage<R>>, near: number): void {
  const far = [...pages.keys()].sort((a, b) => Math.abs(a - near) - Math.abs(b - near)).slice(KEPT_PAGES)
  for (const page of far) pages.delete(page)
}
