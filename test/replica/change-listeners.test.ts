import { expect, test } from 'vitest'
import type { Event, EventType } from '../../src/kernel/event.ts'
import { ChangeListener, ChangeListeners } from '../../src/replica/change-listeners.ts'

function event(resource: string, type: Event['type'] = 'granted'): Event {
  return { revision: 2, type, lease: 1, holder: 'ann', resource, token: 1, at: 0 } as Event
}

/** Watches of these roots, all waiting, and those that events have woken or that had to look at an event. */
function waiting(roots: readonly string[], types?: readonly EventType[]) {
  const listeners = new ChangeListeners()
  const [woken, looked]: [string[], string[]] = [[], []]
  for (const root of roots) {
    const filter = () => {
      looked.push(root)
      return true
    }
    const listener = new ChangeListener(root, filter, types && new Set(types), () => listeners.delete(listener))
    listeners.add(listener)
    void listener.next().then(() => woken.push(`${root} after ${listener.seen}`))
  }
  return { listeners, woken, looked }
}

test('an event wakes the watches of its name and of the prefixes of it by whole segments, and no others', async () => {
  const { listeners, woken } = waiting(['', 'jobs', 'jobs/a', 'jobs/a/b', 'job', 'jobs/ab'])
  listeners.offer([event('jobs/a')], 7)
  await Promise.resolve()
  expect(woken.sort()).toEqual([' after 7', 'jobs after 7', 'jobs/a after 7'])
})

test('the events of a record are compared with no watch of another name', () => {
  const { listeners, looked } = waiting(Array.from({ length: 2_000 }, (_, i) => `teams/${i}`))
  listeners.offer(
    Array.from({ length: 1_000 }, (_, i) => event(`jobs/${i}`)),
    7,
  )
  expect(looked).toEqual([])
})

test('a watch of some types looks at no event of another type, and is woken by those that concern the log as a whole', async () => {
  const { listeners, woken, looked } = waiting(['', 'jobs'], ['lapsed'])
  listeners.offer([event('jobs/a', 'granted'), event('jobs/a', 'released')], 7)
  await Promise.resolve()
  expect([looked, woken]).toEqual([[], []])
  listeners.offer([event('jobs/a', 'lapsed')], 8)
  await Promise.resolve()
  expect(woken).toEqual([' after 8', 'jobs after 8'])
  const all = waiting(['jobs'], ['lapsed'])
  all.listeners.offer([event('', 'generation')], 9)
  await Promise.resolve()
  expect(all.woken).toEqual(['jobs after 9'])
})

test('all watches are woken by an event that concerns the log as a whole', async () => {
  const { listeners, woken } = waiting(['', 'jobs'])
  listeners.offer([event('', 'moved')], 7)
  await Promise.resolve()
  expect(woken.length).toBe(2)
})
