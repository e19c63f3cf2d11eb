/** Watches as the cases use them. */
import type { Event } from '../../kernel/event.ts'
import type { Lessor, WatchOptions } from '../../lessor.ts'
import { within } from '../suite-case.ts'

/** Collects the events of a watch. */
export class Watcher implements AsyncDisposable {
  readonly seen: (readonly Event[])[] = []
  readonly #controller = new AbortController()
  readonly #running: Promise<void>
  #failed: unknown
  #wake = () => {}

  constructor(lessor: Lessor, prefix: string, options: Omit<WatchOptions, 'signal'>) {
    this.#running = this.#run(lessor, prefix, options).catch(error => {
      this.#failed = error
      this.#wake()
    })
  }

  async #run(lessor: Lessor, prefix: string, options: Omit<WatchOptions, 'signal'>): Promise<void> {
    for await (const events of lessor.watch(prefix, { ...options, signal: this.#controller.signal })) {
      this.seen.push(events)
      this.#wake()
    }
  }

  /** The events of a revision, once they have arrived. */
  async at(revision: number): Promise<readonly Event[]> {
    return within(
      (async () => {
        for (;;) {
          if (this.#failed !== undefined) throw this.#failed
          const found = this.seen.find(events => events[0]!.revision >= revision)
          if (found !== undefined) return found
          await new Promise<void>(resolve => {
            this.#wake = resolve
          })
        }
      })(),
    )
  }

  /** Waits for the answer to a read: a remote lessor has received the watch by then. */
  async begun(lessor: Lessor): Promise<void> {
    await lessor.read({ kind: 'summary' }, { consistent: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort()
    await within(this.#running)
  }
}
