/**
 * Protobuf as Kubernetes sends it, by tables of fields: an object in the form of JSON becomes bytes and back. Only what a Lease needs.
 *
 * Bytes come from strangers: every length is checked against what is there before anything is made from it, and nesting ends with the tables.
 */
import { isUtf8 } from 'node:buffer'
import { FIRST_SECOND, LAST_SECOND, timeText } from './time-text.ts'

/** A JSON object. */
export type JsonObject = { [name: string]: unknown }

export type MessageFieldType = 'string' | 'int' | 'bool' | 'bytes' | 'time' | 'microtime' | 'labels' | MessageTable

export interface MessageField {
  readonly number: number
  readonly name: string
  readonly type: MessageFieldType
  readonly many?: true
}

export interface MessageTable {
  readonly fields: readonly MessageField[]
  /** The same fields by their numbers, for reading. */
  readonly byNumber: readonly (MessageField | undefined)[]
}

export function messageTable(fields: readonly MessageField[]): MessageTable {
  const byNumber: (MessageField | undefined)[] = []
  for (const field of fields) byNumber[field.number] = field
  return { fields, byNumber }
}

/** The bytes are not a message of this table. */
export class ProtobufError extends Error {
  override readonly name = 'ProtobufError'
}

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

/** Bytes of a varint that a number holds exactly, whatever they are. */
const EXACT_BYTES = 7

/** Reads a part of some bytes. */
class ByteReader {
  readonly #bytes: Buffer
  #at: number
  readonly #end: number

  constructor(bytes: Buffer, at: number, end: number) {
    this.#bytes = bytes
    this.#at = at
    this.#end = end
  }

  get done(): boolean {
    return this.#at >= this.#end
  }

  /** A whole number of up to 64 bits. */
  varint(): bigint {
    let value = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      if (this.done) throw new ProtobufError('a number ends too early')
      const byte = this.#bytes[this.#at++]!
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return BigInt.asIntN(64, value)
    }
    throw new ProtobufError('a number is longer than 10 bytes')
  }

  /** A whole number that JavaScript counts exactly: nearly all are short, and need no big integers. */
  small(): number {
    let value = 0
    let scale = 1
    for (let at = this.#at; at < this.#end && at < this.#at + EXACT_BYTES; at++) {
      const byte = this.#bytes[at]!
      value += (byte & 0x7f) * scale
      if (byte < 0x80) {
        this.#at = at + 1
        return value
      }
      scale *= 0x80
    }
    const long = this.varint()
    if (long > BigInt(Number.MAX_SAFE_INTEGER) || long < BigInt(Number.MIN_SAFE_INTEGER))
      throw new ProtobufError('a number is out of range')
    return Number(long)
  }

  /** Reads a length and skips that many bytes. Returns the position of the first one. */
  #pass(): number {
    const length = this.small()
    if (length < 0 || length > this.#end - this.#at) throw new ProtobufError('a field is longer than its message')
    const start = this.#at
    this.#at += length
    return start
  }

  chunk(): Buffer {
    const start = this.#pass()
    return this.#bytes.subarray(start, this.#at)
  }

  /** The bytes of a message in this one. */
  message(): ByteReader {
    const start = this.#pass()
    return new ByteReader(this.#bytes, start, this.#at)
  }

  text(): string {
    const start = this.#pass()
    const end = this.#at
    let at = start
    while (at < end && this.#bytes[at]! < 0x80) at++
    if (at === end) return this.#bytes.toString('latin1', start, end)
    // Invalid UTF-8 is refused, not replaced: replacement would turn two names into one.
    const bytes = this.#bytes.subarray(start, end)
    if (!isUtf8(bytes)) throw new ProtobufError('a text is not UTF-8')
    return bytes.toString('utf8')
  }

  skip(wire: number): void {
    if (wire === VARINT) this.varint()
    else if (wire === BYTES) this.#pass()
    else {
      const length = wire === FIXED64 ? 8 : wire === FIXED32 ? 4 : Number.POSITIVE_INFINITY
      if (length > this.#end - this.#at) throw new ProtobufError(`a field has the wire type ${wire}`)
      this.#at += length
    }
  }
}

/** Reads a message. Fields that the table does not have are skipped, as protobuf asks. */
export function decodeMessage(table: MessageTable, bytes: Buffer): JsonObject {
  return readMessage(table, new ByteReader(bytes, 0, bytes.length))
}

function readMessage(table: MessageTable, reader: ByteReader): JsonObject {
  const message: JsonObject = Object.create(null) as JsonObject
  while (!reader.done) {
    const tag = reader.small()
    const [number, wire] = [Math.floor(tag / 8), tag & 7]
    if (number < 1) throw new ProtobufError('a field has no number')
    const field = table.byNumber[number]
    const expected = field?.type === 'int' || field?.type === 'bool' ? VARINT : BYTES
    if (field === undefined || wire !== expected) {
      reader.skip(wire)
      continue
    }
    const value = decodeField(field.type, reader)
    if (field.type === 'labels') message[field.name] = Object.assign((message[field.name] ?? Object.create(null)) as JsonObject, value)
    else if (field.many !== true) message[field.name] = value
    else if (message[field.name] === undefined) message[field.name] = [value]
    else (message[field.name] as unknown[]).push(value)
  }
  return message
}

const LABEL = messageTable([
  { number: 1, name: 'key', type: 'string' },
  { number: 2, name: 'value', type: 'string' },
])
const TIME = messageTable([
  { number: 1, name: 'seconds', type: 'int' },
  { number: 2, name: 'nanos', type: 'int' },
])

function decodeField(type: MessageFieldType, reader: ByteReader): unknown {
  switch (type) {
    case 'int':
      return reader.small()
    case 'bool':
      return reader.small() !== 0
    case 'bytes':
      return reader.chunk()
    case 'string':
      return reader.text()
    case 'labels': {
      const { key = '', value = '' } = readMessage(LABEL, reader.message()) as { key?: string; value?: string }
      const label: JsonObject = Object.create(null) as JsonObject
      label[key] = value
      return label
    }
    case 'time':
    case 'microtime': {
      const { seconds = 0, nanos = 0 } = readMessage(TIME, reader.message()) as { seconds?: number; nanos?: number }
      return decodedTime(seconds, nanos, type)
    }
    default:
      return readMessage(type, reader.message())
  }
}

/** Null: the first second of the year 1, which is Go's time that was not set. */
function decodedTime(seconds: number, nanos: number, type: 'time' | 'microtime'): string | null {
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos >= 1e9) throw new ProtobufError('a time is out of range')
  return seconds === FIRST_SECOND && nanos === 0 ? null : timeText(seconds, nanos, type)
}

const FIRST_BYTES = 4 << 10
/** A long list leaves no buffer of its length behind. */
const MAX_KEPT_BYTES = 64 << 10

/**
 * Writes a message from its end to its beginning: the length of a part stands before it, and is known once the part is written. One buffer is used for all
 * messages, and a message is copied out of it.
 */
class BackwardWriter {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES)
  /** Where the written bytes begin. They end with the buffer. */
  #at = FIRST_BYTES

  /** Bytes that were written. */
  get length(): number {
    return this.#bytes.length - this.#at
  }

  /** Makes room for so many bytes, and returns where they begin. */
  #room(bytes: number): number {
    if (bytes > this.#at) {
      const { length } = this
      const larger = Buffer.allocUnsafe(2 * (length + bytes))
      this.#bytes.copy(larger, larger.length - length, this.#at)
      this.#at = larger.length - length
      this.#bytes = larger
    }
    this.#at -= bytes
    return this.#at
  }

  varint(value: number): void {
    if (value < 0) return this.#negative(value)
    let bytes = 1
    for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes++
    let at = this.#room(bytes)
    let rest = value
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) this.#bytes[at++] = (rest % 0x80) | 0x80
    this.#bytes[at] = rest
  }

  /** A negative number has all of its 64 bits. */
  #negative(value: number): void {
    let rest = BigInt.asUintN(64, BigInt(value))
    let at = this.#room(10)
    for (; rest >= 0x80n; rest >>= 7n) this.#bytes[at++] = Number(rest & 0x7fn) | 0x80
    this.#bytes[at] = Number(rest)
  }

  bytes(bytes: Uint8Array): void {
    // First the room: it may replace the buffer.
    const at = this.#room(bytes.length)
    this.#bytes.set(bytes, at)
  }

  text(text: string): void {
    const bytes = Buffer.byteLength(text)
    const at = this.#room(bytes)
    this.#bytes.write(text, at, bytes, 'utf8')
  }

  /** Writes the field number and the length of a part. The part was written first, when the writer had `length` bytes. */
  head(number: number, length: number): void {
    this.varint(this.length - length)
    this.varint(number * 8 + BYTES)
  }

  /** Returns what was written, and forgets it. */
  take(): Buffer {
    const taken = Buffer.from(this.#bytes.subarray(this.#at))
    if (this.#bytes.length > MAX_KEPT_BYTES) this.#bytes = Buffer.allocUnsafe(FIRST_BYTES)
    this.#at = this.#bytes.length
    return taken
  }
}

const writer = new BackwardWriter()

export function encodeMessage(table: MessageTable, message: Readonly<JsonObject>): Buffer {
  try {
    writeMessage(table, message)
  } catch (error) {
    writer.take() // half a message must not be the end of the next
    throw error
  }
  return writer.take()
}

function writeMessage({ fields }: MessageTable, message: Readonly<JsonObject>): void {
  for (let i = fields.length - 1; i >= 0; i--) {
    const field = fields[i]!
    const value = message[field.name]
    if (value === undefined || value === null) continue
    if (field.type === 'labels') {
      for (const [key, label] of Object.entries(value as Record<string, string>).reverse())
        writePart(LABEL, { key, value: label }, field.number)
    } else if (field.many !== true) writeField(field, value)
    else {
      const items = value as readonly unknown[]
      for (let item = items.length - 1; item >= 0; item--) writeField(field, items[item])
    }
  }
}

function writeField({ number, type }: MessageField, value: unknown): void {
  if (type === 'int' || type === 'bool') {
    writer.varint(Number(value))
    return writer.varint(number * 8 + VARINT)
  }
  if (type === 'time' || type === 'microtime') return writePart(TIME, timeFields(value as string), number)
  if (type !== 'bytes' && type !== 'string') return writePart(type as MessageTable, value as JsonObject, number)
  const { length } = writer
  if (type === 'bytes') writer.bytes(value as Uint8Array)
  else writer.text(value as string)
  writer.head(number, length)
}

/** A message as a field of another. */
function writePart(table: MessageTable, message: Readonly<JsonObject>, number: number): void {
  const { length } = writer
  writeMessage(table, message)
  writer.head(number, length)
}

function timeFields(iso: string): JsonObject {
  const seconds = Math.floor(Date.parse(`${iso.slice(0, 19)}Z`) / 1_000)
  const fraction = iso[19] === '.' ? iso.slice(20, -1) : ''
  return { seconds, nanos: Number(fraction.padEnd(9, '0').slice(0, 9)) }
}
