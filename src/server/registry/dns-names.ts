/**
 * Answers DNS questions from the index.
 *
 *   SERVICE.service.DOMAIN          A, AAAA, SRV: instances that may be picked now
 *   _SERVICE._tcp.service.DOMAIN    SRV, as RFC 2782 spells it
 *   CAPABILITY.capability.DOMAIN    A, AAAA, SRV: instances of any service that have the capability
 *   INSTANCE.SERVICE.service.DOMAIN A, AAAA: one instance, as SRV records name it
 *   HEX.addr.DOMAIN                 A, AAAA: an instance whose names do not fit DNS, by the bytes of its address
 */
import type { KnownInstance } from '../../registry/known-instance.ts'
import type { Instance } from '../../registry/match.ts'
import type { DnsEndpoint, DnsGroup, DnsIndex, EndpointKind } from './dns-index.ts'
import { KINDS, MAX_NAME } from './dns-index.ts'
import { a, aaaa, type DnsQuestion, type DnsRecord, type DnsReply, RCODE, soa, srv, TYPE } from './dns-message.ts'

/** A question is answered from this. */
export interface DnsQuery {
  readonly index: DnsIndex
  readonly domain: string
  /** The ms that are left of an instance's lease. */
  readonly remaining: (instance: Instance) => Promise<number>
  readonly random: () => number
  /** Over UDP: fewer records, and no additional ones. The client's address may be forged, and replies are larger than queries. */
  readonly datagram?: boolean
}

/** More records do not improve the choice. */
const MAX_ANSWERS = 16
const MAX_IN_DATAGRAM = 6
/** Seconds that resolvers may cache an answer, and that a name has no records. */
const MAX_TTL = 30
const NEGATIVE_TTL = 1
/** Leaves room for `HEX.addr.` in front of it. */
const MAX_DOMAIN = 200
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/

/** The domain in lower case; undefined if it is not valid. */
export function domainOf(text: string): string | undefined {
  const domain = text.toLowerCase().replace(/\.$/, '')
  return domain.length <= Math.min(MAX_DOMAIN, MAX_NAME) && domain.split('.').every(label => LABEL.test(label)) ? domain : undefined
}

export async function answer(question: DnsQuestion, query: DnsQuery): Promise<DnsReply> {
  const { domain } = query
  if (question.opcode !== 0) return { rcode: RCODE.NOTIMP }
  if (question.name !== domain && !question.name.endsWith(`.${domain}`)) return { rcode: RCODE.REFUSED }
  if (question.class !== 1 && question.class !== 255) return { rcode: RCODE.REFUSED }
  const negative = { name: domain, type: TYPE.SOA, ttl: NEGATIVE_TTL, data: soa(domain, NEGATIVE_TTL) }
  // RFC 8482: a query for everything, maybe from a forged address, gets no records.
  if (query.datagram === true && question.type === TYPE.ANY) return { rcode: RCODE.NOERROR, truncated: true }
  const labels = question.name === domain ? [] : question.name.slice(0, -domain.length - 1).split('.')
  if (labels.length === 0) {
    const wanted = question.type === TYPE.SOA || question.type === TYPE.ANY
    return wanted ? { rcode: RCODE.NOERROR, answers: [negative] } : { rcode: RCODE.NOERROR, authority: [negative] }
  }
  const found = find(labels, question.type, query)
  if (found === undefined) return { rcode: RCODE.NXDOMAIN, authority: [negative] }
  const records = await recordsOf(found, question.type, query)
  return records.answers.length === 0 ? { rcode: RCODE.NOERROR, authority: [negative] } : { rcode: RCODE.NOERROR, ...records }
}

/** Undefined: there is no such name. An empty list: the name exists, but no instance may be picked. */
function find(labels: readonly string[], type: number, query: DnsQuery): readonly KnownInstance[] | undefined {
  const { index } = query
  const kind = labels.at(-1)
  const [first = '', second = ''] = labels
  if (kind === 'capability' && labels.length === 2) return some(index.capability(first), type, query)
  if (kind === 'addr' && labels.length === 2) return one(index.address(first))
  if (kind !== 'service') return undefined
  if (labels.length === 2) return some(index.service(first), type, query)
  if (labels.length !== 3) return undefined
  if (first.startsWith('_') && (second === '_tcp' || second === '_udp')) return some(index.service(first.slice(1)), type, query)
  return one(index.instance(first, second))
}

function one(known: KnownInstance | undefined): readonly KnownInstance[] | undefined {
  return known === undefined ? undefined : [known]
}

/** Some of the instances that may be picked, in random order: clients that use the first record are spread over them. */
function some(group: DnsGroup | undefined, type: number, { random, datagram = false }: DnsQuery): readonly KnownInstance[] | undefined {
  return group?.pick(kindsFor(type), datagram ? MAX_IN_DATAGRAM : MAX_ANSWERS, random)
}

function kindsFor(type: number): readonly EndpointKind[] {
  if (type === TYPE.A) return [0]
  if (type === TYPE.AAAA) return [1]
  return type === TYPE.SRV || type === TYPE.ANY ? KINDS : []
}

async function recordsOf(
  found: readonly KnownInstance[],
  type: number,
  query: DnsQuery,
): Promise<{ answers: DnsRecord[]; additional: DnsRecord[] }> {
  const { index, domain, datagram = false } = query
  const remaining = await Promise.all(found.map(({ instance }) => query.remaining(instance)))
  // A resolver must not cache an instance for longer than its lease lives. Records of one name share one ttl.
  const ttl = Math.max(0, Math.min(MAX_TTL, ...remaining.map(ms => Math.floor(ms / 1_000))))
  const answers: DnsRecord[] = []
  const additional: DnsRecord[] = []
  for (const known of found) {
    // The instance may have gone, or changed its address, while its lease was read.
    const endpoint = index.endpointOf(known)
    if (endpoint === undefined) continue
    const address = addressRecord(endpoint, ttl)
    if (type === TYPE.SRV || type === TYPE.ANY) {
      const name = address === undefined ? endpoint.host : index.nameOf(known, domain)
      answers.push({ type: TYPE.SRV, ttl, data: srv({ priority: 1, weight: known.instance.weight, port: endpoint.port, target: name }) })
      if (address !== undefined && !datagram) additional.push({ ...address, name })
    }
    if (address !== undefined && (type === address.type || type === TYPE.ANY)) answers.push(address)
  }
  return { answers: unique(answers), additional }
}

/** Undefined for a host name: the client resolves it. */
function addressRecord({ kind, host }: DnsEndpoint, ttl: number): DnsRecord | undefined {
  if (kind === 2) return undefined
  return kind === 0 ? { type: TYPE.A, ttl, data: a(host) } : { type: TYPE.AAAA, ttl, data: aaaa(host) }
}

/** Two instances on one host have the same address record. */
function unique(records: readonly DnsRecord[]): DnsRecord[] {
  const seen = new Set<string>()
  return records.filter(({ type, data }) => {
    const key = `${type} ${data.toString('latin1')}`
    return !seen.has(key) && seen.add(key)
  })
}
