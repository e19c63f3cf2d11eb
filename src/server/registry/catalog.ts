/**
 * All that is registered, as this server knows it: one watch for every list, feed, name query and check. Begun when first asked.
 *
 * Not promised: the newest state. Whoever needs that asks the log's end instead (`listAt`), which costs a read of the whole service.
 */
import { type Clock, pause } from '../../clock.ts'
import type { Lessor, ReadOptions } from '../../lessor.ts'
import { Directory } from '../../registry/directory.ts'
import { SERVICES } from '../../registry/entry.ts'

const RETRY = 100
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

  /** The one of this server. */
  static of(options: CatalogOptions): Catalog {
    const known = catalogs.get(options.lessor)
    // One whose server closed hears nothing any more.
    if (known !== undefined && !known.#closing.aborted) return known
    const fresh = new Catalog(options)
    catalogs.set(options.lessor, fresh)
    return fresh
  }

  /** Itself, when it knows what was registered when this was first asked. */
  async ready(): Promise<this> {
    this.#loading ??= this.#begin()
    await this.#loading
    return this
  }

  /** One service, or all, at the log's end or at least at a revision: a directory of its own. */
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
        // What is known stays known; it is looked again.
        await pause(this.#clock, RETRY, signal).catch(() => {})
      }
    }
  }
}

export interface CatalogOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly closing: AbortSignal
}
