/** The referee judges revisions and what watchers see of them. */
import type { Event } from '../../src/kernel/event.ts'
import { cases, type RefereedWorld } from '../support/sim/refereed-world.ts'

/** Five revisions, as a watcher must see them. */
function revisions(c: RefereedWorld): Event[][] {
  const seen: Event[][] = []
  const before = c.tamper
  c.tamper = (_, events) => {
    if (events.length > 0) seen.push([...events])
    return undefined
  }
  for (const resource of ['u', 'v', 'w']) c.acquire('a', [resource, `${resource}2`])
  c.tamper = before
  return seen
}

cases(
  'S13',
  {
    'a watcher sees one revision after another': c => {
      const [first, second, third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!, 0)
      c.referee.revisions.watched(second![0]!.revision, third!, 0)
    },
    'a watcher begins before the first revision': c => c.referee.revisions.watched(0, revisions(c)[0]!, 0),
    'a watcher skips a gap after a resync': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision - 1, third!, 0)
    },
    'revisions skip numbers with a generation': c => {
      const [, , third] = revisions(c)
      const token = c.state.nextToken
      let seen: Event[] = []
      c.tamper = (_, events) => {
        seen = [...events]
        return undefined
      }
      c.do({ kind: 'generation', lease: 0, token, revision: c.state.revision + 50, quiet: 0 })
      c.referee.revisions.watched(third![0]!.revision, seen, 0)
    },
    'a watcher saw revisions that were lost': c => {
      const [first, , third] = revisions(c)
      c.lose(1)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
  },
  {
    'a watcher skips a revision': c => {
      const [first, , third] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, third!, 0)
    },
    'a watcher sees half of a revision': c => {
      const [first, second] = revisions(c)
      c.referee.revisions.watched(first![0]!.revision, second!.slice(1), 0)
    },
    'a watcher sees a revision that is not in the log': c => {
      const [, , third] = revisions(c)
      c.referee.revisions.watched(third![0]!.revision, [{ ...third![0]!, revision: third![0]!.revision + 1 }], 0)
    },
  },
)
