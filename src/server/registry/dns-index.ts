/**
 * What names of the registry mean to DNS, kept up to date change by change: to answer a question costs the same whether a service has two instances
 * or twenty thousand.
 *
 * DNS has rules that the registry's names do not have: labels of 63 bytes, names of 255, no difference between capitals and small letters. A registration
 * that does not fit them is mapped to what fits, or left out of the answers. It never breaks the answer that others are in.
 */
import { isIPv4, isIPv6 } from 'node:net'
import { domainToASCII } from 'node:url'
import type { Directory, KnownInstance } from '../../registry/directory.ts'
import { type Instance, tierOf } from '../../registry/match.ts'
import { wordsOf } from './ipv6.ts'
import { targetOf } from './target.ts'

/** Without the length byte of the first label and the root: 255 on the wire. */
export const LONGEST_NAME = 253
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
const TIERS = 3

/** An IPv4 address, an IPv6 address, or a name that its own resolver knows. */
export type Kind = 0 | 1 | 2
export const KINDS: readonly Kind[] = [0, 1, 2]

export interface Place {
  readonly kind: Kind
  readonly host: string
  readonly port: number
  /** An address as a label: its bytes in hex. Empty for a name. */
  readonly hex: string
}

/** How an instance is filed, which is how it must be taken out again. */
interface Filed {
  readonly place: Place | undefined
  /** Undefined: never picked. */
  readonly list: number | undefined
  readonly service: string
  /** `instance.service` in small letters; empty where one of them is no label. */
  readonly name: string
  readonly groups: readonly Group[]
  readonly capabilities: readonly string[]
}

/** Those that answer to one name, by how readily they are picked and what kind of address they have. */
export class Group {
  readonly #lists: readonly KnownInstance[][] = Array.from({ length: TIERS * KINDS.length }, () => [])
  readonly #at = new Map<KnownInstance, number>()
  /** Also those that may not be picked: there is such a name. */
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

  /** At most so many of the best tier that has any of these kinds, at random and in another order each time. Looks at no others. */
  pick(kinds: readonly Kind[], most: number, random: () => number): readonly KnownInstance[] {
    for (let tier = 0; tier < TIERS; tier++) {
      const lists = kinds.map(kind => this.#lists[tier * KINDS.length + kind]!)
      const total = lists.reduce((sum, { length }) => sum + length, 0)
      if (total > 0) return drawn(total, most, random).map(place => at(lists, place))
    }
    return []
  }
}

/** So many different numbers below `total`: a shuffle that is broken off, and remembers only what it moved. */
function drawn(total: number, most: number, random: () => number): number[] {
  const moved = new Map<number, number>()
  return Array.from({ length: Math.min(most, total) }, (_, i) => {
    const j = i + Math.floor(random() * (total - i))
    const found = moved.get(j) ?? j
    moved.set(j, moved.get(i) ?? i)
    return found
  })
}

function at(lists: readonly (readonly KnownInstance[])[], place: number): KnownInstance {
  let left = place
  for (const list of lists) {
    if (left < list.length) return list[left]!
    left -= list.length
  }
  throw new RangeError(`there are fewer than ${place}`)
}

export class DnsIndex implements Disposable {
  readonly #filed = new Map<KnownInstance, Filed>()
  /** In small letters, as DNS compares them; then as they are written. Which of them a question can name, its form decides. */
  readonly #services = new Map<string, Map<string, Group>>()
  readonly #capabilities = new Map<string, Group>()
  readonly #names = new Map<string, Set<KnownInstance>>()
  readonly #addresses = new Map<string, Set<KnownInstance>>()
  readonly #unlisten: () => void

  constructor(directory: Directory) {
    for (const known of directory.search({ service: undefined, all: [], any: [], tags: [], zone: '', statuses: [] })) this.#file(known)
    this.#unlisten = directory.listen((known, before, after) => this.#heard(known, before, after))
  }

  #heard(known: KnownInstance, before: Instance | undefined, after: Instance | undefined): void {
    // A load changes all the time, and moves nobody.
    if (before !== undefined && after !== undefined && before.addresses === after.addresses && before.capabilities === after.capabilities)
      if (tierOf(before.status) === tierOf(after.status)) return
    this.#take(known)
    if (after !== undefined) this.#file(known)
  }

  #file(known: KnownInstance): void {
    const { service, instance, address, capabilities, status } = known.instance
    const place = placeOf(address)
    const tier = tierOf(status)
    const list = place === undefined || tier === undefined ? undefined : tier * KINDS.length + place.kind
    const asked = service.toLowerCase()
    const alike = this.#services.get(asked) ?? new Map<string, Group>()
    this.#services.set(asked, alike)
    const groups = [grouped(alike, service), ...capabilities.map(capability => grouped(this.#capabilities, capability))]
    const name = [instance, service].every(each => LABEL.test(each.toLowerCase())) ? `${instance}.${service}`.toLowerCase() : ''
    for (const group of groups) group.add(known, list)
    if (name !== '') add(this.#names, name, known)
    if (place !== undefined && place.hex !== '') add(this.#addresses, place.hex, known)
    this.#filed.set(known, { place, list, service, name, groups, capabilities })
  }

  #take(known: KnownInstance): void {
    const filed = this.#filed.get(known)
    if (filed === undefined) return
    const { place, list, service, name, groups, capabilities } = filed
    this.#filed.delete(known)
    for (const group of groups) group.remove(known, list)
    for (const capability of capabilities) if (this.#capabilities.get(capability)?.size === 0) this.#capabilities.delete(capability)
    const alike = this.#services.get(service.toLowerCase())
    if (alike?.get(service)?.size === 0) alike.delete(service)
    if (alike?.size === 0) this.#services.delete(service.toLowerCase())
    remove(this.#names, name, known)
    remove(this.#addresses, place?.hex ?? '', known)
  }

  /** Of services that differ in capitals alone, the one that is written as DNS writes it: no other may speak in its name. */
  service(label: string): Group | undefined {
    const alike = this.#services.get(label)
    if (alike === undefined) return undefined
    return alike.get(label) ?? alike.get([...alike.keys()].reduce((first, name) => (name < first ? name : first)))
  }

  capability(name: string): Group | undefined {
    return this.#capabilities.get(name)
  }

  /** By its own name and that of its service, both as labels. */
  instance(own: string, service: string): KnownInstance | undefined {
    return first(this.#names.get(`${own}.${service}`))
  }

  /** One that has this address. */
  address(hex: string): KnownInstance | undefined {
    return first(this.#addresses.get(hex))
  }

  placeOf(known: KnownInstance): Place | undefined {
    return this.#filed.get(known)?.place
  }

  /** A name that leads to its address and to nobody else's. */
  nameOf(known: KnownInstance, domain: string): string {
    const { name, place } = this.#filed.get(known)!
    const full = `${name}.service.${domain}`
    const its = name !== '' && full.length <= LONGEST_NAME && first(this.#names.get(name)) === known
    return its ? full : `${place!.hex}.addr.${domain}`
  }

  [Symbol.dispose](): void {
    this.#unlisten()
  }
}

function placeOf(address: string): Place | undefined {
  const target = targetOf(address)
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

/** A host as DNS writes it, or undefined where it cannot. */
export function hostName(host: string): string | undefined {
  // Latin letters are left as they are: the function also takes numbers for addresses.
  const ascii = /^[\u0021-\u007e]*$/.test(host) ? host : domainToASCII(host)
  const name = ascii.toLowerCase().replace(/\.$/, '')
  const labels = name.split('.')
  // What ends in a number is an address, if anything.
  return name.length <= LONGEST_NAME && labels.every(label => LABEL.test(label)) && !/^\d+$/.test(labels.at(-1)!) ? name : undefined
}

function grouped(groups: Map<string, Group>, name: string): Group {
  const known = groups.get(name) ?? new Group()
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
