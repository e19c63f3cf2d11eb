/** Reads DNS queries and writes DNS replies (RFC 1035, 2782, 6891): one question, and A, AAAA, SRV and SOA records. Pure. */
import { wordsOf } from './ipv6.ts'

export const TYPE = { A: 1, SOA: 6, AAAA: 28, SRV: 33, OPT: 41, ANY: 255 } as const
export const RCODE = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const

export interface DnsQuestion {
  readonly id: number
  readonly recursion: boolean
  /** In lower case, without the final dot. */
  readonly name: string
  /** The labels as they came: the reply repeats them. */
  readonly labels: readonly Buffer[]
  readonly type: number
  readonly class: number
  /** The largest datagram that the client accepts; undefined if the query does not say. Then 512 bytes are safe. */
  readonly payload: number | undefined
  readonly opcode: number
}

export interface DnsRecord {
  /** @default the name of the question */
  readonly name?: string
  readonly type: number
  /** Seconds. */
  readonly ttl: number
  readonly data: Buffer
}

export interface DnsReply {
  readonly rcode: number
  readonly answers?: readonly DnsRecord[]
  readonly authority?: readonly DnsRecord[]
  readonly additional?: readonly DnsRecord[]
  /** Send no records, and tell the client to ask again over TCP. */
  readonly truncated?: boolean
}

const HEADER = 12
const CLASS_IN = 1

/** Undefined if the message is not a query. It gets no reply, so that two servers never answer each other. */
export function readQuestion(bytes: Buffer): DnsQuestion | { readonly id: number; readonly malformed: true } | undefined {
  if (bytes.length < HEADER) return undefined
  const id = bytes.readUInt16BE(0)
  const flags = bytes.readUInt16BE(2)
  if ((flags & 0x8000) !== 0) return undefined
  const malformed = { id, malformed: true } as const
  if (bytes.readUInt16BE(4) !== 1) return malformed
  const labels: Buffer[] = []
  let at = HEADER
  let length = 0
  for (;;) {
    const size = bytes[at]
    // A larger size is a compression pointer. The first name of a message has nothing to point to.
    if (size === undefined || size > 63) return malformed
    at++
    if (size === 0) break
    length += size + 1
    if (at + size > bytes.length || length > 254) return malformed
    labels.push(bytes.subarray(at, at + size))
    at += size
  }
  if (at + 4 > bytes.length) return malformed
  const [type, kind] = [bytes.readUInt16BE(at), bytes.readUInt16BE(at + 2)]
  return {
    id,
    recursion: (flags & 0x0100) !== 0,
    opcode: (flags >> 11) & 15,
    name: labels.map(label => label.toString('latin1').toLowerCase()).join('.'),
    labels,
    type,
    class: kind,
    payload: payloadIn(bytes, at + 4),
  }
}

/** The payload size of an OPT record, if that is the first additional record. Other records are ignored. */
function payloadIn(bytes: Buffer, at: number): number | undefined {
  const additional = bytes.readUInt16BE(10)
  if (additional === 0 || bytes.readUInt16BE(6) !== 0 || bytes.readUInt16BE(8) !== 0 || at + 11 > bytes.length) return undefined
  return bytes[at] === 0 && bytes.readUInt16BE(at + 1) === TYPE.OPT ? Math.max(512, bytes.readUInt16BE(at + 3)) : undefined
}

/**
 * A reply of at most `max` bytes. If the answers do not fit, all are left out and the client is told to ask again over TCP: it would do so anyway,
 * and half an answer only sends more bytes to an address that may be forged.
 */
export function writeReply(question: DnsQuestion, reply: DnsReply, max: number): Buffer {
  const name = nameOf(question.labels)
  const opt = question.payload === undefined ? undefined : Buffer.from([0, 0, TYPE.OPT, 4, 208, 0, 0, 0, 0, 0, 0])
  const head = Buffer.alloc(HEADER)
  const typeAndClass = Buffer.alloc(4)
  typeAndClass.writeUInt16BE(question.type, 0)
  typeAndClass.writeUInt16BE(question.class, 2)
  const room = max - HEADER - name.length - 4 - (opt?.length ?? 0)
  const sections = [reply.answers ?? [], reply.authority ?? [], reply.additional ?? []].map(section => section.map(record))
  const size = (section: readonly Buffer[]) => section.reduce((sum, { length }) => sum + length, 0)
  const needed = size(sections[0]!) + size(sections[1]!)
  const truncated = reply.truncated === true || needed > room
  // Additional records may be left out without marking the reply as truncated.
  const kept = truncated ? [] : needed + size(sections[2]!) > room ? sections.slice(0, 2) : sections
  const counts = [0, 1, 2].map(section => kept[section]?.length ?? 0)
  const parts = [head, name, typeAndClass, ...kept.flat()]
  if (opt !== undefined) {
    parts.push(opt)
    counts[2]!++
  }
  head.writeUInt16BE(question.id, 0)
  // Authoritative: no other server has these names.
  head.writeUInt16BE(0x8400 | (question.opcode << 11) | (truncated ? 0x0200 : 0) | (question.recursion ? 0x0100 : 0) | reply.rcode, 2)
  head.writeUInt16BE(1, 4)
  for (const [section, count] of counts.entries()) head.writeUInt16BE(count, 6 + section * 2)
  return Buffer.concat(parts)
}

/** The reply to a query that could not be parsed. */
export function formatError(id: number): Buffer {
  const head = Buffer.alloc(HEADER)
  head.writeUInt16BE(id, 0)
  head.writeUInt16BE(0x8000 | RCODE.FORMERR, 2)
  return head
}

function record({ name, type, ttl, data }: DnsRecord): Buffer {
  // The name of the question follows the header: two bytes point to it.
  const owner = name === undefined ? Buffer.from([0xc0, HEADER]) : encodeName(name)
  const rest = Buffer.alloc(10)
  rest.writeUInt16BE(type, 0)
  rest.writeUInt16BE(CLASS_IN, 2)
  rest.writeUInt32BE(ttl, 4)
  rest.writeUInt16BE(data.length, 8)
  return Buffer.concat([owner, rest, data])
}

/** Throws if a label or the name is too long: a wrong length byte would make the whole message unreadable. Callers make sure that names fit. */
function nameOf(labels: readonly Buffer[]): Buffer {
  let length = 1
  for (const label of labels) {
    if (label.length === 0 || label.length > 63) throw new RangeError(`a label cannot have ${label.length} bytes`)
    length += label.length + 1
  }
  if (length > 255) throw new RangeError(`a name cannot have ${length} bytes`)
  return Buffer.concat([...labels.flatMap(label => [Buffer.from([label.length]), label]), Buffer.from([0])])
}

export function encodeName(name: string): Buffer {
  return nameOf(name === '' ? [] : name.split('.').map(label => Buffer.from(label, 'latin1')))
}

export function a(address: string): Buffer {
  return Buffer.from(address.split('.').map(Number))
}

/** An IPv6 address as `net.isIPv6` accepts it, without a zone. */
export function aaaa(address: string): Buffer {
  const bytes = Buffer.alloc(16)
  for (const [i, word] of wordsOf(address).entries()) bytes.writeUInt16BE(word, i * 2)
  return bytes
}

export function srv({ priority, weight, port, target }: { priority: number; weight: number; port: number; target: string }): Buffer {
  const bytes = Buffer.alloc(6)
  bytes.writeUInt16BE(priority, 0)
  bytes.writeUInt16BE(weight, 2)
  bytes.writeUInt16BE(port, 4)
  return Buffer.concat([bytes, encodeName(target)])
}

/** Tells resolvers how long to cache that a name has no records. */
export function soa(zone: string, seconds: number): Buffer {
  const numbers = Buffer.alloc(20)
  for (const [i, n] of [1, seconds, seconds, seconds, seconds].entries()) numbers.writeUInt32BE(n, i * 4)
  return Buffer.concat([encodeName(`ns.${zone}`), encodeName(`hostmaster.${zone}`), numbers])
}
