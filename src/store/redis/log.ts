/** One log in one Redis: its keys, how it is asked, and why it cannot be followed any more. */
import { type ErrorCode, LeaseError } from '../../errors.ts'
import type { Position, Rejected } from '../../store.ts'
import type { RedisConnection } from './connection.ts'
import type { RedisArgument } from './driver.ts'
import { divergence, isWrongType, refusal } from './errors.ts'
import type { Script } from './script.ts'

export class RedisLog {
  readonly log: string
  readonly pointer: string
  readonly #link: RedisConnection

  constructor(name: string, link: RedisConnection) {
    this.log = `{${name}}:log`
    this.pointer = `{${name}}:snapshot`
    this.#link = link
  }

  chunks(id: string): string {
    return `${this.pointer}:${id}`
  }

  /** For what may be asked again: whether it was done makes no difference. */
  ask(...args: readonly RedisArgument[]): Promise<unknown> {
    return this.#link.send(args, { ifLost: 'UNAVAILABLE' })
  }

  /** What a script answers: a word, and what goes with it. */
  run(script: Script, args: readonly RedisArgument[], { ifLost = 'UNAVAILABLE', key }: RunOptions = {}): Promise<ScriptAnswer> {
    const keys = key === undefined ? ['2', this.log, this.pointer] : ['3', this.log, this.pointer, key]
    return this.#link.send(['EVALSHA', script.sha, ...keys, ...args], { ifLost }).then(answerOf, error => {
      if (refusal(error.cause) === 'NOSCRIPT')
        return this.#link.send(['EVAL', script.text, ...keys, ...args], { ifLost }).then(answerOf, foreign)
      return foreign(error)
    })
  }

  rejection([word, found]: ScriptAnswer, { index }: Position): Rejected {
    return word === 'trimmed' ? { kind: 'trimmed' } : { kind: 'diverged', reason: this.reason([word, found], index) }
  }

  diverged(answer: ScriptAnswer, at: number, before = ''): LeaseError {
    return new LeaseError('DIVERGED', `${before}${this.reason(answer, at)}`)
  }

  reason([word, found]: ScriptAnswer, at: number): string {
    return divergence(this.log, word, at, typeof found === 'number' ? found : at)
  }
}

export type ScriptAnswer = readonly [word: string, ...facts: unknown[]]

export interface RunOptions {
  readonly ifLost?: ErrorCode
  /** One more key. */
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

/** A position as the scripts want it. */
export function positionArguments({ index, nonce }: Position): [string, string] {
  return [String(index), String(nonce)]
}

/** Numbers and ids are plain text. */
export function text(bytes: Buffer): string {
  return bytes.toString('latin1')
}

export function parseUrl(url: string | undefined, name: string | undefined): { url: string; where: string; name: string } {
  let place: URL | undefined
  try {
    place = url === undefined ? undefined : new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'a Redis is named as redis://user:password@host:port/database', { cause })
  }
  for (const setting of place?.searchParams.keys() ?? [])
    if (setting !== 'name')
      throw new LeaseError('INVALID', `there is no setting ${setting} of a Redis: there is name, as in ?name=leasehold`)
  const chosen = name ?? place?.searchParams.get('name') ?? 'leasehold'
  // Braces are what a cluster looks for in a key.
  if (!/^[^{}\s\p{Cc}]{1,128}$/u.test(chosen))
    throw new LeaseError('INVALID', `${JSON.stringify(chosen)} cannot name a log: use up to 128 characters without blanks or braces`)
  if (!place) return { url: '', where: 'Redis', name: chosen }
  place.search = ''
  return { url: place.href, where: `${place.protocol}//${place.host}`, name: chosen }
}
