/**
 * The targets that health checks may connect to. A registration names a target and the server connects to it, so a client could use the server to
 * reach what only the server can: its network, its cloud's metadata service, itself. So nothing is allowed until the operator adds a rule, and
 * every address that a name resolves to is checked, not only the name.
 *
 * Rules: `10.0.0.0/8:8080`, `10.0.0.7:8000-8999`, `*.svc.example:443`, `[fd00::/8]:*`. An address that is not public (loopback, private,
 * link-local, multicast and others) needs a rule that names addresses. A rule that names hosts does not allow it.
 */
import { BlockList, isIP, isIPv4 } from 'node:net'
import { LeaseError } from '../../errors.ts'
import { wordsOf } from './ipv6.ts'

interface ProbeRule {
  readonly host: RegExp | undefined
  readonly addresses: BlockList | undefined
  readonly ports: readonly [number, number]
}

/** Networks that are not public (RFC 6890 and its successors). */
const SPECIAL: readonly (readonly [string, number, 'ipv4' | 'ipv6'])[] = [
  ...(
    [
      ['0.0.0.0', 8],
      ['10.0.0.0', 8],
      ['100.64.0.0', 10],
      ['127.0.0.0', 8],
      ['169.254.0.0', 16],
      ['172.16.0.0', 12],
      ['192.0.0.0', 24],
      ['192.0.2.0', 24],
      ['192.88.99.0', 24],
      ['192.168.0.0', 16],
      ['198.18.0.0', 15],
      ['198.51.100.0', 24],
      ['203.0.113.0', 24],
      ['224.0.0.0', 3],
    ] as const
  ).map(([net, bits]) => [net, bits, 'ipv4'] as const),
  ...(
    [
      ['::', 127],
      ['64:ff9b:1::', 48],
      ['100::', 64],
      ['2001::', 23],
      ['2001:db8::', 32],
      ['fc00::', 7],
      ['fe80::', 10],
      ['fec0::', 10],
      ['ff00::', 8],
    ] as const
  ).map(([net, bits]) => [net, bits, 'ipv6'] as const),
]

const special = new BlockList()
for (const [net, bits, family] of SPECIAL) special.addSubnet(net, bits, family)

export class ProbeRules {
  readonly #rules: readonly ProbeRule[]

  /** Throws `INVALID` for a rule that cannot be read. */
  constructor(rules: readonly string[]) {
    this.#rules = rules.map(ruleOf)
  }

  /** There are no rules: nothing is allowed. */
  get none(): boolean {
    return this.#rules.length === 0
  }

  /**
   * Why `host` must not even be resolved: no rule could allow any of its addresses. Undefined: it may be resolved. A rule that names addresses may
   * allow those of any host. A registration chooses the host, and a lookup alone reveals something to its owner, and costs this server something.
   */
  refusalOfName(host: string, port: number): string | undefined {
    const possible = this.#rules.some(rule => covers(rule, port) && (rule.addresses !== undefined || rule.host?.test(host)))
    return possible ? undefined : `no rule allows ${host} port ${port}`
  }

  /** Why `host` must not be probed at `address`; undefined if it may be. */
  refusal(host: string, address: string, port: number): string | undefined {
    const plain = plainAddress(address)
    const family = isIPv4(plain) ? 'ipv4' : 'ipv6'
    if (this.#rules.some(rule => covers(rule, port) && rule.addresses?.check(plain, family))) return undefined
    if (special.check(plain, family)) return `${plain} is not a public address, and no rule allows it`
    if (this.#rules.some(rule => covers(rule, port) && rule.host?.test(host))) return undefined
    return `no rule allows ${host} port ${port}`
  }
}

function covers({ ports: [low, high] }: ProbeRule, port: number): boolean {
  return low <= port && port <= high
}

/** The IPv4 address inside an IPv6 one (mapped, translated, 6to4); any other address unchanged. */
export function plainAddress(address: string): string {
  const bare = address.replace(/%.*$/, '').toLowerCase()
  if (isIP(bare) !== 6) return bare
  const words = wordsOf(bare)
  const v4 = (high: number, low: number) => [high >> 8, high & 255, low >> 8, low & 255].join('.')
  const zero = (from: number, to: number) => words.slice(from, to).every(word => word === 0)
  if (zero(0, 5) && (words[5] === 0xffff || words[5] === 0) && (words[6] !== 0 || words[7]! > 1)) return v4(words[6]!, words[7]!)
  if (words[0] === 0x64 && words[1] === 0xff9b && zero(2, 6)) return v4(words[6]!, words[7]!)
  if (words[0] === 0x2002) return v4(words[1]!, words[2]!)
  return bare
}

function ruleOf(text: string): ProbeRule {
  const wrong = () =>
    new LeaseError(
      'INVALID',
      `${JSON.stringify(text)} is not a rule for checks: write 10.0.0.0/8:8080, 10.0.0.7:8000-8999, *.svc.example:443 or [fd00::/8]:*`,
    )
  const [, bracketed, bare, range] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\*|\d{1,5}(?:-\d{1,5})?)$/.exec(text) ?? []
  const target = bracketed ?? bare
  if (target === undefined || range === undefined) throw wrong()
  const [low = 1, high = low] = range === '*' ? [1, 65_535] : range.split('-').map(Number)
  if (low < 1 || high > 65_535 || low > high) throw wrong()
  const ports = [low, high] as const
  const [net, bits] = target.split('/')
  const family = isIP(net!)
  if (family !== 0) {
    const addresses = new BlockList()
    const name = family === 4 ? 'ipv4' : 'ipv6'
    if (bits === undefined) addresses.addAddress(net!, name)
    else if (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128)) addresses.addSubnet(net!, Number(bits), name)
    else throw wrong()
    return { host: undefined, addresses, ports }
  }
  if (bracketed !== undefined || !/^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/i.test(target)) throw wrong()
  // A star matches one or more whole labels.
  const pattern = target
    .toLowerCase()
    .replaceAll('.', '\\.')
    .replace(/^\*\\\./, '([a-z0-9_-]+\\.)+')
  return { host: new RegExp(`^${pattern}$`), addresses: undefined, ports }
}
