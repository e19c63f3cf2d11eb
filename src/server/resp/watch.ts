/**
 * `LEASE.WATCH prefix [AFTER revision] [TYPES type …]` and `LEASE.UNWATCH`. The reply is the revision that the watch starts after. Then
 * `lease.events, prefix, revision, [events as JSON]` is pushed for each revision. A `resync` among the events means that some were missed: the client reads again.
 */
import { EVENT_TYPES, type EventType } from '../../kernel/event.ts'
import { whyBadPrefix } from '../../wording.ts'
import type { Caller } from '../access-control.ts'
import { invalid, readOptions, text, whole } from './command.ts'
import { writeError } from './replies.ts'
import type { RespSession } from './session.ts'

export function watch(session: RespSession): void {
  const { args, caller, host } = session
  const prefix = text(session, 1, 'the prefix')
  const wrong = whyBadPrefix(prefix)
  if (wrong !== undefined) throw invalid(`the prefix ${wrong}`)
  let after: number | undefined
  const types: EventType[] = []
  readOptions(session, 2, {
    AFTER: at => {
      after = whole(session, at, 'AFTER')
      if (after < 0) throw invalid('AFTER must be a revision')
      return 1
    },
    TYPES: at => {
      if (args.count - at > EVENT_TYPES.length)
        throw invalid(`TYPES names more event types than exist: the types are ${EVENT_TYPES.join(', ')}`)
      for (let i = at; i < args.count; i++) types.push(typeNamed(text(session, i, 'a type')))
      return args.count - at
    },
  })
  if (session.watches.has(prefix))
    throw invalid(`this connection watches ${prefix === '' ? 'everything' : prefix} already: use LEASE.UNWATCH first`)
  const { guarded } = host.context
  guarded.mayWatch(caller, prefix)
  const stop = new AbortController()
  session.watches.set(prefix, stop)
  const start = after === undefined ? guarded.read(caller, { kind: 'summary' }).then(({ revision }) => revision) : Promise.resolve(after)
  start.catch(() => forget(session, prefix, stop))
  session.replyLater(start, (to, revision) => {
    to.integer(revision)
    void run(session, caller, prefix, revision, types, stop)
  })
}

/** `caller` is the one that started the watch. The connection may have another caller by now. */
async function run(
  session: RespSession,
  caller: Caller,
  prefix: string,
  after: number,
  types: readonly EventType[],
  stop: AbortController,
): Promise<void> {
  const { signal } = stop
  try {
    for await (const events of session.host.context.guarded.watch(caller, prefix, {
      after,
      signal,
      ...(types.length > 0 && { types }),
    })) {
      if (signal.aborted) return
      const json = JSON.stringify(events)
      session.push(to => {
        to.push(4)
        to.raw('$12\r\nlease.events\r\n')
        to.text(prefix)
        to.integer(events[0]!.revision)
        to.text(json)
      }, json.length)
      // Fetch no more events than the client reads. A client that is too slow gets a resync.
      for (let room = session.room(); room !== undefined && !signal.aborted; room = session.room()) await room
    }
  } catch (error) {
    if (signal.aborted) return
    session.push(to => {
      to.push(3)
      to.raw('$15\r\nlease.unwatched\r\n')
      to.text(prefix)
      writeError(to, error)
    })
  } finally {
    forget(session, prefix, stop)
  }
}

function forget({ watches }: RespSession, prefix: string, stop: AbortController): void {
  if (watches.get(prefix) === stop) watches.delete(prefix)
}

export function unwatch(session: RespSession): void {
  let count = 0
  const prefixes =
    session.args.count === 1
      ? [...session.watches.keys()]
      : Array.from({ length: session.args.count - 1 }, (_, i) => text(session, i + 1, 'a prefix'))
  for (const prefix of prefixes) {
    const watching = session.watches.get(prefix)
    if (watching === undefined) continue
    watching.abort()
    session.watches.delete(prefix)
    count++
  }
  session.reply(to => to.integer(count))
}

function typeNamed(name: string): EventType {
  const type = EVENT_TYPES.find(known => known === name.toLowerCase())
  if (type === undefined) throw invalid(`there is no event type ${name.slice(0, 32)}. The types are ${EVENT_TYPES.join(', ')}`)
  return type
}
