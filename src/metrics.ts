/**
 * Metrics of the leases of this process, for OpenTelemetry and prom-client. They are counted from the diagnostics channels of
 * docs/operate/metrics.md, so they cost nothing until they are asked for.
 *
 * | metric | kind | label |
 * |---|---|---|
 * | `leasehold.client.acquire.duration` | histogram, s | `outcome`: `granted`, the code of the error, or `aborted` |
 * | `leasehold.client.pending` | requests that have no outcome yet | |
 * | `leasehold.client.held` | leases in hand | |
 * | `leasehold.client.hold.duration` | histogram, s | `end`: `released` or `lost` |
 * | `leasehold.client.losses` | counter | `cause` |
 * | `leasehold.client.jeopardies` | counter: a renewal was late, and the lease might be lost | |
 * | `leasehold.client.renewal.duration` | histogram, s: one message, which may renew many leases | |
 *
 * prom-client has `_` for `.`, `_seconds` after durations and `_total` after counters. No label has the name of a resource or holder, so their number is bounded.
 *
 * A lease that was acquired before the call is not counted: call it when the program starts.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type Clock, systemClock } from './clock.ts'
import { LeaseError } from './errors.ts'
import type { ChannelName } from './holder/diagnostics.ts'

/** The labels of one measurement, by name. */
export type MetricLabels = Readonly<Record<string, string>>
type MetricKind = 'histogram' | 'counter' | 'gauge'

interface Metric {
  /** In the words of OpenTelemetry, after `leasehold.client.`. */
  readonly name: string
  readonly kind: MetricKind
  readonly help: string
  readonly label?: string
}

const METRICS = {
  acquire: { name: 'acquire.duration', kind: 'histogram', help: 'From the request to its outcome.', label: 'outcome' },
  pending: { name: 'pending', kind: 'gauge', help: 'Requests that have no outcome yet.' },
  held: { name: 'held', kind: 'gauge', help: 'Leases in hand.' },
  hold: { name: 'hold.duration', kind: 'histogram', help: 'How long leases were held.', label: 'end' },
  losses: { name: 'losses', kind: 'counter', help: 'Leases that were lost.', label: 'cause' },
  jeopardies: { name: 'jeopardies', kind: 'counter', help: 'Leases whose renewal was late, and which might be lost.' },
  renewal: { name: 'renewal.duration', kind: 'histogram', help: 'From a message with renewals to its answer.' },
} as const satisfies Readonly<Record<string, Metric>>

/** Seconds: renewals take milliseconds, waits and work up to a day. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 86_400]

type Recorder = (value: number, labels?: MetricLabels) => void
type Instruments = Readonly<{ [name in keyof typeof METRICS]: Recorder }>

/** The part of a `Meter` of `@opentelemetry/api` that is used. */
export interface MetricMeter {
  createHistogram(name: string, options: HistogramOptions): { record(value: number, attributes?: MetricLabels): void }
  createCounter(name: string, options: { readonly description: string }): { add(value: number, attributes?: MetricLabels): void }
  createUpDownCounter(name: string, options: { readonly description: string }): { add(value: number, attributes?: MetricLabels): void }
}

/** Options of a histogram of OpenTelemetry. */
export interface HistogramOptions {
  readonly description: string
  readonly unit: string
  readonly advice: { explicitBucketBoundaries: number[] }
}

/** The part of the module `prom-client` that is used. */
export interface PromClient<Registry> {
  readonly Histogram: new (options: PromOptions<Registry> & { buckets: number[] }) => { observe(labels: MetricLabels, value: number): void }
  readonly Counter: new (options: PromOptions<Registry>) => { inc(labels: MetricLabels, value: number): void }
  readonly Gauge: new (options: PromOptions<Registry>) => { inc(labels: MetricLabels, value: number): void }
}

/** Options of a metric of prom-client. */
export interface PromOptions<Registry> {
  name: string
  help: string
  labelNames: string[]
  registers?: Registry[]
}

/** Options of both ways to measure. */
export interface MetricsOptions {
  /** @default the clock of the machine */
  readonly clock?: Clock | undefined
}

/** Options of `measureWithPromClient`. */
export interface PromMetricsOptions<Registry> extends MetricsOptions {
  /** @default the default registry of prom-client */
  readonly registry?: Registry | undefined
}

/**
 * Records with `meter` until the returned function is called.
 *
 * @example
 * const stop = measureWithOpenTelemetry(metrics.getMeter('my-service'))
 */
export function measureWithOpenTelemetry(meter: MetricMeter, options: MetricsOptions = {}): () => void {
  return measure(
    instrumentsOf(({ name, kind, help: description }): Recorder => {
      const full = `leasehold.client.${name}`
      if (kind === 'histogram') {
        const histogram = meter.createHistogram(full, { description, unit: 's', advice: { explicitBucketBoundaries: [...BUCKETS] } })
        return (value, labels) => histogram.record(value, labels)
      }
      const counter = kind === 'counter' ? meter.createCounter(full, { description }) : meter.createUpDownCounter(full, { description })
      return (value, labels) => counter.add(value, labels)
    }),
    options,
  )
}

/**
 * Records with prom-client until the returned function is called. The metrics stay in the registry.
 *
 * @example
 * import * as client from 'prom-client'
 * const stop = measureWithPromClient(client)
 */
export function measureWithPromClient<Registry>(client: PromClient<Registry>, options: PromMetricsOptions<Registry> = {}): () => void {
  const { registry } = options
  return measure(
    instrumentsOf(({ name, kind, help, label }): Recorder => {
      const suffix = { histogram: '_seconds', counter: '_total', gauge: '' }[kind]
      const common = {
        ...{ name: `leasehold_client_${name.replaceAll('.', '_')}${suffix}`, help, labelNames: label === undefined ? [] : [label] },
        ...(registry !== undefined && { registers: [registry] }),
      }
      if (kind === 'histogram') {
        const histogram = new client.Histogram({ ...common, buckets: [...BUCKETS] })
        return (value, labels = {}) => histogram.observe(labels, value)
      }
      const counter = kind === 'counter' ? new client.Counter(common) : new client.Gauge(common)
      return (value, labels = {}) => counter.inc(labels, value)
    }),
    options,
  )
}

function instrumentsOf(create: (metric: Metric) => Recorder): Instruments {
  return Object.fromEntries(Object.entries<Metric>(METRICS).map(([name, metric]) => [name, create(metric)])) as Instruments
}

/** The fields of messages that are counted. */
interface MeasuredMessage {
  readonly ask: number
  readonly ms?: number
  readonly cause?: string
  readonly error?: unknown
}

function measure(instruments: Instruments, { clock = systemClock }: MetricsOptions): () => void {
  const asked = new Map<number, number>()
  const held = new Map<number, number>()
  const { acquire, pending, hold } = instruments

  const answered = (ask: number, outcome: string) => {
    const at = asked.get(ask)
    if (at === undefined || !asked.delete(ask)) return // adopted, or asked for before
    pending(-1)
    acquire((clock.now() - at) / 1_000, { outcome })
  }
  const ended = (ask: number, end: string) => {
    const at = held.get(ask)
    if (at === undefined || !held.delete(ask)) return
    instruments.held(-1)
    hold((clock.now() - at) / 1_000, { end })
  }
  const listeners: Readonly<Partial<{ [name in ChannelName]: (message: MeasuredMessage) => void }>> = {
    asking: ({ ask }) => {
      asked.set(ask, clock.now())
      pending(1)
    },
    acquired: ({ ask }) => {
      answered(ask, 'granted')
      held.set(ask, clock.now())
      instruments.held(1)
    },
    refused: ({ ask, error }) => answered(ask, error instanceof LeaseError ? error.code : 'aborted'),
    renewed: ({ ms = 0 }) => instruments.renewal(ms / 1_000),
    jeopardy: () => instruments.jeopardies(1),
    released: ({ ask }) => ended(ask, 'released'),
    lost: ({ ask, cause = '' }) => {
      ended(ask, 'lost')
      instruments.losses(1, { cause })
    },
  }
  const subscriptions = Object.entries(listeners).map(([name, listen]) => {
    const channel = `leasehold:${name}`
    const receive = (message: unknown) => listen(message as MeasuredMessage)
    subscribe(channel, receive)
    return () => unsubscribe(channel, receive)
  })
  return () => {
    for (const stop of subscriptions) stop()
  }
}
