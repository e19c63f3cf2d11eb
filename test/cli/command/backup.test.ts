/** `leasehold backup` and `leasehold restore`. */
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { Place, program } from '../../support/cli.ts'

test('a backup is readable by its owner only, and restore continues with greater tokens and replaces a state only with --yes', async () => {
  await using here = new Place()
  await here.json('policy', 'set', 'jobs', 'capacity=2')
  const first = await here.run(['run', 'a', '--ttl', '3s', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])
  const file = here.file('backup')
  expect(await here.json('backup', file)).toMatchObject([{ file }])
  expect(statSync(file).mode & 0o777).toBe(0o600)
  const second = await here.run(['run', 'a', '--ttl', '3s', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])

  // The second policy is that of the runs, which the first run has set.
  expect(await here.answer(['restore', file])).toMatchObject({ code: 1, stderr: expect.stringMatching(/2 policies[\s\S]*--yes/) })
  await using busy = await connect(here.url)
  expect(await here.answer(['restore', file, '--yes'])).toMatchObject({ code: 69, stderr: expect.stringMatching(/in shared use by/) })
  await busy[Symbol.asyncDispose]()
  const [restored] = (await here.json('restore', file, '--yes')) as [{ quiet: number; nextToken: number }]
  expect(restored.quiet).toBe(3_000)
  const third = await here.run(['run', 'a', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])
  const tokens = [first, second, third].map(({ stdout }) => Number(stdout))
  expect(tokens[1]).toBeGreaterThan(tokens[0]!)
  expect(tokens[2]).toBeGreaterThan(tokens[1]!)

  const there = `file:${here.file('new.db')}`
  const refused = await here.answer(['restore', file, '--store', there])
  expect(refused).toMatchObject({ code: 64, stderr: expect.stringMatching(/may be longer than any that it knows[\s\S]*--longest-ttl 24h/) })
  expect((await here.answer(['restore', file, '--store', there, '--longest-ttl', '1m'])).code).toBe(0)
  expect((await here.answer(['policy', 'get', '--store', there])).stdout).toMatch(/capacity=2/)

  writeFileSync(here.file('bad'), readFileSync(file).subarray(0, -1))
  expect(await here.answer(['restore', here.file('bad'), '--store', there])).toMatchObject({
    code: 64,
    stderr: expect.stringMatching(/damaged/),
  })
  expect((await here.answer(['restore', here.file('none')])).code).toBe(1)
  const piped = await here.spawn('sh', [
    '-c',
    `"$0" "$1" backup - | "$0" "$1" restore - --clients-stopped --store file:piped.db`,
    process.execPath,
    program,
  ]).finished
  expect(piped.code).toBe(0)
})
