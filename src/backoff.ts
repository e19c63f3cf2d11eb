/** These policies say how long to pause before something that failed is tried again. Tasks that run at a pace of their own, such as the rounds of an agent, state it themselves. */
import type { Clock } from './clock.ts'

/** The pause after the first failure, and the longest one, in ms. Each pause is twice as long as the one before. */
export interface Backoff {
  readonly first: number
  readonly longest: number
}

export const BACKOFF = {
  /** A request to a lessor, or a connection to a server. The term of a lease may depend on it. */
  request: { first: 20, longest: 1_000 },
  /** A store that does not answer its replica. */
  store: { first: 10, longest: 1_000 },
  /** A stream of events that broke off, or a place that cannot be opened yet. */
  stream: { first: 50, longest: 2_000 },
  /** A registration with a server that does not take it. */
  registration: { first: 250, longest: 5_000 },
  /** Notices of an engine, without which changes are only seen later. */
  notices: { first: 100, longest: 30_000 },
  /** Work of a server in the background. */
  background: { first: 100, longest: 100 },
  /** A recipe or a command that starts a whole task again. */
  round: { first: 500, longest: 1_000 },
} satisfies Readonly<Record<string, Backoff>>

/** Returns how many ms to pause after `failures` failures in a row, not counting this one. */
export function pauseAfter({ first, longest }: Backoff, failures = 0): number {
  return Math.min(longest, first * 2 ** failures)
}

/** Shortens `ms` by up to half of it, at random, so that many who failed together do not come back together. */
export function jittered(clock: Clock, ms: number): number {
  return ms * (0.5 + clock.random() / 2)
}
