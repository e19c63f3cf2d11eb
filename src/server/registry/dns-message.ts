/** The bytes of DNS (RFC 1035, 2782, 6891), as far as a registry is asked: one question, A, AAAA, SRV, and what says that there is none. Pure. */
import { wordsOf } from './ipv6.ts'

export const TYPE = { A: 1, SOA: 6, AAAA: 28, SRV: 33, OPT: 41, ANY: 255 } as const
export const RCODE = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const

export interface DnsQuestion {
  readonly id: number
  readonly recursion: boolean
  /** In lower case, without its last dot. */
  readonly name: string
  /** As it was asked, for the answer repeats it. */
  readonly asked: readonly Buffer[]
  readonly type: number
  readonly class: number
  /** Bytes that the asker takes in one datagram; undefined: it did not say, and 512 are safe. */
  readonly payload: number | undefined
  readonly opcode: number
}

export interface DnsRecord {
  /** Undefined: the name that was asked. */
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
  /** Nothing is said here; the asker is told to come back over TCP. */
  readonly truncated?: boolean
}

const HEADER = 12
const CLASS_IN = 1

/** Undefined for what is no question: an answer, or bytes that are none. It is met with silence, so that two servers never talk to each other. */
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
    // A question has nothing before it that it could point to.
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
    asked: labels,
    type,
    class: kind,
    payload: payloadIn(bytes, at + 4),
  }
}

/** What an OPT record without a name, the first additional one, says. Anything else there is passed over. */
function payloadIn(bytes: Buffer, at: number): number | undefined {
  const additional = bytes.readUInt16BE(10)
  if (additional === 0 || bytes.readUInt16BE(6) !== 0 || bytes.readUInt16BE(8) !== 0 || at + 11 > bytes.length) return undefined
  return bytes[at] === 0 && bytes.readUInt16BE(at + 1) === TYPE.OPT ? Math.max(512, bytes.readUInt16BE(at + 3)) : undefined
}

/**
 * The answer in at most `most` bytes. One that does not fit is left out altogether, and the asker told to come back over TCP: it will ask again anyway, and
 * half an answer is only more to send to an address that may be forged.
 */
export function writeReply(question: DnsQuestion, reply: DnsReply, most: number): Buffer {
  const name = nameOf(question.asked)
  const opt = question.payload === undefined ? undefined : Buffer.from([0, 0, TYPE.OPT, 4, 208, 0, 0, 0, 0, 0, 0])
  const head = Buffer.alloc(HEADER)
  const asked = Buffer.alloc(4)
  asked.writeUInt16BE(question.type, 0)
  asked.writeUInt16BE(question.class, 2)
  const room = most - HEADER - name.length - 4 - (opt?.length ?? 0)
  const sections = [reply.answers ?? [], reply.authority ?? [], reply.additional ?? []].map(section => section.map(record))
  const size = (section: readonly Buffer[]) => section.reduce((sum, { length }) => sum + length, 0)
  const needed = size(sections[0]!) + size(sections[1]!)
  const truncated = reply.truncated === true || needed > room
  // What is merely additional may be missing without a word.
  const kept = truncated ? [] : needed + size(sections[2]!) > room ? sections.slice(0, 2) : sections
  const counts = [0, 1, 2].map(section => kept[section]?.length ?? 0)
  const parts = [head, name, asked, ...kept.flat()]
  if (opt !== undefined) {
    parts.push(opt)
    counts[2]!++
  }
  head.writeUInt16BE(question.id, 0)
  // An answer with authority: nobody else knows these names.
  head.writeUInt16BE(0x8400 | (question.opcode << 11) | (truncated ? 0x0200 : 0) | (question.recursion ? 0x0100 : 0) | reply.rcode, 2)
  head.writeUInt16BE(1, 4)
  for (const [section, count] of counts.entries()) head.writeUInt16BE(count, 6 + section * 2)
  return Buffer.concat(parts)
}

/** For what could not be read. */
export function formatError(id: number): Buffer {
  const head = Buffer.alloc(HEADER)
  head.writeUInt16BE(id, 0)
  head.writeUInt16BE(0x8000 | RCODE.FORMERR, 2)
  return head
}

function record({ name, type, ttl, data }: DnsRecord): Buffer {
  // The name that was asked stands right after the header: two bytes point to it.
  const owner = name === undefined ? Buffer.from([0xc0, HEADER]) : encodeName(name)
  const rest = Buffer.alloc(10)
  rest.writeUInt16BE(type, 0)
  rest.writeUInt16BE(CLASS_IN, 2)
  rest.writeUInt32BE(ttl, 4)
  rest.writeUInt16BE(data.length, 8)
  return Buffer.concat([owner, rest, data])
}

/** Throws for what is no name. A wrong length byte would make the whole message unreadable; callers see to it that names fit. */
function nameOf(labels: readonly Buffer[]): Buffer {
  let length = 1
  for (const label of labels) {
    if (label.length === 0 || label.length > 63) throw new RangeError(`a label of ${label.length} bytes is none`)
    length += label.length + 1
  }
  if (length > 255) throw new RangeError(`a name of ${length} bytes is none`)
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

/** So that those who hear that there is nothing do not remember it for long. */
export function soa(zone: string, seconds: number): Buffer {
  const numbers = Buffer.alloc(20)
  for (const [i, n] of [1, seconds, seconds, seconds, seconds].entries()) numbers.writeUInt32BE(n, i * 4)
  return Buffer.concat([encodeName(`ns.${zone}`), encodeName(`hostmaster.${zone}`), numbers])
}
