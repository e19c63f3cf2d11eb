/** The bounds of facts: an answer that is kept must stay small, and the same on every replica. */
import { fits, NAME_BYTES } from './name.ts'
import { type Fact, type Facts, MAX_FACT_ITEMS } from './reason.ts'

const ROOM = Math.floor(NAME_BYTES / 3)

function cut(text: string): string {
  if (fits(text, NAME_BYTES)) return text
  let end = Math.min(text.length, NAME_BYTES)
  // Never within a surrogate pair: half of one cannot be written.
  while (end > 0 && !fits(text.slice(0, end), NAME_BYTES)) end = end > ROOM ? Math.max(ROOM, end - 1) : end - 1
  return text.slice(0, end)
}

/** Cuts facts to their bounds, and drops those that are undefined: a replica that reads them from a snapshot must have the same. */
export function boundedFacts(facts: Readonly<Record<string, Fact | undefined>>): Facts {
  let isBounded = true
  for (const name in facts) {
    const fact = facts[name]
    if (typeof fact === 'boolean' || Number.isSafeInteger(fact)) continue
    if (typeof fact === 'string' && fact.length <= ROOM && fact.isWellFormed()) continue
    isBounded = false
    break
  }
  if (isBounded) return facts as Facts
  const bounded: Record<string, Fact> = {}
  for (const [name, fact] of Object.entries(facts)) {
    if (fact === undefined) continue
    if (typeof fact === 'string') bounded[name] = cut(fact)
    else if (typeof fact === 'number') bounded[name] = Number.isSafeInteger(fact) ? fact : 0
    else if (typeof fact === 'boolean') bounded[name] = fact
    else bounded[name] = fact.slice(0, MAX_FACT_ITEMS).map(item => (typeof item === 'string' ? cut(item) : item)) as readonly string[]
  }
  return bounded
}
