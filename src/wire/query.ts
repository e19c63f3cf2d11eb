/** Checks queries from the network. An unknown field is an error: a misspelt filter must not be ignored. */
import { LeaseError } from '../errors.ts'
import type { Query } from '../lessor.ts'
import { isWhole } from './messages.ts'

type QueryFieldType = 'text' | 'number' | 'texts' | 'own'

const LISTING = { 'limit?': 'number', 'within?': 'texts' } as const

const isText = (value: unknown): boolean => typeof value === 'string'
const areTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText)

const FIELDS: Readonly<Record<QueryFieldType, { readonly words: string; accepts(value: unknown): boolean }>> = {
  text: { words: 'a string', accepts: isText },
  number: { words: 'a whole number', accepts: isWhole },
  texts: { words: 'a list of strings', accepts: areTexts },
  own: { words: '{key, claims}', accepts: isOwn },
}

function isOwn(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { key, claims, ...rest } = value as { readonly key?: unknown; readonly claims?: unknown }
  return isWhole(key) && areTexts(claims) && Object.keys(rest).length === 0
}

/** The fields of each query. A name that ends in `?` is optional. */
const QUERIES: Readonly<Record<Query['kind'], Readonly<Record<string, QueryFieldType>>>> = {
  summary: {},
  lease: { lease: 'number' },
  leases: { 'holder?': 'text', 'prefix?': 'text', 'own?': 'own', ...LISTING },
  resource: { resource: 'text', 'waiters?': 'number', 'holders?': 'number' },
  resources: { prefix: 'text', ...LISTING },
  entries: { prefix: 'text', 'named?': 'text', ...LISTING },
  services: { 'service?': 'text' },
  pool: { pool: 'text', 'limit?': 'number', 'skip?': 'number', 'lease?': 'number' },
  pools: {},
  history: { resource: 'text', 'limit?': 'number', 'below?': 'number' },
  durations: { class: 'text' },
  policies: {},
  keys: {},
}

/** Throws `INVALID` for anything but a query. */
export function queryFrom(value: unknown): Query {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new LeaseError('INVALID', 'a query is an object, of at most 64 KiB of JSON')
  const { kind, ...rest } = value as { readonly kind?: unknown } & Readonly<Record<string, unknown>>
  if (typeof kind !== 'string' || !Object.hasOwn(QUERIES, kind))
    throw new LeaseError('INVALID', `a query is one of ${Object.keys(QUERIES).join(', ')}`)
  const fields = QUERIES[kind as Query['kind']]
  const query: Record<string, unknown> = { kind }
  for (const [name, field] of Object.entries(fields)) {
    const plain = name.replace('?', '')
    const given = Object.hasOwn(rest, plain) ? rest[plain] : undefined
    if (given === undefined) {
      if (name === plain) throw new LeaseError('INVALID', `${kind}: ${plain} is missing`)
      continue
    }
    const { accepts, words } = FIELDS[field]
    if (!accepts(given)) throw new LeaseError('INVALID', `${kind}: ${plain} must be ${words}`)
    query[plain] = given
  }
  for (const name of Object.keys(rest))
    if (!Object.hasOwn(query, name) && rest[name] !== undefined)
      throw new LeaseError('INVALID', `${kind}: there is no field ${name.slice(0, 64)}`)
  return query as unknown as Query
}
