/** A connection as a wire sees it: bytes one way, bytes the other, and an end. A socket, or what a simulator makes of one. */
import type { Socket } from 'node:net'

export interface ByteLink {
  /** The bytes belong to the link from here on. */
  write(bytes: Uint8Array): void
  /** Bytes written that the other side has not taken yet, as far as this side knows. */
  readonly backlog: number
  /** No more data is brought until `resume`. */
  pause(): void
  resume(): void
  /** Sends what was written, and no more. */
  end(): void
  /** It is over now, whatever was under way. */
  destroy(): void
  /** Whether it keeps the process alive. */
  hold?(hold: boolean): void
}

/** Whom the link tells. Never called again after `closed`. */
export interface ByteLinkEnd {
  /** Good only until it returns. */
  data(bytes: Uint8Array): void
  /** The backlog is gone. */
  drained(): void
  /** The other side will send no more. */
  ended(): void
  /** `why`, where it did not simply end. */
  closed(why?: Error): void
}

export function linkOver(socket: Socket, end: ByteLinkEnd): ByteLink {
  socket.on('data', (chunk: Buffer) => end.data(chunk))
  socket.on('drain', () => end.drained())
  socket.on('end', () => end.ended())
  let why: Error | undefined
  socket.on('error', error => (why = error))
  socket.on('close', () => end.closed(why))
  return {
    write: bytes => void (socket.writable && socket.write(bytes)),
    get backlog() {
      return socket.writableLength
    },
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
    end: () => void socket.end(),
    destroy: () => void socket.destroy(),
    hold: hold => void (hold ? socket.ref() : socket.unref()),
  }
}
