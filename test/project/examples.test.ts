/** The programs in examples/ run and print what they claim. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, expect, test } from 'vitest'
import { requireFreshBuild } from '../support/fresh-build.ts'

beforeAll(() => requireFreshBuild())

test('after a holder is killed, the next one gets the lease with a greater token', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../../examples/takeover.mjs', import.meta.url))])
  const [, first] = /holds jobs\/nightly, with token (\d+)/.exec(stdout) ?? []
  const [, second] = /has it [\d.]+ s later, with the greater token (\d+)/.exec(stdout) ?? []
  expect(Number(second)).toBeGreaterThan(Number(first))
})

test('agents find each other by capability, and a killed agent is no longer picked', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../../examples/agents.mjs', import.meta.url))])
  expect(stdout).toMatch(/found 3 writers and 1 reviewer/)
  expect(stdout.match(/chapter \w+, written by \d+: approved/g)).toHaveLength(4)
  expect(stdout).toMatch(/\S+ is not picked any more; 2 writers are left/)
  expect(stdout).toMatch(/deregistered: 0 are listed/)
})

test('three users share the GPUs of two hosts, none is used twice at once, and those of a host that dies leave', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../../examples/gpu-lab.mjs', import.meta.url))])
  expect(stdout.match(/\w+ runs job \d on lab-[ab]\/gpu-\d/g)).toHaveLength(9)
  expect(stdout).toMatch(/9 jobs done, and no GPU was used by two of them at once/)
  expect(stdout).toMatch(/lab-b was killed: 2 of 4 GPUs are left/)
  expect(stdout).toMatch(/5 GPUs were asked for: .*can never give 5 members/)
})

test('consumers share partitions: one is killed, and every message is processed once', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../../examples/shards.mjs', import.meta.url))])
  expect(stdout).toMatch(/bob \d+ before it died, cid [1-9]\d*$/m)
  expect(stdout).toMatch(/480 messages: each was processed once, epochs only grow/)
  expect(stdout).toMatch(/the consumers have left: 0 partitions have an owner/)
})

test('three agents edit one repository through MCP: one is killed, one forgets everything, and no edit is lost', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../../examples/claims.mjs', import.meta.url))])
  expect(stdout).toMatch(/bob holds src\/\w\.txt and src\/\w\.txt, and is killed/)
  expect(stdout).toMatch(/cid forgot everything, and mine told it: src\/\w\.txt, src\/\w\.txt \(edit 1 of cid\)/)
  expect(stdout).toMatch(/1[6-9] edits were made: none was lost|2\d edits were made: none was lost/)
})
