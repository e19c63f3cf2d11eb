/** Moves a lease from one holder to another: the giver stops before it sends, and the recipient begins with a renewal of its own. */
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { AdoptOptions } from './acquire-options.ts'
import { settingsOf } from './acquire-request.ts'
import { HeldLease, type LeaseKeeper } from './held-lease.ts'
import type { Identity } from './identity.ts'
import { type Operations, refused, TIMEOUT } from './operations.ts'

/** The part of the held leases that a transfer uses. */
interface TransferredLeases {
  readonly keeper: LeaseKeeper
  readonly heartbeat: { leave(held: HeldLease): void }
  get(lease: number): HeldLease | undefined
  add(held: HeldLease): void
  remove(held: HeldLease): void
  confirm(held: HeldLease, grants: Pick<HeldLease, 'resources' | 'tokens'>): Promise<boolean>
  endedByLessor(held: HeldLease): Promise<void>
  endChildren(held: HeldLease): number[]
  lose(held: HeldLease, cause: string, text: string, options: { readonly error: unknown }): void
  releaseInBackground(lease: number, term: number): void
  publishReleased(held: HeldLease, to: string): void
}

/** Gives the grants away. Returns the number of the recipient's lease. */
export async function transferLease(
  heldLeases: TransferredLeases,
  operations: Operations,
  held: HeldLease,
  to: string,
  incarnation: number | undefined,
): Promise<number> {
  if (held.stage !== 'held') throw held.endReason
  // From here on no answer to an older renewal makes it valid again, and no renewal is sent until this is answered: it could overtake.
  const left = held.remaining()
  held.stage = 'ending'
  held.ignoreUpTo = Number.POSITIVE_INFINITY
  heldLeases.heartbeat.leave(held)
  // The kernel looks for a waiter of that name, where the decision is made.
  const command: Command = { kind: 'transfer', lease: held.id, to, stopped: true, ...(incarnation !== undefined && { incarnation }) }
  let outcome: Outcome
  try {
    outcome = await operations.decide(command, { timeout: left })
  } catch (error) {
    if (LeaseError.is(error, 'UNAVAILABLE') && (await resume(heldLeases, held))) throw error
    heldLeases.lose(held, 'transfer', `it is unknown whether it was transferred to ${to}`, { error })
    throw error
  }
  if (outcome.kind === 'done') {
    heldLeases.remove(held)
    // The children ended with it, and are frozen until their holder says that it has stopped.
    for (const child of heldLeases.endChildren(held)) heldLeases.releaseInBackground(child, held.term)
    held.end(() => held.goneError(`transferred to ${to}`))
    heldLeases.publishReleased(held, to)
    return outcome.id!
  }
  if (outcome.kind === 'refused' && outcome.code === 'GONE') {
    held.stage = 'granted'
    await heldLeases.endedByLessor(held)
  } else await resume(heldLeases, held)
  throw refused(outcome)
}

/** The transfer was refused: the lease is held again with the next answered renewal. */
async function resume(heldLeases: TransferredLeases, held: HeldLease): Promise<boolean> {
  if (held.stage !== 'ending') return false
  return heldLeases.confirm(held, held).catch(() => false)
}

/** Returns whether a claim was refused because the lease belongs to this process already. */
function isClaimedBy(outcome: Outcome, incarnation: number | undefined): boolean {
  return (
    incarnation !== undefined && outcome.kind === 'refused' && outcome.reason === 'claimed' && outcome.facts.incarnation === incarnation
  )
}

/** Takes over a lease that was transferred to this holder. It is renewed first, and returned when that is acknowledged. */
export async function adoptLease(
  heldLeases: TransferredLeases,
  operations: Operations,
  identity: Identity,
  lease: number,
  options: AdoptOptions,
): Promise<HeldLease> {
  const { name } = identity
  const { value, revision } = await operations.within(TIMEOUT, operations.lessor.read({ kind: 'lease', lease }, { consistent: true }))
  if (value === undefined || value.status !== 'live')
    throw new LeaseError('GONE', `lease ${lease} has ended, or is not granted yet`, { facts: { lease } })
  if (value.holder !== name || heldLeases.get(lease) !== undefined)
    throw new LeaseError('INVALID', `lease ${lease} belongs to ${value.holder}${value.holder === name ? ', and is in use here' : ''}`)
  // It may be open to other processes of the name, even if this one made the request: a renewal does not say which process sent it, so the log decides.
  const { incarnation } = identity
  const claimed = await operations.decide({ kind: 'claim', lease, ...(incarnation !== undefined && { incarnation }) })
  if (claimed.kind === 'done') identity.incarnation ??= lease
  else if (!isClaimedBy(claimed, incarnation)) throw refused(claimed)
  operations.lessor.signal.throwIfAborted() // no renewal would be answered
  const held = new HeldLease(heldLeases.keeper, lease, 'granted', value.ttl, settingsOf(options, name, value.ttl))
  held.revision = revision
  heldLeases.add(held)
  const grants = { resources: value.grants.map(({ resource }) => resource), tokens: value.grants.map(({ token }) => token) }
  if (!(await heldLeases.confirm(held, grants))) throw held.endReason
  return held
}
