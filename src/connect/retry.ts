/** Opens a place that may not be up yet: a container that starts before its database, a server that restarts. The same for every store and server. */
import { BACKOFF, jittered, pauseAfter } from '../backoff.ts'
import { type Clock, pause } from '../clock.ts'
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { type ErrorReason, LeaseError } from '../errors.ts'

/** These events happen while `connect` opens a place. */
export type ConnectEvent =
  /** The place could not be opened, and is tried again after `pause` ms. */
  | { readonly type: 'retrying'; readonly error: LeaseError; readonly attempt: number; readonly pause: number }
  /** The place is open, after `waited` ms and this many attempts. */
  | { readonly type: 'connected'; readonly attempt: number; readonly waited: number }

/** The methods of `console`, pino and winston that are used. */
export interface ConnectLogger {
  info(message: string): void
  warn(message: string): void
}

export interface ConnectRetryOptions {
  /**
   * `connect` tries this long to open a place that is down or still starting. What no waiting can mend, such as a wrong password, fails at once.
   * @default 0: fail with the first error
   */
  readonly retry?: Duration | undefined
  /** Called with each failed attempt, and when the place is open. */
  readonly onEvent?: ((event: ConnectEvent) => void) | undefined
  /** Gets a sentence for each of these events. */
  readonly logger?: ConnectLogger | undefined
}

/** Failures that end by themselves. */
const PASSING: ReadonlySet<ErrorReason> = new Set<ErrorReason>([
  ...(['unreachable', 'connection', 'silent', 'hung-up', 'loading', 'restart', 'standby', 'readonly', 'replicas'] as const),
  ...(['cluster', 'connections', 'changed', 'busy'] as const),
])

export async function openWithRetry<T>(
  open: () => Promise<T>,
  clock: Clock,
  { retry = 0, onEvent, logger }: ConnectRetryOptions,
): Promise<T> {
  const limit = milliseconds(retry, 'retry')
  const began = clock.now()
  for (let attempt = 1; ; attempt++) {
    try {
      const opened = await open()
      const waited = Math.round(clock.now() - began)
      onEvent?.({ type: 'connected', attempt, waited })
      if (attempt > 1) logger?.info(`leasehold: connected after ${inWords(waited)}, in attempt ${attempt}`)
      return opened
    } catch (error) {
      const left = limit - (clock.now() - began)
      if (!isPassing(error) || left <= 0) throw error
      const wait = Math.min(left, jittered(clock, pauseAfter(BACKOFF.stream, attempt - 1)))
      onEvent?.({ type: 'retrying', error, attempt, pause: Math.round(wait) })
      logger?.warn(`leasehold: attempt ${attempt} to connect failed, trying again for ${inWords(left)}: ${error.message}`)
      await pause(clock, wait, undefined, { ref: true })
    }
  }
}

function isPassing(error: unknown): error is LeaseError {
  if (!(error instanceof LeaseError) || (error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN')) return false
  return error.reason === undefined || PASSING.has(error.reason as ErrorReason)
}
