/** A RESP command has a name, says which keys may use it, and what it does. With readers for its arguments. */
import { parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Verb } from '../../kernel/command.ts'
import type { RespSession } from './session.ts'

export interface RespCommand {
  /** In upper case. */
  readonly name: string
  /** The number of words, its name among them; negative: at least that many. */
  readonly arity: number
  readonly summary: string
  /** Served without a key, even where keys exist. */
  readonly open?: true
  /** A key needs this verb for it. The guarded lessor and the rules demand it; this row tells people and tests. */
  readonly verb?: Verb
  /** True if it can change the state. */
  readonly changes?: true
  /** Which arguments are names of resources, as Redis counts them: the first, the last, and the step. */
  readonly names?: readonly [first: number, last: number, step: number]
  /** Arguments of a call that works; `$lease` stands for a lease, `$token` for its token. */
  readonly example: readonly string[]
  run(session: RespSession): void
}

export function invalid(message: string): LeaseError {
  return new LeaseError('INVALID', message)
}

/** The text of an argument. */
export function text({ args }: RespSession, i: number, what: string): string {
  if (i >= args.count) throw invalid(`${what} is missing`)
  const found = args.text(i)
  if (found === undefined) throw notUtf8(what)
  return found
}

export function notUtf8(what: string): LeaseError {
  return invalid(`${what} is not UTF-8`)
}

export function whole({ args }: RespSession, i: number, what: string): number {
  if (i >= args.count) throw invalid(`${what} is missing`)
  const found = args.number(i)
  if (found === undefined) throw invalid(`${what} must be a whole number`)
  return found
}

/** Milliseconds as a number, or a text such as 30s. */
export function duration(session: RespSession, i: number, what: string): number {
  if (i >= session.args.count) throw invalid(`${what} is missing`)
  return session.args.number(i) ?? parseDuration(text(session, i, what), what)
}

/** The text by which a client names an operation (operationNamed in codec/digest.ts). */
export function opText(session: RespSession, i: number): string {
  const id = text(session, i, 'OP')
  if (id === '') throw invalid('OP needs a text that no other operation has')
  return id
}

/**
 * By its word in upper case, what an option does: it is given the place after the word, and says how many arguments it took. What it reads, it puts into
 * `given`.
 */
export type Words<T = unknown> = Readonly<Record<string, (at: number, session: RespSession, given: T) => number>>

/** Reads options that follow in any order. Returns `given`. */
export function readOptions<T = undefined>(session: RespSession, from: number, known: Words<T>, given?: NoInfer<T>): T {
  const { args } = session
  for (let i = from; i < args.count; ) {
    const word = args.word(i)
    const take = Object.hasOwn(known, word) ? known[word] : undefined
    if (take === undefined) throw invalid(`${word.slice(0, 32)} is not known here: use ${Object.keys(known).join(', ')}`)
    i += 1 + take(i + 1, session, given as T)
  }
  return given as T
}
