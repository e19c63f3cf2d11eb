/** Turns what an agent is answered into the results of tools, of bounded size. */
import type { ClaimView, Mine } from '../agent/agent.ts'
import type { ClaimNames } from '../agent/names.ts'
import type { HolderView, NameView } from '../agent/neighbours.ts'
import { LeaseError } from '../errors.ts'

/** Names listed of one claim. */
const MAX_NAMES = 64
/** About how many characters of JSON one list takes at most. */
const MAX_CHARACTERS = 48_000

/** The next step of a model, for each code that it may get. */
const NEXT: Readonly<Record<string, string>> = {
  INVALID: 'Correct the arguments as the message says, then call again.',
  LIMIT: 'Ask for less, or release what you do not need, then call again.',
  HELD: 'Do other work, queue with claim and wait_seconds, or ask for it.',
  DEADLOCK: 'Release what you hold, then claim all names that you need in one call.',
  NOT_FOUND: 'Check the name with look.',
  GONE: 'Call mine to see what you hold, then claim again.',
  STALE: 'Call mine to see what you hold, then claim again.',
  UNAVAILABLE: 'Nothing was done. Do not write to claimed names; call mine in a few seconds.',
  UNKNOWN: 'It may have been done. Call mine to see.',
  FORBIDDEN: 'Ask a person for a key with this scope, and do other work meanwhile.',
  UNAUTHENTICATED: 'Ask a person for a key (LEASEHOLD_API_KEY, or Authorization: Bearer KEY), and do other work meanwhile.',
  DIVERGED: 'The server lost records. Call mine to see what you hold, and read again what you claimed.',
}
const ELSE = 'Call mine to see what you hold; if this happens again, tell a person.'

export interface FailureView {
  readonly code: string
  readonly reason?: string
  readonly message: string
  readonly next: string
}

export function failureView(error: unknown): FailureView {
  if (!(error instanceof LeaseError)) return { code: 'INTERNAL', message: 'an internal error: see the log of leasehold mcp', next: ELSE }
  const { code, reason } = error
  return { code, ...(reason !== undefined && { reason }), message: error.message.slice(0, 2_000), next: NEXT[error.code] ?? ELSE }
}

/** As many items as fit into one answer. */
export function bounded<T>(items: readonly T[]): readonly T[] {
  let characters = 0
  for (const [i, item] of items.entries()) {
    characters += JSON.stringify(item).length
    if (characters > MAX_CHARACTERS) return items.slice(0, i)
  }
  return items
}

function listed(names: readonly string[]): { readonly names: readonly string[]; readonly names_left_out?: number } {
  if (names.length <= MAX_NAMES) return { names }
  return { names: names.slice(0, MAX_NAMES), names_left_out: names.length - MAX_NAMES }
}

function holderView({ holder, purpose, mode, forSeconds, idleSeconds, expectSeconds }: HolderView) {
  return {
    ...{ holder, purpose, mode, for_seconds: forSeconds },
    ...(idleSeconds !== undefined && { idle_seconds: idleSeconds }),
    ...(expectSeconds !== undefined && { expect_seconds: expectSeconds }),
  }
}

export function nameState(view: NameView, shown: ClaimNames) {
  return {
    name: shown.shown(view.resource),
    holders: view.holders.map(holderView),
    waiters: view.waiters.map(({ position, ...waiter }) => ({ ...holderView(waiter), position })),
  }
}

function heldView({ names, mode, purpose, tokens, capSeconds = 0 }: ClaimView) {
  const few = listed(names)
  const shown = few.names.filter(name => tokens[name] !== undefined)
  return { ...few, mode, purpose, tokens: Object.fromEntries(shown.map(name => [name, tokens[name]!])), cap_seconds: capSeconds }
}

function queuedView({ names, mode, purpose, position = 0, waitsFor = [] }: ClaimView, shown: ClaimNames) {
  const needs = waitsFor.flatMap(({ holders }) => holders.map(({ expectSeconds }) => expectSeconds))
  const known = needs.filter(seconds => seconds !== undefined)
  return {
    ...{ ...listed(names), mode, purpose, position },
    waits_for: bounded(waitsFor.map(view => nameState(view, shown))),
    // Of a holder that did not say, nothing is known.
    ...(needs.length > 0 && known.length === needs.length && { estimate_seconds: Math.max(...known) }),
  }
}

export function claimAnswer(view: ClaimView, shown: ClaimNames, ends: readonly string[]) {
  if (view.status === 'queued') return { status: 'queued', ...queuedView(view, shown) }
  return { status: 'held', ...heldView(view), ends }
}

export function mineAnswer({ held, queued, lost }: Mine, shown: ClaimNames, now: number) {
  const kept = bounded(held.map(heldView))
  const waiting = bounded(queued.map(view => queuedView(view, shown)))
  const gone = bounded(
    lost.map(({ names, purpose, cause, text, by, at }) => ({
      ...{ ...listed(names), purpose, cause, text: text.slice(0, 2_000) },
      ...(by !== undefined && { by }),
      ago_seconds: Math.max(0, Math.round((now - at) / 1_000)),
    })),
  )
  const leftOut = held.length - kept.length + queued.length - waiting.length + lost.length - gone.length
  return { status: 'ok', held: kept, queued: waiting, lost: gone, ...(leftOut > 0 && { left_out: leftOut }) }
}
