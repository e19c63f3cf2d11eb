/** What comes in pieces over one connection and cannot be taken up again on another: a backup. */
import { LeaseError } from '../../errors.ts'
import type { ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'

export class BackupStream {
  readonly on: RespConnection
  readonly #news: (ServerMessage | LeaseError)[] = []
  #wake = () => {}

  constructor(on: RespConnection) {
    this.on = on
  }

  /** An answer, or why there will be none. */
  tell(news: ServerMessage | LeaseError): void {
    this.#news.push(news)
    this.#wake()
  }

  /** The bytes of the next piece; undefined after the last. Leaves nothing on the signal. */
  async next(signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    for (;;) {
      signal?.throwIfAborted()
      const news = this.#news.shift()
      if (news instanceof LeaseError) throw news
      if (news?.kind === 'failed') throw news.error
      if (news?.kind === 'chunk') return news.bytes
      if (news !== undefined) return undefined
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
