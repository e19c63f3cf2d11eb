/**
 * What an operator needs to see, in the form that Prometheus reads. Labels are words of ours alone: names of resources, holders and keys never are,
 * since they would tell one customer of another and could be made up without end.
 */
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client'
import type { ListenerContext } from './listener.ts'
import { RequestCounts } from './request-counts.ts'
import { StoreWatch } from './store-watch.ts'

/** Upper bounds of what `figures` counts as `commit.le.MS`, in ms. */
const COMMIT = 'commit.le.'
const EVENTS = 'events.'

const FIGURES: Readonly<Record<string, string>> = {
  appends: 'Entries that this process wrote to the log.',
  commands: 'Commands in them.',
  resent: 'Entries sent again because their answer was lost.',
  voided: 'Entries that came too late to be applied.',
  snapshots: 'Snapshots taken.',
  reloads: 'Times that this process was so far behind that it began from a snapshot.',
  memoryRenewals: 'Renewals kept in memory by the owner of the store.',
  rewinds: 'Times that a client showed that the log went back, and a generation began.',
  stalls: 'Times that this process stood still.',
  stalled: 'For how many ms in all.',
  proposed: 'Timers that this process said were due.',
  lateness: 'The latest of them, in ms.',
  index: 'Entries of the log applied here.',
  appliedRevision: 'The last revision applied here.',
}

export class Metrics {
  static readonly #byDesk = new WeakMap<object, Metrics>()
  readonly #registry = new Registry()
  readonly #context: ListenerContext
  readonly #look: () => Promise<void>

  /** One for all wires of a server. */
  static of(context: ListenerContext): Metrics {
    let metrics = Metrics.#byDesk.get(context.desk)
    if (metrics === undefined) {
      metrics = new Metrics(context)
      Metrics.#byDesk.set(context.desk, metrics)
    }
    return metrics
  }

  private constructor(context: ListenerContext) {
    this.#context = context
    collectDefaultMetrics({ register: this.#registry })
    this.#requests()
    this.#look = this.#state()
    this.#gauge('connections', 'Connections open now, of every wire.', () => context.connections())
    this.#gauge('watches', 'Watches open now.', () => context.desk.watches)
    this.#gauge('waits', 'Connections that wait for a grant.', () => context.desk.waiting)
    this.#figures()
  }

  readonly type = Registry.PROMETHEUS_CONTENT_TYPE

  async text(): Promise<string> {
    await this.#look().catch(() => {}) // `store_up` says it
    return this.#registry.metrics()
  }

  #gauge(name: string, help: string, read: () => number): void {
    new Gauge({
      name: `leasehold_${name}`,
      help,
      registers: [this.#registry],
      collect() {
        this.set(read())
      },
    })
  }

  #requests(): void {
    // Added up elsewhere and handed over when someone looks: a counter with labels costs more than some answers.
    const tallies = RequestCounts.of(this.#context.desk)
    new Counter({
      name: 'leasehold_requests_total',
      help: 'Requests answered, by wire, by route or command, and by how they were answered.',
      labelNames: ['wire', 'asked', 'code'],
      registers: [this.#registry],
      collect() {
        this.reset()
        for (const { wire, asked, counts } of tallies.all()) for (const [code, count] of counts) this.inc({ wire, asked, code }, count)
      },
    })
  }

  /** What the state itself says is asked for once, before anything is written down. */
  #state(): () => Promise<void> {
    const { desk } = this.#context
    const of = (name: string, help: string) => new Gauge({ name: `leasehold_${name}`, help, registers: [this.#registry] })
    const leases = new Gauge({ name: 'leasehold_leases', help: 'Leases by state.', labelNames: ['state'], registers: [this.#registry] })
    const resources = of('resources', 'Resources held or waited for.')
    const entries = of('entries', 'Entries attached to leases.')
    const keys = of('keys', 'Keys that are valid.')
    const quiet = of('quiet', '1 while nothing is granted because the log lost entries.')
    const up = of('store_up', '1 when the store can be reached and takes writes, 0 when it cannot or does not.')
    return async () => {
      up.set(0)
      const reached = StoreWatch.of(desk)?.look() ?? true
      const { value } = await desk.lessor.read({ kind: 'summary' })
      const { leases: all = 0, waiting = 0, suspect = 0, frozen = 0 } = value
      leases.set({ state: 'live' }, all - waiting - suspect - frozen)
      for (const [state, count] of Object.entries({ waiting, suspect, frozen })) leases.set({ state }, count)
      resources.set(value.resources ?? 0)
      entries.set(value.entries ?? 0)
      keys.set(value.keys ?? 0)
      quiet.set(value.quiet ? 1 : 0)
      up.set((await reached) ? 1 : 0)
    }
  }

  /** Numbers of the replica: `events.TYPE` and `commit.…` have metrics of their own, every other is a gauge of its name. */
  #figures(): void {
    const { figures } = this.#context
    new Counter({
      name: 'leasehold_events_total',
      help: 'What happened to leases since this process began, by type: granted, lapsed, released, revoked, …',
      labelNames: ['type'],
      registers: [this.#registry],
      collect() {
        this.reset()
        for (const [name, value] of Object.entries(figures()))
          if (name.startsWith(EVENTS)) this.inc({ type: name.slice(EVENTS.length) }, value)
      },
    })
    for (const name of Object.keys(figures()))
      if (!name.startsWith(EVENTS) && !name.startsWith('commit.'))
        this.#gauge(snake(name), FIGURES[name] ?? `${name}, as the replica counts it.`, () => figures()[name] ?? 0)
    this.#registry.registerMetric(commitHistogram(figures) as never)
  }
}

/** Counted where the log is written, one for each append: here it is only put into words. */
function commitHistogram(figures: ListenerContext['figures']) {
  const name = 'leasehold_commit_seconds'
  const get = async () => {
    const counted = figures()
    let sum = 0
    const values: { metricName: string; labels: object; value: number }[] = []
    for (const [key, count] of Object.entries(counted)) {
      if (!key.startsWith(COMMIT)) continue
      sum += count
      const le = key.slice(COMMIT.length)
      values.push({ metricName: `${name}_bucket`, labels: { le: le === 'inf' ? '+Inf' : Number(le) / 1_000 }, value: sum })
    }
    values.push({ metricName: `${name}_sum`, labels: {}, value: (counted['commit.ms'] ?? 0) / 1_000 })
    values.push({ metricName: `${name}_count`, labels: {}, value: sum })
    return { name, help: 'How long appends to the log took until they were acknowledged.', type: 'histogram', values, aggregator: 'sum' }
  }
  return { name, get }
}

function snake(name: string): string {
  return name
    .replaceAll(/[^A-Za-z0-9]+/g, '_')
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toLowerCase()
}
