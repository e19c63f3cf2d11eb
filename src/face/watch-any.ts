/** Watches several prefixes at once: a name of a face and the resource that it stands for may be in different places. */
import { LeaseError } from '../errors.ts'
import type { Event } from '../kernel/event.ts'
import type { WatchOptions } from '../lessor.ts'
import type { FaceLessor } from './face.ts'

/** Why a watch ends that has found its event. Made once: an abort without a reason makes an error with its stack. */
export const ENDED = new LeaseError('UNAVAILABLE', 'the watch has ended')

/** The events under each of the prefixes. Those of one prefix come in order; an event that is under two of them may come twice. */
export async function* watchAny(
  lessor: FaceLessor,
  prefixes: readonly string[],
  options: WatchOptions,
): AsyncGenerator<readonly Event[], void, void> {
  const different = [...new Set(prefixes)]
  const stop = new AbortController()
  const leave = () => stop.abort(ENDED)
  options.signal.addEventListener('abort', leave)
  if (options.signal.aborted) leave()
  const watches = different.map(prefix => lessor.watch(prefix, { ...options, signal: stop.signal })[Symbol.asyncIterator]())
  const next = async (i: number) => ({ i, item: await watches[i]!.next() })
  const pending = watches.map((_, i) => next(i))
  try {
    for (;;) {
      const { i, item } = await Promise.race(pending)
      if (item.done === true) return
      yield item.value
      pending[i] = next(i)
    }
  } finally {
    options.signal.removeEventListener('abort', leave)
    stop.abort(ENDED)
    await Promise.allSettled(pending)
  }
}
