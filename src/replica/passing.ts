/**
 * Lets an idle process append its renewals behind records that it has not read, if all of those are plain renewals, too (kernel/rule/plain-renewal.ts). The store checks that in
 * the step that appends. So `n` idle processes do not read the renewals of each other.
 *
 * One of them has to read, since it counts the terms of the others: the **reader**. It reads the log before each of its renewals, as an idle process without this does, and
 * says so in their records. A process whose store finds no such record for a while becomes a reader. Of several, the one with the lowest number stays. Which process
 * reads is a matter of promptness, not of safety.
 */
import type { Clock } from '../clock.ts'
import type { Batch } from '../kernel/codec/batch.ts'
import type { Proposal } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { isPlainRenewal, plainRenewalAnswer } from '../kernel/rule/plain-renewal.ts'
import { findLease } from '../kernel/state/leases.ts'
import type { RenewalMark } from '../store.ts'
import type { IdleMode } from './idle-mode.ts'
import type { Log } from './log.ts'
import type { Timekeeper } from './timekeeper.ts'

/** If no reader has renewed for this part of the longest time between two reads, another process becomes the reader. Readers renew more often, unless their ttl is long. */
const SILENCE = 0.5

export interface PassingOptions {
  readonly clock: Clock
  readonly log: Pick<Log, 'state' | 'store' | 'passed'>
  readonly idleMode: Pick<IdleMode, 'isIdle' | 'renewed'>
  readonly timekeeper: Pick<Timekeeper, 'now' | 'judgeRead'>
  readonly readEvery: number | undefined
}

export class Passing {
  readonly #options: PassingOptions
  #isReader = false
  /** The last record that was known here a while ago (`SILENCE`). If no reader has renewed since then, this process becomes one. */
  #since = 0
  #next = { index: 0, at: 0 }

  constructor(options: PassingOptions) {
    this.#options = options
  }

  /** The log has been read to its end once. */
  start(): void {
    const { clock, log } = this.#options
    this.#since = log.state.index
    this.#next = { index: log.state.index, at: clock.now() }
  }

  /** Returns whether this process has renewed since its last read. Its counts of other leases are then out of date, and the reader has newer ones. */
  get isBehind(): boolean {
    return this.#options.log.passed.last !== undefined
  }

  /** Returns whether a renewal may be sent before the log is read. */
  mayPass(proposal: Proposal): boolean {
    return this.#passes && plainRenewalAnswer(this.#options.log.state, proposal) !== undefined
  }

  /** This process only holds leases, and does not count those of others. */
  get #passes(): boolean {
    const { log, idleMode } = this.#options
    return idleMode.isIdle && !this.#isReader && log.store.passesRenewals === true
  }

  /** Marks a record that is a plain renewal, for processes that have not read it. */
  mark(proposals: readonly Proposal[]): RenewalMark | undefined {
    const { log } = this.#options
    return proposals.every(proposal => isPlainRenewal(log.state, proposal)) ? { reads: !this.#passes } : undefined
  }

  /** The answers to a record that is about to be appended behind others, and the condition for it. They hold for the state as it was read. */
  prepare(mark: RenewalMark, { proposals }: Batch): { readonly mark: RenewalMark; readonly answers: readonly Outcome[] } | undefined {
    const { state } = this.#options.log
    if (mark.reads || !this.#passes) return undefined
    const answers: Outcome[] = []
    for (const proposal of proposals) {
      const answer = plainRenewalAnswer(state, proposal)
      if (answer === undefined) return undefined
      answers.push(answer)
    }
    return { mark: { reads: false, past: { read: state.index, since: this.#since } }, answers }
  }

  /** The renewal stands at `index`, behind records that are not read. Its leases are counted from now on, which is later than from its record. */
  passed(index: number, { proposals }: Batch): void {
    const { idleMode, log, timekeeper } = this.#options
    const now = Math.ceil(timekeeper.now())
    for (const { command } of proposals)
      for (const id of command.kind === 'renew' ? command.leases : []) {
        const lease = findLease(log.state, id)
        if (lease !== undefined) lease.zero = Math.max(lease.zero, now)
      }
    idleMode.renewed()
    this.#turn(index)
  }

  /** The renewal was appended, and the log was read up to it. */
  read(index: number): void {
    const { clock, idleMode, log, timekeeper } = this.#options
    if (!idleMode.isIdle) this.#isReader = false
    else {
      // A reader gives way to a lower number only: else all would.
      const others = this.#isReader ? log.passed.readers.lower : log.passed.readers.any
      const wasReader = this.#isReader
      this.#isReader = others <= this.#since
      if (this.#isReader && !wasReader) clock.soon(() => timekeeper.judgeRead())
    }
    this.#turn(index)
  }

  #turn(index: number): void {
    const { clock, readEvery = 0 } = this.#options
    const now = clock.now()
    if (now - this.#next.at < readEvery * SILENCE) return
    this.#since = this.#next.index
    this.#next = { index, at: now }
  }
}
