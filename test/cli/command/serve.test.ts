import { spawnSync } from 'node:child_process'
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { eventually, Place, program, type Running } from '../../support/cli.ts'

async function started(here: Place, ...args: string[]): Promise<{ server: Running; page: string; port: string }> {
  const server = here.start(['serve', '--listen', '127.0.0.1:0', ...args])
  const [page, port] = await server.printed(/http:\/\/127\.0\.0\.1:(\d+)\//)
  return { server, page, port: port! }
}

test('serve prints the address of its page, answers there, and stops in order at TERM', async () => {
  await using here = new Place()
  const { server, page } = await started(here)
  expect(server.stdout()).toBe(`${page}\n`)
  expect(await (await fetch(`${page}healthz`)).text()).toBeTruthy()
  const html = await fetch(page)
  expect(html.headers.get('content-type')).toMatch(/text\/html/)
  server.process.kill('SIGTERM')
  expect(await server.finished).toMatchObject({ code: 0, signal: null })
})

test('a server without TLS does not spend its start on the authorities of the system', async () => {
  await using here = new Place()
  const preload = here.file('preload.cjs')
  writeFileSync(preload, "require('node:tls').createSecureContext = () => { throw new Error('TLS was prepared') }\n")
  const server = here.start(['serve', '--listen', '127.0.0.1:0'], { env: { NODE_OPTIONS: `--require ${preload}` } })
  await server.printed(/http:/)
})

test('commands that open the file connect to the server that owns it, with keys or without, and work as before', async () => {
  await using here = new Place()
  const { server, port } = await started(here)
  const secret = here.file('leasehold/leasehold.db-operator')
  expect(statSync(secret).mode & 0o777).toBe(0o600)
  const key = (await here.answer(['key', 'create', '--name', 'ci', '--allow', 'acquire,renew,release,read:jobs/'])).stdout.trim()
  expect(key).toMatch(/^lh_/)
  const running = here.start(['run', 'jobs/a', '--holder', 'first', '--', 'sh', '-c', 'echo "up $LEASEHOLD_URL"; exec sleep 600'])
  expect((await running.printed(/up (.*)\n/))[1]).toBe(here.url)
  expect((await here.run(['run', 'jobs/a', '--no-wait', '--', 'true'])).code).toBe(75)
  expect(await here.json('ls')).toMatchObject([{ resource: 'jobs/a', grants: [{ holder: 'first' }] }])
  expect((await here.answer(['explain', 'jobs/a'])).stdout).toMatch(/held by first/)

  // By the server's address a key is required, and it allows only its scopes.
  const url = `leasehold://127.0.0.1:${port}`
  const without = await here.run(['run', 'jobs/b', '--store', url, '--', 'true'])
  expect(without).toMatchObject({ code: 77, stderr: expect.stringMatching(/LEASEHOLD_API_KEY/) })
  expect((await here.run(['run', 'jobs/b', '--store', url, '--', 'true'], { env: { LEASEHOLD_API_KEY: key } })).code).toBe(0)
  expect((await here.run(['run', 'other', '--store', url, '--', 'true'], { env: { LEASEHOLD_API_KEY: key } })).code).toBe(77)

  const file = here.file('backup')
  expect((await here.answer(['backup', file])).code).toBe(0)
  const restore = await here.answer(['restore', file, '--yes'])
  expect(restore).toMatchObject({ code: 69, stderr: expect.stringMatching(/owned by leasehold serve[\s\S]*stop it first/) })
  expect((await here.answer(['restore', file, '--clients-stopped', '--store', `file:${here.file('new.db')}`])).code).toBe(0)
  expect(server.stdout() + server.stderr() + readFileSync(file, 'latin1')).not.toContain(key)
})

test('the command that is suggested for the first key names the given store and creates the key there', async () => {
  await using here = new Place()
  const store = `file:${here.file('my leases.db')}`
  const refused = await here.run(['serve', '--store', store, '--listen', '0.0.0.0:0'])
  expect(refused.code).toBe(64)
  const [, command] = /\(leasehold (key create [^)]*)\)/.exec(refused.stderr) ?? []
  expect(command).toContain(`--store '${store}'`)
  const made = await here.spawn('sh', ['-c', `"$0" "$1" ${command}`, process.execPath, program]).finished
  expect(made.code).toBe(0)
  expect(await here.json('key', 'ls', '--store', store)).toMatchObject([{ name: 'admin' }])
  expect(await here.json('key', 'ls')).toEqual([])
})

test('a secret beside the file that other users could have written is replaced', async () => {
  await using here = new Place()
  const planted = `lh_${'a'.repeat(43)}`
  const file = here.file('planted.db-operator')
  writeFileSync(file, planted, { mode: 0o644 })
  await started(here, '--store', `file:${here.file('planted.db')}`)
  expect(readFileSync(file, 'utf8')).toMatch(/^lh_/)
  expect(readFileSync(file, 'utf8')).not.toBe(planted)
  expect(statSync(file).mode & 0o777).toBe(0o600)
})

test('when a server is killed and restarted, the command keeps running and keeps its lease', async () => {
  await using here = new Place()
  const { server, port } = await started(here)
  // By the address: a client of the file would use the file itself if the server is away for 10 s, and no server could own it then.
  const words = ['run', 'a', '--store', `leasehold://127.0.0.1:${port}`, '--ttl', '5m', '--']
  const running = here.start([...words, 'sh', '-c', 'echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 3'])
  await running.printed(/up/)
  server.process.kill('SIGKILL')
  await server.finished
  const again = here.start(['serve', '--listen', `127.0.0.1:${port}`])
  await again.printed(/http:/)
  expect(await here.json('ls')).toMatchObject([{ resource: 'a', grants: [{ status: 'live' }] }])
  writeFileSync(here.file('stop'), '')
  expect((await running.finished).code).toBe(3)
  expect(await here.json('ls')).toEqual([])
})

test('a server whose log was removed opens it again above all that it saw, and grants nothing while old holders may be running', async () => {
  await using here = new Place()
  const { server, page } = await started(here)
  const ask = async (where: string, resource: string) => {
    const response = await fetch(`${where}v1/leases`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ resources: [resource], holder: 'me', ttl: '8s' }),
    })
    return { status: response.status, ...((await response.json()) as { tokens?: Record<string, number>; error?: { code: string } }) }
  }
  const sent = performance.now()
  const first = await ask(page, 'a')
  expect(first.status).toBe(201)
  for (const file of ['', '-log']) rmSync(`${here.url.slice('file:'.length)}${file}`, { recursive: true, force: true })
  expect(await ask(page, 'b')).toMatchObject({ error: { code: expect.stringMatching(/DIVERGED|UNKNOWN|UNAVAILABLE/) } })
  const [, again] = await server.printed(/http:.*\n(http:\/\/127\.0\.0\.1:\d+\/)\n/)
  expect(server.stderr()).toContain('a new generation begins')
  // The server did not see the held lease end, so it waits for its ttl.
  const granted = async () => {
    const answer = await ask(again!, 'a')
    return answer.status === 201 ? answer : undefined
  }
  const later = await eventually('it grants again', granted)
  expect(performance.now() - sent).toBeGreaterThanOrEqual(8_000)
  expect(later.tokens!.a).toBeGreaterThan(first.tokens!.a!)
})

test('when the server stops answering, the command is ended while its lease still lasts', async () => {
  await using here = new Place()
  const { server } = await started(here)
  const running = here.start([
    'run',
    'a',
    '--ttl',
    '15s',
    '--grace',
    '4s',
    '--',
    'sh',
    '-c',
    'trap "" TERM; echo up; while :; do sleep 0.1; done',
  ])
  await running.printed(/up/)
  server.process.kill('SIGSTOP')
  const { code, stderr } = await running.finished
  expect(code).toBe(79)
  expect(stderr).toMatch(/could not be renewed and would be lost in [\d.]+ m?s\. Ending the command: TERM now, KILL in 4 s/)
})

test('serve refuses to own a file in shared use, shares it with --shared, and reports a port in use or takes the next one', async () => {
  await using here = new Place()
  await using taken = createServer().listen(0, '127.0.0.1')
  await eventually('it listens', () => taken.address())
  const { port } = taken.address() as { port: number }
  {
    await using leases = await connect(here.url)
    await using _lease = await leases.acquire('a')
    const refused = await here.run(['serve', '--listen', '127.0.0.1:0'])
    expect(refused).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(new RegExp(`shared use by process ${process.pid}|shared use by .*${process.pid}`)),
    })
    const { page } = await started(here, '--shared')
    expect(await (await fetch(`${page}v1/resources/a`)).json()).toMatchObject({ resource: 'a', grants: [{}] })
  }
  const other = `file:${here.file('other.db')}`
  const inUse = await here.run(['serve', '--store', other, '--listen', `127.0.0.1:${port}`])
  expect(inUse).toMatchObject({ code: 69, stderr: expect.stringMatching(/^leasehold: .* is in use by another process/) })
  const next = here.start(['serve', '--store', other, '--listen', `127.0.0.1:${port}`, '--next-port'])
  expect(Number((await next.printed(/127\.0\.0\.1:(\d+)\//))[1])).toBeGreaterThan(port)
  expect(next.stderr()).not.toMatch(/cannot take connections|in use/)
})

test('serve refuses a public address without keys and a bad configuration, and says what to do', async () => {
  await using here = new Place()
  const open = await here.run(['serve', '--listen', '0.0.0.0:0'])
  expect(open.code).not.toBe(0)
  expect(open.stderr).toMatch(/there are no keys[\s\S]*leasehold key create/)
  writeFileSync(here.file('bad.json'), '{"serve":{"listen":7420}}')
  expect(await here.run(['serve', '--config', here.file('bad.json')])).toMatchObject({
    code: 78,
    stderr: expect.stringMatching(/unknown or invalid "listen"/),
  })
  expect((await here.run(['serve', '--store', 'leasehold://127.0.0.1:1'])).code).toBe(64)
  writeFileSync(
    here.file('good.json'),
    JSON.stringify({ store: `file:${here.file('c.db')}`, serve: { listen: ['127.0.0.1:0'], limits: { connections: 5 } } }),
  )
  const server = here.start(['serve', '--json', '--config', here.file('good.json')])
  expect((await server.printed(/"serving":"([^"]*)"/))[1]).toBe(`file:${here.file('c.db')}`)
})

test('a mistake in a flag is 64, and one in the environment or the file is 78 with its place', async () => {
  await using here = new Place()
  const files = [
    '{"serve":{"listen":["foo"]}}',
    '{"serve":{"listen":["0.0.0.0:0"]}}',
    '{"serve":{"logLevel":"loud"}}',
    '{"serve":{"limits":{"foo":1}}}',
    '{"serve":{"tlsCert":"nope","tlsKey":"nope"}}',
    '{"serve":{"tlsCert":"nope"}}',
    '{"serve":{"listen":["127.0.0.1:0"],"dns":"foo"}}',
    '{"holder":"../x"}',
    '{"store":"leasehold://h"}',
    '{"store":"file:///tmp/%zz"}',
  ]
  const configured = await Promise.all(
    files.map((text, i) => {
      const file = here.file(`${i}.json`)
      writeFileSync(file, text)
      const place = text.includes('"store"') ? [] : ['--store', `file:${here.file(`${i}.db`)}`]
      return here.answer(['serve', '--config', file, ...place])
    }),
  )
  expect(configured.map(({ code }) => code)).toEqual(files.map(() => 78))
  for (const [i, { stderr }] of configured.entries()) expect(stderr).toContain(`Correct it in ${here.file(`${i}.json`)}`)
  writeFileSync(here.file('bad.pem'), 'bad')
  const pem = here.file('bad.pem')
  const flagged = await Promise.all([
    here.answer(['serve', '--listen', 'foo']),
    here.answer(['serve', '--log-level', 'loud', '--store', `file:${here.file('a.db')}`]),
    here.answer(['serve', '--tls-cert', 'nope', '--tls-key', 'nope', '--store', `file:${here.file('b.db')}`]),
    here.answer(['serve', '--tls-cert', pem, '--tls-key', pem, '--store', `file:${here.file('c.db')}`]),
    here.answer(['serve', '--store', 'http://']),
    here.answer(['ls', '--holder', '../x']),
  ])
  expect(flagged.map(({ code }) => code)).toEqual(flagged.map(() => 64))
  const named = await Promise.all([
    here.answer(['serve'], { LEASEHOLD_URL: 'leasehold://x' }),
    here.answer(['ls'], { LEASEHOLD_URL: 'http://' }),
    here.answer(['ls'], { LEASEHOLD_HOLDER: '../x' }),
  ])
  expect(named.map(({ code }) => code)).toEqual([78, 78, 78])
})

test('npm start -- --port serves on that port, and on no other if it is taken', async () => {
  await using here = new Place()
  const start = fileURLToPath(new URL('../../../scripts/start.mjs', import.meta.url))
  const first = here.spawn(process.execPath, [start, '--port', '0', '--store', 'memory:'])
  const [, port] = await first.printed(/http:\/\/127\.0\.0\.1:(\d+)\//)
  const second = await here.spawn(process.execPath, [start, `--port=${port}`, '--store', 'memory:']).finished
  expect(second.code).not.toBe(0)
  expect(second.stderr).toContain(port)
  first.process.kill('SIGINT')
  expect((await first.finished).code).toBe(0)
})

test('npm start serves the default store on the next free port', async () => {
  await using here = new Place()
  const npm = spawnSync('npm', ['--version']).status === 0
  expect(npm).toBe(true)
  const server = here.spawn(process.execPath, [fileURLToPath(new URL('../../../scripts/start.mjs', import.meta.url))])
  const [, page] = await server.printed(/(http:\/\/127\.0\.0\.1:\d+\/)/)
  expect((await fetch(`${page}healthz`)).status).toBe(200)
  expect(await here.json('ls')).toEqual([])
  server.process.kill('SIGINT')
  expect((await server.finished).code).toBe(0)
})
