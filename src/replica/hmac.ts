/** HMAC-SHA-256 with one secret, for many short texts. It gives the same result as `createHmac`, which takes twice as long in a server with little load. */
import { hash } from 'node:crypto'

const BLOCK = 64
const DIGEST = 32

export class Hmac {
  readonly #inner: Buffer
  readonly #outer: Buffer

  /** `longest`: of a text, in bytes. */
  constructor(
    readonly secret: string,
    longest: number,
  ) {
    const bytes = Buffer.from(secret)
    const key = bytes.length > BLOCK ? hash('sha256', bytes, 'buffer') : bytes
    this.#inner = Buffer.alloc(BLOCK + longest)
    this.#outer = Buffer.alloc(BLOCK + DIGEST)
    for (let i = 0; i < BLOCK; i++) {
      this.#inner[i] = 0x36 ^ (key[i] ?? 0)
      this.#outer[i] = 0x5c ^ (key[i] ?? 0)
    }
  }

  of(text: Uint8Array): Buffer {
    this.#inner.set(text, BLOCK)
    this.#outer.set(hash('sha256', this.#inner.subarray(0, BLOCK + text.length), 'buffer'), BLOCK)
    return hash('sha256', this.#outer, 'buffer')
  }
}
