/** The OpenAPI 3.1 description of the API, built from the routes and from the schemas that requests are checked against. */
import { ErrorBody, type TSchema } from '../../wire/http/schema.ts'
import { VERSION } from '../version.ts'
import { type Route, route } from './route.ts'
import { StaticResponse } from './static-response.ts'

interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required?: boolean
  readonly schema: object
}

const DESCRIPTIONS: Readonly<Record<string, string>> = { 204: 'Done.', 304: 'Nothing has changed since the version that the client has.' }

/** The route that serves the description. `routes` is a function because this route is one of them. */
export function openApiRoute(routes: () => readonly Route[]): Route {
  const description = new StaticResponse(() => Buffer.from(JSON.stringify(openApi(routes()))))
  return route({
    method: 'GET',
    path: '/openapi.json',
    summary: 'This description.',
    open: true,
    handle: ({ request }) => description.for(request),
  })
}

export function openApi(routes: readonly Route[]): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const route of routes) {
    paths[route.path] ??= {}
    paths[route.path]![route.method.toLowerCase()] = operation(route)
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Leasehold',
      version: VERSION,
      description:
        'A lease service. A name is the rest of the path, with unescaped slashes. Durations are whole milliseconds or texts such as 30s. Unknown fields are refused.',
      license: { name: 'Apache-2.0' },
    },
    paths,
    components: {
      schemas: { Error: ErrorBody },
      securitySchemes: { key: { type: 'http', scheme: 'bearer' } },
    },
  }
}

function operation(route: Route): object {
  const { status = 200, response, type = 'application/json', body, otherResponses = {} } = route
  const successes: Record<number, TSchema | null | undefined> = { [status]: status === 204 ? null : response, ...otherResponses }
  return {
    operationId: `${route.method.toLowerCase()} ${route.path}`.replaceAll(/[^A-Za-z0-9]+(.)?/g, (_, next = '') => next.toUpperCase()),
    summary: route.summary,
    // A loopback server without keys needs none. Once a key exists, every route needs one unless it is `open`.
    security: route.open === true ? [] : [{ key: [] }, {}],
    parameters: parameters(route),
    ...(body !== undefined && {
      requestBody: { required: route.bodyOptional !== true, content: { 'application/json': { schema: body } } },
    }),
    responses: {
      ...Object.fromEntries(
        Object.entries(successes).map(([status, schema]) => [
          status,
          {
            description: DESCRIPTIONS[status] ?? route.summary,
            ...(schema !== null && { content: { [type]: schema === undefined ? {} : { schema } } }),
          },
        ]),
      ),
      default: {
        description: 'The request was refused or failed. See error.code.',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

function parameters({ path, query, method }: Route): Parameter[] {
  const [, variable] = /\{(\w+)\}/.exec(path) ?? []
  const found: Parameter[] = []
  if (variable !== undefined) {
    const schema = variable === 'id' ? { type: 'integer', minimum: 0 } : { type: 'string' }
    found.push({ name: variable, in: 'path', required: true, schema })
  }
  const required = new Set((query as { required?: string[] } | undefined)?.required ?? [])
  for (const [name, schema] of Object.entries(query?.properties ?? {}))
    found.push({ name, in: 'query', ...(required.has(name) && { required: true }), schema })
  if (path === '/v1/watch') found.push({ name: 'Last-Event-ID', in: 'header', schema: { type: 'string' } })
  else if (method === 'GET' && query !== undefined && 'consistent' in query.properties)
    found.push({ name: 'Leasehold-Revision', in: 'header', schema: { type: 'integer', minimum: 0 } })
  return found
}
