/** Long computations in steps, with a turn of the event loop between two of them. */
import type { Clock } from '../clock.ts'
import { PartialOrder } from './partial-order.ts'

/** Runs the steps, and resolves with their result. Rejects if the signal fires meanwhile. */
export async function inTurns<T>(clock: Clock, steps: Generator<void, T, void>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
    await new Promise<void>(resolve => clock.soon(resolve))
    signal?.throwIfAborted()
  }
}

/** Maps the items, so many in each step. */
export function* mapped<T, U>(items: readonly T[], stride: number, map: (item: T) => U): Generator<void, U[], void> {
  const found: U[] = []
  for (let from = 0; from < items.length; from += stride) {
    if (from > 0) yield
    for (const item of items.slice(from, from + stride)) found.push(map(item))
  }
  return found
}

/** The items in the order of their names, of which no two are equal. */
export function* sorted<T>(items: readonly T[], nameOf: (item: T) => string, random: () => number): Generator<void, T[], void> {
  const names = yield* mapped(items, STRIDE, nameOf)
  const compare = (a: number, b: number) => (names[a]! < names[b]! ? -1 : 1)
  const places = yield* new PartialOrder({ length: items.length, compare, random }).range(0, items.length)
  return yield* mapped(places, STRIDE, place => items[place]!)
}

const STRIDE = 8_192
