/**
 * Confirms what an engine with a synchronous standby shows. A commit that waits for the standby is visible once its wait is ended (its backend was terminated, the
 * wait cancelled, the server restarted), although the standby does not have it, and a failover undoes it.
 *
 * The engine's log is one sequence, so a commit of our own that the standby confirms after a read confirms what was read, if one server did both. Such a commit comes
 *
 * - before a record of ours is shown whose append was not answered, or not yet;
 * - before anything is shown after a connection was lost or made;
 * - before an append is acknowledged that took long: an operator may have cancelled its wait.
 *
 * Records that other processes wrote are shown as soon as they are visible. Whatever is decided on them is appended after them.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Appended, Read } from '../store.ts'
import { MAYBE_DONE } from '../unreachable-error.ts'

/** A read is tried this many times on connections that change. */
const MAX_TRIES = 3

export interface ConfirmedReadsOptions {
  readonly clock: Clock
  /** A commit of its own, which the standby confirms. */
  readonly commit: () => Promise<void>
  /** A commit that took so many ms may have waited for the standby until its wait was cancelled. */
  readonly longWait: number
  /** For messages. */
  readonly server: string
}

export class ConfirmedReads {
  readonly #options: ConfirmedReadsOptions
  /** The nonces of appends whose outcome is not known, or not yet. */
  readonly #unsure = new Set<bigint>()
  /** A connection was lost or made since reads were confirmed: it may be another server, or one that has restarted. */
  #distrusted = true
  #connections = 0

  constructor(options: ConfirmedReadsOptions) {
    this.#options = options
  }

  /** Returns how often a connection was lost or made. */
  get connections(): number {
    return this.#connections
  }

  /** A connection was lost or made. */
  distrust(): void {
    this.#connections++
    this.#distrusted = true
  }

  /** The result of `read`, confirmed if `mustConfirm` says so. Reads again if a connection was made or lost meanwhile, as by the first read after a loss. */
  async confirmed<T>(read: () => Promise<T>, mustConfirm: (result: T) => boolean = () => true): Promise<T> {
    for (let tries = 1; ; tries++) {
      const connections = this.#connections
      const last = tries === MAX_TRIES
      const result = await read()
      if (this.#connections !== connections && !last) continue
      if (!mustConfirm(result)) return result
      try {
        await this.#confirm(connections)
        return result
      } catch (error) {
        if (this.#connections === connections || last) throw error
      }
    }
  }

  /** `connections`: their number before the read. */
  async #confirm(connections: number): Promise<void> {
    const { clock, commit, longWait } = this.#options
    const began = clock.now()
    if (this.#connections === connections) await commit()
    // The server that confirmed may not be the one that was read.
    if (this.#connections !== connections) throw this.#notConfirmed('its connection changed while the log was read')
    // The wait of this commit may have been cancelled, too.
    if (clock.now() - began >= longWait) throw this.#notConfirmed('its standby took long to confirm what was read')
    this.#distrusted = false
  }

  async read(read: () => Promise<Read>): Promise<Read> {
    let unsure: readonly bigint[] = []
    const result = await this.confirmed(read, read => {
      unsure = read.kind === 'records' ? read.records.map(({ position }) => position.nonce).filter(nonce => this.#unsure.has(nonce)) : []
      return read.kind === 'records' && (this.#distrusted || unsure.length > 0)
    })
    for (const nonce of unsure) this.#unsure.delete(nonce)
    return result
  }

  /** `nonce`: of the record that `append` sends. */
  async append(nonce: bigint, append: () => Promise<Appended>): Promise<Appended> {
    const { clock, longWait } = this.#options
    const connections = this.#connections
    const began = clock.now()
    // From now on: a read may find the record before the answer of its append is here.
    this.#unsure.add(nonce)
    try {
      const appended = await append()
      const long = clock.now() - began >= longWait
      // The answer may have come from another server than before, with other settings.
      if ('position' in appended && (long || this.#connections !== connections))
        await this.#confirm(long ? connections : this.#connections).catch(error => this.#uncertain(error))
      if (appended.kind === 'appended') for (const { position } of appended.missed) this.#unsure.delete(position.nonce)
      this.#unsure.delete(nonce)
      return appended
    } catch (error) {
      if ((error as LeaseError).code === 'UNAVAILABLE') this.#unsure.delete(nonce)
      throw error
    }
  }

  #notConfirmed(why: string): LeaseError {
    const { server } = this.#options
    return new LeaseError('UNAVAILABLE', `${server}: ${why}; ask again`, { reason: 'failed', facts: { where: server } })
  }

  #uncertain(cause: unknown): never {
    const { server } = this.#options
    const message = `${server}: the append took long or its connection changed, and it is not certain that the standby has it; ${MAYBE_DONE}`
    throw new LeaseError('UNKNOWN', message, { cause, reason: 'failed', facts: { where: server } })
  }
}
