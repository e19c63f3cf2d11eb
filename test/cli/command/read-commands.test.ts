import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { type ExplainedFacts, explanation } from '../../../src/cli/command/explain.ts'
import { failureOf } from '../../../src/cli/exit.ts'
import { clean, jsonLine, table } from '../../../src/cli/output.ts'
import { settingsOf } from '../../../src/cli/settings.ts'
import { connect, open, shown } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import { Place, program } from '../../support/cli.ts'

const SLOW = 120_000

/** What a name may contain and a terminal must not see. */
const NASTY = 'a\u202eb\u200bc\u2066d\ufeffe'

test('a table may have more rows than a call has room for arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, i) => [i, 'x'])
  expect(table(['N', 'NAME'], rows).split('\n').at(-1)).toBe('199999  x')
})

test('ls, show and history tell people in tables and programs in JSON; stdout has data alone', { timeout: SLOW }, async () => {
  await using here = new Place()
  const empty = await here.run(['ls'])
  expect(empty).toMatchObject({ code: 0, stdout: '', stderr: expect.stringMatching(/nothing is held/) })
  await using leases = await connect(here.url, { holder: 'alpha' })
  await using lease = await leases.acquire('jobs/a')
  await (await leases.acquire('jobs/b')).release()
  await using other = await connect(here.url, { holder: 'beta' })
  const stop = new AbortController()
  const waiting = other.acquire('jobs/a', { signal: stop.signal }).catch(() => {})
  while ((await leases.query('jobs')).pending.length === 0) await new Promise(resolve => setImmediate(resolve))

  const { stdout } = await here.run(['ls', 'jobs'])
  expect(stdout).toMatch(/^RESOURCE +HOLDER +TOKEN .*WAITING\njobs\/a +alpha +\d+ +\d+ +1 +[\d.]+ s +[\d.]+ m?s +1\n$/)
  expect(await here.json('ls', 'other')).toEqual([])
  expect(await here.json('ls')).toMatchObject([
    { resource: 'jobs/a', capacity: 1, grants: [{ holder: 'alpha', token: lease.token }], queue: [{ holder: 'beta', position: 0 }] },
  ])
  expect(await here.json('show', 'jobs/a')).toMatchObject([{ resource: 'jobs/a', queue: [{ holder: 'beta' }] }])
  expect(await here.json('show', String(lease.id))).toMatchObject([{ lease: lease.id, holder: 'alpha', status: 'live' }])
  expect((await here.run(['show', 'jobs/a'])).stdout).toMatch(/jobs\/a: held, 1 waiting[\s\S]*alpha[\s\S]*PLACE[\s\S]*1 +beta/)
  expect((await here.run(['show', '179472132466001'])).code).toBe(1)
  expect(await here.json('history', 'jobs/b')).toMatchObject([{ holder: 'alpha', cause: 'released' }])
  expect((await here.run(['explain', 'jobs/a'])).stdout).toMatch(
    /held by alpha \(lease \d+, token \d+\)[\s\S]*1 waits: beta[\s\S]*leasehold revoke \d+/,
  )
  stop.abort()
  await waiting
})

test('watch streams events as they happen, from a revision on, until it is interrupted', { timeout: SLOW }, async () => {
  await using here = new Place()
  await using leases = await connect(here.url, { holder: 'alpha' })
  await (await leases.acquire('x/before')).release()
  const { revision } = await leases.query()
  const watching = here.start(['watch', 'x', '--json', '--after', String(revision - 1)])
  await watching.printed(/released/)
  await (await leases.acquire('x/after')).release()
  await (await leases.acquire('y/other')).release()
  await watching.printed(/x\/after[\s\S]*released.*x\/after|released.*"resource":"x\/after"/)
  watching.process.kill('SIGINT')
  const { code, stdout, stderr } = await watching.finished
  expect({ code, stderr }).toEqual({ code: 130, stderr: '' })
  const events = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { type: string; resource: string })
  expect(events.map(({ type, resource }) => `${type} ${resource}`)).toEqual(['released x/before', 'granted x/after', 'released x/after'])
})

test('policy set adds to what is there, shows it as it is typed, and takes away what is left empty', { timeout: SLOW }, async () => {
  await using here = new Place()
  await here.json('policy', 'set', 'jobs/', 'ttlMax=1h', 'capacity=4', 'lockDelay=10s')
  expect(await here.json('policy', 'set', 'jobs', 'capacity=', 'queue=fit')).toMatchObject([
    { prefix: 'jobs', rules: { ttlMax: 3_600_000, lockDelay: 10_000, queue: 'fit' } },
  ])
  expect((await here.run(['policy', 'get', 'jobs/'])).stdout).toMatch(/ttlMax=1h.*lockDelay=10s|lockDelay=10s.*ttlMax=1h/)
  for (const bad of ['foo=1', 'ttlMax=5', 'capacity', 'capacity=many'])
    expect((await here.run(['policy', 'set', 'jobs', bad])).code).toBe(64)
  expect((await here.run(['policy', 'set', 'jobs', 'capactiy=3'])).stderr).toMatch(
    /capactiy, which is not known; there are ttlMin, .*capacity/,
  )
  await here.json('policy', 'unset', 'jobs')
  expect(await here.json('policy', 'get')).toEqual([])
  expect((await here.run(['help', 'policy', 'set'])).stdout).toMatch(/^Usage: leasehold policy set /)
})

test('a key is shown once: the log has its hash, and its name ends it', { timeout: SLOW }, async () => {
  await using here = new Place()
  const made = await here.run(['key', 'create', '--name', 'ci', '--allow', 'acquire,renew,release,read:jobs/', '--allow', 'watch'])
  expect(made.stdout).toMatch(/^lh_[\w-]{43}\n$/)
  expect(made.stderr).toMatch(/shown only now/)
  expect(made.stderr).not.toContain(made.stdout.trim())
  const [listed] = await here.json('key', 'ls')
  expect(listed).toEqual({
    id: 1,
    name: 'ci',
    allow: [...['acquire', 'renew', 'release', 'read'].map(verb => ({ verb, prefix: 'jobs' })), { verb: 'watch', prefix: '' }],
  })
  const file = readFileSync(here.file('leasehold/leasehold.db'))
  const wal = readFileSync(here.file('leasehold/leasehold.db-wal'), { flag: 'a+' })
  expect(Buffer.concat([file, wal]).includes(made.stdout.trim().slice(3))).toBe(false)
  expect((await here.run(['key', 'create', '--name', 'x', '--allow', 'fly:jobs/'])).code).toBe(64)
  expect(await here.json('key', 'revoke', 'ci')).toMatchObject([{ revoked: 1, name: 'ci' }])
  expect((await here.run(['key', 'revoke', 'ci'])).code).toBe(1)
})

test('backup and restore: a file for its owner alone, put back with greater tokens, only with --yes over what is there', {
  timeout: 60_000,
}, async () => {
  await using here = new Place()
  await here.json('policy', 'set', 'jobs', 'capacity=2')
  const first = await here.run(['run', 'a', '--ttl', '3s', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])
  const file = here.file('backup')
  expect(await here.json('backup', file)).toMatchObject([{ file }])
  expect(statSync(file).mode & 0o777).toBe(0o600)
  const second = await here.run(['run', 'a', '--ttl', '3s', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])

  expect(await here.run(['restore', file])).toMatchObject({ code: 1, stderr: expect.stringMatching(/1 policies[\s\S]*--yes/) })
  await using busy = await connect(here.url)
  expect(await here.run(['restore', file, '--yes'])).toMatchObject({ code: 69, stderr: expect.stringMatching(/in shared use by/) })
  await busy[Symbol.asyncDispose]()
  const [restored] = (await here.json('restore', file, '--yes')) as [{ quiet: number; nextToken: number }]
  expect(restored.quiet).toBe(3_000)
  const third = await here.run(['run', 'a', '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])
  const tokens = [first, second, third].map(({ stdout }) => Number(stdout))
  expect(tokens[1]).toBeGreaterThan(tokens[0]!)
  expect(tokens[2]).toBeGreaterThan(tokens[1]!)

  const there = `file:${here.file('new.db')}`
  expect((await here.run(['restore', file, '--store', there])).code).toBe(0)
  expect((await here.run(['policy', 'get', '--store', there])).stdout).toMatch(/capacity=2/)

  writeFileSync(here.file('bad'), readFileSync(file).subarray(0, -1))
  expect(await here.run(['restore', here.file('bad'), '--store', there])).toMatchObject({
    code: 64,
    stderr: expect.stringMatching(/damaged/),
  })
  expect((await here.run(['restore', here.file('none')])).code).toBe(1)
  const piped = await here.spawn('sh', ['-c', `"$0" "$1" backup - | "$0" "$1" restore - --store file:piped.db`, process.execPath, program])
    .finished
  expect(piped.code).toBe(0)
})

test('a reader that has seen enough ends it in silence', { timeout: SLOW }, async () => {
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

test('names of strangers cannot move the cursor or turn the line around; in JSON they are exact', { timeout: SLOW }, async () => {
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

test('what would change a terminal is marked, and what would not is left alone', () => {
  expect(clean('\u001b[2Jx\r\ny\u0085\u2028\u{e0041}\ud800 é 日本 👍')).toBe('\ufffd[2Jx\ufffd\ufffdy\ufffd\ufffd\ufffd\ufffd é 日本 👍')
  expect(JSON.parse(jsonLine({ a: '\u001b\u202e\u{e0041}👍' }))).toEqual({ a: '\u001b\u202e\u{e0041}👍' })
  expect(jsonLine('\u202e')).toBe('"\\u202e"')
  expect(table(['A', 'B'], [['x\ny', 1]])).toBe('A    B\nx\ufffdy  1')
})

test('a flag counts before the environment, that before the file, that before the default', () => {
  using place = { path: new Place().path, [Symbol.dispose]() {} }
  const state = { XDG_STATE_HOME: place.path }
  mkdirSync(`${place.path}/leasehold`)
  const file = `${place.path}/leasehold/leasehold.json`
  expect(settingsOf({}, state)).toMatchObject({ url: `file:${place.path}/leasehold/leasehold.db`, from: undefined, file: undefined })
  writeFileSync(file, JSON.stringify({ store: 'redis://file', holder: 'file', apiKey: 'file' }), { mode: 0o600 })
  expect(settingsOf({}, state)).toMatchObject({ url: 'redis://file', holder: 'file', apiKey: 'file', from: `${file} ("store")` })
  const env = { ...state, LEASEHOLD_HOLDER: 'env', LEASEHOLD_API_KEY: 'env' }
  expect(settingsOf({}, env)).toMatchObject({ url: 'redis://file', holder: 'env', apiKey: 'env' })
  expect(settingsOf({}, { ...env, LEASEHOLD_URL: 'redis://env' })).toMatchObject({
    url: 'redis://env',
    from: 'the environment (LEASEHOLD_URL)',
  })
  expect(settingsOf({ store: 'redis://flag', holder: 'flag' }, env)).toMatchObject({ url: 'redis://flag', holder: 'flag', from: undefined })
  expect(settingsOf({}, { ...state, LEASEHOLD_URL: '' })).toMatchObject({ from: `${file} ("store")` })

  chmodSync(file, 0o666)
  expect(() => settingsOf({}, state)).toThrow(/can be written by others/)
  expect(settingsOf({ config: file }, state)).toMatchObject({ holder: 'file' })
  chmodSync(file, 0o600)
  for (const [text, complaint] of [
    ['{', /not JSON/],
    ['[]', /not an object/],
    ['{"stor":"x"}', /"stor", which is no setting/],
    ['{"store":1}', /must be a text/],
    ['{"serve":[]}', /must be an object/],
  ] as const) {
    writeFileSync(file, text)
    expect(() => settingsOf({}, state)).toThrow(complaint)
  }
})

test('paths of a configuration file are seen from its folder, those of a flag from where we are', () => {
  using place = { path: new Place().path, [Symbol.dispose]() {} }
  const file = `${place.path}/here.json`
  writeFileSync(file, JSON.stringify({ store: 'file:leases.db' }))
  expect(settingsOf({ config: file }, {}).url).toBe(`file:${place.path}/leases.db`)
  expect(settingsOf({ config: file, store: 'file:leases.db' }, {}).url).toBe(`file:${process.cwd()}/leases.db`)
})

test('a URL that names nothing is a mistake of whoever wrote it, told without its password', async () => {
  for (const url of ['http://', 'http://h:99999', 'file://foo/bar.db', 'file:///tmp/%zz', 'mysql://u:s3cret@h', 'mysql://u:s3/cr@et@h']) {
    const error = await open(url).then(
      () => undefined,
      found => found as LeaseError,
    )
    expect([url, error?.code]).toEqual([url, 'INVALID'])
    expect(`${error!.message}${JSON.stringify(error!.facts)}`).not.toMatch(/s3/)
  }
  await expect(open('127.0.0.1:7420')).rejects.toThrow(/did you mean leasehold:\/\/127\.0\.0\.1:7420\?/)
  await expect(open('localhost:7420')).rejects.toThrow(/did you mean leasehold:\/\/localhost:7420\?/)
  await expect(open('leases.db')).rejects.toThrow(/did you mean file:leases\.db\?/)
})

test('an engine that does not accept a password is not taken for a file of another user', () => {
  const told = (facts: Record<string, string>) => failureOf(new LeaseError('UNAVAILABLE', 'no', { facts }))
  expect(told({ reason: 'permission', where: 'redis' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(told({ reason: 'credentials', place: 'postgres' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(told({ reason: 'permission', path: '/x' })).toMatchObject({ exit: 77, next: expect.stringMatching(/owns the file/) })
  expect(told({ reason: 'readonly', where: 'redis' }).exit).toBe(69)
})

test('what was asked for in a way that can mean nothing is refused, and says how', { timeout: SLOW }, async () => {
  await using here = new Place()
  const cases: [number, string[], RegExp][] = [
    [64, ['show', '/'], /begins with a slash/],
    [64, ['ls', '//'], /begins with a slash/],
    [64, ['explain', 'a//b'], /empty segment/],
    [64, ['policy'], /leasehold policy set/],
    [64, ['key'], /leasehold key create/],
    [64, ['help', 'bogus'], /no command bogus/],
    [64, ['--json'], /there is no command/],
    [64, ['--store', 'file:x', 'key'], /key what[\s\S]*leasehold key create/],
    [64, ['serve', '--store', 'memory:', '--socket', `${'x'.repeat(200)}`], /too long for a socket/],
    [64, ['serve', '--store', 'memory:', '--socket', 'nowhere/s'], /nowhere is not a folder/],
    [64, ['key', 'create', '--name', 'ci'], /--allow/],
    [64, ['elect', 'a', '--terms', '0', '--', 'true'], /--terms/],
    [64, ['elect', 'a', '--terms', '-1', '--', 'true'], /--terms/],
    [64, ['certify', 'file:x', '--store', 'file:y'], /unknown option '--store'/],
    [64, ['--store', 'file:y', 'certify', 'file:x'], /certify has no use for --store/],
    [64, ['migrate', 'file:x', 'file:y', '--holder', 'me'], /unknown option '--holder'/],
    [64, ['--store', 'file:z', 'migrate', 'file:x', 'file:y'], /migrate has no use for --store/],
  ]
  const ended = await Promise.all(cases.map(([, args]) => here.run(args)))
  expect(ended.map(({ code, stdout }) => [code, stdout])).toEqual(cases.map(([code]) => [code, '']))
  for (const [i, { stderr }] of ended.entries()) expect(stderr).toMatch(cases[i]![2])
  expect(await here.json('key', 'ls')).toEqual([])
  const first = await here.run(['key', 'create', '--name', 'ci', '--allow', 'read', '--json'])
  expect(first.stderr).toMatch(/first key[\s\S]*WARNING: no key allows 'admin' over everything/)
})

test.skipIf(!existsSync('/dev/full'))('output that finds no room ends with 74 and words', { timeout: SLOW }, async () => {
  await using here = new Place()
  const full = await here.spawn('sh', ['-c', '"$@" >/dev/full', 'sh', process.execPath, program, 'show', 'io', '--json']).finished
  expect(full.code).toBe(74)
  expect(JSON.parse(full.stderr)).toMatchObject({ error: { code: 'ENOSPC', exit: 74 } })
})

test('what is said about a URL leaves out who asks and with which password', () => {
  expect(shown('postgres://me:secret@db:5432/x?name=a')).toBe('postgres://db:5432/x?name=a')
  expect(shown('leasehold://:secret@[::1]:7420')).toBe('leasehold://[::1]:7420')
  expect(shown('file:/a@b/c.db')).toBe('file:/a@b/c.db')
})

test('explain says in sentences what is so, why, and what would change it', () => {
  const grant = {
    resource: 'r',
    lease: 7,
    holder: 'h',
    incarnation: 7,
    token: 9,
    units: 1,
    shared: false,
    since: 0,
    remaining: 4_000,
  } as const
  const past = { lease: 7, holder: 'h', token: 9, since: 0, until: 60_000, revision: 1 } as const
  const known: ExplainedFacts = {
    resource: { resource: 'r', capacity: 1, grants: [], queue: [], fence: 0 },
    summary: { quiet: false },
    history: [],
    policies: [],
    now: 120_000,
  }
  const say = (more: Partial<ExplainedFacts>) => explanation({ ...known, ...more }).join('\n')
  const holding = (status: 'live' | 'suspect' | 'frozen') => ({ ...known.resource, grants: [{ ...grant, status }] })
  expect(say({})).toMatch(/r is free\. Nobody who held it is remembered[\s\S]*defaults hold/)
  expect(say({ history: [{ ...past, cause: 'revoked', by: 'op' }] })).toMatch(
    /The last to hold it was h \(token 9\), until 60 s ago: revoked by op/,
  )
  expect(say({ resource: holding('live') })).toMatch(
    /held by h \(lease 7, token 9\) for 2 min; 4 s are left[\s\S]*leasehold revoke 7 or leasehold break r/,
  )
  expect(say({ resource: holding('suspect') })).toMatch(/within its grace, for another 4 s/)
  expect(say({ resource: holding('frozen'), history: [{ ...past, cause: 'revoked', by: 'op' }] })).toMatch(
    /frozen: .* \(revoked by op\), but its holder may still believe[\s\S]*in 4 s at the latest/,
  )
  expect(say({ resource: holding('frozen'), history: [{ ...past, cause: 'lapsed' }] })).toMatch(/withheld for another 4 s: .*lock-delay/)
  expect(say({ summary: { quiet: true } })).toMatch(/Nothing at all is granted at the moment/)
  const waiter = { lease: 8, holder: 'w', incarnation: 8, position: 0, units: 2, shared: false, priority: 5, since: 60_000 }
  const queue = Array.from({ length: 7 }, (_, position) => ({ ...waiter, position, holder: `w${position}` }))
  expect(say({ resource: { ...holding('live'), capacity: 4, queue } })).toMatch(
    /1 of 4 units are taken; the first who waits wants 2\.\n7 wait: first w0 \(for 60 s, priority 5, wants 2\), .* and w4 .*Behind them are 2 more/,
  )
  expect(say({ resource: { ...known.resource, capacity: 0 } })).toMatch(/capacity is 0/)
  const policies = [
    { prefix: '', rules: { ttlMax: 60_000, capacity: 2 } },
    { prefix: 'r', rules: { ttlMax: 3_600_000 } },
    { prefix: 'elsewhere', rules: { ttlMax: 1 } },
  ]
  expect(explanation({ ...known, policies }).slice(1)).toEqual([
    'The policy of r applies: ttlMax=1h.',
    'The policy of everything applies: capacity=2.',
  ])
})
