/** Writes the daily sums of a host into entries that stay when the host is gone, and removes those that are too old. */
import { LeaseError } from '../errors.ts'
import type { Command, EntryChange } from '../kernel/command.ts'
import { propose } from '../lessor/propose.ts'
import { refusedError } from '../refused-error.ts'
import type { OfferContext } from './offer-event.ts'
import { dayOf, dayOfKey, daysLeft, KEPT_DAYS, parseSums, SUMS, sumsKey, sumsPrefix, type UsageSum, UsageSums } from './usage-sums.ts'

/** All sums of all pools: fifty hosts for a year, with room. */
const MOST_SUMS = 50_000
/** Old days that one day removes. */
const REMOVED_AT_ONCE = 32

export class SumsWriter {
  readonly #context: OfferContext
  readonly #sums = new UsageSums()
  /** The day whose entry was read, so that a restart goes on with it. */
  #loaded: number | undefined
  /** Why they are not kept. */
  #refusal = ''

  constructor(context: OfferContext) {
    this.#context = context
  }

  /** Counts at a wall time of the log. */
  add(
    at: number,
    owner: Pick<UsageSum, 'account' | 'user' | 'kind'>,
    amounts: Partial<Pick<UsageSum, 'held' | 'busy' | 'unleased'>>,
  ): void {
    this.#sums.add(dayOf(at), owner, amounts)
  }

  /** Writes what was counted. A key or a policy that does not allow it is reported once, and tried again later. */
  async write(at: number, signal: AbortSignal): Promise<void> {
    const { pool, host, emit } = this.#context
    const today = dayOf(at)
    try {
      const removed = this.#loaded === today ? [] : await this.#load(today, signal)
      for (const day of this.#sums.days()) {
        const change = { key: sumsKey(pool, host, day), value: this.#sums.format(day, host) }
        await this.#change([change, ...removed.splice(0)], signal)
        if (day < today) this.#sums.forget(day)
      }
      this.#refusal = ''
    } catch (error) {
      if (!LeaseError.is(error, 'FORBIDDEN', 'INVALID', 'LIMIT')) throw error
      const advice =
        error.code === 'FORBIDDEN'
          ? `The key needs read and register on ${sumsPrefix(pool)}`
          : `An administrator allows them: leasehold policy set ${SUMS} freeEntries=${MOST_SUMS}`
      if (this.#refusal !== error.code)
        emit({
          type: 'problem',
          message: `sums of usage are not kept: ${error.message}. ${advice}`,
        })
      this.#refusal = error.code
    }
  }

  /** Reads what this host has written for the day, and returns the removal of days that are too old: its own, and those of hosts that never came back. */
  async #load(today: number, signal: AbortSignal): Promise<EntryChange[]> {
    const { leases, pool, host } = this.#context
    const { value } = await leases.read({ kind: 'entries', prefix: sumsPrefix(pool, host) }, { signal })
    // Of an earlier day, this process has written everything since it began to count.
    const isFirst = this.#loaded === undefined
    for (const { key, value: text } of value) {
      const found = parseSums(text)
      if (isFirst && found !== undefined && key === sumsKey(pool, host, today)) this.#sums.load(found)
    }
    this.#loaded = today
    const old: { readonly key: string }[] = value.filter(({ key }) => dayOfKey(key) <= today - KEPT_DAYS).slice(0, REMOVED_AT_ONCE)
    for (const day of daysLeft(today)) {
      if (old.length >= REMOVED_AT_ONCE) break
      const left = await leases.read({ kind: 'entries', prefix: sumsPrefix(pool), named: `${day}`, limit: REMOVED_AT_ONCE }, { signal })
      old.push(...left.value)
    }
    const keys = new Set(old.map(({ key }) => key))
    return [...keys].slice(0, REMOVED_AT_ONCE).map(key => ({ key, delete: true }))
  }

  async #change(success: readonly EntryChange[], signal: AbortSignal): Promise<void> {
    const { leases } = this.#context
    const { lessor } = leases
    const put: Command = { kind: 'transaction', success: [...success] }
    const outcome = await propose(lessor, put, { signal })
    if (outcome.kind !== 'refused') return
    // The first sums set the policy where none says otherwise. An operator who does not want them sets freeEntries=0.
    const { value: policies } = await leases.read({ kind: 'policies' }, { signal })
    const own = policies.find(({ prefix }) => prefix === SUMS)?.rules
    if (outcome.reason !== 'no-free-entries' || own?.freeEntries !== undefined) throw refusedError(outcome)
    const set = await propose(lessor, { kind: 'policy', prefix: SUMS, rules: { ...own, freeEntries: MOST_SUMS } }, { signal })
    if (set.kind === 'refused') throw refusedError(set)
    const again = await propose(lessor, put, { signal })
    if (again.kind === 'refused') throw refusedError(again)
  }
}
