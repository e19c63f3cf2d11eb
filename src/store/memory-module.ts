/** `memory:` and `memory:NAME`: a log in this process. */
import type { Clock } from '../clock.ts'
import { MemoryLog, MemoryStore } from './memory.ts'
import type { StoreModule } from './store-module.ts'

export const memory: StoreModule = {
  name: 'memory',
  schemes: ['memory'],
  url: 'memory:',
  purpose: 'one process; tests',
  fromUrl: async (url, { clock }) => sharedStore(url.slice('memory:'.length), clock),
}

interface SharedLog {
  readonly log: MemoryLog
  users: number
}

/** One log for each name and clock while a store of this process has it open, so that the same URL is the same log. */
const logs = new WeakMap<Clock, Map<string, SharedLog>>()

function sharedStore(name: string, clock: Clock): MemoryStore {
  const named = logs.get(clock) ?? new Map<string, SharedLog>()
  logs.set(clock, named)
  const shared = named.get(name) ?? { log: new MemoryLog({ clock }), users: 0 }
  named.set(name, shared)
  shared.users++
  return new SharedMemoryStore(shared.log, clock, () => {
    if (--shared.users === 0) named.delete(name)
  })
}

class SharedMemoryStore extends MemoryStore {
  #onClose: (() => void) | undefined

  constructor(log: MemoryLog, clock: Clock, onClose: () => void) {
    super({ log, clock })
    this.#onClose = onClose
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]()
    this.#onClose?.()
    this.#onClose = undefined
  }
}
