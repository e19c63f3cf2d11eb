import { expect, test } from 'vitest'
import { runCheckCommand } from '../../../src/server/registry/check-command.ts'

const run = (script: string, { signal = new AbortController().signal, timeout = 60_000 } = {}) =>
  runCheckCommand(['/bin/sh', '-c', script], { signal, timeout })

test('exit code 0 is passing, 1 a warning, and any other critical', async () => {
  expect(await run('exit 0')).toEqual({ status: 'passing' })
  expect(await run('exit 1')).toEqual({ status: 'warning', reason: 'the command ended with 1' })
  expect(await run('exit 7')).toEqual({ status: 'critical', reason: 'the command ended with 7' })
})

test('a command that does not end is killed after its timeout', async () => {
  expect(await run('exec sleep 600', { timeout: 50 })).toMatchObject({
    status: 'critical',
    reason: expect.stringMatching(/longer than 50 ms/),
  })
})

test('a command that writes too much is critical', async () => {
  expect(await run('yes')).toMatchObject({ status: 'critical' })
})
