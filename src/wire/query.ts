/** Questions from outside: closed, so that a field nobody knows is a mistake and not a wish. */
import { LeaseError } from '../errors.ts'
import type { Query } from '../lessor.ts'

type Field = 'text' | 'number'

/** What each may be asked with; a name that ends in `?` may be left out. */
const FORMS: Readonly<Record<Query['kind'], Readonly<Record<string, Field>>>> = {
  summary: {},
  lease: { lease: 'number' },
  leases: { 'holder?': 'text', 'prefix?': 'text' },
  resource: { resource: 'text' },
  resources: { prefix: 'text' },
  entries: { prefix: 'text' },
  services: { 'service?': 'text' },
  history: { resource: 'text' },
  policies: {},
  keys: {},
}

/** A query, or `INVALID` with what is wrong with it. */
export function queryFrom(value: unknown): Query {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new LeaseError('INVALID', 'a query is an object')
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
    const right = field === 'text' ? typeof given === 'string' : Number.isSafeInteger(given) && (given as number) >= 0
    if (!right) throw new LeaseError('INVALID', `${kind}: ${plain} must be a ${field === 'text' ? 'text' : 'whole number'}`)
    query[plain] = given
  }
  for (const name of Object.keys(rest))
    if (!Object.hasOwn(query, name) && rest[name] !== undefined)
      throw new LeaseError('INVALID', `${kind}: there is no ${name.slice(0, 64)} to ask with`)
  return query as unknown as Query
}
