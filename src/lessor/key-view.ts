/** A key as administrators see it: what it may do, its limits, and what it and its group have. */
import type { CreateKey, KeyLimits, KeyUse } from '../kernel/command.ts'

export interface ApiKeyView extends Omit<CreateKey, 'kind'> {
  readonly id: number
  /** The secret before the last rotation, and until when servers accept it, by their wall clock. */
  readonly former?: { readonly hash: string; readonly until: number }
  /** Its present use of these limits. */
  readonly use: Readonly<KeyUse>
  /** Of its group: limits for all keys of the group together, if there are any, and what they have. */
  readonly groupLimits?: KeyLimits
  readonly groupUse?: Readonly<KeyUse>
}
