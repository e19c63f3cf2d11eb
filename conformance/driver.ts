/** The conductor's side of a driver: one JSON line out, one JSON line back. README.md describes the messages. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Moment } from './virtual-clock.ts'

export interface DriverEvent {
  readonly event: 'answer' | 'lost' | 'position'
  readonly client: string
  readonly call?: number
  readonly lease?: string
  readonly value?: Readonly<Record<string, unknown>> | null
  readonly error?: {
    readonly code: string
    /** Null without one. */
    readonly reason?: string | null
    readonly message: string
    readonly facts: Readonly<Record<string, unknown>>
  }
  readonly position?: number
}

export interface DriverReply {
  readonly open: readonly { readonly client: string; readonly connection: number; readonly address: number }[]
  readonly send: readonly { readonly client: string; readonly connection: number; readonly data: string }[]
  readonly close: readonly { readonly client: string; readonly connection: number }[]
  readonly events: readonly DriverEvent[]
  /** When each client has something to do next, on its monotonic clock. */
  readonly next: Readonly<Record<string, number | null>>
  readonly held?: Readonly<Record<string, number>>
}

export interface DriverMessage {
  readonly do: 'client' | 'call' | 'opened' | 'failed' | 'bytes' | 'closed' | 'tick' | 'look'
  readonly client: string
  readonly at: Moment
  readonly [name: string]: unknown
}

export class Driver {
  readonly #process: ChildProcess
  readonly #waiting: { resolve: (reply: DriverReply) => void; reject: (error: Error) => void }[] = []
  #over: Error | undefined

  constructor(command: readonly string[]) {
    const [file = '', ...args] = command
    this.#process = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    createInterface({ input: this.#process.stdout! }).on('line', line => this.#waiting.shift()?.resolve(JSON.parse(line) as DriverReply))
    this.#process.on('exit', code => {
      this.#over = new Error(`the driver ended with ${code}`)
      for (const { reject } of this.#waiting.splice(0)) reject(this.#over)
    })
  }

  say(message: DriverMessage): Promise<DriverReply> {
    return new Promise((resolve, reject) => {
      if (this.#over !== undefined) return reject(this.#over)
      this.#waiting.push({ resolve, reject })
      this.#process.stdin!.write(`${JSON.stringify(message)}\n`)
    })
  }

  close(): void {
    this.#process.stdin!.end()
  }
}
