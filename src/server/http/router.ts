/** Finds the route of a path. A literal path is preferred to a pattern, and a longer pattern to a shorter one. */
import type { Method, Route } from './route.ts'

export interface RouteMatch {
  readonly route: Route
  /** The variable part of the path, as it was sent. */
  readonly raw: string
}

interface PathPattern {
  readonly before: string
  /** This follows the variable part. Undefined if the variable part is the rest of the path. */
  readonly after: string | undefined
  /** True if the variable part may contain slashes: a name may, an id may not. */
  readonly slashes: boolean
  readonly methods: Map<Method, Route>
}

export class Router {
  readonly #literal = new Map<string, Map<Method, Route>>()
  readonly #patterns: PathPattern[] = []

  constructor(routes: readonly Route[]) {
    for (const route of routes) this.#methodsOf(route.path).set(route.method, route)
    this.#patterns.sort((a, b) => b.before.length - a.before.length || (b.after ?? '').length - (a.after ?? '').length)
  }

  #methodsOf(path: string): Map<Method, Route> {
    const [, before, variable, after] = /^([^{]*)\{(\w+)\}(.*)$/.exec(path) ?? []
    if (before === undefined) {
      const methods = this.#literal.get(path) ?? new Map()
      this.#literal.set(path, methods)
      return methods
    }
    const slashes = variable !== 'id'
    const suffix = slashes && after === '' ? undefined : after
    let pattern = this.#patterns.find(known => known.before === before && known.after === suffix)
    if (pattern === undefined) {
      pattern = { before, after: suffix, slashes, methods: new Map() }
      this.#patterns.push(pattern)
    }
    return pattern.methods
  }

  /** Returns the route, or the methods that this path allows, or undefined for an unknown path. */
  find(method: string, path: string): RouteMatch | readonly Method[] | undefined {
    const literal = this.#literal.get(path)
    const allowed: Method[] = []
    if (literal !== undefined) {
      const route = routeFor(literal, method)
      if (route !== undefined) return { route, raw: '' }
      allowed.push(...literal.keys())
    }
    for (const { before, after, slashes, methods } of this.#patterns) {
      if (!path.startsWith(before)) continue
      const end = after === undefined ? path.length : path.length - after.length
      if (end < before.length || (after !== undefined && !path.endsWith(after))) continue
      const raw = path.slice(before.length, end)
      if (after !== undefined && (raw === '' || (!slashes && raw.includes('/')))) continue
      const route = routeFor(methods, method)
      if (route !== undefined) return { route, raw }
      allowed.push(...methods.keys())
    }
    return allowed.length > 0 ? allowed : undefined
  }
}

function routeFor(methods: Map<Method, Route>, method: string): Route | undefined {
  return methods.get((method === 'HEAD' ? 'GET' : method) as Method)
}
