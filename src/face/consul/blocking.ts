/** Blocking queries: a read that waits until something it shows has changed after an index, or for a bounded time. */
import type { Event, EventType } from '../../kernel/event.ts'
import type { FaceCaller, HttpFaceRequest } from '../face.ts'
import { TextFailure } from '../text-failure.ts'
import { ENDED, watchAny } from '../watch-any.ts'
import { goDuration } from './protocol.ts'

const DEFAULT_WAIT = 300_000
const MAX_WAIT = 600_000

/** These events can change an answer. Not the queue: Consul does not show it. */
const CHANGES: readonly EventType[] = [
  ...(['put', 'deleted', 'granted', 'released', 'lapsed', 'revoked', 'transferred', 'suspected', 'recovered', 'frozen', 'thawed'] as const),
  ...(['suppressed', 'reused'] as const),
]

/**
 * Waits as the request asks. Returns the revision that the read must include. `prefixes` are watched, and `concerns` says which of its events count.
 */
export async function whenChanged(
  { query }: HttpFaceRequest,
  caller: FaceCaller,
  prefixes: string | readonly string[],
  concerns: (event: Event) => boolean = () => true,
): Promise<{ readonly atLeast?: number }> {
  const index = indexOf(query.get('index'))
  if (index === 0) return {}
  const { lessor, clock, signal } = caller
  const given = query.get('wait')
  const wait = given === null || given === '' ? DEFAULT_WAIT : goDuration(given)
  if (wait === undefined) throw new TextFailure(400, 'Invalid wait time')
  // The log was put back, or the index is of another server: what the client knows is not here.
  if (index > (await lessor.read<'summary'>({ kind: 'summary' }, { consistent: true, signal })).revision) return {}
  const over = new AbortController()
  const leave = () => over.abort(ENDED)
  const cancel = clock.after(Math.min(wait, MAX_WAIT), leave)
  signal.addEventListener('abort', leave)
  try {
    for await (const events of watchAny(lessor, [prefixes].flat(), { after: index, types: CHANGES, signal: over.signal }))
      if (events.some(event => event.type === 'resync' || concerns(event))) return { atLeast: events[0]!.revision }
    return {}
  } finally {
    cancel()
    signal.removeEventListener('abort', leave)
    over.abort(ENDED)
  }
}

function indexOf(text: string | null): number {
  if (text === null || text === '') return 0
  if (!/^\d{1,20}$/.test(text)) throw new TextFailure(400, 'Invalid index')
  return Number(text)
}
