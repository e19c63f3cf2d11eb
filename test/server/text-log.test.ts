/** The server's log as JSON lines and as text: the same facts, and nothing else on that stream. */
import { expect, test } from 'vitest'
import { serverLog } from '../../src/server/log.ts'
import { Place } from '../support/cli.ts'

function written(format: 'json' | 'text'): string[] {
  const lines: string[] = []
  const log = serverLog({ format, to: { write: line => void lines.push(line) } })
  log.warn({ store: 'down', reason: 'the disk is full', since: 5, on: { id: 3 } }, 'the store is not available')
  return lines
}

test('text has the time, the level, the message and the facts', () => {
  const [line] = written('text')
  const time = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`
  expect(line).toMatch(
    new RegExp(`^${time} warn  the store is not available store=down reason="the disk is full" since=5 on=\\{"id":3\\}\n$`),
  )
})

test('JSON has the same', () => {
  const [line] = written('json')
  expect(JSON.parse(line!)).toMatchObject({
    ...{ level: 'warn', name: 'leasehold', msg: 'the store is not available' },
    ...{ store: 'down', reason: 'the disk is full', since: 5, on: { id: 3 } },
  })
})

test.each(['json', 'text'] as const)('a server whose log is %s writes nothing else on stderr, from its start to its end', async format => {
  await using here = new Place()
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--log-format', format])
  await server.printed(/http:\/\/127/)
  server.process.kill('SIGTERM')
  const { code, stderr } = await server.finished
  const lines = stderr.trimEnd().split('\n')
  expect({ code, lines: lines.length }).toEqual({ code: 0, lines: 3 })
  const messages = format === 'json' ? lines.map(line => JSON.parse(line).msg) : lines
  expect(messages[0]).toMatch(/serving file:/)
  expect(messages[1]).toMatch(/the server stops.*/)
  expect(messages[2]).toMatch(/the server has stopped/)
})

test('elsewhere than on a terminal the log is JSON', async () => {
  await using here = new Place()
  const server = here.start(['serve', '--listen', '127.0.0.1:0'])
  await server.printed(/http:\/\/127/)
  server.process.kill('SIGTERM')
  const { stderr } = await server.finished
  expect(
    stderr
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line).level),
  ).toEqual(['info', 'info', 'info'])
  expect((await here.answer(['serve', '--log-format', 'xml'])).stderr).toMatch(/unknown log format xml/)
})
