/**
 * Long polling: a read that waits for a change. For clients that cannot read an event stream; a watch is cheaper for everything else.
 *
 * A client repeats the read with `after` set to the revision of the last answer: a change between two reads is answered at once.
 */
import { chainAbort } from '../../clock.ts'
import { HttpFailure } from './failure.ts'
import type { RouteContext } from './route.ts'
import { optionalMs } from './route-operations.ts'

/** Proxies and clients give up long before this. */
const MAX_WAIT = 300_000

/**
 * Waits until something under the prefix has changed after the revision `after`, or for `wait`. Returns the revision that the read must include.
 * Returns at once without `wait`.
 */
export async function whenChanged(
  { guarded, caller, clock, request, query }: RouteContext<unknown, { readonly wait?: string; readonly after?: number }>,
  prefix: string,
): Promise<{ readonly atLeast?: number }> {
  const wait = optionalMs(query.wait, 'wait')
  if (wait === undefined) {
    if (query.after !== undefined) throw new HttpFailure('INVALID', 'after is the revision to wait beyond: add wait, such as wait=30s')
    return {}
  }
  if (wait > MAX_WAIT) throw new HttpFailure('INVALID', 'wait is at most 5m: repeat the request to wait longer')
  const after = query.after ?? (await guarded.read<'summary'>(caller, { kind: 'summary' })).revision
  const over = new AbortController()
  const cancel = clock.after(wait, () => over.abort())
  const unchain = chainAbort(request.gone(), over)
  try {
    for await (const events of guarded.watch(caller, prefix, { after, signal: over.signal })) return { atLeast: events[0]!.revision }
    return {}
  } finally {
    cancel()
    unchain()
  }
}
