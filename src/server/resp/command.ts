/** One row of the table of commands: what it is called, who may use it, and what it does. */
import { parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Verb } from '../../kernel/command.ts'
import type { RespSession } from './session.ts'

export interface RespCommand {
  /** In upper case. */
  readonly name: string
  /** How many words it has, its name among them; negative: at least so many. */
  readonly arity: number
  readonly summary: string
  /** Answered without a key, also where there are keys. */
  readonly open?: true
  /** What a key needs for it. It is demanded where the state is that it meets; this row says it to people and to the tests. */
  readonly verb?: Verb
  /** Whether it changes anything. */
  readonly changes?: true
  /** Where the names of resources are, as Redis counts them: the first, the last, and the step. */
  readonly names?: readonly [first: number, last: number, step: number]
  /** How it could be called, without its own name; `$lease` stands for a lease, `$token` for its token. */
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
  if (found === undefined) throw invalid(`${what} is not UTF-8`)
  return found
}

export function whole({ args }: RespSession, i: number, what: string): number {
  if (i >= args.count) throw invalid(`${what} is missing`)
  const found = args.number(i)
  if (found === undefined) throw invalid(`${what} must be a whole number`)
  return found
}

/** Milliseconds, or what a person types. */
export function duration(session: RespSession, i: number, what: string): number {
  if (i >= session.args.count) throw invalid(`${what} is missing`)
  return session.args.number(i) ?? parseDuration(text(session, i, what), what)
}

/** The text by which a caller names an operation: see operationNamed. */
export function opText(session: RespSession, i: number): string {
  const id = text(session, i, 'OP')
  if (id === '') throw invalid('OP needs a text that no other operation has')
  return id
}

/** Words that follow in any order. Each is told its place and says how many words after it are its own. */
export function words(session: RespSession, from: number, known: Readonly<Record<string, (at: number) => number>>): void {
  const { args } = session
  for (let i = from; i < args.count; ) {
    const word = args.word(i)
    const take = Object.hasOwn(known, word) ? known[word] : undefined
    if (take === undefined) throw invalid(`${word.slice(0, 32)} is not known here: use ${Object.keys(known).join(', ')}`)
    i += 1 + take(i + 1)
  }
}
