/**
 * What a name in our domain means, and what is answered for it. Pure but for what it is handed.
 *
 *   SERVICE.service.DOMAIN          A, AAAA, SRV: instances that may be picked now
 *   _SERVICE._tcp.service.DOMAIN    SRV, as RFC 2782 spells it
 *   CAPABILITY.capability.DOMAIN    A, AAAA, SRV: whoever can do it, of any service
 *   INSTANCE.SERVICE.service.DOMAIN A, AAAA: one of them, as SRV answers name it
 *   HEX.addr.DOMAIN                 A, AAAA: the same for one whose names do not fit DNS, by the bytes of its address
 */
import type { KnownInstance } from '../../registry/directory.ts'
import type { Instance } from '../../registry/match.ts'
import type { DnsIndex, Group, Kind, Place } from './dns-index.ts'
import { KINDS, LONGEST_NAME } from './dns-index.ts'
import { a, aaaa, type DnsQuestion, type DnsRecord, type DnsReply, RCODE, soa, srv, TYPE } from './dns-message.ts'

export interface DnsQuery {
  readonly index: DnsIndex
  readonly domain: string
  /** Ms that the lease of an instance has left. */
  readonly remaining: (instance: Instance) => Promise<number>
  readonly random: () => number
  /** By datagram: fewer records, and none that was not asked for. The asker's address may be forged, and the answer is larger than the question. */
  readonly datagram?: boolean
}

/** More do not help anyone choose. */
const MAX_ANSWERS = 16
const MAX_IN_DATAGRAM = 6
const LONGEST_TTL = 30
const NOTHING_TTL = 1
/** Leaves room for `HEX.addr.` in front of it. */
const LONGEST_DOMAIN = 200
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/

/** The domain as it is compared, or undefined where it cannot be one. */
export function domainOf(text: string): string | undefined {
  const domain = text.toLowerCase().replace(/\.$/, '')
  return domain.length <= Math.min(LONGEST_DOMAIN, LONGEST_NAME) && domain.split('.').every(label => LABEL.test(label)) ? domain : undefined
}

export async function answer(question: DnsQuestion, asked: DnsQuery): Promise<DnsReply> {
  const { domain } = asked
  if (question.opcode !== 0) return { rcode: RCODE.NOTIMP }
  if (question.name !== domain && !question.name.endsWith(`.${domain}`)) return { rcode: RCODE.REFUSED }
  if (question.class !== 1 && question.class !== 255) return { rcode: RCODE.REFUSED }
  const nothing = { name: domain, type: TYPE.SOA, ttl: NOTHING_TTL, data: soa(domain, NOTHING_TTL) }
  // RFC 8482: who asks for everything, and forged its address, gets nothing.
  if (asked.datagram === true && question.type === TYPE.ANY) return { rcode: RCODE.NOERROR, truncated: true }
  const labels = question.name === domain ? [] : question.name.slice(0, -domain.length - 1).split('.')
  if (labels.length === 0) {
    const wanted = question.type === TYPE.SOA || question.type === TYPE.ANY
    return wanted ? { rcode: RCODE.NOERROR, answers: [nothing] } : { rcode: RCODE.NOERROR, authority: [nothing] }
  }
  const found = find(labels, question.type, asked)
  if (found === undefined) return { rcode: RCODE.NXDOMAIN, authority: [nothing] }
  const records = await recordsOf(found, question.type, asked)
  return records.answers.length === 0 ? { rcode: RCODE.NOERROR, authority: [nothing] } : { rcode: RCODE.NOERROR, ...records }
}

/** Undefined: there is no such name. An empty list: there is, and nobody may be picked. */
function find(labels: readonly string[], type: number, asked: DnsQuery): readonly KnownInstance[] | undefined {
  const { index } = asked
  const kind = labels.at(-1)
  const [first = '', second = ''] = labels
  if (kind === 'capability' && labels.length === 2) return some(index.capability(first), type, asked)
  if (kind === 'addr' && labels.length === 2) return one(index.address(first))
  if (kind !== 'service') return undefined
  if (labels.length === 2) return some(index.service(first), type, asked)
  if (labels.length !== 3) return undefined
  if (first.startsWith('_') && (second === '_tcp' || second === '_udp')) return some(index.service(first.slice(1)), type, asked)
  return one(index.instance(first, second))
}

function one(known: KnownInstance | undefined): readonly KnownInstance[] | undefined {
  return known === undefined ? undefined : [known]
}

/** A few of those that may be picked, in another order each time: whoever takes the first is spread. */
function some(group: Group | undefined, type: number, { random, datagram = false }: DnsQuery): readonly KnownInstance[] | undefined {
  return group?.pick(kindsFor(type), datagram ? MAX_IN_DATAGRAM : MAX_ANSWERS, random)
}

function kindsFor(type: number): readonly Kind[] {
  if (type === TYPE.A) return [0]
  if (type === TYPE.AAAA) return [1]
  return type === TYPE.SRV || type === TYPE.ANY ? KINDS : []
}

async function recordsOf(
  found: readonly KnownInstance[],
  type: number,
  asked: DnsQuery,
): Promise<{ answers: DnsRecord[]; additional: DnsRecord[] }> {
  const { index, domain, datagram = false } = asked
  const left = await Promise.all(found.map(({ instance }) => asked.remaining(instance)))
  // Nobody remembers an instance for longer than its lease lives; records of one name share one ttl.
  const ttl = Math.max(0, Math.min(LONGEST_TTL, ...left.map(ms => Math.floor(ms / 1_000))))
  const answers: DnsRecord[] = []
  const additional: DnsRecord[] = []
  for (const known of found) {
    // It may have gone, or have moved to what DNS cannot say, while its lease was asked about.
    const place = index.placeOf(known)
    if (place === undefined) continue
    const address = addressRecord(place, ttl)
    if (type === TYPE.SRV || type === TYPE.ANY) {
      const name = address === undefined ? place.host : index.nameOf(known, domain)
      answers.push({ type: TYPE.SRV, ttl, data: srv({ priority: 1, weight: known.instance.weight, port: place.port, target: name }) })
      if (address !== undefined && !datagram) additional.push({ ...address, name })
    }
    if (address !== undefined && (type === address.type || type === TYPE.ANY)) answers.push(address)
  }
  return { answers: unique(answers), additional }
}

/** A host that is a name of its own is its resolver's business. */
function addressRecord({ kind, host }: Place, ttl: number): DnsRecord | undefined {
  if (kind === 2) return undefined
  return kind === 0 ? { type: TYPE.A, ttl, data: a(host) } : { type: TYPE.AAAA, ttl, data: aaaa(host) }
}

/** Two instances on one host are one address. */
function unique(resources: readonly DnsRecord[]): DnsRecord[] {
  const seen = new Set<string>()
  return resources.filter(({ type, data }) => {
    const key = `${type} ${data.toString('latin1')}`
    return !seen.has(key) && seen.add(key)
  })
}
