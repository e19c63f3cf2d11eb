/**
 * Exit codes and error reports of the command line. Each report says what happened, what it means and what to do next. The codes are those of
 * sysexits.h where it has one.
 */
import { constants } from 'node:os'
import { LeaseError } from '../errors.ts'
import { helpCommand, listCommand, withStoreFlags } from './hints.ts'
import { clean, jsonLine, writeStderrLine } from './output.ts'

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
  unconfirmed: 80,
  /** As timeout(1). */
  overdue: 124,
  notExecutable: 126,
  notFound: 127,
} as const

/** The code that shells use for a process that a signal ended. */
export function exitCodeOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}

export interface Failure {
  readonly exit: number
  readonly code: string
  /** The sentence names the event and the resource. */
  readonly message: string
  /** This tells the caller what was done and what was not. */
  readonly means: string
  /** The next step for the caller. */
  readonly next: string
  readonly reason?: string | undefined
  readonly facts?: Readonly<Record<string, unknown>>
}

/** A failure of the command itself, not of a lease. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly failure: Failure

  constructor(failure: Failure, options?: { readonly cause?: unknown }) {
    super(failure.message, options)
    this.failure = failure
  }
}

export function usageError(message: string, next: string): CommandFailure {
  return new CommandFailure({ exit: EXIT.usage, code: 'USAGE', message, means: 'Nothing was done.', next })
}

export function configurationError(message: string, next: string, cause?: unknown): CommandFailure {
  return new CommandFailure({ exit: EXIT.configuration, code: 'CONFIGURATION', message, means: 'Nothing was done.', next }, { cause })
}

/** A signal asked the command to end before it had started anything. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.signal = signal
  }
}

/** A report adds this to the message of an error. NAME in `next` is replaced by the resource of the error. */
type Advice = Pick<Failure, 'exit' | 'means' | 'next'>

const ADVICE: Readonly<Record<LeaseError['code'], Advice>> = {
  HELD: {
    exit: EXIT.held,
    means: 'Nothing was run.',
    next: 'To wait for it, leave out --no-wait. To see what would end it, run: leasehold explain NAME',
  },
  UNCONFIRMED: {
    exit: EXIT.unconfirmed,
    means: 'Nothing was run. The time that was counted is kept.',
    next: 'Try again, which continues the count, or stay longer with --confirm.',
  },
  TIMEOUT: {
    exit: EXIT.held,
    means: 'Nothing was run, and the place in the queue was given up.',
    next: 'Use a longer --wait, or run: leasehold explain NAME',
  },
  LOST: { exit: EXIT.lost, means: 'Another holder may have it now.', next: 'To see who, run: leasehold history NAME' },
  GONE: {
    exit: EXIT.failed,
    means: 'It had ended before; nothing was changed.',
    next: 'To see the present leases, run: leasehold ls',
  },
  NOT_FOUND: { exit: EXIT.failed, means: 'Nothing was changed.', next: 'To see the present leases, run: leasehold ls' },
  STALE: { exit: EXIT.failed, means: 'A newer token is known; nothing was changed.', next: 'Acquire the lease again and use its token.' },
  DEADLOCK: {
    exit: EXIT.failed,
    means: 'The holders in this cycle wait for each other and could never continue.',
    next: 'Release one of those leases first.',
  },
  INVALID: { exit: EXIT.usage, means: 'Nothing was done.', next: 'For what it takes, run: leasehold help COMMAND' },
  LIMIT: {
    exit: EXIT.unavailable,
    means: 'Nothing was done.',
    next: 'Raise the limit (to see the policies, run: leasehold policy get), or try again later.',
  },
  UNAVAILABLE: {
    exit: EXIT.unavailable,
    means: 'Nothing was done.',
    next: 'Check that the store or server runs and can be reached, then try again.',
  },
  UNKNOWN: {
    exit: EXIT.unavailable,
    means: 'It may or may not have been done.',
    next: 'Check first with leasehold show NAME, then try again.',
  },
  DIVERGED: {
    exit: EXIT.unavailable,
    means: 'The log lost records that were acknowledged, so nothing can be decided on it.',
    next: 'Restore the last backup: leasehold restore FILE',
  },
  UNSUPPORTED: { exit: EXIT.configuration, means: 'Nothing was done.', next: 'Use a store or a version that supports it.' },
  FORBIDDEN: {
    exit: EXIT.permission,
    means: 'The key in use does not allow it; nothing was done.',
    next: 'Ask an administrator: leasehold key ls lists what each key allows.',
  },
  UNAUTHENTICATED: {
    exit: EXIT.permission,
    means: 'The server requires a key; nothing was done.',
    next: 'Set LEASEHOLD_API_KEY, or "apiKey" in the configuration file.',
  },
}

/** The lease was lost before the command started: the answer to `acquire` came after the ttl. */
const LATE_ANSWER: Advice = {
  exit: EXIT.unavailable,
  means: 'The lease was released, and nothing was run.',
  next: 'Try again. Use a longer --ttl if answers regularly take this long.',
}

/** By the reason of an error about a file. No server is involved, so the advice is not to check that it can be reached. */
const FILE_ADVICE: Readonly<Record<string, Partial<Advice>>> = {
  permission: { exit: EXIT.permission, next: 'Run as the user who owns the file.' },
  readonly: { exit: EXIT.permission, next: 'Run as the user who owns the file.' },
  mode: { exit: EXIT.permission, next: 'If you trust the content of the file, remove the rights of other users and try again.' },
  damaged: { next: 'Restore the last backup into a new file: leasehold restore FILE --store file:NEW' },
  full: { next: 'Free space on the disk and try again.' },
  io: { next: "Check the system's log (dmesg), then try again." },
  failed: { next: 'Check the path and the disk, then try again.' },
}

/** For a store that denies access. Only a person can change that, so retrying is useless. Undefined: the error is of another kind. */
export function accessDenialAdvice({ reason, facts }: LeaseError): Partial<Advice> | undefined {
  const { path } = facts
  if (path !== undefined) {
    const advice = FILE_ADVICE[reason ?? '']
    return advice?.exit === EXIT.permission ? advice : undefined // the other reasons may pass
  }
  if (!['permission', 'credentials', 'password', 'user'].includes(reason ?? '')) return undefined
  return {
    exit: EXIT.permission,
    means: 'Nothing was done.',
    next: 'Check the user and the password in the URL of the store, and the rights of that user.',
  }
}

export function failureOf(error: unknown): Failure {
  if (error instanceof CommandFailure) return error.failure
  if (error instanceof LeaseError) {
    const { code, message, reason, facts } = error
    const ofFile = facts.path !== undefined && FILE_ADVICE[reason ?? '']
    const advice = { ...ADVICE[code], ...ofFile, ...accessDenialAdvice(error), ...(facts.cause === 'late-answer' && LATE_ANSWER) }
    const { resource } = facts
    const next = code === 'NOT_FOUND' ? listCommand() : advice.next.replace('leasehold help COMMAND', helpCommand())
    return { code, reason, message, facts, ...advice, next: typeof resource === 'string' ? next.replace('NAME', resource) : next }
  }
  const { code: errno = '', message = String(error) } = (error ?? {}) as NodeJS.ErrnoException
  const means = 'Nothing else was done.'
  if (errno === 'EACCES' || errno === 'EPERM')
    return { exit: EXIT.permission, code: errno, message, means, next: 'Check the rights of that file and its folder.' }
  if (/^E[A-Z0-9]+$/.test(errno)) return { exit: EXIT.failed, code: errno, message, means, next: 'Check the path and the disk.' }
  return {
    exit: EXIT.software,
    code: 'BUG',
    message,
    means: 'This is a bug in leasehold.',
    next: 'Please report it, with the stack trace that LEASEHOLD_DEBUG=1 prints.',
  }
}

/** Prints the error on stderr and returns the exit code. */
export function reportError(
  error: unknown,
  { json, env = process.env }: { readonly json: boolean; readonly env?: NodeJS.ProcessEnv },
): number {
  if (error instanceof Interrupted) return exitCodeOfSignal(error.signal)
  const { exit, code, reason, means, facts, ...texts } = failureOf(error)
  const [message, next] = [withStoreFlags(texts.message), withStoreFlags(texts.next)]
  if (json) writeStderrLine(jsonLine({ error: { code, ...(reason !== undefined && { reason }), message, means, next, exit, ...facts } }))
  else for (const line of [`leasehold: ${clean(message)}`, `  ${clean(means)}`, `  ${clean(next)}`]) writeStderrLine(line)
  if (env.LEASEHOLD_DEBUG !== undefined && !json)
    for (const line of String((error as Error)?.stack).split('\n')) writeStderrLine(clean(line))
  return exit
}
