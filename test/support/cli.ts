/** Runs the built command line as users do: real processes, in a temporary folder. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { EVENT_TIMEOUT } from './bounds.ts'
import { type Answered, runInHost } from './command-host.ts'

export const program = fileURLToPath(new URL('../../dist/cli/leasehold.js', import.meta.url))

export interface Finished {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly process: ChildProcess
  readonly pid: number
  readonly finished: Promise<Finished>
  stdout(): string
  stderr(): string
  /** Resolves when `pattern` was printed on either stream. Rejects if the process ends without printing it. */
  printed(pattern: RegExp): Promise<RegExpExecArray>
}

/** Processes to kill when a test runs out of time. Their guardians end what they have started. */
const remaining = new Set<ChildProcess>()
process.once('exit', () => {
  for (const child of remaining) child.kill('SIGKILL')
})

interface StartOptions {
  readonly input?: string
  readonly env?: Record<string, string>
  /** @default the folder of the place */
  readonly cwd?: string
}

export class Place {
  readonly path = mkdtempSync(join(tmpdir(), 'leasehold-cli-'))
  readonly env: Record<string, string | undefined>
  readonly #running = new Set<Running>()

  constructor(env: Readonly<Record<string, string | undefined>> = {}) {
    const { LEASEHOLD_URL: _, LEASEHOLD_HOLDER: __, LEASEHOLD_API_KEY: ___, LEASEHOLD_LEASE: ____, ...ours } = process.env
    this.env = { ...ours, XDG_STATE_HOME: this.path, ...env }
  }

  get url(): string {
    return `file:${join(this.path, 'leasehold', 'leasehold.db')}`
  }

  file(name: string): string {
    return join(this.path, name)
  }

  start(args: readonly string[], options: StartOptions = {}): Running {
    return this.spawn(process.execPath, [program, ...args], options)
  }

  run(args: readonly string[], options?: StartOptions): Promise<Finished> {
    return this.start(args, options).finished
  }

  /** As `run`, for a command that ends by itself and starts nothing, in a process that such commands share: the start of one takes a third of a second of CPU. */
  answer(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Answered> {
    return runInHost(args, { ...this.env, ...env }, this.path)
  }

  /** Runs a command with --json and returns the objects that it prints. */
  async json(...args: string[]): Promise<Record<string, unknown>[]> {
    const { code, stdout, stderr } = await this.answer([...args, '--json'])
    if (code !== 0) throw new Error(`leasehold ${args.join(' ')} ended with ${code}: ${stderr}`)
    return stdout
      .split('\n')
      .filter(line => line !== '')
      .map(line => JSON.parse(line) as Record<string, unknown>)
  }

  spawn(file: string, args: readonly string[], { input, env, cwd = this.path }: StartOptions = {}): Running {
    // In its own session: without a terminal, even if the tests run in one.
    const child = spawn(file, args, { env: { ...this.env, ...env }, cwd, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    remaining.add(child)
    const texts = { stdout: '', stderr: '' }
    const listeners = new Set<() => void>()
    for (const name of ['stdout', 'stderr'] as const)
      child[name]!.setEncoding('utf8').on('data', (text: string) => {
        texts[name] += text
        for (const check of listeners) check()
      })
    child.stdin!.on('error', () => {})
    if (input !== undefined) child.stdin!.end(input)
    const finished = new Promise<Finished>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', () => remaining.delete(child))
      child.once('close', (code, signal) => {
        this.#running.delete(running)
        resolve({ code, signal, ...texts })
      })
    })
    const running: Running = {
      process: child,
      pid: child.pid!,
      finished,
      stdout: () => texts.stdout,
      stderr: () => texts.stderr,
      printed: pattern =>
        new Promise((resolve, reject) => {
          const check = () => {
            const found = pattern.exec(texts.stdout) ?? pattern.exec(texts.stderr)
            if (found === null) return
            listeners.delete(check)
            resolve(found)
          }
          listeners.add(check)
          check()
          finished.then(({ code }) => reject(new Error(`ended with ${code} before ${pattern}: ${texts.stdout}${texts.stderr}`)), reject)
        }),
    }
    this.#running.add(running)
    return running
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const running = [...this.#running]
    // Processes that they started may keep their pipes open. Do not wait for those.
    for (const { process: child } of running) {
      child.kill('SIGKILL')
      for (const stream of child.stdio) stream?.destroy()
    }
    await Promise.allSettled(running.map(({ finished }) => finished))
    rmSync(this.path, { recursive: true, force: true })
  }
}

export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'))
  } catch {
    return false
  }
}

/** Polls until `look` returns something true. For conditions that real processes bring about; fails after `within` ms. */
export async function eventually<T>(what: string, look: () => T | Promise<T>, within = EVENT_TIMEOUT): Promise<NonNullable<T>> {
  const end = performance.now() + within
  for (;;) {
    const found = await look()
    if (found) return found as NonNullable<T>
    if (performance.now() > end) throw new Error(`not true after ${within} ms: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

/** Processes whose command line contains `mark`. */
export function processesWith(mark: string): number[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return []
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(mark) && alive(Number(name)) ? [Number(name)] : []
    } catch {
      return []
    }
  })
}

export const isLinux = process.platform === 'linux' && existsSync('/proc/self/stat')
