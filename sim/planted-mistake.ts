/** A planted mistake is one piece of text replaced in a copy of the built code. */
import type { ProfileName } from './profiles.ts'

export interface Planted {
  readonly name: string
  readonly file: string
  readonly find: string
  readonly put: string
  /** The invariants that name it rightly. */
  readonly expected: readonly string[]
  readonly profiles?: readonly ProfileName[]
}
