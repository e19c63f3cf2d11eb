/** Which view is shown, and of what. All of it is in the address behind the `#`, so that every view can be linked to and the server never sees it. */
import { signal } from '@preact/signals'
import { pathOf } from './format.ts'

export interface PageRoute {
  readonly view: string
  /** The name behind the view: a resource, a pool, a service; empty: none. */
  readonly name: string
  readonly params: URLSearchParams
}

export const route = signal(parse(location.hash))

addEventListener('hashchange', () => {
  route.value = parse(location.hash)
})

function parse(hash: string): PageRoute {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s)
  const [view = '', ...rest] = path.split('/')
  return { view: view === '' ? 'now' : view, name: rest.map(decoded).join('/'), params: new URLSearchParams(query) }
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

/** The address of a view. Parameters that are empty are left out. */
export function href(view: string, name = '', params: Readonly<Record<string, string | undefined>> = {}): string {
  const given = Object.entries(params).filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== '')
  const query = new URLSearchParams(given).toString()
  return `#/${view}${name === '' ? '' : `/${pathOf(name)}`}${query === '' ? '' : `?${query}`}`
}

export function go(to: string): void {
  location.hash = to
}

/** Changes parameters of the present view, without a new entry in the browser's history. */
export function setParams(changes: Readonly<Record<string, string>>): void {
  const { view, name, params } = route.value
  const next = { ...Object.fromEntries(params), ...changes }
  history.replaceState(null, '', href(view, name, next))
  route.value = parse(location.hash)
}
