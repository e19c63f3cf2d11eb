/**
 * Metrics in the Prometheus format. Names of resources and holders are never labels: clients could create series without bound. The names of keys are labels,
 * since only administrators create keys; the oldest keys have series of their own, and the others are summed.
 */
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client'
import { FORMAT } from '../kernel/codec/format.ts'
import { RULES } from '../kernel/state.ts'
import { ServerActivity } from './activity/activity.ts'
import { Connections } from './connections.ts'
import { addLimitMetrics } from './limit-metrics.ts'
import type { ListenerContext } from './listener.ts'
import { RequestCounters } from './request-counters.ts'
import { REQUEST_BOUNDS } from './request-times.ts'
import { StoreWatch } from './store-watch.ts'
import { VERSION } from './version.ts'

/** Keys with series of their own. */
const MAX_KEYS = 100
/** The label of all other keys, and of keys that were revoked. */
const OTHER_KEYS = 'other'
/** Figures `NAME.le.MS` and `NAME.ms` are histograms. */
const HISTOGRAMS: Readonly<Record<string, readonly [metric: string, help: string]>> = {
  commit: ['commit_seconds', 'Time until an append to the log was acknowledged.'],
  delay: ['timer_delay_seconds', 'By how much this process was late to propose that a lease has run out, or another timer.'],
}
/** Figures `events.TYPE` count events by type. */
const EVENTS = 'events.'

const FIGURES: Readonly<Record<string, string>> = {
  appends: 'Records that this process appended to the log.',
  commands: 'Commands in the records that this process appended.',
  resent: 'Records appended again because the answer was lost.',
  voided: 'Records that arrived too late to be applied.',
  snapshots: 'Snapshots taken.',
  snapshotFailures: 'Snapshots that could not be taken. The log keeps its records until one can.',
  snapshotSeconds: 'How long the last snapshot took that this process tried to take, in seconds.',
  recordsSinceSnapshot: 'Records after the last snapshot: a process that starts reads them.',
  bytesSinceSnapshot: 'Bytes of these records.',
  reloads: 'Times that this process was so far behind that it loaded a snapshot.',
  memoryRenewals: 'Renewals that the owner of the store kept in memory.',
  rewinds: 'Times that a client proved that the log went back, and a new generation began.',
  stalls: 'Times that this process stalled.',
  stalled: 'Total duration of all stalls, in ms.',
  proposed: 'Timers that this process proposed as due.',
  lateness: 'The largest delay of a proposed timer, in ms.',
  index: 'Records of the log applied by this process.',
  appliedRevision: 'The last revision applied by this process.',
}

export class Metrics {
  static readonly #byServer = new WeakMap<object, Metrics>()
  readonly #registry = new Registry()
  /** The metrics of Node itself begin with the first scrape: to measure the delay of the loop, Node wakes the process a hundred times a second. */
  #watchesProcess = false
  readonly #context: ListenerContext
  readonly #refreshState: () => Promise<void>

  /** The metrics of a server, shared by its wires. */
  static of(context: ListenerContext): Metrics {
    let metrics = Metrics.#byServer.get(context.guarded)
    if (metrics === undefined) {
      metrics = new Metrics(context)
      Metrics.#byServer.set(context.guarded, metrics)
    }
    return metrics
  }

  private constructor(context: ListenerContext) {
    this.#context = context
    this.#addRequests()
    this.#addKeys()
    this.#refreshState = this.#addState()
    this.#addGauge('connections', 'Open connections, over all wires.', () => context.connections())
    this.#addGauge('watches', 'Open watches.', () => context.guarded.watches)
    this.#addGauge('waits', 'Connections that wait for a grant.', () => context.guarded.waiting)
    this.#addGauge('oldest_wait_seconds', 'For how long the client has waited that waits longest; 0 when none waits.', () =>
      oldestWait(context),
    )
    this.#addBuildInfo()
    this.#addFigures()
    addLimitMetrics(this.#registry, { context, labels: () => this.#keyLabels(), others: OTHER_KEYS })
  }

  readonly type = Registry.PROMETHEUS_CONTENT_TYPE

  async render(): Promise<string> {
    if (!this.#watchesProcess) collectDefaultMetrics({ register: this.#registry })
    this.#watchesProcess = true
    await this.#refreshState().catch(() => {}) // `store_up` shows the failure
    return this.#registry.metrics()
  }

  #addGauge(name: string, help: string, read: () => number | Promise<number>): void {
    new Gauge({
      name: `leasehold_${name}`,
      help,
      registers: [this.#registry],
      async collect() {
        this.set(await read())
      },
    })
  }

  #addBuildInfo(): void {
    const labels = { version: VERSION, node: process.version }
    const info = new Gauge({
      name: 'leasehold_build_info',
      help: 'Always 1. The version of Leasehold and of Node.',
      labelNames: Object.keys(labels),
      registers: [this.#registry],
    })
    info.set(labels, 1)
  }

  #addRequests(): void {
    // Counted elsewhere and copied here on a scrape: a labelled counter costs more than some requests.
    const counters = RequestCounters.of(this.#context.guarded)
    new Counter({
      name: 'leasehold_requests_total',
      help: 'Requests answered, by wire, by route or command, and by result code.',
      labelNames: ['wire', 'asked', 'code'],
      registers: [this.#registry],
      collect() {
        this.reset()
        for (const { wire, request, counts } of counters.all())
          for (const [code, count] of counts) this.inc({ wire, asked: request, code }, count)
      },
    })
    const { times } = this.#context.guarded
    const help = 'Time from the turn of the caller to the outcome, by operation and by outcome: ok, queued, refused or failed.'
    const counted = () =>
      [...times.all()].map(({ operation, outcome, counts, ms }) => ({
        labels: { operation, outcome },
        buckets: counts.map((count, i) => [REQUEST_BOUNDS[i]!, count] as const),
        ms,
      }))
    this.#registry.registerMetric(histogramOf('leasehold_request_seconds', help, counted))
  }

  #keyLabels(): ReadonlyMap<number, string> {
    return new Map([...this.#context.guarded.access.keys.values()].slice(0, MAX_KEYS).map(({ id, name }) => [id, name]))
  }

  /** Series of each key, or of all others together. Keys of one name share theirs. */
  #addKeys(): void {
    const { guarded } = this.#context
    const counters = RequestCounters.of(guarded)
    const labels = () => this.#keyLabels()
    new Counter({
      name: 'leasehold_key_requests_total',
      help: `Requests answered, by key and by result code. Beyond ${MAX_KEYS} keys, the newest are summed as ${OTHER_KEYS}.`,
      labelNames: ['key', 'code'],
      registers: [this.#registry],
      collect() {
        this.reset()
        const names = labels()
        for (const [id, { counts }] of counters.keys())
          for (const [code, count] of counts) this.inc({ key: names.get(id) ?? OTHER_KEYS, code }, count)
      },
    })
    new Gauge({
      name: 'leasehold_key_connections',
      help: 'Open connections of each key to this server.',
      labelNames: ['key'],
      registers: [this.#registry],
      collect() {
        this.reset()
        const names = labels()
        for (const [id, open] of Connections.byKey(guarded.access)) this.inc({ key: names.get(id) ?? OTHER_KEYS }, open)
      },
    })
    const uses = {
      leases: 'Leases of each key, waiting or not.',
      waiters: 'Waiting leases of each key.',
      entries: 'Entries of each key, also those that its waiters bring.',
      bytes: 'Bytes of the names and values of these entries.',
    } as const
    for (const [what, help] of Object.entries(uses))
      new Gauge({
        name: `leasehold_key_${what}`,
        help,
        labelNames: ['key'],
        registers: [this.#registry],
        async collect() {
          const { value } = await guarded.lessor.read({ kind: 'keys' })
          this.reset()
          const names = labels()
          for (const { id, use } of value) this.inc({ key: names.get(id) ?? OTHER_KEYS }, use[what as keyof typeof uses])
        },
      })
  }

  /** Gauges of the leases and the store. The returned function reads the state once for all of them. */
  #addState(): () => Promise<void> {
    const { guarded } = this.#context
    const gauge = (name: string, help: string) => new Gauge({ name: `leasehold_${name}`, help, registers: [this.#registry] })
    const leases = new Gauge({ name: 'leasehold_leases', help: 'Leases by state.', labelNames: ['state'], registers: [this.#registry] })
    const resources = gauge('resources', 'Resources held or waited for.')
    const entries = gauge('entries', 'Entries attached to leases.')
    const keys = gauge('keys', 'Valid keys.')
    const rules = gauge('rules', 'The version of the rules that the log is decided by.')
    gauge('rules_known', 'The newest version of the rules that this server knows.').set(RULES)
    gauge('format', 'The format of the records and snapshots that this server reads and writes.').set(FORMAT)
    const quiet = gauge('quiet', '1 while nothing is granted because the log lost records.')
    const up = gauge('store_up', '1 if the store can be reached and accepts writes, 0 if not.')
    return async () => {
      up.set(0)
      const reached = StoreWatch.of(guarded)?.check() ?? true
      const { value } = await guarded.lessor.read({ kind: 'summary' })
      const { leases: all = 0, waiting = 0, suspect = 0, frozen = 0 } = value
      leases.set({ state: 'live' }, all - waiting - suspect - frozen)
      for (const [state, count] of Object.entries({ waiting, suspect, frozen })) leases.set({ state }, count)
      resources.set(value.resources ?? 0)
      entries.set(value.entries ?? 0)
      keys.set(value.keys ?? 0)
      rules.set(value.rules)
      quiet.set(value.quiet ? 1 : 0)
      up.set((await reached) ? 1 : 0)
    }
  }

  /** Figures of the replica. `events.TYPE` becomes a counter, `NAME.…` a histogram, and every other figure a gauge of its name. */
  #addFigures(): void {
    const { figures } = this.#context
    new Counter({
      name: 'leasehold_events_total',
      help: 'Events since this process started, by type: granted, lapsed, released, revoked, …',
      labelNames: ['type'],
      registers: [this.#registry],
      collect() {
        this.reset()
        for (const [name, value] of Object.entries(figures()))
          if (name.startsWith(EVENTS)) this.inc({ type: name.slice(EVENTS.length) }, value)
      },
    })
    for (const name of Object.keys(figures()))
      if (!name.includes('.')) this.#addGauge(snakeCase(name), FIGURES[name] ?? `The replica's figure ${name}.`, () => figures()[name] ?? 0)
    for (const [name, [metric, help]] of Object.entries(HISTOGRAMS))
      this.#registry.registerMetric(histogramOf(`leasehold_${metric}`, help, () => [figureHistogram(figures(), name)]))
  }
}

async function oldestWait({ guarded, clock, log, closing }: ListenerContext): Promise<number> {
  const { waits } = await ServerActivity.of(guarded, { lessor: guarded.lessor, clock, log, closing }).current()
  const [oldest] = waits.oldest(() => true, 1)
  return oldest === undefined ? 0 : Math.max(0, clock.wall() - oldest.from) / 1_000
}

/** Counted where it happens, and copied here on a scrape: `buckets` are the numbers between each bound, in ms, and the one before it. */
interface CountedHistogram {
  readonly labels: Readonly<Record<string, string>>
  readonly buckets: readonly (readonly [bound: number, count: number])[]
  readonly ms: number
}

/** The metric for histograms that were counted elsewhere: a labelled histogram of prom-client costs more than some requests. */
function histogramOf(name: string, help: string, counted: () => Iterable<CountedHistogram>) {
  const get = async () => {
    const values: { metricName: string; labels: object; value: number }[] = []
    for (const { labels, buckets, ms } of counted()) {
      let sum = 0
      for (const [bound, count] of buckets) {
        sum += count
        const le = bound === Number.POSITIVE_INFINITY ? '+Inf' : bound / 1_000
        values.push({ metricName: `${name}_bucket`, labels: { ...labels, le }, value: sum })
      }
      values.push({ metricName: `${name}_sum`, labels, value: ms / 1_000 })
      values.push({ metricName: `${name}_count`, labels, value: sum })
    }
    return { name, help, type: 'histogram', values, aggregator: 'sum' }
  }
  return { name, get } as never
}

/** The histogram among the figures whose names begin with `NAME.`. */
function figureHistogram(figures: Readonly<Record<string, number>>, name: string): CountedHistogram {
  const bucket = `${name}.le.`
  const buckets = Object.entries(figures)
    .filter(([key]) => key.startsWith(bucket))
    .map(([key, count]) => [key.endsWith('.inf') ? Number.POSITIVE_INFINITY : Number(key.slice(bucket.length)), count] as const)
  return { labels: {}, buckets, ms: figures[`${name}.ms`] ?? 0 }
}

function snakeCase(name: string): string {
  return name
    .replaceAll(/[^A-Za-z0-9]+/g, '_')
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toLowerCase()
}
