/** OpenAPI 3.1, made of the table and the schemas that every request is checked against. */
import { ErrorBody, type TSchema } from '../../wire/http/schema.ts'
import { VERSION } from '../version.ts'
import type { Route } from './route.ts'

interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required?: boolean
  readonly schema: object
}

const DESCRIBED: Readonly<Record<string, string>> = { 204: 'Done.', 304: 'Nothing has changed since what the asker has.' }

export function openApi(table: readonly Route[]): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const route of table) {
    paths[route.path] ??= {}
    paths[route.path]![route.method.toLowerCase()] = operation(route)
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Leasehold',
      version: VERSION,
      description:
        'A lease service. Names are the rest of the path, slashes as they are. Durations are whole milliseconds or texts such as 30s. Unknown fields are refused.',
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
  const { status = 200, answer, type = 'application/json', body, others = {} } = route
  const good: Record<number, TSchema | null | undefined> = { [status]: status === 204 ? null : answer, ...others }
  return {
    operationId: `${route.method.toLowerCase()} ${route.path}`.replaceAll(/[^A-Za-z0-9]+(.)?/g, (_, next = '') => next.toUpperCase()),
    summary: route.summary,
    // Without keys a loopback server is open; once there is one, everything but what is marked open needs it.
    security: route.open === true ? [] : [{ key: [] }, {}],
    parameters: parameters(route),
    ...(body !== undefined && {
      requestBody: { required: route.bodyOptional !== true, content: { 'application/json': { schema: body } } },
    }),
    responses: {
      ...Object.fromEntries(
        Object.entries(good).map(([status, schema]) => [
          status,
          {
            description: DESCRIBED[status] ?? route.summary,
            ...(schema !== null && { content: { [type]: schema === undefined ? {} : { schema } } }),
          },
        ]),
      ),
      default: {
        description: 'What was refused or went wrong: error.code says which.',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

function parameters({ path, query, method }: Route): Parameter[] {
  const [, named] = /\{(\w+)\}/.exec(path) ?? []
  const found: Parameter[] = []
  if (named !== undefined)
    found.push({ name: named, in: 'path', required: true, schema: named === 'id' ? { type: 'integer', minimum: 0 } : { type: 'string' } })
  const needed = new Set((query as { required?: string[] } | undefined)?.required ?? [])
  for (const [name, schema] of Object.entries(query?.properties ?? {}))
    found.push({ name, in: 'query', ...(needed.has(name) && { required: true }), schema })
  if (path === '/v1/watch') found.push({ name: 'Last-Event-ID', in: 'header', schema: { type: 'string' } })
  else if (method === 'GET' && query !== undefined && 'consistent' in query.properties)
    found.push({ name: 'Leasehold-Revision', in: 'header', schema: { type: 'integer', minimum: 0 } })
  return found
}
