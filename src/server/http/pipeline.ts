/**
 * Limits the pipelined requests of one HTTP connection.
 *
 * Node parses a whole chunk before the first of its requests is answered. A chunk of 64 KiB may contain thousands of requests that cost some kilobytes each. So chunks
 * are passed to the parser in small pieces, and none while enough requests wait for their response or the client does not read. The rest stays in the
 * socket, and the client has to wait.
 */
import type { Socket } from 'node:net'
import { Connections, type TrackedConnection } from '../connections.ts'

/** Bytes that are parsed at once. */
const PIECE = 2 << 10
/** Maximum requests that wait for their response. Beyond it, no more are parsed. */
const MAX_WAITING = 16
/** Memory of a request that waits behind another, without its response. */
const REQUEST_BYTES = 8 << 10

export class Pipeline {
  static readonly #bySocket = new WeakMap<object, Pipeline>()
  readonly #socket: Socket
  readonly #connection: TrackedConnection | undefined
  #waiting = 0
  /** Bytes of responses that are ready and not sent. */
  #bytes = 0
  /** This class paused the socket, and not Node. */
  #paused = false

  private constructor(socket: Socket) {
    this.#socket = socket
    this.#connection = Connections.of(socket)
  }

  /** Call this after Node has added its own listeners to the socket. */
  static attach(socket: Socket): Pipeline {
    const pipeline = new Pipeline(socket)
    Pipeline.#bySocket.set(socket, pipeline)
    const [parse, ...others] = socket.listeners('data') as ((chunk: Buffer) => void)[]
    // A version of Node that reads in another way is left alone. It parses one chunk before it answers.
    if (parse === undefined || others.length > 0) return pipeline
    socket.off('data', parse)
    socket.on('data', chunk => pipeline.#feed(chunk, parse))
    socket.on('drain', () => pipeline.#resume())
    return pipeline
  }

  static of(socket: object): Pipeline | undefined {
    return Pipeline.#bySocket.get(socket)
  }

  get connection(): TrackedConnection | undefined {
    return this.#connection
  }

  get #isFull(): boolean {
    return this.#waiting >= MAX_WAITING || this.#socket.writableNeedDrain
  }

  #feed(chunk: Buffer, parse: (chunk: Buffer) => void): void {
    const socket = this.#socket
    for (let at = 0; at < chunk.length; at += PIECE) {
      if (this.#isFull && !socket.isPaused()) {
        this.#paused = true
        socket.pause()
      }
      // Node pauses the socket as well, and resumes it by itself.
      if (socket.isPaused()) return socket.unshift(chunk.subarray(at))
      parse.call(socket, chunk.subarray(at, at + PIECE))
      if (socket.destroyed) return
    }
  }

  #resume(): void {
    if (!this.#paused || this.#isFull) return
    this.#paused = false
    this.#socket.resume()
  }

  /** A request was parsed. */
  requestParsed(): void {
    this.#waiting++
    if (this.#waiting === 1) this.#connection?.setBusy(true)
    this.#reportUnread()
  }

  /** The response is ready, and takes `bytes` until it is sent. */
  responseReady(bytes: number): void {
    this.#bytes += bytes
    this.#reportUnread()
  }

  /** The response was sent, or the client has disconnected. `bytes` as passed to `responseReady`. */
  responseSent(bytes: number): void {
    this.#waiting--
    this.#bytes -= bytes
    if (this.#waiting === 0) this.#connection?.setBusy(false)
    this.#reportUnread()
    this.#resume()
  }

  #reportUnread(): void {
    this.#connection?.setUnread(this.#bytes + Math.max(0, this.#waiting - 1) * REQUEST_BYTES)
  }
}
