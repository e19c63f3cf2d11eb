/** What the commands print, and what happens when the output has no reader. */
import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { clean, jsonLine, table } from '../../src/cli/output.ts'
import { connect } from '../../src/connect/connect.ts'
import { Place, program } from '../support/cli.ts'

/** Characters that a name may contain and that must not reach a terminal. */
const NASTY = 'a\u202eb\u200bc\u2066d\ufeffe'

test('a table may have more rows than a call has room for arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, i) => [i, 'x'])
  expect(table(['N', 'NAME'], rows).split('\n').at(-1)).toBe('199999  x')
})

test('a reader that closes the pipe ends the command silently', async () => {
  await using here = new Place()
  await using leases = await connect(here.url)
  const held = await Promise.all(Array.from({ length: 2_000 }, (_, i) => leases.acquire(`r/${i}`)))
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the shell's
  const script = '"$0" "$1" ls --json | head -n 1; echo "code ${PIPESTATUS[0]}"'
  const { stdout, stderr } = await here.spawn('bash', ['-c', script, process.execPath, program]).finished
  expect(stdout.trim().split('\n')).toEqual([expect.stringMatching(/"r\/0"/), 'code 0'])
  expect(stderr).toBe('')
  expect(held).toHaveLength(2_000)
})

test('names cannot move the cursor or reverse the text, and are exact in JSON', async () => {
  await using here = new Place()
  await using leases = await connect(here.url, { holder: NASTY })
  await using _lease = await leases.acquire(NASTY, { entries: { e: '\u001b[31mred\n\u009b1m' } })
  for (const args of [['ls'], ['show', NASTY], ['explain', NASTY], ['show', String(_lease.id)], ['ls', '--json']]) {
    const { stdout } = await here.run(args)
    expect(stdout).toMatch(args.includes('--json') ? /\\u202e/ : /a\ufffdb/)
    expect(stdout.replaceAll('\n', '')).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/)
  }
  expect(await here.json('ls')).toMatchObject([{ resource: NASTY, grants: [{ holder: NASTY }] }])
  const held = await here.run(['run', NASTY, '--no-wait', '--', 'true'])
  expect(held.stderr).toMatch(/a\ufffdb/)
})

test('characters that would change a terminal are replaced, and others are kept', () => {
  expect(clean('\u001b[2Jx\r\ny\u0085\u2028\u{e0041}\ud800 é 日本 👍')).toBe('\ufffd[2Jx\ufffd\ufffdy\ufffd\ufffd\ufffd\ufffd é 日本 👍')
  expect(JSON.parse(jsonLine({ a: '\u001b\u202e\u{e0041}👍' }))).toEqual({ a: '\u001b\u202e\u{e0041}👍' })
  expect(jsonLine('\u202e')).toBe('"\\u202e"')
  expect(table(['A', 'B'], [['x\ny', 1]])).toBe('A    B\nx\ufffdy  1')
})

test.skipIf(!existsSync('/dev/full'))('output that cannot be written ends with 74 and a message', async () => {
  await using here = new Place()
  const full = await here.spawn('sh', ['-c', '"$@" >/dev/full', 'sh', process.execPath, program, 'show', 'io', '--json']).finished
  expect(full.code).toBe(74)
  expect(JSON.parse(full.stderr)).toMatchObject({ error: { code: 'ENOSPC', exit: 74 } })
})
