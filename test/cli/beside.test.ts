/** Commands that name a store with `via=server`: they use the server beside it, and the store when the server is killed. */
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { parseAnnouncement, SERVERS } from '../../src/connect/beside-protocol.ts'
import { FileAnnouncements } from '../../src/store/file/announcements.ts'
import { eventually, Place } from '../support/cli.ts'

test.each(['SIGKILL', 'SIGTERM'] as const)('a command keeps its lease when the server beside its store ends by %s', async signal => {
  await using here = new Place()
  const server = here.start(['serve', '--shared', '--listen', '127.0.0.1:0'])
  await server.printed(/http:/)
  const announcements = new FileAnnouncements(here.file('leasehold/leasehold.db'), systemClock)
  const [announced] = [...(await announcements.list(SERVERS)).values()]
  expect(parseAnnouncement(announced!)?.addresses).toMatchObject([{ address: expect.stringMatching(/^127\.0\.0\.1:\d+$/) }])
  const store = ['--store', `${here.url}?via=server`]
  const script = 'echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 3'
  const running = here.start(['run', 'a', ...store, '--ttl', '20s', '--grace', '500ms', '--', 'sh', '-c', script])
  await running.printed(/up/)
  const grant = async () => {
    const [resource] = (await here.json('ls', 'a')) as unknown as [
      { readonly grants: [{ readonly token: number; readonly remaining: number }] },
    ]
    return resource.grants[0]
  }
  const { token } = await grant()
  server.process.kill(signal)
  await server.finished
  // The remaining time grows: the command renews in the file.
  let left = Number.POSITIVE_INFINITY
  await eventually('a renewal in the file', async () => {
    const before = left
    const { token: now, remaining } = await grant()
    expect(now).toBe(token)
    left = remaining
    return left > before
  })
  expect((await here.run(['run', 'a', ...store, '--no-wait', '--', 'true'])).code).toBe(75)
  expect((await announcements.list(SERVERS)).size).toBe(signal === 'SIGTERM' ? 0 : 1)
  writeFileSync(here.file('stop'), '')
  expect(await running.finished).toMatchObject({ code: 3 })
})
