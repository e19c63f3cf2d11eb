/** These are the types of a field of a command: field.ts has the fields themselves, layout.ts puts them into bytes. */
import type { Flaw } from '../reason.ts'
import type { Reader, Writer } from './bytes.ts'

/** Returns the flaw of a value, or undefined. */
export type Check = (value: unknown) => Flaw | undefined

/** People and other protocols see a value as one of these. Records, lists and pairs have fields or items of their own; pairs are a list here, and an object in JSON. */
export type Surface = 'count' | 'integer' | 'id' | 'duration' | 'name' | 'text' | 'flag' | 'choice' | 'record' | 'list' | 'pairs' | 'other'

export interface FieldType<T, S extends Surface = Surface> {
  readonly surface: S
  readonly check: Check
  write(to: Writer, value: T): void
  read(from: Reader): T
  /** The value that a log has for a field left out, where there is one. */
  readonly empty?: T | undefined
  /** The names of a choice, the smallest and largest integer, the fields of a record, the items of a list and how many there may be. */
  readonly choices?: readonly string[]
  readonly range?: readonly [low: number, high: number]
  readonly fields?: Fields
  readonly items?: FieldType<unknown>
  readonly max?: number
}

/**
 * `needed`: it must be given. `optional`: left out, it means something that no value means, and its empty value is refused: a log has the
 * empty value for what is left out, and replicas that read the log must not find another command than the proposer had. `defaulted`: left
 * out, it means the empty value.
 */
export type Presence = 'needed' | 'optional' | 'defaulted'

export interface Field<T, P extends Presence = Presence, S extends Surface = Surface> {
  readonly type: FieldType<T, S>
  readonly presence: P
  readonly check: Check
  /** In RESP: the word before the value or before each item of a list, or one for each name of a choice. Empty: the field's name in upper case. */
  readonly words: readonly string[]
}

export type Fields = Readonly<Record<string, Field<unknown>>>
