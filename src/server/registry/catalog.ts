/**
 * The server's own directory of instances, kept up to date by one watch. Lists, feeds for Prometheus and Envoy, DNS and health checks all read
 * it. The watch starts on first use.
 *
 * Not promised: the newest state. A caller that needs it reads the log's end (`listAt`), which costs a read of the whole service.
 */
import { BACKOFF } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import type { Lessor, ReadOptions } from '../../lessor.ts'
import { Directory } from '../../registry/directory.ts'
import { SERVICES } from '../../registry/entry.ts'

const catalogs = new WeakMap<Lessor, Catalog>()

export class Catalog {
  readonly directory = new Directory()
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #closing: AbortSignal
  #loading: Promise<void> | undefined

  private constructor({ lessor, clock, closing }: CatalogOptions) {
    this.#lessor = lessor
    this.#clock = clock
    this.#closing = closing
  }

  /** The catalog of a server; created on first use. */
  static of(options: CatalogOptions): Catalog {
    const existing = catalogs.get(options.lessor)
    // The catalog of a server that closed gets no more events.
    if (existing !== undefined && !existing.#closing.aborted) return existing
    const fresh = new Catalog(options)
    catalogs.set(options.lessor, fresh)
    return fresh
  }

  /** Resolves when the directory was loaded. */
  async ready(): Promise<this> {
    this.#loading ??= this.#begin()
    await this.#loading
    return this
  }

  /** A new directory of one service, or of all, read as `options` say: at the log's end, or at a revision or later. */
  async listAt(service: string | undefined, options: ReadOptions): Promise<Directory> {
    const prefix = service === undefined ? SERVICES : `${SERVICES}/${service}`
    const { revision, value } = await this.#lessor.read({ kind: 'entries', prefix }, options)
    const directory = new Directory()
    directory.load(value, revision)
    return directory
  }

  async #begin(): Promise<void> {
    try {
      await this.#load()
    } catch (error) {
      this.#loading = undefined
      throw error
    }
    void this.#follow()
  }

  async #load(): Promise<void> {
    const { revision, value } = await this.#lessor.read({ kind: 'entries', prefix: SERVICES }, { consistent: true })
    this.directory.load(value, revision)
  }

  async #follow(): Promise<void> {
    const signal = this.#closing
    while (!signal.aborted && !this.#lessor.signal.aborted) {
      try {
        for await (const events of this.#lessor.watch(SERVICES, { after: this.directory.revision, signal })) {
          if (events[0]!.type === 'resync') await this.#load()
          else this.directory.apply(events)
        }
      } catch {
        // Keep what is known, and try again.
        await pause(this.#clock, BACKOFF.background.first, signal).catch(() => {})
      }
    }
  }
}

export interface CatalogOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly closing: AbortSignal
}
