/**
 * A TCP proxy on a loopback port that a test can cut in different ways: it refuses connections, keeps them open without passing bytes, or
 * drops an answer after the engine has done the work.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

type ConnectionMode = 'open' | 'refusing' | 'silent'

/** An answer is lost; later requests are refused. */
export interface Breakdown {
  /** Answers that pass before one is lost. */
  readonly before: number
  /** Answers that pass between the lost one and the end. */
  readonly after: number
  /** Makes the engine refuse; nothing passes until it resolves. By default the port is closed. */
  readonly refuse?: () => Promise<void>
}

interface Address {
  readonly host: string
  readonly port: number
}

export class Cable implements AsyncDisposable {
  readonly #target: Address
  readonly #server: Server
  readonly #pairs = new Set<{ readonly near: Socket; readonly far: Socket }>()
  #mode: ConnectionMode = 'open'
  #swallow = 0
  #breakdown: Breakdown | undefined
  /** Answers that were cut off, so that a test can check that it happened. */
  cut = 0

  private constructor(target: Address) {
    this.#target = target
    this.#server = createServer(near => this.#accept(near))
  }

  /** Opens a proxy to an address, or to a port of this machine. */
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

  /** Cuts off this many answers: the engine has executed the requests, and the client does not learn of it. */
  cutAnswers(count = 1): void {
    this.#swallow = count
  }

  /** One answer is lost and a few more pass. From then on the engine is out of reach, or refuses, as `refuse` says. */
  breakDown(breakdown: Breakdown): void {
    this.#breakdown = breakdown
  }

  /** Closes the port, so that the system refuses new connections. */
  unplug(): void {
    this.#server.close()
    this.disconnect()
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
      if (asked && this.#isLost()) {
        this.cut++
        near.destroy()
        far.destroy()
        return
      }
      const counted = asked
      asked = false
      near.write(bytes)
      if (counted) this.#passed()
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

  #isLost(): boolean {
    if (this.#swallow > 0) {
      this.#swallow--
      return true
    }
    if (this.#breakdown?.before !== 0) return false
    this.#breakdown = { ...this.#breakdown, before: -1 }
    if (this.#breakdown.after === 0) this.#break()
    return true
  }

  #passed(): void {
    if (this.#breakdown === undefined) return
    const { before, after, ...rest } = this.#breakdown
    if (before >= 0) this.#breakdown = { ...rest, before: before - 1, after }
    else {
      this.#breakdown = { ...rest, before, after: after - 1 }
      if (after === 1) this.#break()
    }
  }

  #break(): void {
    const { refuse } = this.#breakdown!
    this.#breakdown = undefined
    if (refuse === undefined) return this.unplug()
    this.silence()
    void refuse().finally(() => this.heal())
  }
}

/** The same URL, with each of the engine's ports replaced by that of a proxy. */
export function through(url: string, ports: readonly number[], cables: readonly Cable[]): string {
  return ports.reduce((changed, port, i) => changed.replace(`127.0.0.1:${port}`, `127.0.0.1:${cables[i]!.port}`), url)
}
