/**
 * The options of RESP commands, made from tables of fields: the words that read them, and how the summary of a command shows them. A flag is a word alone,
 * and so is each name of a choice. A list has a word before each item: the item's needed fields follow by place, its other fields by words of their own.
 */
import type { Field, Fields, Presence, Surface } from '../../kernel/codec/field-type.ts'
import { duration, invalid, opText, text, type Words, whole } from './command.ts'
import type { RespSession } from './session.ts'

type Values = Record<string, unknown>
type ReadOption = Words<Values>[string]

interface Options<T> {
  readonly words: Words<T>
  /** As in `[PRIORITY n] [LABEL name value]`. */
  readonly usage: string
}

/** What the options of these fields have set. */
export type Given<F, N extends keyof F> = { readonly [K in N]?: F[K] extends Field<infer T, Presence, Surface> ? T : never } & {
  readonly op?: string
}

/** The options of these fields, and `OP`. */
export function fieldOptions<F extends Fields, N extends string & keyof F>(fields: F, names: readonly N[]): Options<Given<F, N>> {
  const { words, usage } = together(fields, names)
  return { words: { ...words, OP: readOp }, usage: `${usage} [OP id]`.trimStart() }
}

export function wordOf(name: string, { words: [word = name.toUpperCase()] }: Field<unknown>): string {
  return word
}

/** A field by its place, or after its word. */
export function valueAt(session: RespSession, at: number, what: string, surface: Surface): string | number {
  if (surface === 'duration') return duration(session, at, what)
  return surface === 'name' || surface === 'text' ? text(session, at, what) : whole(session, at, what)
}

function together(fields: Fields, names: readonly string[]): Options<Values> {
  const options = names.map(name => optionOf(name, fields[name]!))
  return {
    words: Object.assign({}, ...options.map(({ words }) => words)),
    usage: options.map(({ usage }, i) => (fields[names[i]!]!.presence === 'needed' ? usage : `[${usage}]`)).join(' '),
  }
}

function optionOf(name: string, field: Field<unknown>): Options<Values> {
  const { surface, choices, items } = field.type
  const word = wordOf(name, field)
  if (surface === 'flag') return { words: { [word]: readConstant(name, true) }, usage: word }
  if (surface === 'choice')
    return {
      words: Object.fromEntries(field.words.map((word, i) => [word, readConstant(name, choices![i])])),
      usage: field.words.join(' | '),
    }
  if (items === undefined) return { words: { [word]: readValue(name, word, surface) }, usage: `${word} ${PLACEHOLDERS[surface]}` }
  if (items.fields === undefined) return { words: { [word]: readNumbers(name, word) }, usage: `${word} id …` }
  return itemOption(name, field, items.fields)
}

function itemOption(name: string, field: Field<unknown>, fields: Fields): Options<Values> {
  const word = wordOf(name, field)
  const parts = Object.keys(fields).filter(part => fields[part]!.presence === 'needed')
  const rest = together(
    fields,
    Object.keys(fields).filter(part => !parts.includes(part)),
  )
  const words = { [word]: readItem(name, word, parts, fields, field.type.surface === 'pairs') }
  for (const [option, read] of Object.entries(rest.words)) words[option] = readOfItem(name, word, option, read)
  const one = `${word} ${parts.map(part => placeholder(part, fields[part]!, word)).join(' ')}`
  const usage = rest.usage === '' ? one : `${one} ${rest.usage}`
  return { words, usage: field.presence === 'needed' ? `${usage} [${one} …]` : usage }
}

function readOp(at: number, session: RespSession, given: Values): number {
  given.op = opText(session, at)
  return 1
}

function readConstant(name: string, value: unknown): ReadOption {
  return (_at, _session, given) => {
    given[name] = value
    return 0
  }
}

function readValue(name: string, word: string, surface: Surface): ReadOption {
  return (at, session, given) => {
    given[name] = valueAt(session, at, word, surface)
    return 1
  }
}

function readNumbers(name: string, word: string): ReadOption {
  return (at, { args }, given) => {
    const numbers = listIn(given, name)
    let end = at
    for (; end < args.count && args.number(end) !== undefined; end++) numbers.push(args.number(end))
    if (end === at) throw invalid(`${word} names the leases whose ids follow it: at least one`)
    return end - at
  }
}

function readItem(name: string, word: string, parts: readonly string[], fields: Fields, isPair: boolean): ReadOption {
  return (at, session, given) => {
    const values = parts.map((part, i) => valueAt(session, at + i, i === 0 ? word : `the ${part} of ${word}`, fields[part]!.type.surface))
    listIn(given, name).push(isPair ? values : Object.fromEntries(parts.map((part, i) => [part, values[i]])))
    return parts.length
  }
}

/** Reads an option of the item before it. */
function readOfItem(name: string, word: string, option: string, read: ReadOption): ReadOption {
  return (at, session, given) => {
    const last = listIn(given, name).at(-1)
    if (last === undefined) throw invalid(`${option} follows the ${word} that it belongs to`)
    return read(at, session, last as Values)
  }
}

function listIn(given: Values, name: string): unknown[] {
  given[name] ??= []
  return given[name] as unknown[]
}

const PLACEHOLDERS: Readonly<Partial<Record<Surface, string>>> = {
  duration: 'ms',
  id: 'id',
  count: 'n',
  integer: 'n',
  name: 'name',
  text: 'text',
}

/** A field of an item by its place: its name, unless that is the word before it. */
function placeholder(name: string, { type: { surface } }: Field<unknown>, word: string): string {
  return surface === 'count' || name.toUpperCase() === word ? PLACEHOLDERS[surface]! : name
}
