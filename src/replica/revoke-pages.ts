/**
 * Revokes the leases of a holder, or under a prefix, in commands of at most a thousand leases: one command for all of them would stop every replica while it is
 * applied. The leases are those that exist when the revocation begins. A parent and its descendants still end in one revision, by one command.
 *
 * The last command carries the operation, and says how many have ended in all: a repetition after that gets the same answer. A repetition of a revocation that
 * was interrupted before finds the leases that are left.
 */
import type { Clock } from '../clock.ts'
import { answered } from '../kernel/codec/batch.ts'
import type { Proposal, Revoke } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { MAX_REVOKED } from '../kernel/revoke-part.ts'
import { revokeFilter } from '../kernel/rule/operate.ts'
import type { State } from '../kernel/state.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'

/** Leases looked at in one turn of the event loop. */
const STRIDE = 5_000

export interface RevokePagesOptions {
  readonly clock: Clock
  readonly log: Pick<Log, 'state'>
  readonly outbox: Pick<Outbox, 'readToEnd' | 'write'>
}

/** Returns whether a command has to be divided. */
export function isDivided(command: Revoke): boolean {
  return !('lease' in command.target) && command.among === undefined
}

export async function revokeInPages(
  { clock, log, outbox }: RevokePagesOptions,
  { command, key = 0, op }: Proposal & { readonly command: Revoke },
  signal?: AbortSignal,
): Promise<Outcome> {
  await outbox.readToEnd()
  const known = answered(log.state, { command, key, ...(op && { op }) })
  if (known !== undefined) return known
  const pages = await pagesOf(clock, log, command.target, key)
  let ended = 0
  for (const [i, among] of pages.entries()) {
    signal?.throwIfAborted()
    const isLast = i === pages.length - 1
    const outcome = await outbox.write({ ...command, among, ended }, key, isLast ? op : undefined)
    if (isLast || (outcome.kind === 'refused' && outcome.reason !== 'no-match')) return outcome
    if (outcome.kind === 'done') ended = outcome.id ?? ended
  }
  throw new Error('there is always a last page')
}

/** The ids of the leases, in pages. There is one page at least, which may be empty: the kernel says that there is nothing to revoke. */
async function pagesOf(
  clock: Clock,
  log: Pick<Log, 'state'>,
  target: Revoke['target'],
  key: number,
): Promise<readonly (readonly number[])[]> {
  for (;;) {
    const { state } = log
    const pages = new PageWriter()
    const isMeant = revokeFilter(state, target, key)
    const end = state.nextLease
    let looked = 0
    for (const lease of state.leases.values()) {
      if (log.state !== state) break
      if (lease.id < end && isMeant(lease)) pages.add(lease.id, 1 + (lease.extras?.descendants ?? 0))
      if (++looked % STRIDE === 0) await new Promise<void>(resolve => clock.soon(resolve))
    }
    if (isSame(log, state)) return pages.pages
    // A snapshot was loaded meanwhile: its leases are other objects.
  }
}

function isSame(log: Pick<Log, 'state'>, state: State): boolean {
  return log.state === state
}

class PageWriter {
  readonly pages: number[][] = [[]]
  #weight = 0

  add(id: number, weight: number): void {
    if (this.#weight > 0 && this.#weight + weight > MAX_REVOKED) {
      this.pages.push([])
      this.#weight = 0
    }
    this.pages.at(-1)!.push(id)
    this.#weight += weight
  }
}
