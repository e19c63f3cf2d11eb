/** `leasehold key`. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'

test('a key is shown once, the log has only its hash, and it can be revoked by its name', async () => {
  await using here = new Place()
  const made = await here.answer(['key', 'create', '--name', 'ci', '--allow', 'acquire,renew,release,read:jobs/', '--allow', 'watch'])
  expect(made.stdout).toMatch(/^lh_[\w-]{43}\n$/)
  expect(made.stderr).toMatch(/shown only now/)
  expect(made.stderr).not.toContain(made.stdout.trim())
  const [listed] = await here.json('key', 'ls')
  expect(listed).toEqual({
    id: 1,
    name: 'ci',
    allow: [...['acquire', 'renew', 'release', 'read'].map(verb => ({ verb, prefix: 'jobs' })), { verb: 'watch', prefix: '' }],
    use: { leases: 0, waiters: 0, entries: 0, bytes: 0 },
  })
  const file = readFileSync(here.file('leasehold/leasehold.db'))
  const wal = readFileSync(here.file('leasehold/leasehold.db-wal'), { flag: 'a+' })
  expect(Buffer.concat([file, wal]).includes(made.stdout.trim().slice(3))).toBe(false)
  expect((await here.answer(['key', 'create', '--name', 'x', '--allow', 'fly:jobs/'])).code).toBe(64)
  expect(await here.json('key', 'revoke', 'ci')).toMatchObject([{ revoked: 1, name: 'ci' }])
  expect((await here.answer(['key', 'revoke', 'ci'])).code).toBe(1)
})

test('the key for people on call has three rights over everything, and the command says so', async () => {
  await using here = new Place()
  const made = await here.run(['key', 'create', '--name', 'oncall', '--allow', 'read:,watch:,break:'])
  expect(made.stderr).toContain('It allows read, watch, break on everything.')
  expect(await here.json('key', 'ls')).toMatchObject([
    { name: 'oncall', allow: ['read', 'watch', 'break'].map(verb => ({ verb, prefix: '' })) },
  ])
  const refused = await here.run(['key', 'create', '--name', 'x', '--allow', 'read:jobs/,logs/'])
  expect(refused).toMatchObject({ code: 64, stderr: expect.stringContaining("'logs/' is no verb") })
})
