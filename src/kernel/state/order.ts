/** The order of waiters. Every queue has the same one, so waiting for several resources cannot deadlock by itself. */
import type { LeaseState, Resource } from './lease-state.ts'

function isBefore(waiter: LeaseState, rank: number, id: number): boolean {
  return waiter.extras!.rank < rank || (waiter.extras!.rank === rank && waiter.id < id)
}

/** Returns whether one waiter comes before another, in every queue. */
export function standsBefore(one: LeaseState, other: LeaseState): boolean {
  return isBefore(one, other.extras!.rank, other.id)
}

/** The index of `rank`, `id` in a queue, present or not. */
export function insertionIndex(queue: readonly LeaseState[], rank: number, id: number): number {
  let low = 0
  let high = queue.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(queue[middle]!, rank, id)) low = middle + 1
    else high = middle
  }
  return low
}

/** Returns whether the waiters behind it have to wait for it. */
export function blocks(waiter: LeaseState, resource: Resource): boolean {
  return waiter.extras!.passed?.has(resource.name) !== true
}
