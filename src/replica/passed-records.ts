/** The log beyond the last record that a replica has applied: its own last renewal, which it wrote behind others (passing.ts). Also: which replicas read. */
import { type Batch, WINDOW } from '../kernel/codec/batch.ts'
import type { State } from '../kernel/state.ts'
import type { Position } from '../store.ts'

export class PassedRecords {
  /** The last record of this replica, as long as it has not read up to it. Only this class changes it. */
  last: { readonly position: Position; readonly seq: number } | undefined
  /** The last renewals of other replicas that read the log at each renewal: of any, and of those with a lower number. */
  readonly readers = { any: 0, lower: 0 }

  /** `applied`: the index of the last record that was applied. */
  keep(position: Position, seq: number, applied: number): void {
    if (position.index > applied) this.last = { position, seq }
  }

  /** Called for each record that is read while there is a `last`. False: the log has another record in its place. */
  meets({ index, nonce }: Position): boolean {
    const { position } = this.last!
    if (index < position.index) return true
    this.last = undefined
    return index === position.index && nonce === position.nonce
  }

  /** A snapshot is loaded. */
  reaches(index: number): void {
    if (this.last !== undefined && this.last.position.index <= index) this.last = undefined
  }

  /** The index of the own record, if a later snapshot does not contain it. */
  missingFrom({ index, proposers }: State, proposer: number): number | undefined {
    if (this.last === undefined) return undefined
    const { position, seq } = this.last
    if (position.index > index || index - position.index > WINDOW) return undefined
    return (proposers.get(proposer)?.seq ?? 0) < seq ? position.index : undefined
  }

  /** A renewal of another replica that reads. `own`: the number of this one. */
  noteReader({ proposer }: Batch, index: number, own: number): void {
    if (proposer !== own) this.readers.any = index
    if (proposer < own) this.readers.lower = index
  }
}
