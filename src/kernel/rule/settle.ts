/** Settling: what a command has freed is granted to waiters before the command is done. */
import { ELSEWHERE } from '../event.ts'
import { Heap } from '../heap.ts'
import { ClaimNode } from '../state/claim-tree.ts'
import { touch } from '../state/leases.ts'
import { blocks, insertionIndex } from '../state/order.ts'
import { dropIfIdle } from '../state/resources.ts'
import { type Freed, type LeaseState, LIVE, type Resource, type State } from '../state.ts'
import { applicantOf, type WantedResource } from './applicant.ts'
import { attach, entriesFree } from './attach.ts'
import { isBarred, meet } from './covers.ts'
import { type Effects, emit } from './effects.ts'
import { limitOfHolders } from './permits.ts'
import { capacityOf, rule } from './policy.ts'
import { servePool } from './pool/serve.ts'
import { type ChosenWant, choose, grant, leaveQueues } from './queue.ts'

/** Grants freed units to the next waiters, in the revision in which they became free. Waiters whose key was revoked have ended before (govern.ts). */
export function settle(state: State, effects: Effects, freed: Freed): void {
  for (;;) {
    for (let line = freed.take(); line !== undefined; line = freed.take()) {
      if (queueOf(line).length > 0) serve(state, effects, line, freed)
      else drop(state, line)
    }
    // After the queues of resources: a client that names a member comes before the waiters of its pool.
    if (state.freedPools.length === 0) return
    servePool(state, effects, state.freedPools.shift()!, freed)
  }
}

/**
 * Serves all freed resources together, by rank and not queue after queue: a waiter for two of them must not overtake another that stands ahead of it for the
 * second alone.
 *
 * Each waiter is tried once, in however many queues it stands: a grant leaves less room, so the waiter would be refused again until it becomes the first of a
 * `fifo` queue. In a pool, every waiter stands in the queue of every member, and each try looks at every member.
 */
function serve(state: State, effects: Effects, first: Line, freed: Freed): void {
  const turns: Turns = new Heap((one, other) => (one.rank === other.rank ? one.next.id < other.next.id : one.rank < other.rank))
  const refused = new Set<LeaseState>()
  for (let line: Line | undefined = first; line !== undefined; line = freed.take()) begin(state, turns, line)
  for (let walk = turns.take(); walk !== undefined; walk = turns.take()) {
    const { line, next, rank } = walk
    const queue = queueOf(line)
    // Where it stands, or stood before it was granted on the walk through another queue.
    let at = insertionIndex(queue, rank, next.id)
    if (queue[at] === next) {
      const { wants } = next.extras!
      const chosen = refused.has(next) || !entriesFree(state, next) ? undefined : choose(state, wants, applicantOf(next))
      if (chosen === undefined) {
        refused.add(next)
        at = behind(state, line, at, refused)
      } else {
        touch(state, next)
        grantWaiter(state, effects, next, chosen, freed)
        for (const want of wants) mayTryAgain(state, want.resource, refused)
        if (state.claims !== undefined) mayTryAround(state, next, wants, refused)
        if (isSpent(state, line)) at = queue.length
      }
    }
    goOn(state, turns, walk, queueOf(line)[at])
    for (let moved = freed.take(); moved !== undefined; moved = freed.take()) begin(state, turns, moved)
  }
}

/** Grants `chosen` to a waiter, which leaves all its queues. The caller has touched it. */
export function grantWaiter(
  state: State,
  effects: Effects,
  waiter: LeaseState,
  chosen: readonly ChosenWant[],
  freed: Freed,
  cause?: string,
): void {
  leaveQueues(state, waiter, freed)
  const extras = waiter.extras!
  const { wants, pending } = extras
  Object.assign(extras, { wants: [], any: 0, holding: [], passed: undefined, pending: [], waited: true })
  waiter.status = LIVE
  for (const entry of pending) attach(state, effects, waiter, entry)
  grant(state, effects, waiter, chosen, cause)
  // A watcher of a queue that the waiter leaves without a grant does not see the grant.
  for (const { resource } of wants)
    if (!chosen.some(({ want }) => want.resource === resource)) emit(state, effects, 'withdrawn', waiter, { resource, cause: ELSEWHERE })
}

/** The next waiter in a queue to try. In a `fifo` queue, only a waiter that is passed over lets others go first. */
function behind(state: State, line: Line, at: number, refused: ReadonlySet<LeaseState>): number {
  const queue = queueOf(line)
  // Below a place, waiters for different names do not block each other.
  const passes = line instanceof ClaimNode || rule(state, line.name, 'queue') === 'fit'
  let next = at
  for (; next < queue.length && refused.has(queue[next]!); next++) if (!passes && blocks(queue[next]!, line)) return queue.length
  return next
}

/** A waiter has left this queue: its first blocking waiter may be served after all. */
function mayTryAgain(state: State, name: string, refused: Set<LeaseState>): void {
  const resource = state.resources.get(name)
  if (resource === undefined || resource.queue.length === 0 || rule(state, name, 'queue') === 'fit') return
  const first = resource.queue.find(waiter => blocks(waiter, resource))
  if (first !== undefined) refused.delete(first)
}

/** The same for waiters above and below. Below a covering lease, only shared ones may be served beside it. */
function mayTryAround(state: State, { extras }: LeaseState, wants: readonly WantedResource[], refused: Set<LeaseState>): void {
  for (const { resource: name, shared } of wants) {
    for (const { name: above, covering } of state.claims!.above(name)) if (covering.length > 0) mayTryAgain(state, above, refused)
    if (!extras!.covers || !shared) continue
    for (const waiter of refused) if (waiter.extras!.wants.some(({ resource }) => meet(name, true, resource, false))) refused.delete(waiter)
  }
}

/** No waiter can get any of it: its queue need not be walked. */
function isSpent(state: State, line: Line): boolean {
  if (line instanceof ClaimNode) return line.exclusiveCovers > 0
  const { name, sharers, used, permits } = line
  return sharers === 0 && used >= (permits === undefined ? capacityOf(state, name) : limitOfHolders(state, line))
}

function begin(state: State, turns: Turns, line: Line): void {
  const next = queueOf(line)[0]
  if (next === undefined) return drop(state, line)
  if (isSpent(state, line)) return
  goOn(state, turns, { line, next, rank: 0 }, next)
}

function queueOf(line: Line): readonly LeaseState[] {
  return line instanceof ClaimNode ? line.waiting : line.queue
}

function drop(state: State, line: Line): void {
  if (!(line instanceof ClaimNode)) dropIfIdle(state, line)
}

/** The resource counts as freed until its queue has been walked, so that no second walk begins. */
function goOn(state: State, turns: Turns, walk: QueueWalk, first: LeaseState | undefined): void {
  const { line } = walk
  const next = first !== undefined && line instanceof ClaimNode && isBarred(state, line, first) ? undefined : first
  line.freed = next !== undefined
  if (next === undefined) return drop(state, line)
  walk.next = next
  walk.rank = next.extras!.rank
  turns.add(walk)
}

/** The walks, ordered by their next waiter. A heap: the end of a quiet period, or a policy for a prefix, may open every queue. */
type Turns = Heap<QueueWalk>

/** The queue of a resource, or the waiters below a place where a covering claim was. */
type Line = Resource | ClaimNode

/** A queue has been walked this far. */
interface QueueWalk {
  readonly line: Line
  next: LeaseState
  /** The rank with which it waits: a lease that was passed on gets another one with its grant. */
  rank: number
}
