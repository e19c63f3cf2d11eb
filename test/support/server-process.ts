/** A server in its own process, on a file. Tests kill, suspend and restart it. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('../../bench/server-child.mjs', import.meta.url))

export class ServerProcess implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), 'leasehold-server-'))
  #child: ChildProcess | undefined
  port = 0

  static async start(): Promise<ServerProcess> {
    const server = new ServerProcess()
    await server.start()
    return server
  }

  /** Starts the server, again on the same port and file. */
  async start(): Promise<void> {
    const child = fork(program, [join(this.#folder, 'leases.db'), String(this.port)])
    const [message] = (await Promise.race([once(child, 'message'), once(child, 'exit').then(() => [undefined])])) as [
      { port: number } | undefined,
    ]
    if (message === undefined) throw new Error('the server did not start')
    this.#child = child
    this.port = message.port
  }

  get url(): string {
    return `leasehold://127.0.0.1:${this.port}`
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#child!.pid!, signal)
  }

  async kill(): Promise<void> {
    const child = this.#child!
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child?.exitCode === null && this.#child.signalCode === null) await this.kill()
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
