/** Every route, group by group. A new group is its file and its line here. */

import { governRoutes } from './govern-routes.ts'
import { leaseRoutes } from './lease-routes.ts'
import { lessorRoutes } from './lessor-routes.ts'
import { pageRoutes } from './page-routes.ts'
import { resourceRoutes } from './resource-routes.ts'
import type { Method, Route } from './route.ts'
import { serviceRoutes } from './service-routes.ts'
import { systemRoutes } from './system-routes.ts'
import { watchRoutes } from './watch-route.ts'

export const TABLE: readonly Route[] = [
  ...leaseRoutes,
  ...resourceRoutes,
  ...governRoutes,
  ...serviceRoutes,
  ...watchRoutes,
  ...lessorRoutes,
  ...systemRoutes,
  ...pageRoutes,
]

export interface Match {
  readonly route: Route
  /** What the path carries, as it was sent. */
  readonly raw: string
}

interface Pattern {
  readonly before: string
  /** What comes after the number or the name; undefined: it is the rest of the path. */
  readonly after: string | undefined
  /** A name may have slashes in it, a number has none. */
  readonly deep: boolean
  readonly methods: Map<Method, Route>
}

/** Finds the route of a path. A literal path goes before a pattern, a longer pattern before a shorter one. */
export class Router {
  readonly #literal = new Map<string, Map<Method, Route>>()
  readonly #patterns: Pattern[] = []

  constructor(table: readonly Route[]) {
    for (const route of table) this.#methods(route.path).set(route.method, route)
    this.#patterns.sort((a, b) => b.before.length - a.before.length || (b.after ?? '').length - (a.after ?? '').length)
  }

  #methods(path: string): Map<Method, Route> {
    const [, before, what, after] = /^([^{]*)\{(\w+)\}(.*)$/.exec(path) ?? []
    if (before === undefined) {
      const methods = this.#literal.get(path) ?? new Map()
      this.#literal.set(path, methods)
      return methods
    }
    const deep = what !== 'id'
    const tail = deep && after === '' ? undefined : after
    let pattern = this.#patterns.find(known => known.before === before && known.after === tail)
    if (pattern === undefined) {
      pattern = { before, after: tail, deep, methods: new Map() }
      this.#patterns.push(pattern)
    }
    return pattern.methods
  }

  /** The route, the methods that there would be, or undefined: no such path. */
  find(method: string, path: string): Match | readonly Method[] | undefined {
    const literal = this.#literal.get(path)
    const allowed: Method[] = []
    if (literal !== undefined) {
      const route = of(literal, method)
      if (route !== undefined) return { route, raw: '' }
      allowed.push(...literal.keys())
    }
    for (const { before, after, deep, methods } of this.#patterns) {
      if (!path.startsWith(before)) continue
      const end = after === undefined ? path.length : path.length - after.length
      if (end < before.length || (after !== undefined && !path.endsWith(after))) continue
      const raw = path.slice(before.length, end)
      if (after !== undefined && (raw === '' || (!deep && raw.includes('/')))) continue
      const route = of(methods, method)
      if (route !== undefined) return { route, raw }
      allowed.push(...methods.keys())
    }
    return allowed.length > 0 ? allowed : undefined
  }
}

function of(methods: Map<Method, Route>, method: string): Route | undefined {
  return methods.get((method === 'HEAD' ? 'GET' : method) as Method)
}
