/**
 * A plain lock, for comparison: a model of `SET key value NX PX ttl` on one server that keeps no log, as a lock is often made from it. Its holder extends it
 * or not, deletes it by a script that compares the value, and goes on working until an answer says that the lock is gone. There is no token.
 */
import type { World } from '../sim/world.ts'

interface PlainKey {
  readonly value: string
  readonly until: number
}

/** The server. Its clock is right. */
export class PlainLockServer {
  readonly #world: World
  #key: PlainKey | undefined

  constructor(world: World) {
    this.#world = world
  }

  /** The present value, and when it expires. */
  get key(): PlainKey | undefined {
    if (this.#key !== undefined && this.#key.until <= this.#world.now) this.#key = undefined
    return this.#key
  }

  /** SET key value NX PX ttl */
  set(value: string, ttl: number): boolean {
    if (this.key !== undefined) return false
    this.#key = { value, until: this.#world.now + ttl }
    return true
  }

  /** PEXPIRE, if the value is still ours. */
  extend(value: string, ttl: number): boolean {
    if (this.key?.value !== value) return false
    this.#key = { value, until: this.#world.now + ttl }
    return true
  }

  /** DEL, if the value is still ours. */
  delete(value: string): boolean {
    if (this.key?.value !== value) return false
    this.#key = undefined
    return true
  }

  /** Fails over to a replica that has not received the key. */
  failOver(): void {
    this.#key = undefined
  }
}
