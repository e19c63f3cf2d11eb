/**
 * The requests of one HTTP connection that are parsed and not answered yet.
 *
 * Node parses everything that a chunk holds before the first request is answered: a chunk of 64 KiB may hold thousands, each of which costs some
 * kilobytes. So chunks are handed to its parser in small pieces, and none while enough requests wait for their answers, or while the peer does not
 * read them. What is not parsed stays in the socket, and the peer has to wait.
 */
import type { Socket } from 'node:net'
import { type Connection, Connections } from '../connections.ts'

/** Bytes that are parsed at once. */
const PIECE = 2 << 10
/** Requests that wait for their answers before no more are parsed. */
const MAX_WAITING = 16
/** What a request costs that waits behind another, without its answer. */
const REQUEST_BYTES = 8 << 10

export class Pipeline {
  static readonly #bySocket = new WeakMap<object, Pipeline>()
  readonly #socket: Socket
  readonly #connection: Connection | undefined
  #waiting = 0
  /** Bytes of answers that are made and not sent. */
  #bytes = 0
  /** We stopped reading, and not Node. */
  #held = false

  private constructor(socket: Socket) {
    this.#socket = socket
    this.#connection = Connections.of(socket)
  }

  /** To be called when Node's own listeners are on the socket. */
  static over(socket: Socket): Pipeline {
    const pipeline = new Pipeline(socket)
    Pipeline.#bySocket.set(socket, pipeline)
    const [parse, ...others] = socket.listeners('data') as ((chunk: Buffer) => void)[]
    // Another version of Node that reads in another way is left alone: it reads no more than it answers between two chunks.
    if (parse === undefined || others.length > 0) return pipeline
    socket.off('data', parse)
    socket.on('data', chunk => pipeline.#feed(chunk, parse))
    socket.on('drain', () => pipeline.#goOn())
    return pipeline
  }

  static of(socket: object): Pipeline | undefined {
    return Pipeline.#bySocket.get(socket)
  }

  get connection(): Connection | undefined {
    return this.#connection
  }

  get #isFull(): boolean {
    return this.#waiting >= MAX_WAITING || this.#socket.writableNeedDrain
  }

  #feed(chunk: Buffer, parse: (chunk: Buffer) => void): void {
    const socket = this.#socket
    for (let at = 0; at < chunk.length; at += PIECE) {
      if (this.#isFull && !socket.isPaused()) {
        this.#held = true
        socket.pause()
      }
      // Node pauses it, too, and goes on by itself.
      if (socket.isPaused()) return socket.unshift(chunk.subarray(at))
      parse.call(socket, chunk.subarray(at, at + PIECE))
      if (socket.destroyed) return
    }
  }

  #goOn(): void {
    if (!this.#held || this.#isFull) return
    this.#held = false
    this.#socket.resume()
  }

  /** A request was parsed. */
  asked(): void {
    this.#waiting++
    if (this.#waiting === 1) this.#connection?.busy(true)
    this.#tell()
  }

  /** Its answer is known, and takes so many bytes until it is sent. */
  answered(bytes: number): void {
    this.#bytes += bytes
    this.#tell()
  }

  /** It was sent, or its peer has left. `bytes` as `answered` was told. */
  sent(bytes: number): void {
    this.#waiting--
    this.#bytes -= bytes
    if (this.#waiting === 0) this.#connection?.busy(false)
    this.#tell()
    this.#goOn()
  }

  #tell(): void {
    this.#connection?.owed(this.#bytes + Math.max(0, this.#waiting - 1) * REQUEST_BYTES)
  }
}
