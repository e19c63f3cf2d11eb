/**
 * `LEASE.WATCH prefix [AFTER revision] [TYPES type …]`: answers with the revision it begins after, then pushes
 * `lease.events, prefix, revision, [events as JSON]` for each revision. A `resync` among them says that some were missed: read anew.
 */
import { EVENT_TYPES, type EventType } from '../../kernel/event.ts'
import { badPrefix } from '../../kernel/name.ts'
import type { Caller } from '../access-control.ts'
import { invalid, readOptions, text, whole } from './command.ts'
import { writeError } from './replies.ts'
import type { RespSession } from './session.ts'

export function watch(session: RespSession): void {
  const { args, caller, door } = session
  const prefix = text(session, 1, 'the prefix')
  const wrong = badPrefix(prefix)
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
      if (args.count - at > EVENT_TYPES.length) throw invalid(`there are ${EVENT_TYPES.length} types of events, and more were named`)
      for (let i = at; i < args.count; i++) types.push(typeNamed(text(session, i, 'a type')))
      return args.count - at
    },
  })
  if (session.watches.has(prefix)) throw invalid(`${prefix} is watched on this connection already: LEASE.UNWATCH it first`)
  const { desk } = door.context
  desk.mayWatch(caller, prefix)
  const stop = new AbortController()
  session.watches.set(prefix, stop)
  const begun = after === undefined ? desk.read(caller, { kind: 'summary' }).then(({ revision }) => revision) : Promise.resolve(after)
  begun.catch(() => forget(session, prefix, stop))
  session.later(begun, (to, revision) => {
    to.integer(revision)
    void run(session, caller, prefix, revision, types, stop)
  })
}

/** By the caller who asked: who the connection is may have changed since. */
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
    for await (const events of session.door.context.desk.watch(caller, prefix, {
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
      // What does not fit is not fetched: whoever reads too slowly is told by a resync what it missed.
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
  session.answer(to => to.integer(count))
}

function typeNamed(name: string): EventType {
  const type = EVENT_TYPES.find(known => known === name.toLowerCase())
  if (type === undefined) throw invalid(`there are no events of type ${name.slice(0, 32)}; there are ${EVENT_TYPES.join(', ')}`)
  return type
}
