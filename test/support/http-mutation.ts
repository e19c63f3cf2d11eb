/** Mutates recorded requests of HTTP clients, for fuzz tests: inputs that are nearly right are those that parsers get wrong. */
import type { Dice } from './resp-mutation.ts'

/** Method, target, body and, where it matters, the type of the body. */
export type RecordedRequest = readonly [method: string, target: string, body: string, type?: string]

/** A test sends this many mutated requests. A million take about a quarter of an hour. */
export const MUTATED_REQUESTS = Number(process.env.LEASEHOLD_MUTATIONS ?? 4_000)

const METHODS = ['GET', 'PUT', 'POST', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS']
const PIECES = [
  'null',
  '[]',
  '{}',
  '""',
  '-1',
  '1e999',
  '18446744073709551616',
  '99999999999999999999',
  '__proto__',
  '\u0000',
  '\ud800',
  '%',
  '%00',
  '%2f',
  '..',
  '//',
  '?',
  '&',
  '=',
  '<',
  '<!DOCTYPE a [',
  '&x;',
  'NaNs',
  '0s',
  '10s',
  '-5s',
  '😀',
]

/** One to four changes of a recorded request. */
export function mutated(dice: Dice, corpus: readonly RecordedRequest[]): RecordedRequest {
  let [method, target, body, type = 'application/json'] = dice.of(corpus)
  for (let changes = 1 + dice.below(4); changes > 0; changes--) {
    const what = dice.below(8)
    if (what === 0) method = dice.of(METHODS)
    else if (what === 1) type = dice.of(['application/json', 'application/xml', 'text/plain', ''])
    else if (what <= 3) target = `/${change(dice, target.slice(1))}`
    else body = change(dice, body === '' ? dice.of(corpus)[2] : body)
  }
  return [method, target, body, type]
}

function change(dice: Dice, text: string): string {
  const [from, to] = [dice.below(text.length + 1), dice.below(text.length + 1)].sort((a, b) => a - b) as [number, number]
  switch (dice.below(6)) {
    case 0:
      return text.slice(0, from) + text.slice(Math.min(to, from + 8))
    case 1:
      return text.slice(0, from) + dice.of(PIECES) + text.slice(from)
    case 2:
      return text.slice(0, from) + String.fromCharCode(dice.below(256)) + text.slice(from + 1)
    case 3:
      return text.slice(0, to) + text.slice(from)
    case 4:
      return text.replace(/"[^"]*"|\d+/, () => dice.of(PIECES))
    default:
      return text.slice(0, from) + text.slice(from, to).repeat(1 + dice.below(3)) + text.slice(to)
  }
}
