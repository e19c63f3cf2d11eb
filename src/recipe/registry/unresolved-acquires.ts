/**
 * Acquires whose caller was told that the outcome is unknown. One that is carried out late takes its entries over from a later registration of the same
 * process, and is then released with them: the later one would keep a lease without entries, or be refused as older. So it waits.
 */
import { LeaseError } from '../../errors.ts'

export class UnresolvedAcquires {
  /** The last for each key of an entry: they are resolved in the order in which they were made. */
  readonly #byKey = new Map<string, Promise<void>>()

  /** Resolves when no acquire of these keys can be carried out any more; undefined if none can now. */
  settled(keys: readonly string[]): Promise<unknown> | undefined {
    const pending = keys.flatMap(key => this.#byKey.get(key) ?? [])
    return pending.length === 0 ? undefined : Promise.all(pending)
  }

  /** Runs an acquire of these keys. It calls `settled` when its outcome is known after all. */
  async track<T>(keys: readonly string[], acquire: (settled: () => void) => Promise<T>): Promise<T> {
    let settle = () => {}
    const settled = new Promise<void>(resolve => {
      settle = resolve
    })
    try {
      return await acquire(settle)
    } catch (error) {
      if (LeaseError.is(error, 'UNKNOWN')) this.#wait(keys, settled)
      throw error
    }
  }

  #wait(keys: readonly string[], settled: Promise<void>): void {
    for (const key of keys) this.#byKey.set(key, settled)
    void settled.then(() => {
      for (const key of keys) if (this.#byKey.get(key) === settled) this.#byKey.delete(key)
    })
  }
}
