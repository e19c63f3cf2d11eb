/**
 * The keys of a log in etcd, below its name:
 *
 *     NAME:format                                the version of this layout
 *     NAME:log/INDEX.NONCE                       a record; INDEX has 16 digits, so that the order of keys is the order of the log
 *     NAME:part/INDEX.NONCE/PART                 parts of a record that is too large for one request, written before it
 *     NAME:newest                                which snapshot is in force
 *     NAME:snapshot/INDEX.ID/CHUNK               its bytes
 *     NAME:wake/PROCESS                          for a minute: something became of a lease of this process
 *
 * The nonce is part of a record's key, so that "the log contains this record" is "this key exists", whatever its value. A name contains no
 * colon, so that no log's keys are below those of another.
 */
import { LeaseError } from '../../errors.ts'
import type { Position } from '../../store.ts'

export const FORMAT = '2'
const DIGITS = 16
const NAME = /^[A-Za-z0-9._-]+(\/[A-Za-z0-9._-]+)*$/

/** The keys from `key` (inclusive) to `range_end` (exclusive). */
export interface KeyRange {
  readonly key: string
  readonly range_end: string
}

export class EtcdKeys {
  readonly prefix: string
  readonly format: string
  readonly newest: string
  readonly log: KeyRange
  /** The watch covers this: records and their parts. */
  readonly tail: KeyRange
  readonly #log: string
  readonly #part: string
  readonly #snapshot: string
  readonly #wake: string
  #last: { readonly position: Position; readonly key: string } | undefined

  constructor(name: string) {
    if (!NAME.test(name) || name.length > 128)
      throw new LeaseError('INVALID', `'${name}' cannot name a log in etcd: use letters, digits, '.', '_', '-' and '/' between them`, {
        facts: { name },
      })
    this.prefix = `${name}:`
    this.format = base64(`${name}:format`)
    this.newest = base64(`${name}:newest`)
    this.#log = `${name}:log/`
    this.#part = `${name}:part/`
    this.#snapshot = `${name}:snapshot/`
    this.#wake = `${name}:wake/`
    this.log = below(this.#log)
    this.tail = { key: this.log.key, range_end: below(this.#part).range_end }
  }

  record(position: Position): string {
    // The position of the last append is usually the `after` of the next one.
    if (this.#last?.position !== position) this.#last = { position, key: base64(this.#log + digits(position.index) + hex(position.nonce)) }
    return this.#last.key
  }

  /** Records from one index (inclusive) to another (exclusive). */
  records(from: number, to: number): KeyRange {
    return { key: base64(this.#log + digits(from)), range_end: base64(this.#log + digits(to)) }
  }

  position(key: string): Position {
    const text = Buffer.from(key, 'base64').toString()
    const found = text.startsWith(this.#log) ? /^(\d{16})\.([0-9a-f]{16})$/.exec(text.slice(this.#log.length)) : null
    if (found === null)
      throw new LeaseError(
        'INVALID',
        `${text} in etcd is not a record of a log: another program writes keys that begin with ${this.prefix}`,
        {
          reason: 'foreign',
          facts: { key: text },
        },
      )
    return { index: Number(found[1]), nonce: BigInt(`0x${found[2]}`) }
  }

  kindOf(key: string): 'record' | 'part' | 'other' {
    const text = Buffer.from(key, 'base64').toString()
    return text.startsWith(this.#log) ? 'record' : text.startsWith(this.#part) ? 'part' : 'other'
  }

  part(base: number, nonce: bigint, part: number): string {
    return base64(`${this.#part}${digits(base)}${hex(nonce)}/${digits(part)}`)
  }

  /** Every part whose writer was at an index before `base`. */
  partsBefore(base: number): KeyRange {
    return { key: base64(this.#part), range_end: base64(this.#part + digits(base)) }
  }

  wake(process: string): string {
    return base64(this.#wake + process)
  }

  chunk(index: number, id: bigint, chunk: number): string {
    return base64(`${this.#snapshot}${digits(index)}${hex(id)}/${digits(chunk)}`)
  }

  chunks(index: number, id: bigint): KeyRange {
    return below(`${this.#snapshot}${digits(index)}${hex(id)}/`)
  }

  /** The chunks of all snapshots of records before `index`, complete or not. */
  chunksBefore(index: number): KeyRange {
    return { key: base64(this.#snapshot), range_end: base64(this.#snapshot + digits(index)) }
  }
}

/** The text is ASCII: keys, numbers, JSON of numbers. */
export function base64(text: string | Uint8Array): string {
  return typeof text === 'string' ? btoa(text) : Buffer.from(text.buffer, text.byteOffset, text.length).toString('base64')
}

function digits(index: number): string {
  return String(index).padStart(DIGITS, '0')
}

export function hex(nonce: bigint): string {
  return `.${nonce.toString(16).padStart(16, '0')}`
}

/** All keys that begin with `prefix`. The successor of its last character is a single byte, too. */
function below(prefix: string): KeyRange {
  const last = prefix.length - 1
  return { key: base64(prefix), range_end: base64(prefix.slice(0, last) + String.fromCharCode(prefix.charCodeAt(last) + 1)) }
}
