/**
 * The options of RESP commands, made from tables of fields: the words that read them, and how the summary of a command shows them. A flag is a word alone,
 * and so is each name of a choice. A list has a word before each item: the item's needed fields follow by place, its other fields by words of their own.
 */
import type { Field, Fields, Presence, Surface } from '../../kernel/codec/field-type.ts'
import { duration, invalid, opText, text, type Words, whole } from './command.ts'
import type { RespSession } from './session.ts'

type GivenFields = Record<string, unknown>
type ReadOption = Words<GivenFields>[string]

/** The options of these fields have set this. */
export type Given<F, N extends keyof F> = { readonly [K in N]?: F[K] extends Field<infer T, Presence, Surface> ? T : never } & {
  readonly op?: string
}

interface Options<T> {
  readonly words: Words<T>
  /** As in `[PRIORITY n] [LABEL name value] [OP id]`. */
  readonly usage: string
}

const PLACEHOLDERS: Readonly<Record<string, string>> = { duration: 'ms', id: 'id', count: 'n', integer: 'n', name: 'name', text: 'text' }

/** The options of these fields, and `OP`. */
export function fieldOptions<F extends Fields, N extends string & keyof F>(fields: F, names: readonly N[]): Options<Given<F, N>> {
  const words: Record<string, ReadOption> = {}
  const usages = names.map(name => addOption(words, name, fields[name]!))
  words.OP = (at, session, given) => set(given, 'op', opText(session, at), 1)
  return { words, usage: [...usages, '[OP id]'].join(' ') }
}

export function wordOf(name: string, { words: [word = name.toUpperCase()] }: Field<unknown>): string {
  return word
}

export function valueAt(session: RespSession, at: number, what: string, surface: Surface): string | number {
  if (surface === 'duration') return duration(session, at, what)
  return surface === 'name' || surface === 'text' ? text(session, at, what) : whole(session, at, what)
}

/** Adds the words of a field, and returns how they are used. */
function addOption(words: Record<string, ReadOption>, name: string, field: Field<unknown>): string {
  const usage =
    field.type.items?.fields === undefined ? addWords(words, name, field) : addItemWords(words, name, field, field.type.items.fields)
  return field.presence === 'needed' ? usage : `[${usage}]`
}

function addWords(words: Record<string, ReadOption>, name: string, field: Field<unknown>): string {
  const { surface, choices, items } = field.type
  const word = wordOf(name, field)
  switch (surface) {
    case 'flag':
      words[word] = (_at, _session, given) => set(given, name, true, 0)
      return word
    case 'choice':
      if (field.words.length === 0) {
        words[word] = (at, session, given) => set(given, name, text(session, at, word), 1)
        return `${word} ${choices!.join('|')}`
      }
      for (const [i, word] of field.words.entries()) words[word] = (_at, _session, given) => set(given, name, choices![i], 0)
      return field.words.join(' | ')
    case 'list':
      words[word] = (at, session, given) => addNumbers(listIn(given, name), session, at, word)
      return `${word} ${PLACEHOLDERS[items!.surface]} …`
    default:
      words[word] = (at, session, given) => set(given, name, valueAt(session, at, word, surface), 1)
      return `${word} ${PLACEHOLDERS[surface]}`
  }
}

function addItemWords(words: Record<string, ReadOption>, name: string, field: Field<unknown>, fields: Fields): string {
  const word = wordOf(name, field)
  const needed = Object.keys(fields).filter(part => fields[part]!.presence === 'needed')
  words[word] = (at, session, given) => {
    const values = needed.map((part, i) => valueAt(session, at + i, i === 0 ? word : `the ${part} of ${word}`, fields[part]!.type.surface))
    listIn(given, name).push(field.type.surface === 'pairs' ? values : Object.fromEntries(needed.map((part, i) => [part, values[i]])))
    return needed.length
  }
  const own: Record<string, ReadOption> = {}
  const usages = Object.keys(fields).flatMap(part => (needed.includes(part) ? [] : addOption(own, part, fields[part]!)))
  for (const [option, read] of Object.entries(own))
    words[option] = (at, session, given) => {
      const last = listIn(given, name).at(-1)
      if (last === undefined) throw invalid(`${option} follows the ${word} that it belongs to`)
      return read(at, session, last as GivenFields)
    }
  const one = `${word} ${needed.length === 1 ? PLACEHOLDERS[fields[needed[0]!]!.type.surface] : needed.join(' ')}`
  return [one, ...usages, ...(field.presence === 'needed' ? [`[${one} …]`] : [])].join(' ')
}

function set(given: GivenFields, name: string, value: unknown, taken: number): number {
  given[name] = value
  return taken
}

function listIn(given: GivenFields, name: string): unknown[] {
  given[name] ??= []
  return given[name] as unknown[]
}

/** Adds the numbers that follow, up to the next word. */
function addNumbers(numbers: unknown[], { args }: RespSession, at: number, word: string): number {
  let end = at
  for (; end < args.count && args.number(end) !== undefined; end++) numbers.push(args.number(end))
  if (end === at) throw invalid(`${word} names the leases whose ids follow it: at least one`)
  return end - at
}
