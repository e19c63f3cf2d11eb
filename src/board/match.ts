/**
 * Conditions on the labels of members, written as text: `model in (a100,h100), mem>=40, !reserved`. All of them must hold.
 *
 * - `model=a100`, `model!=a100`, `model in (a100, h100)`, `model not in (k80)`: equal to one of the values, or to none
 * - `mem>=40`, `mem>40`, `mem<=80`, `mem<80`: compares numbers
 * - `nvlink`: has the label, `!nvlink`: has not
 *
 * Terms are separated by commas or `and`. A value with spaces, commas or brackets is written in double quotes.
 */
import { LeaseError } from '../errors.ts'
import { MAX_CONDITION_VALUES, MAX_CONDITIONS, type PoolCondition, type PoolTest } from '../kernel/command.ts'

const COMPARISONS: Readonly<Record<string, PoolTest>> = { '>=': 'at-least', '>': 'more', '<=': 'at-most', '<': 'less' }
const TOKEN = /\s*(?:(&&|>=|<=|!=|==|[=<>!(),])|"([^"]*)"|([^\s"=<>!(),&]+))/y

interface Token {
  readonly kind: 'sign' | 'word' | 'quoted'
  readonly text: string
}

/** Throws `INVALID` with what is wrong and an example. */
export function parseMatch(text: string): PoolCondition[] {
  const tokens = tokensOf(text)
  const conditions: PoolCondition[] = []
  let at = 0
  const fail = (why: string): never => {
    throw new LeaseError(
      'INVALID',
      `${JSON.stringify(text.slice(0, 200))} is no condition: ${why}. Write for example: model in (a100,h100), mem>=40`,
    )
  }
  const isSign = (...signs: string[]) => tokens[at]?.kind === 'sign' && signs.includes(tokens[at]!.text)
  const isWord = (word: string) => tokens[at]?.kind === 'word' && tokens[at]!.text.toLowerCase() === word
  const value = (what: string): string => {
    const token = tokens[at]
    if (token === undefined || token.kind === 'sign') return fail(`${what} is missing${token === undefined ? '' : ` before ${token.text}`}`)
    at++
    return token.text
  }
  const values = (label: string): string[] => {
    if (!isSign('(')) return fail(`the values of ${label} come in brackets`)
    at++
    const list = [value(`a value of ${label}`)]
    while (isSign(',')) {
      at++
      list.push(value(`a value of ${label}`))
    }
    if (!isSign(')')) return fail(`the list of ${label} is not closed with )`)
    at++
    if (list.length > MAX_CONDITION_VALUES) return fail(`${label} has more than ${MAX_CONDITION_VALUES} values`)
    return list
  }
  const condition = (): PoolCondition => {
    if (isSign('!')) {
      at++
      return { label: value('the label after !'), test: 'absent' }
    }
    const label = value('a label')
    if (isWord('in')) {
      at++
      return { label, test: 'in', values: values(label) }
    }
    if (isWord('not')) {
      at++
      if (!isWord('in')) return fail(`in is missing after ${label} not`)
      at++
      return { label, test: 'not-in', values: values(label) }
    }
    if (!isSign('=', '==', '!=', '>=', '>', '<=', '<')) return { label, test: 'present' }
    const sign = tokens[at++]!.text
    const than = value(`the value of ${label}`)
    const comparison = COMPARISONS[sign]
    if (comparison === undefined) return { label, test: sign === '!=' ? 'not-in' : 'in', values: [than] }
    if (!/^-?\d{1,15}(\.\d{1,15})?$/.test(than)) return fail(`${label}${sign} compares numbers, and ${JSON.stringify(than)} is none`)
    return { label, test: comparison, values: [than] }
  }
  for (;;) {
    conditions.push(condition())
    if (conditions.length > MAX_CONDITIONS) return fail(`it has more than ${MAX_CONDITIONS} conditions`)
    if (at === tokens.length) return conditions
    if (!isSign(',', '&&') && !isWord('and')) return fail(`a comma is missing before ${tokens[at]!.text}`)
    at++
  }
}

function tokensOf(text: string): Token[] {
  const tokens: Token[] = []
  if (text.length > 16_384) throw new LeaseError('INVALID', 'the conditions are longer than 16384 characters')
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const from = TOKEN.lastIndex
    const found = TOKEN.exec(text)
    if (found === null)
      throw new LeaseError(
        'INVALID',
        `${JSON.stringify(text.slice(0, 200))} is no condition: ${JSON.stringify(text.slice(from, from + 20))} cannot be read`,
      )
    const [, sign, quoted, word] = found
    if (sign !== undefined) tokens.push({ kind: 'sign', text: sign })
    else if (quoted !== undefined) tokens.push({ kind: 'quoted', text: quoted })
    else tokens.push({ kind: 'word', text: word! })
  }
  return tokens
}

const SIGNS: Partial<Record<PoolTest, string>> = { 'at-least': '>=', more: '>', 'at-most': '<=', less: '<' }

/** The text that `parseMatch` would read. */
export function formatMatch(conditions: readonly PoolCondition[]): string {
  return conditions
    .map(({ label, test, values = [] }) => {
      const list = values.map(quoted)
      if (test === 'present') return label
      if (test === 'absent') return `!${label}`
      const sign = SIGNS[test]
      if (sign !== undefined) return `${label}${sign}${list[0]}`
      if (list.length === 1) return `${label}${test === 'in' ? '=' : '!='}${list[0]}`
      return `${label} ${test === 'in' ? 'in' : 'not in'} (${list.join(',')})`
    })
    .join(', ')
}

function quoted(value: string): string {
  return /^[^\s"=<>!(),&]+$/.test(value) ? value : `"${value}"`
}
