/** Mutates valid RESP, for fuzz tests: inputs that are nearly right are those that parsers get wrong. */
import { Writer } from '../../src/kernel/codec/bytes.ts'
import { COMMANDS } from '../../src/server/resp/commands.ts'
import { type ClientMessage, MESSAGES_VERSION, writeClientMessage } from '../../src/wire/messages.ts'
import { command } from './resp-place.ts'
import { searchSeed } from './runs.ts'

export const SEED = searchSeed(1)

export class Dice {
  #state: number

  constructor(seed: number) {
    this.#state = seed | 0 || 1
  }

  below(n: number): number {
    this.#state ^= this.#state << 13
    this.#state ^= this.#state >>> 17
    this.#state ^= this.#state << 5
    return (this.#state >>> 0) % n
  }

  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!
  }
}

function batch(...messages: ClientMessage[]): Buffer {
  const writer = new Writer()
  for (const message of messages) writeClientMessage(writer, message)
  return Buffer.concat([command('HELLO', 3, 'MESSAGES', MESSAGES_VERSION), command('LEASE.BATCH', writer.view())])
}

export const CORPUS: readonly Buffer[] = [
  ...[...COMMANDS.values()].map(({ name, example }) => command(name, ...example.map(word => word.replace(/\$\w+/, '1')))),
  command(
    'LEASE.ACQUIRE',
    'a',
    'b',
    'TTL',
    '30s',
    'HOLDER',
    'h',
    'QUEUE',
    'UNITS',
    1,
    'PRIORITY',
    -5,
    'LABEL',
    'a',
    'b',
    'ENTRY',
    'k',
    'v',
    'OP',
    'x',
  ),
  command('LEASE.ACQUIRE', 'a', 'TTL', 100, 'WAIT', 5, 'SHARED', 'GRACE', 5, 'MAXLIFE', 1_000, 'ANY', 1, 'STEAL', 'RECALL'),
  command('LEASE.ACQUIRE', 'a', 'TTL', 900_000, 'TTLMIN', 1, 'TTLMAX', '1h', 'QUEUE', 'HOLDER', 'h', 'INCARNATION', 1, 'REUSE'),
  command('LEASE.WATCH', '', 'AFTER', 0, 'TYPES', 'granted', 'released'),
  command('LEASE.POLICY', 'SET', 'jobs', '__proto__', '5'),
  command('HELLO', 3, 'AUTH', 'default', 'key', 'SETNAME', 'me'),
  Buffer.from('PING\r\nLEASE.RENEW 1 2 3\r\nCLIENT SETNAME a\r\n'),
  batch(
    {
      kind: 'propose',
      id: 1,
      proposal: {
        command: { kind: 'acquire', holder: 'h', ttl: 500, wants: [{ resource: 'a' }] },
        op: { session: 's', seq: 1, acked: 0, again: true },
      },
    },
    { kind: 'propose', id: 2, proposal: { command: { kind: 'renew', leases: [1, 2, 3] }, key: 7 } },
    { kind: 'read', id: 3, query: { kind: 'leases', prefix: 'a' }, consistent: true, atLeast: 0 },
    { kind: 'watch', id: 4, prefix: '', after: 0, types: ['granted'] },
    { kind: 'beat', id: 5 },
    { kind: 'stop', id: 4 },
  ),
  batch(
    { kind: 'read', id: 9, query: { __proto__: null, kind: 'constructor' }, consistent: false, atLeast: 0 },
    { kind: 'backup', id: 10, follow: true },
  ),
]

const NUMBERS = ['-1', '0', '2147483648', '4294967296', '9007199254740993', '1e9', '', ' 1', '00000000000000001']

export function mutated(dice: Dice, from: readonly Buffer[]): Buffer {
  let bytes: Buffer = Buffer.from(dice.of(from))
  for (let times = 1 + dice.below(4); times > 0; times--) {
    const at = dice.below(bytes.length + 1)
    switch (dice.below(8)) {
      case 0:
        if (bytes.length > 0) bytes[at % bytes.length]! ^= 1 << dice.below(8)
        break
      case 1:
        if (bytes.length > 0) bytes[at % bytes.length] = dice.below(256)
        break
      case 2:
        bytes = bytes.subarray(0, at)
        break
      case 3:
        bytes = Buffer.concat([bytes.subarray(0, at), dice.of(from), bytes.subarray(at)])
        break
      case 4:
        bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(Math.min(bytes.length, at + dice.below(9)))])
        break
      case 5:
        bytes = Buffer.from(
          bytes.toString('latin1').replace(/\d+/, () => dice.of(NUMBERS)),
          'latin1',
        )
        break
      case 6:
        bytes = Buffer.concat([bytes, dice.of(from)])
        break
      default:
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          Buffer.from(dice.of(['\r\n', '\0', '*', '$', '\xff\xfe', '__proto__', '%1\r\n', '>2\r\n'])),
          bytes.subarray(at),
        ])
    }
  }
  return bytes.length > 20_000 ? bytes.subarray(0, 20_000) : bytes
}

/** Splits the bytes into pieces of random size. */
export function pieces(dice: Dice, bytes: Buffer): Buffer[] {
  const cut: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const size = dice.below(3) === 0 ? 1 + dice.below(5) : 1 + dice.below(bytes.length)
    cut.push(Buffer.from(bytes.subarray(at, at + size)))
    at += size
  }
  return cut
}
