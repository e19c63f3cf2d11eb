/** Reads the fields of a request as the JSON gateway does: both spellings of a name, bytes in base64, numbers as texts, and unknown fields ignored. */
import { EtcdFailure } from './failure.ts'

/** Requests in one stream. */
const MAX_MESSAGES = 128
const MAX_DEPTH = 16
/** Decimal digits, and a sign, that every safe integer may have. */
const SAFE_DIGITS = 15

/** Names of fields in the other spelling. They are names of this program, so there are few. */
const CAMEL = new Map<string, string>()

function camelOf(name: string): string {
  let camel = CAMEL.get(name)
  if (camel === undefined) {
    camel = name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    CAMEL.set(name, camel)
  }
  return camel
}

export class Message {
  readonly #fields: Readonly<Record<string, unknown>>

  constructor(value: unknown) {
    if (value === null || value === undefined) value = {}
    if (typeof value !== 'object' || Array.isArray(value))
      throw malformed(`json: cannot unmarshal ${Array.isArray(value) ? 'array' : typeof value} into Go value of type object`)
    this.#fields = value as Readonly<Record<string, unknown>>
  }

  #field(name: string): unknown {
    const fields = this.#fields
    if (Object.hasOwn(fields, name)) return fields[name] ?? undefined
    const camel = camelOf(name)
    return camel !== name && Object.hasOwn(fields, camel) ? (fields[camel] ?? undefined) : undefined
  }

  has(name: string): boolean {
    return this.#field(name) !== undefined
  }

  /** Bytes as latin1 text; empty if the field is left out. */
  bytes(name: string): string {
    const value = this.#field(name)
    if (value === undefined) return ''
    if (typeof value !== 'string') throw malformed(`json: cannot unmarshal ${typeof value} into Go value of type []uint8`)
    const text = value.includes('\n') || value.includes('\r') ? value.replace(/[\r\n]/g, '') : value
    if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) throw malformed('illegal base64 data')
    return Buffer.from(text, 'base64').toString('latin1')
  }

  text(name: string): string {
    const value = this.#field(name)
    if (value === undefined) return ''
    if (typeof value !== 'string') throw malformed(`json: cannot unmarshal ${typeof value} into Go value of type string`)
    return value
  }

  /** 0 if the field is left out. Numbers that no lease and no revision can have are brought to the nearest that JavaScript counts exactly. */
  int(name: string): number {
    const value = this.#field(name)
    if (value === undefined) return 0
    if (typeof value === 'number' ? !Number.isInteger(value) : typeof value !== 'string' || !/^-?(0|[1-9]\d{0,18})$/.test(value))
      throw malformed(`json: cannot unmarshal ${typeof value} into Go value of type int64`)
    // Nearly all numbers are short enough to be exact.
    if (typeof value === 'string' && value.length <= SAFE_DIGITS) return Number(value)
    const exact = BigInt(value as string | number)
    if (exact !== BigInt.asIntN(64, exact)) throw malformed('json: the number does not fit into int64')
    return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, Number(exact)))
  }

  flag(name: string): boolean {
    const value = this.#field(name)
    if (value === undefined) return false
    if (typeof value !== 'boolean') throw malformed(`json: cannot unmarshal ${typeof value} into Go value of type bool`)
    return value
  }

  /** One of several words, by its name or its number. The first is the default. */
  choice<T extends string>(name: string, words: readonly [T, ...T[]]): T {
    const value = this.#field(name)
    if (value === undefined) return words[0]
    const word = typeof value === 'number' ? words[value] : words.find(known => known === value)
    if (word === undefined) throw malformed(`unknown value ${JSON.stringify(value)?.slice(0, 64)} for enum ${name}`)
    return word
  }

  /** Several of the words. */
  choices<T extends string>(name: string, words: readonly [T, ...T[]]): readonly T[] {
    return this.list(name).map(value => new Message({ [name]: value }).choice(name, words))
  }

  list(name: string): readonly unknown[] {
    const value = this.#field(name)
    if (value === undefined) return []
    if (!Array.isArray(value)) throw malformed(`json: cannot unmarshal ${typeof value} into Go value of type array`)
    return value
  }

  /** Undefined if the field is left out. */
  message(name: string): Message | undefined {
    const value = this.#field(name)
    return value === undefined ? undefined : new Message(value)
  }
}

export function malformed(message: string): EtcdFailure {
  return new EtcdFailure('INVALID_ARGUMENT', message)
}

/** The one message of a body. An empty body is an empty message. */
export function messageOf(body: Uint8Array): Message {
  const text = textOf(body)
  endsOf(text)
  return new Message(parsed(text))
}

/** The messages of a stream: one after another, as clients write them. */
export function messagesOf(body: Uint8Array): readonly Message[] {
  const text = textOf(body)
  const messages: Message[] = []
  let start = 0
  for (const end of endsOf(text)) {
    messages.push(new Message(parsed(text.slice(start, end))))
    start = end
  }
  const rest = text.slice(start)
  if (rest.trim() !== '') messages.push(new Message(parsed(rest)))
  return messages
}

function textOf({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('utf8')
}

function parsed(text: string): unknown {
  if (text.trim() === '') return {}
  try {
    return JSON.parse(text)
  } catch (error) {
    throw malformed((error as Error).message.slice(0, 200))
  }
}

/** Where each object of the text ends. Depth is checked before anything is parsed: each level of a hostile body would cost a level of the stack. */
function endsOf(text: string): readonly number[] {
  const ends: number[] = []
  let depth = 0
  let quoted = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (quoted) {
      if (code === 0x5c) i++
      else if (code === 0x22) quoted = false
    } else if (code === 0x22) quoted = true
    else if (code === 0x7b || code === 0x5b) {
      if (++depth > MAX_DEPTH) throw malformed(`the message is nested more than ${MAX_DEPTH} levels deep`)
    } else if ((code === 0x7d || code === 0x5d) && --depth === 0) {
      ends.push(i + 1)
      if (ends.length > MAX_MESSAGES) throw malformed(`a body has at most ${MAX_MESSAGES} messages here`)
    }
  }
  return ends
}
