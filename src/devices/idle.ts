/**
 * Counts how long a held device has been idle, and says what is done about it. Pure: time is an argument.
 *
 * A device is idle while its reported utilisation stays below the threshold, whatever processes are on it. Time counts only between two reports that both
 * say idle: while a device does not tell, the count stands still. A single report above the threshold, or another set of holders, begins the count anew.
 * So a device is never reclaimed because its reports are missing, and never early.
 */

/** Ms of idleness after which a stage begins. A stage that is left out is skipped. */
export interface IdleRules {
  /** Utilisation in percent below which a device is idle. */
  readonly below: number
  readonly warn?: number
  readonly recall?: number
  readonly end?: number
}

export const IDLE_STAGES: readonly IdleStage[] = ['none', 'warn', 'recall', 'end']
export type IdleStage = 'none' | 'warn' | 'recall' | 'end'

/** The stage of a device that was idle for `ms`. */
export function idleStage({ warn, recall, end }: IdleRules, ms: number): IdleStage {
  if (end !== undefined && ms >= end) return 'end'
  if (recall !== undefined && ms >= recall) return 'recall'
  return warn !== undefined && ms >= warn ? 'warn' : 'none'
}

/** The lower of two stages: a lease is as idle as the busiest of its members. */
export function lowerStage(a: IdleStage, b: IdleStage): IdleStage {
  return IDLE_STAGES.indexOf(a) < IDLE_STAGES.indexOf(b) ? a : b
}

export class IdleMeter {
  #holders = ''
  #ms = 0
  #idleAt: number | undefined

  /** Returns how long the device has been idle under its present holders, in ms. */
  get ms(): number {
    return this.#ms
  }

  /**
   * A report at `now`. `holders` identifies the leases that hold the device. `longest`: the most ms that may count between two reports; a longer gap means that
   * this process did not run, and the device was not watched.
   */
  sample(now: number, holders: string, utilisation: number | undefined, below: number, longest: number): void {
    if (holders !== this.#holders || (utilisation !== undefined && utilisation >= below)) {
      this.#holders = holders
      this.#ms = 0
      this.#idleAt = undefined
    }
    if (holders === '' || utilisation === undefined) {
      this.#idleAt = undefined
      return
    }
    if (utilisation >= below) return
    if (this.#idleAt !== undefined && now - this.#idleAt <= longest) this.#ms += now - this.#idleAt
    this.#idleAt = now
  }
}
