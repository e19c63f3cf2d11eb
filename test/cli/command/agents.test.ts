/** `leasehold agents`: who is there, and what each of them holds. */
import { expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'

test('lists many agents with all that they hold, without a word on stderr', async () => {
  await using here = new Place()
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--store', `file:${here.file('served.db')}`])
  const [, address] = await server.printed(/(127\.0\.0\.1:\d+)/)
  const agents = () => here.run(['agents', '--store', `leasehold://${address}`])
  expect(await agents()).toMatchObject({ code: 0, stderr: expect.stringMatching(/no agent is there/) })
  const hook = `http://${address}/v1/hooks/agent?host=claude&root=/repo&prefix=repo/example.com/a/b`
  const edit = async (session: string, file: string) => {
    const event = { session_id: session, cwd: '/repo', hook_event_name: 'PreToolUse', tool_name: 'Edit' }
    const body = JSON.stringify({ ...event, tool_input: { file_path: `/repo/${file}` } })
    const answer = await fetch(hook, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
    expect(answer.status).toBe(200)
  }
  for (let i = 10; i < 30; i++) for (const part of ['a', 'b']) await edit(`s${i}`, `src/${part}${i}.ts`)
  const listed = await agents()
  expect(listed).toMatchObject({ code: 0, stderr: '' })
  expect(listed.stdout.match(/claude-s\d+/g)).toHaveLength(20)
  expect(listed.stdout).toMatch(/claude-s17 [^\n]*src\/[ab]17\.ts[^\n]*\n[^\n]*src\/[ab]17\.ts/)
  const lines = (await here.run(['agents', '--json', '--store', `leasehold://${address}`])).stdout.trim().split('\n')
  expect(lines.map(line => JSON.parse(line).holds.length)).toEqual(Array(20).fill(2))
})
