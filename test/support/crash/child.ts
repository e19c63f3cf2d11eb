/** Starts `child.mjs`, sends it calls, receives its reports, and kills it by its process id. */
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
  readonly #pending = new Map<number, { resolve: (value: never) => void; reject: (error: unknown) => void }>()
  #lastId = 0
  /** Called for every report that the child sends on its own. */
  onTold: (...told: unknown[]) => void = () => {}

  constructor() {
    this.process = fork(fileURLToPath(new URL('./child.mjs', import.meta.url)), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: [],
    })
    this.process.on('message', ([id, ...rest]: [number | 'told', ...unknown[]]) => {
      if (id === 'told') return this.onTold(...rest)
      const request = this.#pending.get(id)
      this.#pending.delete(id)
      if (rest[0] === true) request?.resolve(rest[1] as never)
      else request?.reject(Object.assign(new Error((rest[1] as Error).message), rest[1]))
    })
    this.process.on('exit', () => {
      for (const { reject } of this.#pending.values()) reject(new Error('the process has exited'))
    })
  }

  ask<T>(call: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#lastId
    return new Promise<T>((resolve, reject) => {
      this.#pending.set(id, { resolve, reject })
      this.process.send([id, call, ...args], error => error && reject(error))
    })
  }

  propose(command: Command): Promise<Proposed> {
    return this.ask('propose', command)
  }

  /** kill -9, by its process id. */
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
