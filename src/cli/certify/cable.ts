/** A way to the engine over a loopback port of ours, on which an answer can be cut off: the engine has done the work, and nobody hears of it. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Address } from './place.ts'

export class Cable implements AsyncDisposable {
  readonly #target: Address
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #doomed = 0
  /** So that nobody takes for survived what never happened. */
  cut = 0

  private constructor(target: Address) {
    this.#target = target
    this.#server = createServer(near => this.#accept(near))
  }

  static async to(target: Address): Promise<Cable> {
    const cable = new Cable(target)
    cable.#server.listen(0, '127.0.0.1')
    await once(cable.#server, 'listening')
    return cable
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** The next so many answers are cut off, together with their connections. */
  cutAnswers(count: number): void {
    this.#doomed = count
  }

  heal(): void {
    this.#doomed = 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise(resolve => this.#server.close(resolve))
  }

  #accept(near: Socket): void {
    const far = connect(this.#target)
    let asked = false
    near.on('data', bytes => {
      asked = true
      far.write(bytes)
    })
    far.on('data', bytes => {
      if (this.#doomed > 0 && asked) {
        this.#doomed--
        this.cut++
        near.destroy()
        return
      }
      asked = false
      near.write(bytes)
    })
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(one)
      one.setNoDelay(true)
      one.on('error', () => {}) // its close is what matters
      one.on('end', () => other.end())
      one.on('close', () => {
        other.destroy()
        this.#sockets.delete(one)
      })
    }
  }
}
