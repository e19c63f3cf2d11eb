/**
 * The types of fields that commands are made of. A type says how a value is checked, written to a log and read back, and what it is in
 * JSON and RESP. src/kernel/command-table.ts gives every field of every command its type.
 */
import { fits } from '../name.ts'
import { type Flaw, shown, within } from '../reason.ts'
import { Damaged, NewerFormatError, type Reader, type Writer } from './bytes.ts'
import type { Check, Field, Fields, FieldType, Surface } from './field-type.ts'
import { inOrder } from './layout.ts'

export function needed<T, S extends Surface>(type: FieldType<T, S>, ...words: readonly string[]): Field<T, 'needed', S> {
  return { type, presence: 'needed', check: type.check, words }
}

export function defaulted<T, S extends Surface>(type: FieldType<T, S>, ...words: readonly string[]): Field<T, 'defaulted', S> {
  return { type, presence: 'defaulted', check: type.check, words }
}

export function optional<T, S extends Surface>(type: FieldType<T, S>, ...words: readonly string[]): Field<T, 'optional', S> {
  const { check, empty } = type
  const flaw: Flaw = empty === '' ? { reason: 'empty', facts: { field: '', optional: true } } : { reason: 'zero', facts: { field: '' } }
  return {
    type,
    presence: 'optional',
    check: empty === undefined ? check : value => (value === empty ? flaw : check(value)),
    words,
  }
}

/** Bytes of UTF-8. */
const MAX_TEXT = 65_536
const MAX_ITEMS = 100_000

const checkNumber: Check = value => {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return undefined
  return { reason: 'not-whole', facts: { field: '', given: shown(value) } }
}

function number<S extends Surface>(surface: S): FieldType<number, S> {
  return { surface, check: checkNumber, write: (to, value) => to.uint(value), read: from => from.uint(), empty: 0 }
}

export const count = number('count')
export const id = number('id')
/** In ms. */
export const duration = number('duration')

/** The rules refuse what is outside the range; the form only needs a number that can be written. */
export function integer(low: number, high: number): FieldType<number, 'integer'> {
  return {
    surface: 'integer',
    range: [low, high],
    check: value =>
      Number.isSafeInteger(value) && Math.abs(value as number) < 2 ** 52
        ? undefined
        : { reason: 'not-whole', facts: { field: '', given: shown(value) } },
    write: (to, value) => to.int(value),
    read: from => from.int(),
    empty: 0,
  }
}

const checkText: Check = value => {
  if (typeof value !== 'string') return { reason: 'not-text', facts: { field: '', given: shown(value) } }
  return fits(value, MAX_TEXT) ? undefined : { reason: 'too-long', facts: { field: '', limit: MAX_TEXT } }
}

function string<S extends Surface>(surface: S, max?: number): FieldType<string, S> {
  return {
    surface,
    check: checkText,
    write: (to, value) => to.text(value),
    read: from => from.text(),
    empty: '',
    ...(max !== undefined && { max }),
  }
}

/** Of a resource, holder, entry or key; the rules say which names are good ones. */
export const name = string('name')
export const text = string('text')
/** A text that JSON may carry up to `max` characters of. */
export function textOf(max: number): FieldType<string, 'text'> {
  return string('text', max)
}

export const flag: FieldType<boolean, 'flag'> = {
  surface: 'flag',
  check: value => (typeof value === 'boolean' ? undefined : { reason: 'not-flag', facts: { field: '', given: shown(value) } }),
  write: (to, value) => to.bool(value),
  read: from => from.bool(),
  empty: false,
}

/** The place of a name in `names` is its number in the log: append only. */
export function choice<const N extends string>(names: readonly N[]): FieldType<N, 'choice'> {
  return {
    surface: 'choice',
    choices: names,
    check: value =>
      typeof value === 'string' && (names as readonly string[]).includes(value)
        ? undefined
        : { reason: 'not-one-of', facts: { field: '', choices: names, given: shown(value) } },
    write: (to, value) => to.byte(names.indexOf(value)),
    read: from => oneOf(names, from.byte()),
  }
}

export function oneOf<T>(list: readonly T[], i: number): T {
  const item = list[i]
  if (item === undefined) throw new NewerFormatError(`choice ${i} of ${list.length}`)
  return item
}

/** More than `max` items are refused before they are looked at: what no rule could accept need not be written to a log first. */
function checkItems(check: Check, max: number): Check {
  return value => {
    if (!Array.isArray(value)) return { reason: 'not-list', facts: { field: '', given: shown(value) } }
    if (value.length > max) return { reason: 'too-many', facts: { field: '', limit: max } }
    for (let i = 0; i < value.length; i++) {
      const wrong = check(value[i])
      if (wrong !== undefined) return within(`[${i}]`, wrong)
    }
    return undefined
  }
}

export function list<T>(items: FieldType<T>, max = MAX_ITEMS): FieldType<readonly T[], 'list'> {
  return {
    surface: 'list',
    items,
    max,
    check: checkItems(items.check, max),
    write: (to, values) => {
      to.uint(values.length)
      for (const value of values) items.write(to, value)
    },
    read: from => from.list(() => items.read(from)),
    empty: [],
  }
}

/** Numbers of leases. Those of one process lie close together: each is written as its distance from the one before. */
export function ids(max = MAX_ITEMS): FieldType<readonly number[], 'list'> {
  return { surface: 'list', items: id, max, check: checkItems(checkNumber, max), write: writeIds, read: readIds, empty: [] }
}

export function writeIds(to: Writer, numbers: readonly number[]): void {
  to.uint(numbers.length)
  let last = 0
  for (const n of numbers) {
    to.int(n - last)
    last = n
  }
}

export function readIds(from: Reader): number[] {
  const numbers: number[] = []
  let last = 0
  for (let left = from.length(); left > 0; left--) {
    last += from.int()
    if (last < 0 || last > Number.MAX_SAFE_INTEGER) throw new Damaged('a number is out of range')
    numbers.push(last)
  }
  return numbers
}

/** An object of these fields and no others. Its bytes are those of the fields, one after the other. */
export function record<T extends object>(fields: FieldsOf<T>, together?: (value: T) => Flaw | undefined): FieldType<T, 'record'> {
  const check = checkFields(fields as Fields, { together: together as Together })
  return { surface: 'record', fields: fields as Fields, check, ...inOrder<T>(undefined, fields as Fields) }
}

/** The fields that a table must have for an object type: the compiler refuses one that is missing, unknown or of another type. */
export type FieldsOf<T> = {
  readonly [K in keyof T]-?: Record<never, never> extends Pick<T, K>
    ? Field<Exclude<T[K], undefined>, 'optional' | 'defaulted'>
    : Field<T[K], 'needed'>
}

/** Returns the flaw of two fields that may be left out, and that are right by themselves. */
export type Together = ((value: object) => Flaw | undefined) | undefined

/** Of a field that needs no check. */
const UNCHECKED: CheckedField = { presence: 'defaulted', check: () => undefined, empty: undefined }

type CheckedField = Pick<Field<unknown>, 'presence' | 'check'> & { readonly empty: unknown }

/** Refuses objects with fields that are not known: they are mistakes. `also` names fields that need no check. */
export function checkFields(
  fields: Fields,
  { also = [], together }: { readonly also?: readonly string[]; readonly together?: Together } = {},
): Check {
  // Every command passes here. A lookup in an object without a prototype is quicker than in a Map and as safe.
  const known: Record<string, CheckedField | undefined> = Object.create(null)
  for (const field of also) known[field] = UNCHECKED
  for (const [field, { presence, check, type }] of Object.entries(fields)) known[field] = { presence, check, empty: type.empty }
  const must = Object.keys(fields).filter(field => fields[field]!.presence === 'needed')
  return value => {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      return { reason: 'not-object', facts: { field: '', given: shown(value) } }
    const object = value as Record<string, unknown>
    for (const field of must) if (object[field] === undefined) return { reason: 'missing', facts: { field } }
    // Counts optional fields whose value is not the default: `together` compares two of them.
    let given = 0
    // Unlike Object.keys, this makes no list; inherited fields are refused like any other unknown field.
    for (const field in object) {
      const checked = known[field]
      if (checked === undefined) return { reason: 'unknown-field', facts: { field: field.slice(0, 64), known: Object.keys(known) } }
      const value = object[field]
      if (value === undefined || checked === UNCHECKED) continue
      if (checked.presence !== 'needed' && value !== checked.empty) given++
      const wrong = checked.check(value)
      if (wrong !== undefined) return within(field, wrong)
    }
    return given < 2 ? undefined : together?.(object)
  }
}
