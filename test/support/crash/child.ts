/** The parent's end of `child.mjs`: asks, listens, and kills by number. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'

export interface Proposed {
  readonly outcome: Outcome
  /** On the machine's monotonic clock, which all its processes share. */
  readonly sent: number
  readonly answered: number
}

export class Child implements AsyncDisposable {
  readonly process: ChildProcess
  readonly #asked = new Map<number, { resolve: (value: never) => void; reject: (error: unknown) => void }>()
  #questions = 0
  /** Called for everything the child tells of itself. */
  onTold: (...told: unknown[]) => void = () => {}

  constructor() {
    this.process = fork(fileURLToPath(new URL('./child.mjs', import.meta.url)), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: [],
    })
    this.process.on('message', ([id, ...rest]: [number | 'told', ...unknown[]]) => {
      if (id === 'told') return this.onTold(...rest)
      const asked = this.#asked.get(id)
      this.#asked.delete(id)
      if (rest[0] === true) asked?.resolve(rest[1] as never)
      else asked?.reject(Object.assign(new Error((rest[1] as Error).message), rest[1]))
    })
    this.process.on('exit', () => {
      for (const { reject } of this.#asked.values()) reject(new Error('the process is gone'))
    })
  }

  ask<T>(call: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#questions
    return new Promise<T>((resolve, reject) => {
      this.#asked.set(id, { resolve, reject })
      this.process.send([id, call, ...args], error => error && reject(error))
    })
  }

  propose(command: Command): Promise<Proposed> {
    return this.ask('propose', command)
  }

  /** kill -9, by its number. */
  async kill(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return
    const exited = once(this.process, 'exit')
    process.kill(this.process.pid!, 'SIGKILL')
    await exited
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill()
  }
}

export async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const made = await mkdtemp(join(tmpdir(), 'leasehold-crash-'))
  return { path: join(made, 'log.db'), [Symbol.asyncDispose]: () => rm(made, { recursive: true }) }
}
