/** From bytes to what a schema promises, or one sentence about what is wrong. Nothing here trusts what it is given. */
import type { TObject, TSchema } from 'typebox'
import { badName, badPrefix } from '../../kernel/name.ts'
import { Failure } from './failure.ts'
import { firstError, isRight } from './first-error.ts'

/** Names through which objects of JavaScript can be reached that nobody sent. */
const REACHING = new Set(['__proto__', 'constructor', 'prototype'])

const BACKSLASH = 0x5c
const COLON = 0x3a
const SPACE = 0x20

/** Throws INVALID with the first thing that is wrong. */
export function check(schema: TSchema, value: unknown, what: string): void {
  if (!isRight(schema, value)) throw new Failure('INVALID', `${what}: ${firstError(schema, value)}`)
}

/** A bad name finds nothing; to say why is kinder. */
export function mustBeName(name: string): string {
  const bad = badName(name)
  if (bad !== undefined) throw new Failure('INVALID', `the name ${name.slice(0, 64)} ${bad}`)
  return name
}

export function mustBePrefix(prefix: string): string {
  const bad = badPrefix(prefix)
  if (bad !== undefined) throw new Failure('INVALID', `the prefix ${prefix.slice(0, 64)} ${bad}`)
  return prefix
}

/** Throws for what is no JSON, is nested deeper than `depth`, says a field twice, or names what no field may be called. */
export function parseJson(text: string, depth: number): unknown {
  return parseCounted(text, depth, undefined)
}

/** As `parseJson`, where it was counted already how many fields the text has. */
export function parseCounted(text: string, depth: number, fields: number | undefined): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new Failure('INVALID', `the body is no JSON: ${(error as Error).message.slice(0, 120)}`)
  }
  // Of two fields of one name the last would be taken, and whoever looked at the request before us may have gone by the first.
  if (walk(value, depth) !== (fields ?? fieldsIn(text))) throw new Failure('INVALID', 'the body: a field stands twice in one object')
  return value
}

/** How many fields JSON has, those of one name counted each: the texts in it that a colon follows. */
function fieldsIn(text: string): number {
  let fields = 0
  for (let at = text.indexOf('"'); at >= 0; at = text.indexOf('"', at)) {
    for (at++; ; at++) {
      at = text.indexOf('"', at)
      let before = at - 1
      while (text.charCodeAt(before) === BACKSLASH) before--
      if ((at - before) % 2 === 1) break
    }
    for (at++; text.charCodeAt(at) <= SPACE; at++);
    if (text.charCodeAt(at) === COLON) fields++
  }
  return fields
}

/** How many fields it has. */
function walk(value: unknown, left: number): number {
  if (typeof value !== 'object' || value === null) return 0
  if (left === 0) throw new Failure('TOO_LARGE', 'the body is nested deeper than is allowed: the limit is called depth')
  let fields = 0
  if (Array.isArray(value)) {
    for (const item of value) fields += walk(item, left - 1)
    return fields
  }
  for (const name of Object.keys(value)) {
    if (REACHING.has(name)) throw new Failure('INVALID', `the body: no field may be called ${name}`)
    fields += 1 + walk((value as Record<string, unknown>)[name], left - 1)
  }
  return fields
}

/** Decoded exactly once. */
export function decoded(raw: string, what: string): string {
  if (!raw.includes('%')) return raw
  try {
    return decodeURIComponent(raw)
  } catch {
    throw new Failure('INVALID', `${what} is not encoded as UTF-8 with percent signs: ${raw.slice(0, 64)}`)
  }
}

/** What stands behind the question mark, as its schema says: each name once, numbers and yes or no as themselves. */
export function parseQuery(raw: string, schema: TObject | undefined): Record<string, unknown> {
  const found: Record<string, unknown> = Object.create(null)
  if (raw !== '')
    for (const pair of raw.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = decoded((equals < 0 ? pair : pair.slice(0, equals)).replaceAll('+', ' '), 'the query')
      const text = equals < 0 ? '' : decoded(pair.slice(equals + 1).replaceAll('+', ' '), `the value of ${name.slice(0, 64)}`)
      const of = schema !== undefined && Object.hasOwn(schema.properties, name) ? (schema.properties[name] as { type?: string }) : undefined
      if (of === undefined) {
        const known = Object.keys(schema?.properties ?? {})
        throw new Failure(
          'INVALID',
          `there is nothing to ask called ${name.slice(0, 64)}${known.length > 0 ? `; there are ${known.join(', ')}` : ''}`,
        )
      }
      if (name in found) throw new Failure('INVALID', `${name} is asked for twice`)
      found[name] = ofType(of.type, text)
    }
  if (schema !== undefined) check(schema, found, 'the query')
  return found
}

function ofType(type: string | undefined, text: string): unknown {
  if (type === 'integer') return /^-?\d{1,17}$/.test(text) ? Number(text) : text
  if (type === 'boolean') return text === 'true' || text === '1' || text === '' ? true : text === 'false' || text === '0' ? false : text
  return text
}

export function parseId(raw: string): number {
  const id = /^\d{1,16}$/.test(raw) ? Number(raw) : Number.NaN
  if (!Number.isSafeInteger(id)) throw new Failure('INVALID', `${raw.slice(0, 32)} is not a number as leases and keys have it`)
  return id
}
