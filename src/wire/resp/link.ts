/** A byte stream in both directions, as both ends of RESP use it: a socket, or the simulator's stand-in for one. */
import type { Socket } from 'node:net'

export interface ByteLink {
  /** The link owns the bytes from here on: do not change them. */
  write(bytes: Uint8Array): void
  /** Bytes written that the other side has not taken yet, as far as this side knows. */
  readonly backlog: number
  /** Delivers no more data until `resume`. */
  pause(): void
  resume(): void
  /** Closes this direction after everything written was sent. */
  end(): void
  /** Closes the link at once, and drops what was not sent. */
  destroy(): void
  /** Lets the link keep the process alive, or not. */
  keepProcessAlive?(alive: boolean): void
}

/** Receives what happens on a link. Nothing is called after `closed`. */
export interface ByteLinkEnd {
  /** The bytes are valid only until `data` returns. */
  data(bytes: Uint8Array): void
  /** The backlog is gone. */
  drained(): void
  /** The other side will send no more. */
  ended(): void
  /** `why` is set if the link did not end in the normal way. */
  closed(why?: Error): void
}

export function linkOver(socket: Socket, end: ByteLinkEnd): ByteLink {
  socket.on('data', end.data.bind(end))
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
    keepProcessAlive: alive => void (alive ? socket.ref() : socket.unref()),
  }
}
