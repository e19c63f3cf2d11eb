/**
 * Short texts beside a log, each with a name, which end by themselves: where a server is, and proofs of who may use the store. They are not part of the
 * log, so no replica, snapshot, backup or move of it contains them.
 *
 * Guaranteed: who reads one may read the store, and who writes one may write to it. A text that is not put again is gone after its term, by the clock of the engine.
 * Not guaranteed: that a text stays until then. An engine that restarts or fails over may forget it.
 */

export interface Announcements extends AsyncDisposable {
  /** Puts the text, in place of an earlier one with this name, for `ttl` ms. */
  put(name: string, text: string, ttl: number): Promise<void>
  /** The texts whose names begin with `prefix`, by name. */
  list(prefix: string): Promise<ReadonlyMap<string, string>>
  /** Returns and removes the text in one step: of several callers, one gets it. */
  take(name: string): Promise<string | undefined>
}

/** The kinds of names in use: letters, digits, `-`, `_` and `/`. */
export function checkName(name: string): string {
  if (!/^[a-z]+\/[\w-]{1,64}$/.test(name)) throw new RangeError(`${name} cannot name an announcement`)
  return name
}
