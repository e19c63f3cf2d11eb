/**
 * A connection that can be cut: stands on a loopback port of its own and passes bytes on, until it is told otherwise.
 *
 * What a cut looks like matters: refused before anything was sent, silent while the connection stays open, or gone when the engine has done
 * the work and its answer was on the way.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

type Mode = 'open' | 'refusing' | 'silent'

interface Address {
  readonly host: string
  readonly port: number
}

export class Cable implements AsyncDisposable {
  readonly #target: Address
  readonly #server: Server
  readonly #pairs = new Set<{ readonly near: Socket; readonly far: Socket }>()
  #mode: Mode = 'open'
  #swallow = 0
  /** Answers that were cut off, so that a test can say that it happened. */
  cut = 0

  private constructor(target: Address) {
    this.#target = target
    this.#server = createServer(near => this.#accept(near))
  }

  /** To an address, or to a port of this machine. */
  static async to(target: Address | number): Promise<Cable> {
    const cable = new Cable(typeof target === 'number' ? { host: '127.0.0.1', port: target } : target)
    cable.#server.listen(0, '127.0.0.1')
    await once(cable.#server, 'listening')
    return cable
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Ends every connection, and new ones at once. */
  refuse(): void {
    this.#mode = 'refusing'
    this.disconnect()
  }

  /** Connections stay, and new ones are accepted; nothing passes in either direction. */
  silence(): void {
    this.#mode = 'silent'
    for (const { near, far } of this.#pairs) {
      near.pause()
      far.pause()
    }
  }

  /** Requests pass, answers do not: as if the client had been stopped after it asked. */
  deafen(): void {
    for (const { far } of this.#pairs) far.pause()
  }

  heal(): void {
    this.#mode = 'open'
    this.#swallow = 0
    for (const { near, far } of this.#pairs) {
      near.resume()
      far.resume()
    }
  }

  disconnect(): void {
    for (const { near, far } of this.#pairs) {
      near.destroy()
      far.destroy()
    }
  }

  /** The next so many answers are cut off: the engine has done what was asked, and nobody hears of it. */
  cutAnswers(count = 1): void {
    this.#swallow = count
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect()
    if (this.#server.listening) await new Promise(resolve => this.#server.close(resolve))
  }

  #accept(near: Socket): void {
    if (this.#mode === 'refusing') return void near.destroy()
    const far = connect(this.#target)
    const pair = { near, far }
    this.#pairs.add(pair)
    let asked = false
    near.on('data', bytes => {
      asked = true
      far.write(bytes)
    })
    far.on('data', bytes => {
      if (this.#swallow > 0 && asked) {
        this.#swallow--
        this.cut++
        near.destroy()
        far.destroy()
        return
      }
      asked = false
      near.write(bytes)
    })
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.setNoDelay(true)
      one.on('error', () => {})
      one.on('end', () => other.end())
      one.on('close', () => {
        other.destroy()
        this.#pairs.delete(pair)
      })
    }
    if (this.#mode === 'silent') {
      near.pause()
      far.pause()
    }
  }
}

/** The same URL, with each of the engine's ports replaced by that of a cable. */
export function through(url: string, ports: readonly number[], cables: readonly Cable[]): string {
  return ports.reduce((changed, port, i) => changed.replace(`127.0.0.1:${port}`, `127.0.0.1:${cables[i]!.port}`), url)
}
