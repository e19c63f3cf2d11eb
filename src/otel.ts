/**
 * OpenTelemetry spans for the leases of this process. `@opentelemetry/api` is an optional peer dependency: only programs that import
 * `leasehold/otel` need it.
 *
 * | span | from | to |
 * |---|---|---|
 * | `lease.acquire` | the call | the lease is in hand, or the call has failed |
 * | `lease.wait` | the first place in a queue | the end of `lease.acquire`, its parent |
 * | `lease.hold` | the lease is in hand | it was released, or lost: then with an error and its cause |
 *
 * `lease.acquire` and `lease.hold` are children of the span that was active at the call.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type Attributes, type Context, context, type Span, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api'
import type { ChannelName } from './holder/diagnostics.ts'

/** The diagnostics channels publish this. */
interface DiagnosticsMessage {
  readonly ask: number
  readonly lease?: number
  readonly holder?: string
  readonly resources?: readonly string[]
  readonly tokens?: readonly number[]
  readonly ttl?: number
  readonly position?: number
  readonly remaining?: number
  readonly cause?: string
  readonly overlap?: number
  readonly error?: unknown
  readonly reason?: unknown
}

interface TracedLease {
  readonly caller: Context
  readonly acquire: Span
  wait: Span | undefined
  hold: Span | undefined
}

/**
 * Sends spans to `tracer` until the returned function is called.
 *
 * @example
 * const stop = traceLeases(trace.getTracer('my-service'))
 */
export function traceLeases(tracer: Tracer): () => void {
  const all = new Map<number, TracedLease>()

  const listeners: Readonly<Partial<Record<ChannelName, (message: DiagnosticsMessage) => void>>> = {
    asking: message => {
      const caller = context.active()
      const acquire = tracer.startSpan('lease.acquire', { attributes: attributesOf(message) }, caller)
      all.set(message.ask, { caller, acquire, wait: undefined, hold: undefined })
    },

    queued: ({ ask, position = 0 }) => {
      const traced = all.get(ask)
      if (traced === undefined) return
      traced.wait ??= tracer.startSpan('lease.wait', {}, trace.setSpan(traced.caller, traced.acquire))
      traced.wait.addEvent('lease.queued', { 'lease.position': position })
    },

    acquired: message => {
      const traced = all.get(message.ask)
      if (traced === undefined) return // adopted, or acquired before tracing began
      const attributes = attributesOf(message)
      traced.wait?.end()
      traced.acquire.setAttributes(attributes).end()
      traced.hold = tracer.startSpan('lease.hold', { attributes }, traced.caller)
    },

    refused: ({ ask, error }) => {
      const traced = all.get(ask)
      if (traced === undefined || !all.delete(ask)) return
      traced.wait?.end()
      fail(traced.acquire, error)
    },

    jeopardy: ({ ask, remaining = 0 }) => all.get(ask)?.hold?.addEvent('lease.jeopardy', { 'lease.remaining': Math.round(remaining) }),

    released: ({ ask }) => {
      all.get(ask)?.hold?.end()
      all.delete(ask)
    },

    lost: ({ ask, cause = '', overlap = 0, reason }) => {
      const hold = all.get(ask)?.hold
      all.delete(ask)
      if (hold !== undefined) fail(hold.setAttributes({ 'lease.cause': cause, 'lease.overlap': overlap }), reason)
    },
  }

  const subscriptions = Object.entries(listeners).map(([name, listen]) => {
    const channel = `leasehold:${name}`
    const receive = (message: unknown) => listen(message as DiagnosticsMessage)
    subscribe(channel, receive)
    return () => unsubscribe(channel, receive)
  })
  return () => {
    for (const stop of subscriptions) stop()
    for (const { acquire, wait, hold } of all.values()) for (const span of [wait, acquire, hold]) span?.end()
    all.clear()
  }
}

function attributesOf({ lease, holder, resources = [], tokens, ttl }: DiagnosticsMessage): Attributes {
  return {
    'lease.resources': [...resources],
    ...(holder !== undefined && { 'lease.holder': holder }),
    ...(ttl !== undefined && { 'lease.ttl': ttl }),
    ...(lease !== undefined && { 'lease.id': lease }),
    ...(tokens !== undefined && { 'lease.tokens': [...tokens] }),
  }
}

function fail(span: Span, error: unknown): void {
  const { code } = Object(error) as { readonly code?: unknown }
  if (error instanceof Error) span.recordException(error)
  if (code !== undefined) span.setAttribute('lease.code', String(code))
  span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) }).end()
}
