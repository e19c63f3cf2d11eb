/**
 * What a name in our domain means, and what is answered for it. Pure but for what it is handed.
 *
 *   SERVICE.service.DOMAIN          A, AAAA, SRV: instances that may be picked now
 *   _SERVICE._tcp.service.DOMAIN    SRV, as RFC 2782 spells it
 *   CAPABILITY.capability.DOMAIN    A, AAAA, SRV: whoever can do it, of any service
 *   INSTANCE.SERVICE.service.DOMAIN A, AAAA: one of them, as SRV answers name it
 */
import { isIPv4, isIPv6 } from 'node:net'
import type { Directory } from '../../recipe/registry/directory.ts'
import { candidates, type Instance } from '../../recipe/registry/match.ts'
import { a, aaaa, type Question, RCODE, type Reply, type Resource, soa, srv, TYPE } from './dns-message.ts'
import { type Target, targetOf } from './target.ts'

export interface Asked {
  readonly directory: Directory
  readonly domain: string
  /** Ms that the lease of an instance has left. */
  readonly remaining: (instance: Instance) => Promise<number>
  readonly random: () => number
}

/** More do not help anyone choose, and would not fit. */
const MOST_ANSWERS = 16
const LONGEST_TTL = 30
const NOTHING_TTL = 1
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/i

export async function answer(question: Question, asked: Asked): Promise<Reply> {
  const { domain } = asked
  if (question.opcode !== 0) return { rcode: RCODE.NOTIMP }
  if (question.name !== domain && !question.name.endsWith(`.${domain}`)) return { rcode: RCODE.REFUSED }
  if (question.class !== 1 && question.class !== 255) return { rcode: RCODE.REFUSED }
  const nothing = { name: domain, type: TYPE.SOA, ttl: NOTHING_TTL, data: soa(domain, NOTHING_TTL) }
  const labels = question.name === domain ? [] : question.name.slice(0, -domain.length - 1).split('.')
  if (labels.length === 0) {
    const wanted = question.type === TYPE.SOA || question.type === TYPE.ANY
    return wanted ? { rcode: RCODE.NOERROR, answers: [nothing] } : { rcode: RCODE.NOERROR, authority: [nothing] }
  }
  const found = find(labels, asked)
  if (found === undefined) return { rcode: RCODE.NXDOMAIN, authority: [nothing] }
  const records = await recordsOf(found, question.type, asked)
  return records.answers.length === 0 ? { rcode: RCODE.NOERROR, authority: [nothing] } : { rcode: RCODE.NOERROR, ...records }
}

/** Undefined: there is no such name. An empty list: there is, and nobody may be picked. */
function find(labels: readonly string[], { directory, random }: Asked): readonly Instance[] | undefined {
  const kind = labels.at(-1)
  const [first = '', second = ''] = labels
  if (kind === 'capability' && labels.length === 2) return some(directory.list({ capability: first }), random)
  if (kind !== 'service') return undefined
  // Names of services are ours, and may have capitals; those of DNS have not.
  const named = (name: string) => directory.services().find(({ service }) => service.toLowerCase() === name)?.service
  if (labels.length === 2) return ofService(named(first), directory, random)
  if (labels.length !== 3) return undefined
  if (first.startsWith('_') && (second === '_tcp' || second === '_udp')) return ofService(named(first.slice(1)), directory, random)
  const service = named(second)
  if (service === undefined) return undefined
  const one = directory.list({ service }).find(instance => labelOf(instance) === first)
  return one === undefined ? undefined : [one]
}

function ofService(service: string | undefined, directory: Directory, random: () => number): readonly Instance[] | undefined {
  return service === undefined ? undefined : some(directory.list({ service }), random)
}

/** A few of those that may be picked, in another order each time: whoever takes the first is spread. */
function some(all: readonly Instance[], random: () => number): readonly Instance[] | undefined {
  if (all.length === 0) return undefined
  const picked = candidates(
    '',
    all.map(instance => ({ instance })),
  ).map(({ instance }) => instance)
  for (let i = 0; i < Math.min(MOST_ANSWERS, picked.length); i++) {
    const j = i + Math.floor(random() * (picked.length - i))
    ;[picked[i], picked[j]] = [picked[j]!, picked[i]!]
  }
  return picked.slice(0, MOST_ANSWERS)
}

/** An instance as a label of a name: its own name where that can be one. */
function labelOf({ instance, lease }: Instance): string {
  return LABEL.test(instance) ? instance.toLowerCase() : `lease-${lease}`
}

async function recordsOf(
  instances: readonly Instance[],
  type: number,
  asked: Asked,
): Promise<{ answers: Resource[]; additional: Resource[] }> {
  const placed = instances.flatMap(instance => {
    const target = targetOf(instance.address)
    return target === undefined ? [] : [{ instance, target }]
  })
  const left = await Promise.all(placed.map(({ instance }) => asked.remaining(instance)))
  // Nobody remembers an instance for longer than its lease lives; records of one name share one ttl.
  const ttl = Math.max(0, Math.min(LONGEST_TTL, ...left.map(ms => Math.floor(ms / 1_000))))
  const answers: Resource[] = []
  const additional: Resource[] = []
  for (const { instance, target } of placed) {
    const address = addressRecord(target, ttl)
    if (type === TYPE.SRV || type === TYPE.ANY) {
      const { service, weight } = instance
      const name = address === undefined ? target.host : `${labelOf(instance)}.${service.toLowerCase()}.service.${asked.domain}`
      answers.push({ type: TYPE.SRV, ttl, data: srv({ priority: 1, weight, port: target.port, target: name }) })
      if (address !== undefined) additional.push({ ...address, name })
    }
    if (address !== undefined && (type === address.type || type === TYPE.ANY)) answers.push(address)
  }
  return { answers: unique(answers), additional }
}

/** A host that is a name of its own is its resolver's business. */
function addressRecord({ host }: Target, ttl: number): Resource | undefined {
  if (isIPv4(host)) return { type: TYPE.A, ttl, data: a(host) }
  return isIPv6(host) && !host.includes('%') ? { type: TYPE.AAAA, ttl, data: aaaa(host) } : undefined
}

/** Two instances on one host are one address. */
function unique(resources: readonly Resource[]): Resource[] {
  const seen = new Set<string>()
  return resources.filter(({ type, data }) => {
    const key = `${type} ${data.toString('latin1')}`
    return !seen.has(key) && seen.add(key)
  })
}
