/**
 * Runs a program that may hang, fail or print without end, and returns what it printed.
 *
 * A program in an uninterruptible system call survives KILL, as `nvidia-smi` does when a driver is stuck. It is left behind, and no other one is started
 * while it exists: otherwise a host would fill with them.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import type { Clock } from '../clock.ts'
import { inWords } from '../duration.ts'
import { type ErrorReason, LeaseError } from '../errors.ts'

const MAX_STDERR = 4_096

export interface BoundedProgramOptions {
  readonly clock: Clock
  /** Ms that one run may take. @default 10,000 */
  readonly timeout?: number | undefined
  /** @default 1 MiB */
  readonly maxBytes?: number | undefined
  readonly env?: NodeJS.ProcessEnv | undefined
}

export class BoundedProgram {
  readonly #clock: Clock
  readonly #timeout: number
  readonly #maxBytes: number
  readonly #env: NodeJS.ProcessEnv
  #stuck: ChildProcess | undefined

  constructor({ clock, timeout = 10_000, maxBytes = 1 << 20, env = process.env }: BoundedProgramOptions) {
    this.#clock = clock
    this.#timeout = timeout
    this.#maxBytes = maxBytes
    this.#env = env
  }

  /** `env`: variables beside those of the options. Returns stdout. Throws `UNAVAILABLE` with the reason `program-missing`, `program-failed`, `program-timeout`, `program-output` or `program-stuck`. */
  run([file = '', ...args]: readonly string[], signal: AbortSignal, env: NodeJS.ProcessEnv = {}): Promise<string> {
    if (this.#stuck !== undefined) {
      const { pid } = this.#stuck
      return Promise.reject(failure(file, `still hangs (pid ${pid}), so no other one is started`, 'program-stuck'))
    }
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason)
      // In its own session, so that whatever it starts can be killed with it.
      const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...this.#env, ...env }, detached: true })
      const out: Buffer[] = []
      let bytes = 0
      let stderr = ''
      let over = false
      const settle = (then: () => void) => {
        if (over) return
        over = true
        cancel()
        signal.removeEventListener('abort', onAbort)
        then()
      }
      const kill = () => {
        if (child.pid === undefined) return
        if (child.exitCode === null && child.signalCode === null) {
          this.#stuck = child
          child.once('exit', () => {
            if (this.#stuck === child) this.#stuck = undefined
          })
        }
        try {
          process.kill(-child.pid, 'SIGKILL')
        } catch {
          // It has ended in the meantime.
        }
        // Do not wait for a process that cannot be killed.
        child.unref()
        child.stdout.destroy()
        child.stderr.destroy()
      }
      const fail = (text: string, reason: ProgramFailure) =>
        settle(() => {
          kill()
          reject(failure(file, text, reason))
        })
      const onAbort = () =>
        settle(() => {
          kill()
          reject(signal.reason)
        })
      const cancel = this.#clock.after(this.#timeout, () => fail(`did not answer within ${inWords(this.#timeout)}`, 'program-timeout'), {
        ref: true,
      })
      signal.addEventListener('abort', onAbort, { once: true })
      child.once('error', error => fail(missing(error) ? 'was not found' : `could not be started: ${error.message}`, 'program-missing'))
      child.stdout.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes > this.#maxBytes) fail(`printed more than ${this.#maxBytes} bytes`, 'program-output')
        else out.push(chunk)
      })
      child.stderr.on('data', (chunk: Buffer) => {
        if (stderr.length < MAX_STDERR) stderr += chunk.toString('utf8')
      })
      child.once('close', (code, ended) => {
        const text = Buffer.concat(out).toString('utf8')
        if (code === 0) return settle(() => resolve(text))
        // nvidia-smi prints its errors on stdout.
        const said = (stderr.trim() || text.trim()).split('\n')[0]!.slice(0, 200)
        fail(`ended with ${ended ?? `code ${code}`}${said === '' ? '' : `: ${said}`}`, 'program-failed')
      })
    })
  }
}

function missing(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT'
}

type ProgramFailure = Extract<ErrorReason, `program-${string}`>

function failure(file: string, text: string, reason: ProgramFailure): LeaseError {
  return new LeaseError('UNAVAILABLE', `${file} ${text}`, { reason, facts: { program: file } })
}
