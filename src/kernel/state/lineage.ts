/**
 * The identity of a log and its runs, so that a client that reconnects can learn whether the log still contains what the client saw.
 *
 * A data directory that was put back from a copy is a complete log: nothing in it is missing or damaged. Only what clients remember shows that it went back.
 * Every owner begins a run with a nonce, so a lost run is not mistaken for the run that replaced it. The secret lives as long as the log: a copy that was put
 * back still has it, and can verify what the server signed after the copy was made (replica/witness.ts).
 */
/** A run that began with the record at `index`. It ends where the next one begins. */
export interface BegunRun {
  readonly number: number
  readonly nonce: number
  readonly index: number
}

export interface Lineage {
  /** The nonce of the first run that had one; 0 before that run. */
  id: number
  /** Known only to replicas of the log. Empty before the first run with a secret. */
  secret: string
  /** The newest runs, oldest first. */
  readonly runs: BegunRun[]
  /** The ids of logs whose leases were moved into this one: what a client saw there is here, at other indexes. */
  readonly before: number[]
  /** The last generation: the record it began with, and the length of its quiet period. */
  generation: { readonly index: number; readonly quiet: number }
}

const MAX_RUNS = 256
const MAX_BEFORE = 16

export function newLineage(): Lineage {
  return { id: 0, secret: '', runs: [], before: [], generation: { index: 0, quiet: 0 } }
}

/** Adds a run that has just begun. The first run gives the log its id and its secret. */
export function noteRun(lineage: Lineage, begun: BegunRun, secret: string): void {
  const { nonce } = begun
  if (lineage.id === 0) lineage.id = nonce
  if (lineage.secret === '') lineage.secret = secret
  lineage.runs.push(begun)
  if (lineage.runs.length > MAX_RUNS) lineage.runs.shift()
}

/** The lineage of a log `target` whose contents are replaced by a state with the lineage `left`. */
export function carryLineage(target: Lineage, left: Lineage): Lineage {
  const before = new Set([...target.before, ...left.before, left.id])
  // A restored backup of the same log: its own records still count.
  if (target.id !== 0) before.delete(target.id)
  return { ...target, runs: [...target.runs], before: [...before].slice(-MAX_BEFORE) }
}
