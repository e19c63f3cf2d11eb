/** A lease from hand to hand: the giver stops believing before it sends, and the recipient begins with a renewal of its own. */
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { HeldLease } from '../lease.ts'
import { type AcquireOptions, settingsOf } from './acquire-request.ts'
import type { HeldLeases } from './held-leases.ts'
import type { Identity } from './identity.ts'
import { type Operations, refused, TIMEOUT } from './operations.ts'

/** Gives the grants away. The number of the recipient's lease. */
export async function transferLease(
  beliefs: HeldLeases,
  operations: Operations,
  belief: HeldLease,
  to: string,
  incarnation: number | undefined,
): Promise<number> {
  if (belief.stage !== 'held') throw belief.end
  // From here on no answer to an older renewal gives belief back, and no renewal is sent until this is answered: it could overtake.
  const left = belief.remaining()
  belief.stage = 'leaving'
  belief.hollow = Number.POSITIVE_INFINITY
  beliefs.heartbeat.leave(belief)
  // Who waits under that name is found where it is decided.
  const command: Command = { kind: 'transfer', lease: belief.id, to, stopped: true, ...(incarnation !== undefined && { incarnation }) }
  let outcome: Outcome
  try {
    outcome = await operations.decide(command, { timeout: left })
  } catch (error) {
    if (error instanceof LeaseError && error.code === 'UNAVAILABLE' && (await resume(beliefs, belief))) throw error
    beliefs.lose(belief, 'transfer', `whether it was transferred to ${to} is not known`, { error })
    throw error
  }
  if (outcome.kind === 'done') {
    beliefs.forget(belief)
    // They ended with it, and are frozen until their holder says that it has stopped.
    for (const child of beliefs.endChildren(belief)) beliefs.giveBack(child, belief.term)
    belief.finish(() => belief.gone(`transferred to ${to}`))
    beliefs.published(belief, to)
    return outcome.id!
  }
  if (outcome.kind === 'refused' && outcome.code === 'GONE') {
    belief.stage = 'told'
    await beliefs.gone(belief)
  } else await resume(beliefs, belief)
  throw refused(outcome)
}

/** A farewell was refused: belief returns with the next renewal. */
async function resume(beliefs: HeldLeases, belief: HeldLease): Promise<boolean> {
  if (belief.stage !== 'leaving') return false
  return beliefs.confirm(belief, belief).catch(() => false)
}

/** Takes what was given to this holder. It is renewed first, and returned when that is acknowledged. */
export async function adoptLease(
  beliefs: HeldLeases,
  operations: Operations,
  identity: Identity,
  lease: number,
  options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall'>,
): Promise<HeldLease> {
  const { name } = identity
  const { value, revision } = await operations.within(TIMEOUT, operations.lessor.read({ kind: 'lease', lease }, { consistent: true }))
  if (value === undefined || value.status !== 'live')
    throw new LeaseError('GONE', `lease ${lease} has ended, or is not granted yet`, { facts: { lease } })
  if (value.holder !== name || beliefs.get(lease) !== undefined)
    throw new LeaseError('INVALID', `lease ${lease} belongs to ${value.holder}${value.holder === name ? ', which has it in hand' : ''}`)
  // What was given to this very process is its own. Anything else may be in the hands of another of its name: the log decides.
  const { incarnation } = identity
  if (value.incarnation !== incarnation) {
    const claimed = await operations.decide({ kind: 'claim', lease, ...(incarnation !== undefined && { incarnation }) })
    if (claimed.kind !== 'done') throw refused(claimed)
    identity.incarnation ??= lease
  }
  operations.lessor.signal.throwIfAborted() // nobody would confirm it
  const belief = new HeldLease(beliefs.keeper, lease, 'told', value.ttl, settingsOf(options, name, value.ttl))
  belief.revision = revision
  beliefs.add(belief)
  const told = { resources: value.grants.map(({ resource }) => resource), tokens: value.grants.map(({ token }) => token) }
  if (!(await beliefs.confirm(belief, told))) throw belief.end
  return belief
}
