/**
 * Which log this is and which runs it had, so that a client which comes back can be told whether the log still contains what the client saw.
 *
 * A data directory that is put back from a copy is a whole log: nothing in it is missing or damaged. Only what others remember of it shows that it
 * went back. Every owner begins a run under a nonce, so a run that was lost is not mistaken for the one that took its place. The secret lives as long
 * as the log: a copy that was put back still has it, and verifies what the server signed after the copy was made (replica/witness.ts).
 */
import type { State } from '../state.ts'

/** A run that began with the record at `index`. It ends where the next one begins. */
export interface BegunRun {
  readonly number: number
  readonly nonce: number
  readonly index: number
}

export interface Lineage {
  /** The nonce of the first run that had one; 0 before that. */
  id: number
  /** Known to replicas of the log only. Empty before the first run that brought one. */
  secret: string
  /** The newest runs, oldest first. */
  readonly runs: BegunRun[]
  /** Logs whose leases were carried into this one: what a client saw there is here, under other indexes. */
  readonly before: number[]
  /** The last generation: the record it began with, and for how long it was quiet. */
  generation: { readonly index: number; readonly quiet: number }
}

const MAX_RUNS = 256
const MAX_BEFORE = 16

export function newLineage(): Lineage {
  return { id: 0, secret: '', runs: [], before: [], generation: { index: 0, quiet: 0 } }
}

/** The run that `state.run` names has just begun. */
export function noteRun(state: State, nonce: number, secret: string): void {
  const { lineage } = state
  if (lineage.id === 0) lineage.id = nonce
  if (lineage.secret === '') lineage.secret = secret
  lineage.runs.push({ number: state.run.number, nonce, index: state.index })
  if (lineage.runs.length > MAX_RUNS) lineage.runs.shift()
}

/** The state of one log takes its place in another, whose lineage is `target`. */
export function carryLineage(target: Lineage, left: Lineage): Lineage {
  const before = new Set([...target.before, ...left.before, left.id])
  // A restored backup of the same log: its own records still count.
  if (target.id !== 0) before.delete(target.id)
  return { ...target, runs: [...target.runs], before: [...before].slice(-MAX_BEFORE) }
}
