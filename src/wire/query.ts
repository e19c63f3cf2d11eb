/** Questions from outside: closed, so that a field nobody knows is a mistake and not a wish. */
import { LeaseError } from '../errors.ts'
import type { Query } from '../lessor.ts'
import { isWhole } from './messages.ts'

type Field = 'text' | 'number' | 'texts' | 'own'

const LISTING = { 'limit?': 'number', 'within?': 'texts' } as const

const isText = (value: unknown): boolean => typeof value === 'string'
const areTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText)

const FIELDS: Readonly<Record<Field, { readonly words: string; right(value: unknown): boolean }>> = {
  text: { words: 'a text', right: isText },
  number: { words: 'a whole number', right: isWhole },
  texts: { words: 'a list of texts', right: areTexts },
  own: { words: '{key, claims}', right: isOwn },
}

function isOwn(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { key, claims, ...rest } = value as { readonly key?: unknown; readonly claims?: unknown }
  return isWhole(key) && areTexts(claims) && Object.keys(rest).length === 0
}

/** What each may be asked with; a name that ends in `?` may be left out. */
const FORMS: Readonly<Record<Query['kind'], Readonly<Record<string, Field>>>> = {
  summary: {},
  lease: { lease: 'number' },
  leases: { 'holder?': 'text', 'prefix?': 'text', 'own?': 'own', ...LISTING },
  resource: { resource: 'text' },
  resources: { prefix: 'text', ...LISTING },
  entries: { prefix: 'text', ...LISTING },
  services: { 'service?': 'text' },
  history: { resource: 'text' },
  policies: {},
  keys: {},
}

/** A query, or `INVALID` with what is wrong with it. */
export function queryFrom(value: unknown): Query {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new LeaseError('INVALID', 'a query is an object, of at most 64 KiB of JSON')
  const { kind, ...rest } = value as { readonly kind?: unknown } & Readonly<Record<string, unknown>>
  if (typeof kind !== 'string' || !Object.hasOwn(FORMS, kind))
    throw new LeaseError('INVALID', `a query is one of ${Object.keys(FORMS).join(', ')}`)
  const form = FORMS[kind as Query['kind']]
  const query: Record<string, unknown> = { kind }
  for (const [name, field] of Object.entries(form)) {
    const plain = name.replace('?', '')
    const given = Object.hasOwn(rest, plain) ? rest[plain] : undefined
    if (given === undefined) {
      if (name === plain) throw new LeaseError('INVALID', `${kind}: ${plain} is missing`)
      continue
    }
    const { right, words } = FIELDS[field]
    if (!right(given)) throw new LeaseError('INVALID', `${kind}: ${plain} must be ${words}`)
    query[plain] = given
  }
  for (const name of Object.keys(rest))
    if (!Object.hasOwn(query, name) && rest[name] !== undefined)
      throw new LeaseError('INVALID', `${kind}: there is no ${name.slice(0, 64)} to ask with`)
  return query as unknown as Query
}
