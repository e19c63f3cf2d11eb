/**
 * Keeps a directory of all registered instances up to date, for a whole process: one read, one watch, and a probe now and then which confirms
 * that silence means that nothing changed.
 */
import { BACKOFF, jittered, pauseAfter } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { type Sent, since } from '../../holder/validity.ts'
import type { Lessor } from '../../lessor.ts'
import { Directory } from '../../registry/directory.ts'
import { SERVICES } from '../../registry/entry.ts'

/** `ready` fails after this long. */
const TIMEOUT = 10_000
/** The feed probes the lessor this often while the watch is silent. */
const PROBE_INTERVAL = 5_000
const SHORTEST_PROBE_INTERVAL = 250

export class DiscoveryFeed {
  readonly directory = new Directory()
  readonly clock: Clock
  readonly #lessor: Lessor
  readonly #closing = new AbortController()
  /** The last moment at which the directory was certainly current. */
  #fresh: Sent = { number: 0, now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }
  #loaded = false
  readonly #waiting = new Set<() => void>()
  #failure: unknown
  #watching = false
  #begun = false
  #probeInterval = PROBE_INTERVAL
  #cancelProbe: (() => void) | undefined

  constructor(lessor: Lessor, clock: Clock) {
    this.#lessor = lessor
    this.clock = clock
  }

  get closed(): AbortSignal {
    return this.#closing.signal
  }

  get loaded(): boolean {
    return this.#loaded
  }

  /** The directory may have missed changes of the last `age` ms, and no older ones; infinite before the first load. */
  get age(): number {
    return Math.max(0, since(this.#fresh, this.clock.now(), this.clock.uptime()))
  }

  /** Starts to load and watch. Probes often enough for `maxStale`. */
  begin(maxStale: number): void {
    const interval = Math.max(SHORTEST_PROBE_INTERVAL, Math.min(PROBE_INTERVAL, maxStale / 2))
    if (interval < this.#probeInterval) {
      this.#probeInterval = interval
      if (this.#cancelProbe !== undefined) this.#probeLater()
    }
    if (this.#begun) return
    this.#begun = true
    void this.#follow()
    this.#probeLater()
  }

  /** Resolves when the directory was loaded, or `signal` has fired. */
  ready(signal?: AbortSignal): Promise<void> {
    if (this.#loaded || signal?.aborted) return Promise.resolve()
    if (this.closed.aborted || isAccessDenied(this.#failure)) return Promise.reject(this.whyNotLoaded())
    return new Promise((resolve, reject) => {
      const wake = () => {
        cancel()
        signal?.removeEventListener('abort', wake)
        this.#waiting.delete(wake)
        if (this.#loaded || signal?.aborted) resolve()
        else reject(this.whyNotLoaded())
      }
      const cancel = this.clock.after(TIMEOUT, wake, { ref: true })
      signal?.addEventListener('abort', wake)
      this.#waiting.add(wake)
    })
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  whyNotLoaded(): LeaseError {
    if (isAccessDenied(this.#failure)) return this.#failure
    if (this.closed.aborted) return this.whyClosed()
    return new LeaseError('UNAVAILABLE', 'no service is known yet: the lessor has not answered', { cause: this.#failure })
  }

  whyClosed(): LeaseError {
    return new LeaseError('UNAVAILABLE', 'these leases were closed: the list of services is not kept up to date any more', {
      cause: this.#failure,
    })
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closing
    let reload = true
    for (let failures = 0; !signal.aborted && !this.#lessor.signal.aborted; failures++) {
      let refused = false
      try {
        if (reload) await this.#load()
        reload = false
        this.#watching = true
        for await (const events of this.#lessor.watch(SERVICES, { after: this.directory.revision, signal })) {
          failures = 0
          if (events[0]!.type === 'resync') {
            reload = true
            break
          }
          this.directory.apply(events)
        }
      } catch (error) {
        this.#failure = error
        // A refusal repeats, so calls that wait fail now. A key that may read and not watch reads again and again.
        refused = isAccessDenied(error)
        reload ||= refused
        if (refused) this.#wake()
      }
      this.#watching = false
      // With jitter: when a server returns, all its watchers return.
      if (!reload || refused || !this.#loaded)
        await pause(this.clock, jittered(this.clock, pauseAfter(BACKOFF.stream, failures)), signal).catch(() => {})
    }
    if (this.#lessor.signal.aborted) this.#failure = this.#lessor.signal.reason
    this.close()
  }

  async #load(): Promise<void> {
    const fresh = this.#moment()
    const { signal } = this.#closing
    const { value, revision } = await this.#lessor.read({ kind: 'entries', prefix: SERVICES }, { consistent: true, signal })
    const services = await this.#lessor.read({ kind: 'services' }, { atLeast: revision, signal })
    const preserved = services.value.filter(({ preserving }) => preserving)
    this.directory.load(
      value,
      revision,
      preserved.map(({ service, suspect, instances }) => [service, `${suspect} of ${instances} missed a renewal: lapses are slowed`]),
    )
    this.#fresh = fresh
    this.#loaded = true
    this.#failure = undefined
    this.#wake()
  }

  #moment(): Sent {
    return { number: 0, now: this.clock.now(), uptime: this.clock.uptime() }
  }

  /** A consistent answer while the watch runs proves that the directory is current. Runs in a timer: never throws. */
  #probeLater(): void {
    this.#cancelProbe?.()
    this.#cancelProbe = this.clock.after(this.#probeInterval, () => {
      if (this.#closing.signal.aborted) return
      // Without views there is no reader: let the directory age until there is one.
      const needed = this.#watching && this.directory.views > 0
      const fresh = this.#moment()
      const answer = needed ? this.#lessor.read({ kind: 'summary' }, { consistent: true, signal: this.#closing.signal }) : undefined
      answer?.then(
        () => {
          if (this.#watching) this.#fresh = fresh
        },
        error => {
          this.#failure = error
        },
      )
      this.#probeLater()
    })
  }

  close(): void {
    this.#closing.abort()
    this.#cancelProbe?.()
    this.#wake()
  }
}

/** The lessor refuses this client until an operator changes its key: the same request would be refused again. */
function isAccessDenied(error: unknown): error is LeaseError {
  return LeaseError.is(error, 'FORBIDDEN', 'UNAUTHENTICATED')
}
