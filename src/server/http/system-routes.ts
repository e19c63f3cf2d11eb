/** Routes about the server itself: health, readiness and metrics. */
import * as schema from '../../wire/http/schema.ts'
import { Metrics } from '../metrics.ts'
import { readiness } from '../readiness.ts'
import { HttpFailure } from './failure.ts'
import { json, type Route, route } from './route.ts'

export const systemRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/healthz',
    summary: 'The process is alive.',
    response: schema.Health,
    open: true,
    handle: () => json(200, { ok: true }),
  }),
  route({
    method: 'GET',
    path: '/readyz',
    summary: 'The server is ready: its store answers, and it has applied the log to its end. Not ready while catching up or stopping.',
    response: schema.Health,
    open: true,
    handle: async context => {
      const found = await readiness(context)
      if (!found.ready) throw new HttpFailure('UNAVAILABLE', found.reason)
      return json(200, { ok: true }, found.revision)
    },
  }),
  route({
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics in the Prometheus format, for keys that may read everything.',
    type: 'text/plain',
    handle: async context => {
      context.guarded.access.require(context.caller, 'read', '')
      const metrics = Metrics.of(context)
      return { status: 200, type: metrics.type, body: await metrics.render() }
    },
  }),
]
