/** Routes about the server itself: health, readiness and metrics. */
import * as schema from '../../wire/http/schema.ts'
import { Metrics } from '../metrics.ts'
import { HttpFailure } from './failure.ts'
import { json, type Route, route } from './route.ts'

/** A server whose store does not answer within this time is not ready, in ms. */
const READY_TIMEOUT = 2_000

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
    handle: async ({ guarded, clock, closing }) => {
      if (closing.aborted) throw new HttpFailure('UNAVAILABLE', 'this server is stopping')
      const late = new AbortController()
      const cancel = clock.after(READY_TIMEOUT, () =>
        late.abort(new HttpFailure('UNAVAILABLE', 'this server is catching up: it has not reached the end of the log')),
      )
      try {
        const { revision } = await guarded.lessor.read({ kind: 'summary' }, { consistent: true, signal: late.signal })
        return json(200, { ok: true }, revision)
      } catch (error) {
        if (error instanceof HttpFailure) throw error
        // Every client may call this route. The exact error is in the server's log.
        throw new HttpFailure('UNAVAILABLE', 'the store does not answer')
      } finally {
        cancel()
      }
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
