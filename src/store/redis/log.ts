/** One log in one Redis: its keys, its commands and scripts, and why it has diverged. */
import { type ErrorCode, LeaseError } from '../../errors.ts'
import type { Position, Rejected } from '../../store.ts'
import type { RedisConnection } from './connection.ts'
import type { RedisArgument } from './driver.ts'
import type { EngineAges } from './engine-ages.ts'
import { divergence, isWrongType, refusal } from './errors.ts'
import type { Script } from './script.ts'

export class RedisLog {
  readonly log: string
  readonly pointer: string
  readonly #connection: RedisConnection
  readonly #ages: EngineAges

  constructor(name: string, connection: RedisConnection, ages: EngineAges) {
    this.#ages = ages
    this.log = `{${name}}:log`
    this.pointer = `{${name}}:snapshot`
    this.#connection = connection
  }

  chunks(id: string): string {
    return `${this.pointer}:${id}`
  }

  /** Sends a command that can safely be repeated. */
  send(...args: readonly RedisArgument[]): Promise<unknown> {
    return this.#connection.send(args, { ifLost: 'UNAVAILABLE' })
  }

  /** Runs a script. Its answer is a word and what belongs to it. */
  run(script: Script, args: readonly RedisArgument[], { ifLost = 'UNAVAILABLE', key }: RunOptions = {}): Promise<ScriptAnswer> {
    const keys = key === undefined ? ['2', this.log, this.pointer] : ['3', this.log, this.pointer, key]
    const command = (name: string, code: string) => () => [name, code, ...keys, ...args, this.#ages.server]
    return this.#connection.send(command('EVALSHA', script.sha), { ifLost }).then(answerOf, error => {
      if (refusal(error.cause) === 'NOSCRIPT')
        return this.#connection.send(command('EVAL', script.text), { ifLost }).then(answerOf, foreign)
      return foreign(error)
    })
  }

  rejection([word, found]: ScriptAnswer, { index }: Position): Rejected {
    return word === 'trimmed' ? { kind: 'trimmed' } : { kind: 'diverged', reason: this.reason([word, found], index) }
  }

  diverged(answer: ScriptAnswer, at: number, before = ''): LeaseError {
    if (answer[0] === 'former') return new LeaseError('UNSUPPORTED', this.reason(answer, at), { reason: 'older' })
    return new LeaseError('DIVERGED', `${before}${this.reason(answer, at)}`)
  }

  reason([word, found]: ScriptAnswer, at: number): string {
    return divergence(this.log, word, at, typeof found === 'number' ? found : at)
  }
}

export type ScriptAnswer = readonly [word: string, ...facts: unknown[]]

export interface RunOptions {
  readonly ifLost?: ErrorCode
  /** A third key for the script. */
  readonly key?: string
}

function answerOf(reply: unknown): ScriptAnswer {
  const [word, ...facts] = reply as [Buffer, ...unknown[]]
  return [text(word), ...facts]
}

function foreign(error: unknown): ScriptAnswer {
  if (isWrongType(error)) return ['foreign']
  throw error
}

/** A position as arguments of a script. */
export function positionArguments({ index, nonce }: Position): [string, string] {
  return [String(index), String(nonce)]
}

/** Numbers and ids are ASCII. */
export function text(bytes: Buffer): string {
  return bytes.toString('latin1')
}

export interface RedisPlace {
  /** Without the settings of the store. */
  readonly url: string
  /** For messages. */
  readonly where: string
  readonly name: string
  readonly settings: URLSearchParams
}

export function parseUrl(url: string | undefined, name: string | undefined): RedisPlace {
  let server: URL | undefined
  try {
    server = url === undefined ? undefined : new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'this is not a URL of Redis: write redis://user:password@host:port/database', { cause })
  }
  for (const setting of server?.searchParams.keys() ?? [])
    if (setting !== 'name' && setting !== 'clock')
      throw new LeaseError('INVALID', `redis:// has no setting ${setting}: it has name and clock, as in ?name=leasehold`)
  const settings = new URLSearchParams(server?.search)
  const chosen = name ?? server?.searchParams.get('name') ?? 'leasehold'
  // Braces in a key select the node of a cluster.
  if (!/^[^{}\s\p{Cc}]{1,128}$/u.test(chosen))
    throw new LeaseError('INVALID', `${JSON.stringify(chosen)} cannot name a log: use up to 128 characters without blanks or braces`)
  if (!server) return { url: '', where: 'Redis', name: chosen, settings }
  server.search = ''
  return { url: server.href, where: `${server.protocol}//${server.host}`, name: chosen, settings }
}
