/**
 * Delivers notices to one receiver in the background. A receiver that hangs or fails delays neither the pool nor other notices: few attempts run at once, each
 * is limited in time, failed ones are repeated some times, and of too many pending notices the oldest is given up. What is given up is reported.
 */
import type { Clock } from '../../../clock.ts'
import { inWords } from '../../../duration.ts'
import type { PoolNotice } from '../../../pool/notices.ts'
import type { Deliver } from './webhook.ts'

/** Ms between the attempts to deliver one notice. */
export const PAUSES: readonly number[] = [1_000, 10_000, 60_000, 300_000]
const AT_ONCE = 8
export const MOST_PENDING = 1_000

export interface NoticeQueueOptions {
  readonly clock: Clock
  /** The receiver in messages. */
  readonly name: string
  readonly deliver: Deliver
  /** Tells the operator that an attempt failed, or that a notice was given up. */
  readonly report: (sentence: string, facts: Readonly<Record<string, unknown>>) => void
}

interface PendingNotice {
  readonly notice: PoolNotice
  readonly over: AbortController
  attempts: number
  /** Cancels the timer of the next attempt. */
  cancel?: () => void
}

export class NoticeQueue {
  readonly #options: NoticeQueueOptions
  /** Oldest first. */
  readonly #pending = new Set<PendingNotice>()
  /** The notices that wait for their turn. */
  readonly #ready = new Set<PendingNotice>()
  #running = 0

  constructor(options: NoticeQueueOptions) {
    this.#options = options
  }

  /** Returns the number of notices that were neither delivered nor given up yet. */
  get pending(): number {
    return this.#pending.size
  }

  /** Returns at once. */
  add(notice: PoolNotice): void {
    const added = { notice, over: new AbortController(), attempts: 0 }
    this.#pending.add(added)
    this.#ready.add(added)
    if (this.#pending.size > MOST_PENDING) this.#giveUp([...this.#pending][0]!, `${MOST_PENDING} newer ones wait`)
    this.#start()
  }

  /** Ends what is under way. */
  close(): void {
    for (const pending of this.#pending) this.#forget(pending)
  }

  #start(): void {
    for (const pending of this.#ready) {
      if (this.#running >= AT_ONCE) return
      this.#ready.delete(pending)
      this.#running++
      void this.#attempt(pending).finally(() => {
        this.#running--
        this.#start()
      })
    }
  }

  /** Never rejects. */
  async #attempt(pending: PendingNotice): Promise<void> {
    const { clock, deliver, name, report } = this.#options
    const { notice, over } = pending
    const failed = await deliver(notice, over.signal).catch((error: Error) => ({ why: error.message, final: true }))
    if (over.signal.aborted) return
    if (failed === undefined) return this.#forget(pending)
    const next = failed.final ? undefined : PAUSES[pending.attempts++]
    if (next === undefined) return this.#giveUp(pending, `it ${failed.why}`)
    report(`${name} ${failed.why}; it gets the notice again in ${inWords(next)}`, { failed: notice.id, receiver: name })
    const retry = () => {
      this.#ready.add(pending)
      this.#start()
    }
    pending.cancel = clock.after(next, retry, { ref: true })
  }

  #giveUp(pending: PendingNotice, why: string): void {
    const { name, report } = this.#options
    const { id, text } = pending.notice
    this.#forget(pending)
    report(`gave up a notice for ${name}, because ${why}: ${text}`, { gaveUp: id, receiver: name })
  }

  #forget(pending: PendingNotice): void {
    this.#pending.delete(pending)
    this.#ready.delete(pending)
    pending.cancel?.()
    pending.over.abort()
  }
}
