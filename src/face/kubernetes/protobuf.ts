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
}

/** The bytes are not a message of this table. */
export class ProtobufError extends Error {
  override readonly name = 'ProtobufError'
}

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

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

  /** The varints that fit, which are nearly all, without big integers. */
  small(): number {
    const byte = this.#bytes[this.#at]
    if (byte !== undefined && byte < 0x80 && this.#at < this.#end) {
      this.#at++
      return byte
    }
    const value = this.varint()
    if (value > BigInt(Number.MAX_SAFE_INTEGER) || value < BigInt(Number.MIN_SAFE_INTEGER))
      throw new ProtobufError('a number is out of range')
    return Number(value)
  }

  chunk(): Buffer {
    const length = this.small()
    if (length < 0 || length > this.#end - this.#at) throw new ProtobufError('a field is longer than its message')
    const start = this.#at
    this.#at += length
    return this.#bytes.subarray(start, this.#at)
  }

  skip(wire: number): void {
    if (wire === VARINT) this.varint()
    else if (wire === BYTES) this.chunk()
    else {
      const length = wire === FIXED64 ? 8 : wire === FIXED32 ? 4 : Number.POSITIVE_INFINITY
      if (length > this.#end - this.#at) throw new ProtobufError(`a field has the wire type ${wire}`)
      this.#at += length
    }
  }
}

function text(bytes: Buffer): string {
  // Invalid UTF-8 is refused, not replaced: replacement would turn two names into one.
  if (!isUtf8(bytes)) throw new ProtobufError('a text is not UTF-8')
  return bytes.toString('utf8')
}

/** Reads a message. Fields that the table does not have are skipped, as protobuf asks. */
export function decodeMessage(table: MessageTable, bytes: Buffer): JsonObject {
  const reader = new ByteReader(bytes, 0, bytes.length)
  const message: JsonObject = Object.create(null) as JsonObject
  while (!reader.done) {
    const tag = reader.small()
    const [number, wire] = [Math.floor(tag / 8), tag & 7]
    if (number < 1) throw new ProtobufError('a field has no number')
    const field = table.fields.find(known => known.number === number)
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

const LABEL: MessageTable = {
  fields: [
    { number: 1, name: 'key', type: 'string' },
    { number: 2, name: 'value', type: 'string' },
  ],
}
const TIME: MessageTable = {
  fields: [
    { number: 1, name: 'seconds', type: 'int' },
    { number: 2, name: 'nanos', type: 'int' },
  ],
}

function decodeField(type: MessageFieldType, reader: ByteReader): unknown {
  switch (type) {
    case 'int':
      return reader.small()
    case 'bool':
      return reader.small() !== 0
    case 'bytes':
      return reader.chunk()
    case 'string':
      return text(reader.chunk())
    case 'labels': {
      const { key = '', value = '' } = decodeMessage(LABEL, reader.chunk()) as { key?: string; value?: string }
      const label: JsonObject = Object.create(null) as JsonObject
      label[key] = value
      return label
    }
    case 'time':
    case 'microtime': {
      const { seconds = 0, nanos = 0 } = decodeMessage(TIME, reader.chunk()) as { seconds?: number; nanos?: number }
      return decodedTime(seconds, nanos, type)
    }
    default:
      return decodeMessage(type, reader.chunk())
  }
}

/** Null: the first second of the year 1, which is Go's time that was not set. */
function decodedTime(seconds: number, nanos: number, type: 'time' | 'microtime'): string | null {
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos >= 1e9) throw new ProtobufError('a time is out of range')
  return seconds === FIRST_SECOND && nanos === 0 ? null : timeText(seconds, nanos, type)
}

/** Collects the bytes of a message. */
class ByteWriter {
  readonly #chunks: Uint8Array[] = []
  #length = 0

  get length(): number {
    return this.#length
  }

  varint(value: number): void {
    if (value >= 0 && value < 0x80) return this.bytes(Uint8Array.of(value))
    const bytes: number[] = []
    let rest = BigInt.asUintN(64, BigInt(value))
    while (rest >= 0x80n) {
      bytes.push(Number(rest & 0x7fn) | 0x80)
      rest >>= 7n
    }
    bytes.push(Number(rest))
    this.bytes(Uint8Array.from(bytes))
  }

  bytes(bytes: Uint8Array): void {
    this.#chunks.push(bytes)
    this.#length += bytes.length
  }

  field(number: number, bytes: Uint8Array): void {
    this.varint(number * 8 + BYTES)
    this.varint(bytes.length)
    this.bytes(bytes)
  }

  done(): Buffer {
    return Buffer.concat(this.#chunks, this.#length)
  }
}

export function encodeMessage(table: MessageTable, message: Readonly<JsonObject>): Buffer {
  const writer = new ByteWriter()
  for (const field of table.fields) {
    const value = message[field.name]
    if (value === undefined || value === null) continue
    if (field.type === 'labels')
      for (const [key, label] of Object.entries(value as Record<string, string>))
        writer.field(field.number, encodeMessage(LABEL, { key, value: label }))
    else for (const item of field.many === true ? (value as readonly unknown[]) : [value]) encodeField(writer, field, item)
  }
  return writer.done()
}

function encodeField(writer: ByteWriter, { number, type }: MessageField, value: unknown): void {
  if (type === 'int' || type === 'bool') {
    writer.varint(number * 8 + VARINT)
    writer.varint(Number(value))
  } else if (type === 'bytes') writer.field(number, value as Uint8Array)
  else if (type === 'string') writer.field(number, Buffer.from(value as string))
  else if (type === 'time' || type === 'microtime') writer.field(number, encodeMessage(TIME, timeFields(value as string)))
  else writer.field(number, encodeMessage(type as MessageTable, value as JsonObject))
}

function timeFields(iso: string): JsonObject {
  const seconds = Math.floor(Date.parse(`${iso.slice(0, 19)}Z`) / 1_000)
  const fraction = iso[19] === '.' ? iso.slice(20, -1) : ''
  return { seconds, nanos: Number(fraction.padEnd(9, '0').slice(0, 9)) }
}
