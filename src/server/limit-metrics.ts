/**
 * Metrics that warn before something ends: how much of each limit is used, how long certificates and keys are valid, and what is left of the disk.
 * A share of 1 means that the limit is reached, so one alert covers all limits.
 */
import { Gauge, type Registry } from 'prom-client'
import { rule } from '../kernel/rule/policy.ts'
import type { ApiKeyView } from '../lessor/key-view.ts'
import { ServerActivity } from './activity/activity.ts'
import { diskUsage } from './disk-usage.ts'
import type { ListenerContext } from './listener.ts'

const DAY = 86_400_000
/** Of the names that most clients wait for, the one that is closest to its own limit counts. */
const QUEUES = 100
const COUNTED = ['leases', 'waiters', 'entries', 'bytes'] as const

/** The label of a key, by its id. */
type KeyLabels = () => ReadonlyMap<number, string>

export interface LimitMetricsOptions {
  readonly context: ListenerContext
  readonly labels: KeyLabels
  /** The label of keys without series of their own. */
  readonly others: string
}

export function addLimitMetrics(registry: Registry, { context, labels, others }: LimitMetricsOptions): void {
  const { guarded, clock } = context
  const gauge = (name: string, help: string, label: string, read: () => Promise<Iterable<readonly [string, number]>>) =>
    new Gauge({
      name: `leasehold_${name}`,
      help,
      labelNames: [label],
      registers: [registry],
      async collect() {
        this.reset()
        // A store that does not answer is shown by `store_up`, and must not hide the other metrics.
        for (const [value, number] of await read().catch(() => [])) this.set({ [label]: value }, number)
      },
    })
  const plain = (name: string, help: string, read: () => number | undefined | Promise<number | undefined>) =>
    new Gauge({
      name: `leasehold_${name}`,
      help,
      registers: [registry],
      async collect() {
        const value = await Promise.resolve()
          .then(read)
          .catch(() => undefined)
        if (value === undefined) this.remove()
        else this.set(value)
      },
    })
  const keys = async () => (await guarded.lessor.read({ kind: 'keys' })).value

  gauge(
    'limit_used_ratio',
    'How much of a limit is used, from 0 to 1: connections of this server, leases, and waiters for one name.',
    'what',
    () => shares(context),
  )
  gauge(
    'key_limit_used_ratio',
    'How much of its tightest limit a key uses, from 0 to 1: a limit of its own, or one of its group.',
    'key',
    async () => byKey(await keys(), shareOf, Math.max),
  )
  gauge('key_days_left', 'Days until a key expires. Only keys that expire are listed.', 'key', async () =>
    byKey(await keys(), ({ expires }) => (expires === undefined ? undefined : (expires - clock.wall()) / DAY), Math.min),
  )
  gauge(
    'certificate_days_left',
    'Days until a certificate that this server uses ends: its own, or that of the authority of its clients.',
    'file',
    async () => [...(context.certificates?.() ?? [])].map(([file, end]) => [file, (end - clock.wall()) / DAY] as const),
  )
  const usage = async () => {
    const path = context.dataFile?.()
    return path === undefined ? undefined : diskUsage(path)
  }
  plain('disk_free_bytes', 'Bytes that are free on the disk of the data file. Only for a file store.', async () => (await usage())?.free)
  plain('log_bytes', 'Bytes that the data file and the files beside it take. Only for a file store.', async () => (await usage())?.used)

  /** One series for each label. Of keys that share one, the worst counts. */
  function byKey(all: readonly ApiKeyView[], read: (key: ApiKeyView) => number | undefined, worse: (a: number, b: number) => number) {
    const found = new Map<string, number>()
    const names = labels()
    for (const key of all) {
      const value = read(key)
      if (value === undefined) continue
      const label = names.get(key.id) ?? others
      found.set(label, worse(found.get(label) ?? value, value))
    }
    return found
  }
}

async function shares(context: ListenerContext): Promise<readonly (readonly [string, number])[]> {
  const { guarded, clock, log, closing, limits } = context
  const [{ value: summary }, { value: listed }] = await Promise.all([
    guarded.lessor.read({ kind: 'summary' }),
    guarded.lessor.read({ kind: 'policies' }),
  ])
  const policies = { policies: new Map(listed.map(({ prefix, rules }) => [prefix, rules])) }
  const { waits } = await ServerActivity.of(guarded, { lessor: guarded.lessor, clock, log, closing }).current()
  const queues = waits.mostContended(() => true, QUEUES).map(({ resource, waiters }) => share(waiters, rule(policies, resource, 'waiters')))
  return [
    ['connections', share(context.connections(), limits.connections)],
    ['leases', share(summary.leases ?? 0, rule(policies, '', 'leases'))],
    ['waiters', Math.max(0, ...queues)],
  ]
}

/** Undefined if the key has no limits. */
function shareOf({ limits = {}, use, groupLimits = {}, groupUse }: ApiKeyView): number | undefined {
  const found = COUNTED.flatMap(what => [
    ...(limits[what] === undefined ? [] : [share(use[what], limits[what])]),
    ...(groupLimits[what] === undefined || groupUse === undefined ? [] : [share(groupUse[what], groupLimits[what])]),
  ])
  return found.length === 0 ? undefined : Math.max(...found)
}

/** A limit of 0 allows nothing: it is not about to be reached, but meant so. */
function share(used: number, limit: number): number {
  return limit === 0 ? 0 : used / limit
}
