import { AsyncLocalStorage } from 'node:async_hooks'
import { type Context, type ContextManager, context, ROOT_CONTEXT, SpanStatusCode, trace } from '@opentelemetry/api'
import { BasicTracerProvider, InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { turn } from '../src/clock.ts'
import { traceLeases } from '../src/otel.ts'
import { silentLessor } from '../src/testing/in-memory.ts'

/** A context manager like that of OpenTelemetry for Node: the active span follows async calls. */
class AsyncContext implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>()
  active(): Context {
    return this.#storage.getStore() ?? ROOT_CONTEXT
  }
  with<A extends unknown[], F extends (...args: A) => ReturnType<F>>(active: Context, work: F, self?: ThisParameterType<F>, ...args: A) {
    return this.#storage.run(active, () => work.apply(self, args))
  }
  bind<T>(_: Context, target: T): T {
    return target
  }
  enable(): this {
    return this
  }
  disable(): this {
    return this
  }
}

const exporter = new InMemorySpanExporter()
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
const tracer = provider.getTracer('test')
let stop = () => {}

beforeAll(() => {
  context.setGlobalContextManager(new AsyncContext())
  stop = traceLeases(tracer)
})
beforeEach(() => exporter.reset())
afterAll(async () => {
  stop()
  context.disable()
  await provider.shutdown()
})

function spans(name: string): ReadableSpan[] {
  return exporter.getFinishedSpans().filter(span => span.name === name)
}

function parentOf(span: ReadableSpan | undefined): string | undefined {
  return span?.parentSpanContext?.spanId
}

/** Runs `work` within a span, like a request handler. */
async function within<T>(name: string, work: () => Promise<T>): Promise<{ readonly result: T; readonly id: string }> {
  const span = tracer.startSpan(name)
  const result = await context.with(trace.setSpan(context.active(), span), work)
  span.end()
  return { result, id: span.spanContext().spanId }
}

test("acquire and hold are children of the caller's span, and name the resources", async () => {
  const { leases } = silentLessor({ holder: 'me' })
  const { id } = await within('handler', async () => {
    await turn() // the context survives awaits
    await leases.request('k', { ttl: '30s' }, async () => {
      await turn()
      expect(spans('lease.acquire')).toHaveLength(1)
      expect(spans('lease.hold')).toHaveLength(0)
    })
  })
  const [acquire] = spans('lease.acquire')
  const [hold] = spans('lease.hold')
  expect(parentOf(acquire)).toBe(id)
  expect(parentOf(hold)).toBe(id)
  expect(hold!.attributes).toMatchObject({ 'lease.resources': ['k'], 'lease.holder': 'me' })
  expect(acquire!.attributes['lease.tokens']).toEqual(hold!.attributes['lease.tokens'])
  expect(hold!.status.code).toBe(SpanStatusCode.UNSET)
  expect(spans('lease.wait')).toHaveLength(0)
  await leases[Symbol.asyncDispose]()
})

test('a wait is a child of its acquire, and two callers keep their own parents', async () => {
  const { leases, clock } = silentLessor()
  const first = await within('first', () => leases.acquire('k'))
  const second = within('second', () => leases.acquire('k'))
  await clock.advance(1_000)
  await first.result.release()
  await clock.settle()
  const { result, id } = await second
  const [one, two] = spans('lease.acquire')
  expect(parentOf(one)).toBe(first.id)
  expect(parentOf(two)).toBe(id)
  const [wait] = spans('lease.wait')
  expect(parentOf(wait)).toBe(two!.spanContext().spanId)
  expect(wait!.events.map(({ name }) => name)).toContain('lease.queued')
  await result.release()
  await leases[Symbol.asyncDispose]()
})

test('a refusal, and a wait that is over, end the span with an error and its code', async () => {
  const { leases, clock } = silentLessor()
  const held = await leases.acquire('k')
  await leases.tryAcquire('k')
  expect(spans('lease.acquire').at(-1)).toMatchObject({ attributes: { 'lease.code': 'HELD' }, status: { code: SpanStatusCode.ERROR } })
  const waited = leases.acquire('k', { wait: 500 }).catch(error => error)
  await clock.advance(600)
  await waited
  expect(spans('lease.acquire').at(-1)).toMatchObject({ attributes: { 'lease.code': 'TIMEOUT' }, status: { code: SpanStatusCode.ERROR } })
  await held.release()
  await leases[Symbol.asyncDispose]()
})

test('a loss ends the hold with its cause, after a jeopardy event', async () => {
  const { leases, clock, lessor } = silentLessor()
  const lease = await leases.acquire('k', { ttl: 1_000 })
  lessor.stopAnswering()
  await clock.advance(1_000)
  expect(lease.signal.aborted).toBe(true)
  const [hold] = spans('lease.hold')
  expect(hold).toMatchObject({ status: { code: SpanStatusCode.ERROR }, attributes: { 'lease.cause': 'unreachable', 'lease.code': 'LOST' } })
  expect(hold!.events.map(({ name }) => name)).toEqual(['lease.jeopardy', 'exception'])
  lessor.answer()
  await leases[Symbol.asyncDispose]()
})

test('nothing is traced after the tracer was stopped', async () => {
  const { leases } = silentLessor()
  const lease = await leases.acquire('k')
  stop()
  expect(spans('lease.hold')).toHaveLength(1) // ended when tracing stopped
  await lease.release()
  await leases.request('k', () => {})
  expect(spans('lease.acquire')).toHaveLength(1)
  await leases[Symbol.asyncDispose]()
})
