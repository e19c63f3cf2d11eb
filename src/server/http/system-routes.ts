/** Whether the server lives, whether it serves, what it counts, and what can be asked. */
import * as schema from '../../wire/http/schema.ts'
import { Metrics } from '../metrics.ts'
import { Failure } from './failure.ts'
import { openApi } from './openapi.ts'
import { json, type Route, route } from './route.ts'
import { TABLE } from './router.ts'
import { Shared } from './shared-answer.ts'

/** A store that takes longer to say where its log ends does not serve. */
const READY_WITHIN = 2_000

const described = new Shared(() => Buffer.from(JSON.stringify(openApi(TABLE))))

export const systemRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/healthz',
    summary: 'The process lives.',
    answer: schema.Health,
    open: true,
    handle: () => json(200, { ok: true }),
  }),
  route({
    method: 'GET',
    path: '/readyz',
    summary: 'It serves: its store answers and it has applied the log to its end. Not while it is catching up, nor while it stops.',
    answer: schema.Health,
    open: true,
    handle: async ({ desk, clock, closing }) => {
      if (closing.aborted) throw new Failure('UNAVAILABLE', 'this server is stopping')
      const late = new AbortController()
      const cancel = clock.after(READY_WITHIN, () =>
        late.abort(new Failure('UNAVAILABLE', 'the end of the log has not been reached: it is catching up')),
      )
      try {
        const { revision } = await desk.lessor.read({ kind: 'summary' }, { consistent: true, signal: late.signal })
        return json(200, { ok: true }, revision)
      } catch (error) {
        if (error instanceof Failure) throw error
        // What exactly is wrong is for the log: anyone may ask this.
        throw new Failure('UNAVAILABLE', 'the store does not answer')
      } finally {
        cancel()
      }
    },
  }),
  route({
    method: 'GET',
    path: '/metrics',
    summary: 'Figures for Prometheus: for keys that may read everything.',
    type: 'text/plain',
    handle: async call => {
      call.desk.gate.demand(call.caller, 'read', '')
      const metrics = Metrics.of(call)
      return { status: 200, type: metrics.type, body: await metrics.text() }
    },
  }),
  route({
    method: 'GET',
    path: '/openapi.json',
    summary: 'This description.',
    open: true,
    handle: ({ ask }) => described.answer(ask),
  }),
]
