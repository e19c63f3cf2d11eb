/** A refusal as bytes: the number of its reason, and the facts that the reason has, in the order of the table. */
import { fits, NAME_BYTES } from '../name.ts'
import type { Refused } from '../outcome.ts'
import { type Fact, type Facts, MAX_FACT_ITEMS, REASON_ROWS, type Reason } from '../reason.ts'
import { Damaged, NewerFormatError, type Reader, type Writer } from './bytes.ts'

const BY_NUMBER = new Map(Object.entries(REASON_ROWS).map(([reason, row]) => [row.number, { reason: reason as Reason, row }]))
/** Each reason's facts: name, type, and whether it may be left out. */
const FACTS = new Map(
  Object.entries(REASON_ROWS).map(([reason, { facts }]) => [
    reason,
    Object.entries(facts).map(([name, type]) => ({ name, type: type.replace('?', ''), optional: type.endsWith('?') })),
  ]),
)

export function writeRefusal(to: Writer, { reason, facts }: Pick<Refused, 'reason' | 'facts'>): void {
  to.uint(REASON_ROWS[reason]!.number)
  for (const { name, type, optional } of FACTS.get(reason)!) {
    const fact = facts[name]
    if (optional) to.bool(fact !== undefined)
    if (fact === undefined && optional) continue
    if (type === 'text') to.text(fact as string)
    else if (type === 'number') to.int(fact as number)
    else if (type === 'flag') to.bool(fact as boolean)
    else if (type === 'texts') to.list(fact as readonly string[], item => to.text(item))
    else to.list(fact as readonly number[], item => to.int(item))
  }
}

export function readRefusal(from: Reader): Pick<Refused, 'code' | 'reason' | 'facts'> {
  const number = from.uint()
  const known = BY_NUMBER.get(number)
  if (known === undefined) throw new NewerFormatError(`a refusal for reason ${number}`)
  const { reason, row } = known
  const facts: Record<string, Fact> = {}
  for (const { name, type, optional } of FACTS.get(reason)!) {
    if (optional && !from.bool()) continue
    facts[name] = readFact(from, type)
  }
  return { code: row.code, reason, facts: facts as Facts }
}

function readFact(from: Reader, type: string): Fact {
  switch (type) {
    case 'text':
      return readText(from)
    case 'number':
      return from.int()
    case 'flag':
      return from.bool()
    case 'texts':
      return from.list(() => readText(from), MAX_FACT_ITEMS)
    default:
      return from.list(() => from.int(), MAX_FACT_ITEMS)
  }
}

function readText(from: Reader): string {
  const text = from.text()
  if (!fits(text, NAME_BYTES)) throw new Damaged('a fact is too long')
  return text
}
