/**
 * Keys of etcd are bytes; names of entries and resources are text that people read. The key KEY is the name `etcd/KEY`, and what a name does not allow is
 * escaped: `%XX` for a byte, and `%` alone for an empty segment. So `/service/db/leader` is `etcd/%/service/db/leader`.
 *
 * In this face a key is a text with one character for each byte (latin1): such texts compare as the bytes do.
 */
import { VALUE_BYTES } from '../../kernel/name.ts'
import { whyBadName } from '../../wording.ts'
import { EtcdFailure } from './failure.ts'

export const PREFIX = 'etcd'
const DIRECTORY = `${PREFIX}/`
/** A segment that is a name as it is. */
const PLAIN = /^[\x20-\x24\x26-\x7e]+$/
/** A key whose segments are all plain, and none of them `.` or `..`: nearly every key. */
const PLAIN_KEY = /^(?!\.{1,2}(?:\/|$))[\x20-\x24\x26-\x2e\x30-\x7e]+(?:\/(?!\.{1,2}(?:\/|$))[\x20-\x24\x26-\x2e\x30-\x7e]+)*$/
const ASCII = /^[\0-\x7f]*$/
const BINARY_VALUE = 'base64:'
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The keys from `key` to `end`, without `end`. No end: only this key. The end `\0`: all keys from `key` on. */
export interface KeySpan {
  readonly key: string
  readonly end?: string
}

export function inSpan({ key, end }: KeySpan, tried: string): boolean {
  if (end === undefined) return tried === key
  return tried >= key && (end === '\0' || tried < end)
}

export function nameOf(key: string): string {
  const name = DIRECTORY + (PLAIN_KEY.test(key) ? key : key.split('/').map(escaped).join('/'))
  const bad = whyBadName(name)
  if (bad !== undefined) throw new EtcdFailure('INVALID_ARGUMENT', `the key cannot be the name of an entry here: ${PREFIX}/KEY ${bad}`)
  return name
}

function escaped(segment: string): string {
  if (segment === '') return '%'
  if (segment === '.' || segment === '..') return segment.replaceAll('.', '%2E')
  if (PLAIN.test(segment)) return segment
  const text = utf8(segment)
  return text === undefined
    ? segment.replace(/[^\x20-\x24\x26-\x7e]/g, hex)
    : text.replace(/[\0-\x1f%\x7f-\x9f]/g, character => [...bytesOf(character)].map(hex).join(''))
}

/** Undefined: this name is not the name of a key. Another client may have made the entry. */
export function keyOf(name: string): string | undefined {
  if (!name.startsWith(DIRECTORY)) return undefined
  const segments = name.slice(DIRECTORY.length).split('/')
  const key = segments
    .map(segment =>
      segment === '%' ? '' : bytesOf(segment).replace(/%([0-9A-F]{2})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16))),
    )
    .join('/')
  return DIRECTORY + key.split('/').map(escaped).join('/') === name ? key : undefined
}

/** The prefix of names under which all keys of the span are. */
export function prefixOf({ key, end }: KeySpan): string {
  if (end === undefined) return nameOf(key)
  const shared = end === successorOf(key) ? key : commonStart(key, end)
  const slash = shared.lastIndexOf('/')
  if (slash < 0) return PREFIX
  const directory = DIRECTORY + shared.slice(0, slash).split('/').map(escaped).join('/')
  return whyBadName(directory) === undefined ? directory : PREFIX
}

/** The first key after all keys that start with this one. */
function successorOf(key: string): string | undefined {
  for (let i = key.length - 1; i >= 0; i--) {
    const code = key.charCodeAt(i)
    if (code < 0xff) return key.slice(0, i) + String.fromCharCode(code + 1)
  }
  return undefined
}

function commonStart(a: string, b: string): string {
  let length = 0
  while (length < a.length && length < b.length && a[length] === b[length]) length++
  return a.slice(0, length)
}

/** A value as the text of an entry: as it is if it is text, otherwise in base64. */
export function textOf(value: string): string {
  const text = utf8(value)
  const stored = text === undefined || text.startsWith(BINARY_VALUE) ? BINARY_VALUE + base64(value) : text
  if (stored.length * 3 > VALUE_BYTES && Buffer.byteLength(stored) > VALUE_BYTES)
    throw new EtcdFailure(
      'INVALID_ARGUMENT',
      'etcdserver: request is too large',
      `a value has at most ${VALUE_BYTES} bytes here (binary ones three quarters of that)`,
    )
  return stored
}

export function bytesOfValue(text: string): string {
  return text.startsWith(BINARY_VALUE) ? Buffer.from(text.slice(BINARY_VALUE.length), 'base64').toString('latin1') : bytesOf(text)
}

export function base64(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('base64')
}

function utf8(bytes: string): string | undefined {
  if (ASCII.test(bytes)) return bytes
  try {
    return strict.decode(Buffer.from(bytes, 'latin1'))
  } catch {
    return undefined
  }
}

function bytesOf(text: string): string {
  return Buffer.from(text).toString('latin1')
}

function hex(byte: string): string {
  return `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`
}
