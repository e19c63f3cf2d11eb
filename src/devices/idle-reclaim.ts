/**
 * Warns, asks and ends the holders of idle devices, each stage once. A lease is as idle as the busiest of its members; of members on other hosts, their
 * reports tell.
 */
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { type IdleStage, lowerStage } from './idle.ts'
import type { OfferContext, PoolHolder } from './offer-event.ts'
import { parseReport, reportKey, reportPrefix } from './report.ts'

/** The idleness of a device. */
export interface Idleness {
  readonly stage: IdleStage
  readonly ms: number
}

export class IdleReclaim {
  readonly #context: OfferContext
  /** The stage that each lease has reached. */
  readonly #stages = new Map<number, IdleStage>()

  constructor(context: OfferContext) {
    this.#context = context
  }

  /** `own` tells how idle a device of this host is, and is undefined for other resources. */
  async act(holders: readonly PoolHolder[], own: (resource: string) => Idleness | undefined): Promise<void> {
    const foreign = await this.#foreignStages(holders, own)
    for (const lease of this.#stages.keys()) if (!holders.some(holder => holder.lease === lease)) this.#stages.delete(lease)
    for (const holder of holders) {
      const { lease, resources, others } = holder
      if (others || !resources.some(own)) continue
      const stageOf = (resource: string) => own(resource)?.stage ?? foreign.get(resource) ?? 'none'
      const stage = resources.map(stageOf).reduce(lowerStage)
      const before = this.#stages.get(lease) ?? 'none'
      this.#stages.set(lease, stage)
      if (lowerStage(stage, before) !== stage)
        await this.#reach(stage, holder, Math.max(...resources.map(resource => own(resource)?.ms ?? 0)))
    }
  }

  /** The stages of members on other hosts that a holder has together with ours. */
  async #foreignStages(holders: readonly PoolHolder[], own: (resource: string) => unknown): Promise<ReadonlyMap<string, IdleStage>> {
    const { leases, pool, signal } = this.#context
    if (!holders.some(({ resources }) => resources.some(own) && !resources.every(own))) return new Map()
    const { value } = await leases.read({ kind: 'entries', prefix: reportPrefix(pool) }, { signal })
    const start = reportKey(pool, '').length
    return new Map(value.map(({ key, value: text }) => [`${pool}/${key.slice(start)}`, parseReport(text)?.stage ?? 'none']))
  }

  async #reach(stage: IdleStage, { lease, user, resources }: PoolHolder, ms: number): Promise<void> {
    const { leases, host, emit } = this.#context
    const idle = inWords(ms)
    const what = { none: '', warn: 'is warned', recall: 'is asked to return them', end: 'loses them' }[stage]
    emit({ type: 'idle', stage, lease, message: `${user} left ${resources.join(', ')} idle for ${idle} and ${what} (lease ${lease})` })
    try {
      const by = `${host}: idle for ${idle}`
      if (stage === 'recall') await leases.recall(resources[0]!, { by })
      if (stage === 'end') await leases.revoke({ lease }, { by })
    } catch (error) {
      if (!LeaseError.is(error, 'FORBIDDEN', 'GONE', 'NOT_FOUND')) throw error
      emit({ type: 'problem', lease, message: `nothing was done about the idle lease ${lease}: ${error.message}` })
    }
  }
}
