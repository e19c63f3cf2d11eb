/** `leasehold key`. */
import { readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'
import { servePool, storeToServe } from '../../support/served-pool.ts'

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
  const segment = readFileSync(here.file('leasehold/leasehold.db-log/0000000000000001.log'))
  expect(segment.includes('ci')).toBe(true)
  expect(Buffer.concat([file, segment]).includes(made.stdout.trim().slice(3))).toBe(false)
  expect((await here.answer(['key', 'create', '--name', 'x', '--allow', 'fly:jobs/'])).code).toBe(64)
  expect(await here.json('key', 'revoke', 'ci')).toMatchObject([{ revoked: 1, name: 'ci' }])
  expect((await here.answer(['key', 'revoke', 'ci'])).code).toBe(1)
})

test('the secret of a key is written to a file for its user alone, or taken from one, and is never printed', async () => {
  await using here = new Place()
  const create = (name: string, file: string, ...more: string[]) =>
    here.run(['key', 'create', '--name', name, '--allow', 'admin', '--secret-file', here.file(file), ...more])
  const made = await create('admin', 'made')
  const secret = readFileSync(here.file('made'), 'utf8')
  expect(secret).toMatch(/^lh_[\w-]{43}\n$/)
  expect(statSync(here.file('made')).mode & 0o777).toBe(0o600)
  expect(made).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining(`Its secret is in ${here.file('made')}.`) })
  // Kubernetes mounts the field of a Secret as a link to a file that others may read.
  const given = `lh_${'k'.repeat(43)}`
  writeFileSync(here.file('mounted'), given, { mode: 0o644 })
  symlinkSync(here.file('mounted'), here.file('link'))
  const taken = await create('second', 'link', '--json')
  expect(JSON.parse(taken.stdout)).toMatchObject({ id: 2, name: 'second', secretFile: here.file('link') })
  expect([made, taken].map(({ stdout, stderr }) => /lh_/.test(stdout + stderr))).toEqual([false, false])
  const server = here.start(['serve', '--listen', '127.0.0.1:0'])
  const [, url] = await server.printed(/http:\/\/([\d.:]+)\//)
  const statusWith = async (key: string) => (await fetch(`http://${url}/v1/keys`, { headers: { authorization: `Bearer ${key}` } })).status
  expect(await Promise.all([secret.trim(), given, `lh_${'x'.repeat(43)}`].map(statusWith))).toEqual([200, 200, 401])
})

test('a file without a secret creates no key, and the message does not show what it has', async () => {
  await using here = new Place()
  const create = (file: string) => here.run(['key', 'create', '--name', 'admin', '--allow', 'admin', '--secret-file', file])
  writeFileSync(here.file('short'), 'lh_hunter2')
  const refused = await create(here.file('short'))
  expect(refused).toMatchObject({ code: 64, stdout: '', stderr: expect.stringContaining('has no secret of a key') })
  expect(refused.stderr).not.toContain('hunter2')
  expect(await create(here.file('missing/file'))).toMatchObject({ code: 64, stderr: expect.stringContaining('its folder does not exist') })
  expect(await create(here.path)).toMatchObject({ code: 64, stderr: expect.stringContaining('cannot be used: EISDIR') })
  expect(await here.json('key', 'ls')).toEqual([])
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

test('a key is bound, limited, rotated and expires by the options of the command, and the list shows it', async () => {
  await using here = new Place()
  const bounds = ['--accounts', 'ann,lab-*', '--holders', 'ann*', '--priority=-5..10', '--no-members', '--group', 'students']
  const made = await here.run([
    ...['key', 'create', '--name', 'ann', '--allow', 'acquire,read:gpus/', ...bounds],
    ...['--limits', 'leases=5,waiters=2', '--limits', 'requests=10', '--expires', '90d'],
  ])
  expect(made.stderr).toMatch(
    /accounts ann, lab-\*; holders ann\*; priorities -5 to 10; no members by name; group students; at most 5 leases/,
  )
  expect(await here.json('key', 'ls')).toMatchObject([
    {
      ...{ name: 'ann', accounts: ['ann', 'lab-*'], holders: ['ann*'], priority: { low: -5, high: 10 }, noMembers: true },
      ...{ group: 'students', limits: { leases: 5, waiters: 2, requests: 10 }, expires: expect.stringMatching(/Z$/) },
    },
  ])
  expect((await here.run(['key', 'limit', '--group', 'students', '--limits', 'leases=7'])).stderr).toMatch(/group students.*7 leases/)
  expect((await here.run(['key', 'limit', 'ann', '--none'])).stderr).toMatch(/no limits/)
  const listed = (await here.run(['key', 'ls'])).stdout
  expect(listed).toMatch(/students 0\/7 leases/)
  const rotated = await here.run(['key', 'rotate', 'ann', '--overlap', '1h'])
  expect([rotated.code, rotated.stdout, rotated.stderr]).toEqual([
    0,
    expect.stringMatching(/^lh_/),
    expect.stringMatching(/Its leases stay/),
  ])
  expect(rotated.stdout).not.toBe(made.stdout)
  expect(await here.run(['key', 'rotate', 'ann', '--overlap', '1h'])).toMatchObject({
    code: 64,
    stderr: expect.stringMatching(/former secret/),
  })
  expect((await here.run(['key', 'rotate', 'ann', '--expires', '1d'])).code).toBe(0)
})

test.each([
  [['create', '--priority', '10'], /--priority takes a range/],
  [['create', '--limits', 'fun=1'], /there is no limit fun/],
  [['create', '--limits', 'leases=-1'], /--limits leases takes a whole number of at least 0/],
  [['create', '--limits', 'leases=99999999999'], /leases/],
  [['create', '--limits', 'leases'], /--limits leases takes a whole number/],
  [['create', '--limits', 'burst=5'], /burst/],
  [['create', '--expires', '2001-01-01'], /is over/],
  [['create', '--expires', 'soon'], /--expires takes a duration/],
  [['create', '--accounts', 'a,,b'], /accounts/],
  [['limit', 'k'], /either --limits or --none/],
  [['limit', '--limits', 'leases=1'], /exactly one target/],
  [['limit', '--group', 'missing', '--none'], /no key is in the group missing/],
  [['limit', 'missing', '--none'], /there is no key missing/],
  [['rotate', 'missing'], /there is no key missing/],
  [['rotate', 'k', '--overlap', 'long'], /--overlap/],
])('key %j is refused with a sentence', async ([word, ...rest], message) => {
  await using here = new Place()
  const words = word === 'create' ? ['create', '--name', 'k', '--allow', 'admin', ...rest] : [word!, ...rest]
  if (word === 'rotate') await here.run(['key', 'create', '--name', 'k', '--allow', 'admin'])
  const answer = await here.run(['key', ...words])
  expect(answer.code).not.toBe(0)
  expect(answer.stderr).toMatch(message)
})

test('a bound key takes members of a pool as its own account only, with its priorities, and not by name', async () => {
  await using here = new Place()
  const { url, createKey } = storeToServe(here)
  const admin = await createKey('--name', 'ops', '--allow', 'admin')
  const bounds = ['--accounts', 'ann', '--holders', 'ann*', '--priority', '0..10', '--no-members']
  const ann = await createKey('--name', 'ann', '--allow', 'acquire,read:gpus', ...bounds)
  using pool = await servePool(here, url, admin)
  const { as } = pool
  const take = (...words: string[]) => here.run(['pool', 'take', 'gpus', '--no-wait', ...words, '--', 'true'], as(ann))
  expect(await take('--holder', 'ann', '--account', 'ben')).toMatchObject({
    code: 77,
    stderr: expect.stringMatching(/account ben: it may use ann/),
  })
  expect(await take('--holder', 'ann', '--account', 'ann', '--priority', '1000')).toMatchObject({
    code: 77,
    stderr: expect.stringMatching(/priority 1000/),
  })
  expect(await take('--holder', 'ben')).toMatchObject({ code: 77, stderr: expect.stringMatching(/holder ben/) })
  const byName = await here.run(['run', 'gpus/GPU-00000001', '--holder', 'ann', '--no-wait', '--', 'true'], as(ann))
  expect(byName).toMatchObject({ code: 77, stderr: expect.stringMatching(/ask the pool gpus/) })
  const reserve = ['pool', 'reserve', 'gpus', '--from', '1h', '--for', '1h', '--account', 'ben', '--holder', 'ann']
  expect(await here.run(reserve, as(ann))).toMatchObject({ code: 77, stderr: expect.stringMatching(/account ben/) })
  expect((await take('--holder', 'ann', '--account', 'ann')).code).toBe(0)
  // Without an account: not the user name, which the key may not use.
  expect((await take('--holder', 'ann')).code).toBe(0)
  const own = ['pool', 'reserve', 'gpus', '--from', '1h', '--for', '1h', '--holder', 'ann']
  expect((await here.run(own, as(ann))).code).toBe(0)
})
