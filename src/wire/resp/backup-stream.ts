/** A backup that is being received. It belongs to one connection, and cannot be resumed on another. */
import { LeaseError } from '../../errors.ts'
import type { ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'

export class BackupStream {
  readonly on: RespConnection
  readonly #waiting: (ServerMessage | LeaseError)[] = []
  #wake = () => {}

  constructor(on: RespConnection) {
    this.on = on
  }

  /** A message of the backup, or the reason why no more will come. */
  push(next: ServerMessage | LeaseError): void {
    this.#waiting.push(next)
    this.#wake()
  }

  /** The bytes of the next chunk; undefined after the last. Leaves no listener behind. */
  async next(signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    for (;;) {
      signal?.throwIfAborted()
      const next = this.#waiting.shift()
      if (next instanceof LeaseError) throw next
      if (next?.kind === 'failed') throw next.error
      if (next?.kind === 'chunk') return next.bytes
      if (next !== undefined) return undefined
      await new Promise<void>(resolve => {
        this.#wake = () => {
          signal?.removeEventListener('abort', this.#wake)
          resolve()
        }
        signal?.addEventListener('abort', this.#wake, { once: true })
      })
    }
  }
}
