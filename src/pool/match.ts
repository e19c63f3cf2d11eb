/**
 * Conditions on the labels of members, as text: `'model in (a100,h100), mem>=40, !spot'`. All of them must hold.
 *
 *     model=a100          the label has this value
 *     model!=a100         it has another value, or there is no such label
 *     model in (a, b)     it has one of these values
 *     model not in (a, b) it has none of these values
 *     mem>=40, mem<80.5   it is a plain decimal number, and the comparison holds
 *     spot                there is such a label
 *     !spot               there is none
 *
 * A label or value with a space or one of `=<>!(),` in it is written in double quotes.
 */
import { LeaseError } from '../errors.ts'
import type { PoolCondition, PoolTest } from '../kernel/command.ts'

/** Conditions as text, as a list, or as values that labels must have. */
export type Match = string | readonly PoolCondition[] | Readonly<Record<string, string>>

/** Bounds the work of reading a text. */
const LONGEST = 16_384

const COMPARISONS: Readonly<Record<string, PoolTest>> = { '<=': 'at-most', '<': 'less', '>=': 'at-least', '>': 'more' }
const TOKEN = /\s*(?:"((?:[^"\\]|\\.)*)"|(!=|<=|>=|==|[=<>!(),])|([^\s"=<>!(),]+))/y

interface MatchToken {
  readonly text: string
  readonly isMark: boolean
}

/** Throws `INVALID` for a text that is not a list of conditions. */
export function parseMatch(match: Match): readonly PoolCondition[] {
  if (typeof match !== 'string') return Array.isArray(match) ? match : equalities(match as Readonly<Record<string, string>>)
  if (match.length > LONGEST) throw wrong(match, `is longer than ${LONGEST} characters`)
  if (match.trim() === '') return []
  const reader = new MatchReader(match)
  const conditions: PoolCondition[] = []
  do conditions.push(reader.condition())
  while (reader.next(','))
  reader.finish()
  return conditions
}

function equalities(labels: Readonly<Record<string, string>>): readonly PoolCondition[] {
  return Object.entries(labels).map(([label, value]) => ({ label, test: 'in', values: [String(value)] }))
}

function wrong(match: string, what: string): LeaseError {
  return new LeaseError('INVALID', `match ${what}: "${match.slice(0, 80)}". Write for example: model in (a100,h100), mem>=40, !spot`, {
    facts: { option: 'match' },
  })
}

class MatchReader {
  readonly #text: string
  #at = 0
  #ahead: MatchToken | undefined

  constructor(text: string) {
    this.#text = text
    this.#advance()
  }

  condition(): PoolCondition {
    if (this.next('!')) return { label: this.#word('the name of a label'), test: 'absent' }
    const label = this.#word('the name of a label')
    if (this.next('=') || this.next('==')) return { label, test: 'in', values: [this.#word('a value')] }
    if (this.next('!=')) return { label, test: 'not-in', values: [this.#word('a value')] }
    for (const [mark, test] of Object.entries(COMPARISONS)) if (this.next(mark)) return { label, test, values: [this.#word('a number')] }
    const isNegated = this.#nextWord('not')
    if (this.#nextWord('in')) return { label, test: isNegated ? 'not-in' : 'in', values: this.#list() }
    if (isNegated) throw this.#wrong(`has "not" after "${label}", without "in"`)
    return { label, test: 'present' }
  }

  /** Takes this mark, if it is next. */
  next(mark: string): boolean {
    if (this.#ahead?.isMark !== true || this.#ahead.text !== mark) return false
    this.#advance()
    return true
  }

  #nextWord(word: string): boolean {
    if (this.#ahead?.isMark !== false || this.#ahead.text !== word) return false
    this.#advance()
    return true
  }

  finish(): void {
    if (this.#ahead !== undefined) throw this.#wrong(`has "${this.#ahead.text}" where it could end, or a comma is missing before it`)
  }

  #list(): readonly string[] {
    if (!this.next('(')) throw this.#wrong('has "in" without a list in brackets')
    const values = [this.#word('a value')]
    while (this.next(',')) values.push(this.#word('a value'))
    if (!this.next(')')) throw this.#wrong('has a list without its closing bracket')
    return values
  }

  #word(what: string): string {
    const token = this.#ahead
    if (token === undefined || token.isMark)
      throw this.#wrong(`lacks ${what}${token === undefined ? ' at its end' : ` before "${token.text}"`}`)
    this.#advance()
    return token.text
  }

  #advance(): void {
    TOKEN.lastIndex = this.#at
    const found = TOKEN.exec(this.#text)
    if (found === null) {
      if (this.#text.slice(this.#at).trim() !== '') throw this.#wrong('has a quote that is not closed')
      this.#ahead = undefined
      return
    }
    this.#at = TOKEN.lastIndex
    const [, quoted, mark, plain] = found
    if (mark !== undefined) this.#ahead = { text: mark, isMark: true }
    else this.#ahead = { text: quoted === undefined ? plain! : quoted.replace(/\\(.)/g, '$1'), isMark: false }
  }

  #wrong(what: string): LeaseError {
    return wrong(this.#text, what)
  }
}

const SIGNS = { less: '<', 'at-most': '<=', more: '>', 'at-least': '>=' } as const

/** The conditions as a text that `parseMatch` reads. */
export function matchText(conditions: readonly PoolCondition[]): string {
  return conditions.map(conditionText).join(', ')
}

function conditionText({ label: given, test, values = [] }: PoolCondition): string {
  const label = quoted(given)
  switch (test) {
    case 'absent':
      return `!${label}`
    case 'present':
      return label
    case 'in':
      return values.length === 1 ? `${label}=${quoted(values[0]!)}` : `${label} in (${values.map(quoted).join(',')})`
    case 'not-in':
      return values.length === 1 ? `${label}!=${quoted(values[0]!)}` : `${label} not in (${values.map(quoted).join(',')})`
    default:
      return `${label}${SIGNS[test]}${values[0]}`
  }
}

function quoted(text: string): string {
  return /^[^\s"=<>!(),\\]+$/.test(text) ? text : `"${text.replace(/["\\]/g, '\\$&')}"`
}
