/** Names of resources, entries and holders, and prefixes of them: their syntax, length and matching by whole segments. */

import type { Flaw } from './reason.ts'

export const NAME_BYTES = 512
/** The longest value of an entry: room for the metadata of a registration and its own fields. */
export const VALUE_BYTES = 16_384
const HERE = { field: '' } as const

/** Longer texts are measured by the engine. */
const SHORT = 64
const encoder = new TextEncoder()

/** The length in UTF-8 bytes. A lone surrogate cannot be encoded, so it counts as infinitely long. */
export function utf8Length(text: string): number {
  if (text.length > SHORT) return text.isWellFormed() ? encoder.encode(text).length : Number.POSITIVE_INFINITY
  let bytes = text.length
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code < 0x80) continue
    if (code < 0x800) bytes += 1
    else if (code < 0xd800 || code > 0xdfff) bytes += 2
    else {
      const low = text.charCodeAt(i + 1)
      if (code > 0xdbff || !(low >= 0xdc00 && low <= 0xdfff)) return Number.POSITIVE_INFINITY
      bytes += 2
      i++
    }
  }
  return bytes
}

/** Returns whether the text is at most this many UTF-8 bytes. Short texts, as most are, need not be counted. */
export function fits(text: string, bytes: number): boolean {
  if (text.length <= bytes / 3) return text.isWellFormed()
  return text.length <= bytes && utf8Length(text) <= bytes
}

/** Returns what is wrong with a name, or undefined. */
export function badName(name: unknown): Flaw | undefined {
  if (typeof name !== 'string') return { reason: 'not-text', facts: { field: '', given: typeof name } }
  if (name.length === 0) return { reason: 'empty', facts: HERE }
  if (!fits(name, NAME_BYTES)) return { reason: 'too-long', facts: { field: '', limit: NAME_BYTES } }
  let segment = 0
  for (let i = 0; i <= name.length; i++) {
    const code = i === name.length ? 0x2f : name.charCodeAt(i)
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return { reason: 'control-character', facts: HERE }
    if (code !== 0x2f) continue
    const length = i - segment
    if (length === 0) return { reason: segment === 0 ? 'leading-slash' : 'empty-segment', facts: HERE }
    if (name.charCodeAt(segment) === 0x2e && (length === 1 || (length === 2 && name.charCodeAt(segment + 1) === 0x2e)))
      return { reason: 'dot-segment', facts: HERE }
    segment = i + 1
  }
  return undefined
}

/** Returns what is wrong with a free text, or undefined. */
export function badText(text: unknown, bytes: number): Flaw | undefined {
  if (typeof text !== 'string') return { reason: 'not-text', facts: { field: '', given: typeof text } }
  if (!fits(text, bytes)) return { reason: 'too-long', facts: { field: '', limit: bytes } }
  return undefined
}

/** `jobs/` and `jobs` are the same prefix; the empty prefix matches everything. */
export function normalPrefix(prefix: string): string {
  return prefix.endsWith('/') ? prefix.slice(0, -1) : prefix
}

export function badPrefix(prefix: unknown): Flaw | undefined {
  if (typeof prefix !== 'string') return { reason: 'not-text', facts: { field: '', given: typeof prefix } }
  const normal = normalPrefix(prefix)
  if (normal !== '') return badName(normal)
  return prefix === '/' ? { reason: 'only-slash', facts: HERE } : undefined
}

/** Matches whole segments: `job` does not match `jobs/nightly`. The prefix may end with a slash. */
export function under(prefix: string, name: string): boolean {
  const length = prefix.endsWith('/') ? prefix.length - 1 : prefix.length
  if (length === 0) return true
  if (name.length < length || !name.startsWith(length === prefix.length ? prefix : prefix.slice(0, -1))) return false
  return name.length === length || name.charCodeAt(length) === 0x2f
}

/** Up to this many prefixes are tried one after another; for more, a set is used. */
const FEW = 4

/** Returns a test whether a name is under one of `prefixes`. Its cost does not grow with their number. */
export function underAny(prefixes: readonly string[]): (name: string) => boolean {
  const plain = new Set(prefixes.map(normalPrefix))
  if (plain.has('')) return () => true
  if (plain.size <= FEW) {
    const few = [...plain]
    return name => {
      for (const prefix of few) if (under(prefix, name)) return true
      return false
    }
  }
  return name => {
    for (let end = name.indexOf('/'); end >= 0; end = name.indexOf('/', end + 1)) if (plain.has(name.slice(0, end))) return true
    return plain.has(name)
  }
}

/** The prefixes of all names that are under one of `these` and under one of `those`. No prefix of the result is under another. */
export function commonPrefixes(these: readonly string[], those: readonly string[]): readonly string[] {
  const both = new Set([...these.filter(underAny(those)), ...those.filter(underAny(these))].map(normalPrefix))
  if (both.has('')) return ['']
  return [...both].filter(prefix => {
    for (let end = prefix.indexOf('/'); end >= 0; end = prefix.indexOf('/', end + 1)) if (both.has(prefix.slice(0, end))) return false
    return true
  })
}
