/** Parses untrusted parts of a request: JSON, path and query. Throws `INVALID` with one sentence about the first error. */
import type { TObject, TSchema } from 'typebox'
import { whyBadName, whyBadPrefix } from '../../wording.ts'
import { HttpFailure } from './failure.ts'
import { firstError, matches } from './first-error.ts'

/** Field names that would give access to JavaScript's own objects. */
const FORBIDDEN_FIELDS = new Set(['__proto__', 'constructor', 'prototype'])

const BACKSLASH = 0x5c
const COLON = 0x3a
const SPACE = 0x20

/** Throws `INVALID` unless the value matches its schema. */
export function check(schema: TSchema, value: unknown, what: string): void {
  if (!matches(schema, value)) throw new HttpFailure('INVALID', `${what}: ${firstError(schema, value)}`)
}

/** A bad name would only be not found. The error tells the client why. */
export function mustBeName(name: string): string {
  const bad = whyBadName(name)
  if (bad !== undefined) throw new HttpFailure('INVALID', `the name ${name.slice(0, 64)} ${bad}`)
  return name
}

export function mustBePrefix(prefix: string): string {
  const bad = whyBadPrefix(prefix)
  if (bad !== undefined) throw new HttpFailure('INVALID', `the prefix ${prefix.slice(0, 64)} ${bad}`)
  return prefix
}

/** Throws if the text is not JSON, is nested deeper than `depth`, repeats a field, or has a forbidden field. */
export function parseJson(text: string, depth: number): unknown {
  return parseCounted(text, depth, undefined)
}

/** As `parseJson`, for a text whose fields have been counted already. */
export function parseCounted(text: string, depth: number, fields: number | undefined): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new HttpFailure('INVALID', `the body is not JSON: ${(error as Error).message.slice(0, 120)}`)
  }
  // JSON.parse uses the last of two fields with one name. A proxy that checked the request may have used the first.
  if (checkFields(value, depth) !== (fields ?? countFields(text)))
    throw new HttpFailure('INVALID', 'the body: an object has the same field twice')
  return value
}

/** Counts the fields of a JSON text, including repeated ones: the strings that a colon follows. */
function countFields(text: string): number {
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

/** Checks depth and names of all fields. Returns their number. */
function checkFields(value: unknown, left: number): number {
  if (typeof value !== 'object' || value === null) return 0
  if (left === 0) throw new HttpFailure('TOO_LARGE', 'the body is nested too deeply: see the limit depth')
  let fields = 0
  if (Array.isArray(value)) {
    for (const item of value) fields += checkFields(item, left - 1)
    return fields
  }
  for (const name of Object.keys(value)) {
    if (FORBIDDEN_FIELDS.has(name)) throw new HttpFailure('INVALID', `the body: a field must not be named ${name}`)
    fields += 1 + checkFields((value as Record<string, unknown>)[name], left - 1)
  }
  return fields
}

/** Percent-decodes a text, exactly once. */
export function decoded(raw: string, what: string): string {
  if (!raw.includes('%')) return raw
  try {
    return decodeURIComponent(raw)
  } catch {
    throw new HttpFailure('INVALID', `${what} is not percent-encoded UTF-8: ${raw.slice(0, 64)}`)
  }
}

/** Parses a query string by its schema: each parameter at most once, with numbers and booleans converted. */
export function parseQuery(raw: string, schema: TObject | undefined): Record<string, unknown> {
  const found: Record<string, unknown> = Object.create(null)
  if (raw !== '')
    for (const pair of raw.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = decoded((equals < 0 ? pair : pair.slice(0, equals)).replaceAll('+', ' '), 'the query')
      const text = equals < 0 ? '' : decoded(pair.slice(equals + 1).replaceAll('+', ' '), `the value of ${name.slice(0, 64)}`)
      const property =
        schema !== undefined && Object.hasOwn(schema.properties, name) ? (schema.properties[name] as { type?: string }) : undefined
      if (property === undefined) {
        const known = Object.keys(schema?.properties ?? {})
        throw new HttpFailure(
          'INVALID',
          `there is no query parameter ${name.slice(0, 64)}${known.length > 0 ? `. The parameters are ${known.join(', ')}` : ''}`,
        )
      }
      if (name in found) throw new HttpFailure('INVALID', `the query parameter ${name} was sent twice: send it once`)
      found[name] = convert(property.type, text)
    }
  if (schema !== undefined) check(schema, found, 'the query')
  return found
}

function convert(type: string | undefined, text: string): unknown {
  if (type === 'integer') return /^-?\d{1,17}$/.test(text) ? Number(text) : text
  if (type === 'boolean') return text === 'true' || text === '1' || text === '' ? true : text === 'false' || text === '0' ? false : text
  return text
}

export function parseId(raw: string): number {
  const id = /^\d{1,16}$/.test(raw) ? Number(raw) : Number.NaN
  if (!Number.isSafeInteger(id))
    throw new HttpFailure('INVALID', `${raw.slice(0, 32)} is not the id of a lease or key, which is a whole number`)
  return id
}
