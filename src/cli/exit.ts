/** Exit codes, and what is said with each: what happened, what it means, what to do next. The numbers are sysexits.h where it has one. */
import { constants } from 'node:os'
import { LeaseError } from '../errors.ts'
import { completed } from './hints.ts'
import { clean, jsonLine, say } from './output.ts'

export const EXIT = {
  failed: 1,
  usage: 64,
  unavailable: 69,
  software: 70,
  output: 74,
  held: 75,
  permission: 77,
  configuration: 78,
  lost: 79,
  notExecutable: 126,
  notFound: 127,
} as const

/** Ended by a signal, as shells count it. */
export function exitOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}

export interface Failure {
  readonly exit: number
  readonly code: string
  readonly happened: string
  readonly means: string
  readonly next: string
  readonly facts?: Readonly<Record<string, unknown>>
}

/** A failure of the command itself, not of a lease. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly failure: Failure

  constructor(failure: Failure, options?: { readonly cause?: unknown }) {
    super(failure.happened, options)
    this.failure = failure
  }
}

export function usage(happened: string, next: string): CommandFailure {
  return new CommandFailure({ exit: EXIT.usage, code: 'USAGE', happened, means: 'Nothing was done.', next })
}

export function misconfigured(happened: string, next: string, cause?: unknown): CommandFailure {
  return new CommandFailure({ exit: EXIT.configuration, code: 'CONFIGURATION', happened, means: 'Nothing was done.', next }, { cause })
}

/** Someone ended us by a signal while nothing had been begun. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.signal = signal
  }
}

type Told = Omit<Failure, 'code' | 'happened' | 'facts'>

const TOLD: Readonly<Record<LeaseError['code'], Told>> = {
  HELD: {
    exit: EXIT.held,
    means: 'Someone else has it, and nothing was run.',
    next: 'Wait for it (without --no-wait), or ask: leasehold explain NAME',
  },
  TIMEOUT: {
    exit: EXIT.held,
    means: 'Nothing was run, and the place in the queue is given up.',
    next: 'Wait longer (--wait), or ask who has it: leasehold explain NAME',
  },
  LOST: { exit: EXIT.lost, means: 'Another may have it now.', next: 'See leasehold history NAME' },
  GONE: { exit: EXIT.failed, means: 'It ended before; nothing was changed.', next: 'See what there is: leasehold ls' },
  NOT_FOUND: { exit: EXIT.failed, means: 'Nothing was changed.', next: 'See what there is: leasehold ls' },
  STALE: { exit: EXIT.failed, means: 'A newer one is known; nothing was changed.', next: 'Begin again with what is known now.' },
  DEADLOCK: { exit: EXIT.failed, means: 'Nobody in this circle could ever go on.', next: 'Give up one of those leases first.' },
  INVALID: { exit: EXIT.usage, means: 'Nothing was done.', next: 'See leasehold help COMMAND' },
  LIMIT: { exit: EXIT.unavailable, means: 'Nothing was done.', next: 'Raise the limit (leasehold policy get), or try again later.' },
  UNAVAILABLE: { exit: EXIT.unavailable, means: 'Nothing was done.', next: 'See that it runs and can be reached, then try again.' },
  UNKNOWN: {
    exit: EXIT.unavailable,
    means: 'It may or may not have been done.',
    next: 'Look first (leasehold show NAME), then try again.',
  },
  DIVERGED: {
    exit: EXIT.unavailable,
    means: 'The log lost entries that were acknowledged; nothing can be decided on it.',
    next: 'Restore the last backup: leasehold restore FILE',
  },
  UNSUPPORTED: { exit: EXIT.configuration, means: 'Nothing was done.', next: 'Use a store or a version that can.' },
  FORBIDDEN: {
    exit: EXIT.permission,
    means: 'The key that was used does not allow it; nothing was done.',
    next: 'Ask an administrator: leasehold key ls shows what each key allows.',
  },
  UNAUTHENTICATED: {
    exit: EXIT.permission,
    means: 'The server asks for a key; nothing was done.',
    next: 'Put it into LEASEHOLD_API_KEY, or into the configuration file as "apiKey".',
  },
}

/** Lost before anything was run: the answer to `acquire` came after the ttl. */
const LATE_ANSWER: Told = {
  exit: EXIT.unavailable,
  means: 'It was given back, and nothing was run.',
  next: 'Try again, with a longer --ttl if answers take so long.',
}

/** What is wrong with a file, by `facts.reason`: nothing runs there that could be reached. */
const OF_FILES: Readonly<Record<string, Partial<Told>>> = {
  permission: { exit: EXIT.permission, next: 'Run as the user who owns the file.' },
  readonly: { exit: EXIT.permission, next: 'Run as the user who owns the file.' },
  mode: { exit: EXIT.permission, next: 'Take the rights of others away, if what they could do there is no worry, and try again.' },
  damaged: { next: 'Put the last backup into a new file: leasehold restore FILE --store file:NEW' },
  full: { next: 'Make room on the disk, and try again.' },
  io: { next: "See the system's log (dmesg), and try again." },
  failed: { next: 'See the path and the disk, and try again.' },
}

/** The store is there and does not let us in: of what it says, only a person can change anything. */
export function denial({ facts }: LeaseError): Partial<Told> | undefined {
  const { reason, path } = facts
  if (path !== undefined) {
    const told = OF_FILES[String(reason)]
    return told?.exit === EXIT.permission ? told : undefined // the others may pass
  }
  if (!['permission', 'credentials', 'password', 'user'].includes(reason as string)) return undefined
  return {
    exit: EXIT.permission,
    means: 'Nothing was done.',
    next: 'See the user and the password in the URL of the store, and what that user may do there.',
  }
}

export function failureOf(error: unknown): Failure {
  if (error instanceof CommandFailure) return error.failure
  if (error instanceof LeaseError) {
    const { code, message: happened, facts } = error
    const ofFile = facts.path !== undefined && OF_FILES[String(facts.reason)]
    const told = { ...TOLD[code], ...ofFile, ...denial(error), ...(facts.cause === 'late-answer' && LATE_ANSWER) }
    const { resource } = facts
    return { code, happened, facts, ...told, next: typeof resource === 'string' ? told.next.replace('NAME', resource) : told.next }
  }
  const { code: errno = '', message: text = String(error) } = (error ?? {}) as NodeJS.ErrnoException
  const means = 'Nothing else was done.'
  if (errno === 'EACCES' || errno === 'EPERM')
    return { exit: EXIT.permission, code: errno, happened: text, means, next: 'Check who may read and write there.' }
  if (/^E[A-Z0-9]+$/.test(errno)) return { exit: EXIT.failed, code: errno, happened: text, means, next: 'Check the path and the disk.' }
  return {
    exit: EXIT.software,
    code: 'BUG',
    happened: text,
    means: 'This is a mistake in leasehold itself.',
    next: 'Please report it, with LEASEHOLD_DEBUG=1 for where it happened.',
  }
}

/** Says it on stderr and returns the exit code. */
export function report(error: unknown, { json, env = process.env }: { readonly json: boolean; readonly env?: NodeJS.ProcessEnv }): number {
  if (error instanceof Interrupted) return exitOfSignal(error.signal)
  const { exit, code, means, facts, ...said } = failureOf(error)
  const [happened, next] = [completed(said.happened), completed(said.next)]
  if (json) say(jsonLine({ error: { code, message: happened, means, next, exit, ...facts } }))
  else for (const line of [`leasehold: ${clean(happened)}`, `  ${clean(means)}`, `  ${clean(next)}`]) say(line)
  if (env.LEASEHOLD_DEBUG !== undefined && !json) for (const line of String((error as Error)?.stack).split('\n')) say(clean(line))
  return exit
}
