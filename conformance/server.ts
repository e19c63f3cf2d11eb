/** The real server, without sockets, in virtual time: its kernel, replica, access control and RESP. */
import { LeaseError } from '../src/errors.ts'
import { propose } from '../src/lessor/propose.ts'
import { Replica } from '../src/replica/replica.ts'
import { GuardedLessor } from '../src/server/guarded-lessor.ts'
import { DEFAULT_LIMITS } from '../src/server/limits.ts'
import { RespListener } from '../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../src/store/memory.ts'
import type { ByteLink, ByteLinkEnd } from '../src/wire/resp/link.ts'
import type { VirtualClock } from './virtual-clock.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

export class VirtualServer {
  readonly #clock: VirtualClock
  #log: MemoryLog
  #replica: Replica | undefined
  #listener: RespListener | undefined
  #putBack: (() => void) | undefined
  #links = new Set<{ readonly closed: () => void }>()

  constructor(clock: VirtualClock) {
    this.#clock = clock
    this.#log = new MemoryLog({ clock })
  }

  get running(): boolean {
    return this.#listener !== undefined
  }

  async start(): Promise<void> {
    const clock = this.#clock
    this.#replica = await Replica.open(new MemoryStore({ log: this.#log, clock }), { clock })
    const guarded = await GuardedLessor.open({ lessor: this.#replica, clock })
    const closing = new AbortController()
    this.#listener = new RespListener({
      ...{ guarded, clock, limits: DEFAULT_LIMITS, log: SILENT, closing: closing.signal },
      figures: () => ({}),
      connections: () => 0,
    } as ConstructorParameters<typeof RespListener>[0])
  }

  /** Killed: nothing is said to anyone. */
  kill(): void {
    this.#listener = undefined
    void this.#replica?.[Symbol.asyncDispose]()
    for (const link of this.#links) link.closed()
    this.#links.clear()
  }

  /** Its data directory is replaced by that of another server: clients that come back show what the new log does not contain. */
  replaceLog(): void {
    this.#log = new MemoryLog({ clock: this.#clock })
  }

  /** Copies its data directory, as a backup does. */
  copyLog(): void {
    this.#putBack = this.#log.copy()
  }

  /** Its data directory is replaced by the copy: what was decided since is lost. */
  putBack(): void {
    if (this.#putBack === undefined) throw new Error('there is no copy: use copyLog first')
    this.#putBack()
  }

  open(peer: string, link: (end: ByteLinkEnd) => ByteLink, closed: () => void): void {
    if (this.#listener === undefined) throw new LeaseError('UNAVAILABLE', 'the server is down')
    this.#links.add({ closed })
    this.#listener.open(peer, link)
  }

  async revoke(lease: number, by: string): Promise<void> {
    await propose(this.#replica!, { kind: 'revoke', target: { lease }, by })
  }
}
