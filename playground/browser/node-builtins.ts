/**
 * Stands for the modules of Node that the package imports, where it runs in the page of the playground (scripts/playground.mjs). Timers and turns of the loop
 * are real; what the playground never reaches, such as hashes of secrets and files, fails with its name.
 */

function absent(name: string): () => never {
  return () => {
    throw new Error(`${name} is not available in a browser`)
  }
}

const turnChannel = new MessageChannel()
const turns: (() => void)[] = []
turnChannel.port1.onmessage = () => turns.shift()?.()

/** Runs after all promises that can settle, and without the delay that browsers add to nested timers. */
function nextTurn(then: () => void): void {
  turns.push(then)
  turnChannel.port2.postMessage(undefined)
}

Object.assign(globalThis, {
  process: {
    pid: 1,
    env: {},
    nextTick: nextTurn,
    hrtime: () => [Math.floor(performance.now() / 1_000), (performance.now() % 1_000) * 1e6],
    emitWarning: (warning: unknown) => console.warn(warning),
  },
  // The replica prepares the signing of witnesses when it is loaded; only servers sign any.
  Buffer: { from: (text: string) => new TextEncoder().encode(text), alloc: (size: number) => new Uint8Array(size) },
})

// node:timers
export const setTimeout = globalThis.setTimeout.bind(globalThis)
export const clearTimeout = globalThis.clearTimeout.bind(globalThis)
export const setImmediate = nextTurn

// node:crypto
export const randomBytes = absent('randomBytes')
export const randomFillSync = absent('randomFillSync')
export const createHash = absent('createHash')
export const hash = absent('hash')
export const timingSafeEqual = absent('timingSafeEqual')

// node:fs, node:os
export const readFileSync = absent('readFileSync')
export const readlinkSync = absent('readlinkSync')
export const uptime = absent('uptime')
export const hostname = () => 'browser'

// node:events
export const setMaxListeners = () => {}

// node:diagnostics_channel
export const channel = () => ({ hasSubscribers: false, publish() {} })

/** node:async_hooks. The library uses it to find deadlocks of nested callbacks, and the programs of the playground have none. */
export class AsyncLocalStorage<T> {
  #store: T | undefined

  getStore(): T | undefined {
    return this.#store
  }

  run<R, A extends readonly unknown[]>(store: T, work: (...args: A) => R, ...args: A): R {
    const before = this.#store
    this.#store = store
    try {
      return work(...args)
    } finally {
      this.#store = before
    }
  }

  disable(): void {
    this.#store = undefined
  }
}
