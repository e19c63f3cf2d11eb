/**
 * Tells clients that return whether the log still contains what they saw (see witness.ts), and recovers an owned log that was put back from an older
 * copy: it begins a new generation, which grants nothing for the longest term that a client may still trust. An owner keeps its newest witness outside the
 * log as well, where the store has a place for it, and shows it to itself when it starts again.
 */
import type { State } from '../kernel/state.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'
import { decodeWitness, encodeWitness, isCompensated, judge, readWitness, type Witness, witnessOf, writeWitness } from './witness.ts'

export class RewindDetector {
  readonly #log: Log
  readonly #outbox: Outbox
  #newest: { readonly index: number; readonly run: State['run']; readonly text: string } | undefined
  #recovering = Promise.resolve()
  /** This replica has begun this many generations because a client showed that the log went back. */
  rewinds = 0

  constructor(log: Log, outbox: Outbox) {
    this.#log = log
    this.#outbox = outbox
  }

  get witness(): string {
    const { state, position } = this.#log
    const { index, run } = state
    if (this.#newest?.index !== index || this.#newest.run !== run)
      this.#newest = { index, run, text: writeWitness(witnessOf(state, position), state.lineage.secret) }
    return this.#newest.text
  }

  /** Called by an owner that starts, before it decides anything. */
  async compareWithKept(): Promise<void> {
    const log = this.#log
    const kept = log.store.witness?.read()
    const seen = kept && decodeWitness(kept)
    if (seen !== undefined && log.state.moved === undefined)
      await this.#judge({ ...seen, signed: seen.log !== 0 && seen.log === log.state.lineage.id })
    // As with each record from now on (log.ts). Only this process reads it again, so it needs no signature.
    log.store.witness?.write(encodeWitness(witnessOf(log.state, log.position)))
  }

  async continues(text: string): Promise<boolean> {
    const log = this.#log
    // The usual case: the client saw the newest record.
    if (text === this.#newest?.text) return true
    const seen = readWitness(text, log.state.lineage.secret)
    // An unreadable witness may be of another version: it proves nothing. A log whose leases are elsewhere cannot judge either.
    if (seen === undefined || log.state.moved !== undefined) return true
    // A replica of a shared log may merely lag.
    if (!log.owned && seen.index > log.state.index) await this.#outbox.readToEnd()
    return this.#judge(seen)
  }

  async #judge(seen: Witness & { readonly signed: boolean }): Promise<boolean> {
    const log = this.#log
    const verdict = judge(log.state, seen, index => log.recordAt(index))
    if (verdict === 'contained') return true
    // One after another: the first client that reports a loss makes up for all clients that the same loss concerns.
    if (log.owned && seen.signed) {
      const recovered = this.#recovering.then(() => this.#recover(seen, verdict.lost))
      this.#recovering = recovered
      await recovered
    }
    return false
  }

  async #recover(seen: Witness, fork: number): Promise<void> {
    const { state } = this.#log
    if (isCompensated(state, seen, fork)) return
    const { lease, token, revision, quiet } = seen
    try {
      await this.#outbox.write({ kind: 'generation', lease, token, revision, quiet })
      this.rewinds++
    } catch {
      // The store cannot be written to now, so nothing is granted either. The next client that reports the loss tries again.
    }
  }
}
