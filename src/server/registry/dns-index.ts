/**
 * Indexes the registered instances by DNS name, updated with each change. A query costs the same whether a service has two instances or twenty
 * thousand.
 *
 * DNS has rules that the registry's names do not have: labels of 63 bytes, names of 255 bytes, no difference between upper and lower case. An
 * instance that does not fit them gets another name, or is left out. It never breaks a reply that contains other instances.
 */
import { isIPv4, isIPv6 } from 'node:net'
import { domainToASCII } from 'node:url'
import type { Directory } from '../../registry/directory.ts'
import type { KnownInstance } from '../../registry/known-instance.ts'
import { type Instance, tierOf } from '../../registry/match.ts'
import { hostPortOf } from './host-port.ts'
import { wordsOf } from './ipv6.ts'

/** 255 bytes on the wire, less the length byte of the first label and the root. */
export const MAX_NAME = 253
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
const TIERS = 3

/** 0: an IPv4 address. 1: an IPv6 address. 2: a host name, which the client's resolver must resolve. */
export type EndpointKind = 0 | 1 | 2
export const KINDS: readonly EndpointKind[] = [0, 1, 2]

export interface DnsEndpoint {
  readonly kind: EndpointKind
  readonly host: string
  readonly port: number
  /** The bytes of the address in hex, used as a label. Empty for a host name. */
  readonly hex: string
}

/** Where an instance was added, so that it can be removed again. */
interface IndexedInstance {
  readonly endpoint: DnsEndpoint | undefined
  /** Undefined: never picked. */
  readonly list: number | undefined
  readonly service: string
  /** `instance.service` in lower case; empty if one of them is not a valid label. */
  readonly name: string
  readonly groups: readonly DnsGroup[]
  readonly capabilities: readonly string[]
}

/** The instances under one name, by tier (`tierOf`) and kind of address. */
export class DnsGroup {
  readonly #lists: readonly KnownInstance[][] = Array.from({ length: TIERS * KINDS.length }, () => [])
  readonly #at = new Map<KnownInstance, number>()
  /** Includes instances that are never picked: the name exists nevertheless. */
  size = 0

  add(known: KnownInstance, list: number | undefined): void {
    this.size++
    if (list !== undefined) this.#at.set(known, this.#lists[list]!.push(known) - 1)
  }

  remove(known: KnownInstance, list: number | undefined): void {
    this.size--
    if (list === undefined) return
    const [all, at] = [this.#lists[list]!, this.#at.get(known)!]
    const last = all.pop()!
    this.#at.delete(known)
    if (last === known) return
    all[at] = last
    this.#at.set(last, at)
  }

  /** At most `max` random instances of the best tier that has any of these kinds, in random order. The cost does not depend on the rest. */
  pick(kinds: readonly EndpointKind[], max: number, random: () => number): readonly KnownInstance[] {
    for (let tier = 0; tier < TIERS; tier++) {
      const lists = kinds.map(kind => this.#lists[tier * KINDS.length + kind]!)
      const total = lists.reduce((sum, { length }) => sum + length, 0)
      if (total > 0) return randomIndexes(total, max, random).map(index => at(lists, index))
    }
    return []
  }
}

/** At most `max` different numbers below `total`: the start of a shuffle that stores only what it moved. */
function randomIndexes(total: number, max: number, random: () => number): number[] {
  const moved = new Map<number, number>()
  return Array.from({ length: Math.min(max, total) }, (_, i) => {
    const j = i + Math.floor(random() * (total - i))
    const found = moved.get(j) ?? j
    moved.set(j, moved.get(i) ?? i)
    return found
  })
}

function at(lists: readonly (readonly KnownInstance[])[], index: number): KnownInstance {
  let left = index
  for (const list of lists) {
    if (left < list.length) return list[left]!
    left -= list.length
  }
  throw new RangeError(`there are fewer than ${index}`)
}

export class DnsIndex implements Disposable {
  readonly #indexed = new Map<KnownInstance, IndexedInstance>()
  /** By name in lower case, as DNS compares names; then by the name as it was registered. */
  readonly #services = new Map<string, Map<string, DnsGroup>>()
  /** By name in lower case: DNS cannot tell two apart that differ only in case. */
  readonly #capabilities = new Map<string, DnsGroup>()
  readonly #names = new Map<string, Set<KnownInstance>>()
  readonly #addresses = new Map<string, Set<KnownInstance>>()
  readonly #unlisten: () => void

  constructor(directory: Directory) {
    for (const known of directory.search({ service: undefined, all: [], any: [], tags: [], zone: '', statuses: [] })) this.#add(known)
    this.#unlisten = directory.listen((known, before, after) => this.#changed(known, before, after))
  }

  #changed(known: KnownInstance, before: Instance | undefined, after: Instance | undefined): void {
    // A new load changes nothing here, and comes often.
    if (before !== undefined && after !== undefined && before.addresses === after.addresses && before.capabilities === after.capabilities)
      if (tierOf(before.status) === tierOf(after.status)) return
    this.#remove(known)
    if (after !== undefined) this.#add(known)
  }

  #add(known: KnownInstance): void {
    const { service, instance, address, capabilities, status } = known.instance
    const endpoint = endpointOf(address)
    const tier = tierOf(status)
    const list = endpoint === undefined || tier === undefined ? undefined : tier * KINDS.length + endpoint.kind
    const lower = service.toLowerCase()
    const alike = this.#services.get(lower) ?? new Map<string, DnsGroup>()
    this.#services.set(lower, alike)
    const lowerCapabilities = new Set(capabilities.map(capability => capability.toLowerCase()))
    const groups = [grouped(alike, service), ...[...lowerCapabilities].map(capability => grouped(this.#capabilities, capability))]
    const name = [instance, service].every(each => LABEL.test(each.toLowerCase())) ? `${instance}.${service}`.toLowerCase() : ''
    for (const group of groups) group.add(known, list)
    if (name !== '') add(this.#names, name, known)
    if (endpoint !== undefined && endpoint.hex !== '') add(this.#addresses, endpoint.hex, known)
    this.#indexed.set(known, { endpoint, list, service, name, groups, capabilities })
  }

  #remove(known: KnownInstance): void {
    const indexed = this.#indexed.get(known)
    if (indexed === undefined) return
    const { endpoint, list, service, name, groups, capabilities } = indexed
    this.#indexed.delete(known)
    for (const group of groups) group.remove(known, list)
    for (const capability of capabilities)
      if (this.#capabilities.get(capability.toLowerCase())?.size === 0) this.#capabilities.delete(capability.toLowerCase())
    const alike = this.#services.get(service.toLowerCase())
    if (alike?.get(service)?.size === 0) alike.delete(service)
    if (alike?.size === 0) this.#services.delete(service.toLowerCase())
    remove(this.#names, name, known)
    remove(this.#addresses, endpoint?.hex ?? '', known)
  }

  /** Of services that differ only in case, the one in lower case has the name. Another must not be able to take it. */
  service(label: string): DnsGroup | undefined {
    const alike = this.#services.get(label)
    if (alike === undefined) return undefined
    return alike.get(label) ?? alike.get([...alike.keys()].reduce((first, name) => (name < first ? name : first)))
  }

  capability(name: string): DnsGroup | undefined {
    return this.#capabilities.get(name)
  }

  /** By instance and service name, both as labels. */
  instance(own: string, service: string): KnownInstance | undefined {
    return first(this.#names.get(`${own}.${service}`))
  }

  /** An instance that has this address. */
  address(hex: string): KnownInstance | undefined {
    return first(this.#addresses.get(hex))
  }

  endpointOf(known: KnownInstance): DnsEndpoint | undefined {
    return this.#indexed.get(known)?.endpoint
  }

  /** A name that resolves to the address of this instance and to no other. */
  nameOf(known: KnownInstance, domain: string): string {
    const { name, endpoint } = this.#indexed.get(known)!
    const full = `${name}.service.${domain}`
    const isOwn = name !== '' && full.length <= MAX_NAME && first(this.#names.get(name)) === known
    return isOwn ? full : `${endpoint!.hex}.addr.${domain}`
  }

  [Symbol.dispose](): void {
    this.#unlisten()
  }
}

function endpointOf(address: string): DnsEndpoint | undefined {
  const target = hostPortOf(address)
  if (target === undefined || target.port < 1 || target.port > 65_535) return undefined
  const { host, port } = target
  if (isIPv4(host)) return { kind: 0, host, port, hex: Buffer.from(host.split('.').map(Number)).toString('hex') }
  if (isIPv6(host)) {
    const hex = wordsOf(host).map(word => word.toString(16).padStart(4, '0'))
    return { kind: 1, host, port, hex: hex.join('') }
  }
  const name = hostName(host)
  return name === undefined ? undefined : { kind: 2, host: name, port, hex: '' }
}

/** A host in the form of DNS; undefined if it has none. */
export function hostName(host: string): string | undefined {
  // Only for non-ASCII hosts: `domainToASCII` also turns numbers into addresses.
  const ascii = /^[\u0021-\u007e]*$/.test(host) ? host : domainToASCII(host)
  const name = ascii.toLowerCase().replace(/\.$/, '')
  const labels = name.split('.')
  // A name cannot end in a numeric label: that would be an address.
  return name.length <= MAX_NAME && labels.every(label => LABEL.test(label)) && !/^\d+$/.test(labels.at(-1)!) ? name : undefined
}

function grouped(groups: Map<string, DnsGroup>, name: string): DnsGroup {
  const known = groups.get(name) ?? new DnsGroup()
  groups.set(name, known)
  return known
}

function add(to: Map<string, Set<KnownInstance>>, name: string, known: KnownInstance): void {
  const all = to.get(name)
  if (all === undefined) to.set(name, new Set([known]))
  else all.add(known)
}

function remove(from: Map<string, Set<KnownInstance>>, name: string, known: KnownInstance): void {
  const all = from.get(name)
  all?.delete(known)
  if (all?.size === 0) from.delete(name)
}

function first(all: Set<KnownInstance> | undefined): KnownInstance | undefined {
  return all?.values().next().value
}
