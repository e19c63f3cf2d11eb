/** The scopes of a key as text, in commands and over RESP: `acquire,read:jobs/,watch:` is verbs and a prefix, once or several times. */
import { LeaseError } from '../errors.ts'
import { type Scope, VERBS, type Verb } from '../kernel/command.ts'

/** The scopes of one key. HTTP has the same limit. */
export const MAX_SCOPES = 256

/**
 * `acquire,read:jobs/,watch:` gives three scopes, two of them for `jobs/`. Without a prefix, a scope covers everything. A prefix ends at a comma, which a verb must
 * follow: a prefix that was cut at the wrong place would be another right than the one that was meant. Colons belong to the prefix.
 */
export function scopesIn(text: string): Scope[] {
  const scopes: Scope[] = []
  let verbs: Verb[] = []
  let prefix = ''
  let inPrefix = false
  // Not split(): a text of megabytes must not become a list of a million.
  for (let at = 0; at <= text.length; ) {
    const comma = text.indexOf(',', at)
    const end = comma < 0 ? text.length : comma
    const part = text.slice(at, end)
    at = end + 1
    const colon = part.indexOf(':')
    const word = (colon < 0 ? part : part.slice(0, colon)).trim()
    if (!VERBS.includes(word as Verb)) throw inPrefix ? commaInPrefix(prefix, word) : unknownVerb(word)
    verbs.push(word as Verb)
    if (scopes.length + verbs.length > MAX_SCOPES) throw new LeaseError('INVALID', `a key has at most ${MAX_SCOPES} scopes`)
    if (colon < 0 && at <= text.length) continue
    inPrefix = colon >= 0
    prefix = inPrefix ? part.slice(colon + 1).trim() : ''
    for (const verb of verbs) scopes.push({ verb, prefix })
    verbs = []
  }
  return scopes
}

function unknownVerb(word: string): LeaseError {
  return new LeaseError('INVALID', `there is no verb '${word.slice(0, 32)}'. The verbs are ${VERBS.join(', ')}`)
}

function commaInPrefix(prefix: string, word: string): LeaseError {
  return new LeaseError(
    'INVALID',
    `after the prefix '${prefix.slice(0, 64)}' a comma begins another scope, and '${word.slice(0, 32)}' is no verb. The verbs are ${VERBS.join(', ')}. A prefix with a comma can be given over HTTP only`,
  )
}

/** Returns what the scopes allow, in words: `read, watch on everything; acquire on jobs/`. */
export function scopesInWords(scopes: readonly Scope[]): string {
  const byPrefix = new Map<string, Verb[]>()
  for (const { verb, prefix } of scopes) byPrefix.set(prefix, [...(byPrefix.get(prefix) ?? []), verb])
  return [...byPrefix].map(([prefix, verbs]) => `${verbs.join(', ')} on ${prefix === '' ? 'everything' : prefix}`).join('; ')
}
