import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { secretIn, signature } from '../../../../src/cli/command/pool/webhook.ts'
import { systemClock } from '../../../../src/clock.ts'
import { eventually, Place } from '../../../support/cli.ts'
import { FakeNvidia } from '../../../support/fake-nvidia.ts'
import { servePool, storeToServe } from '../../../support/served-pool.ts'

interface Received {
  readonly kind: string
  readonly account: string
  readonly text: string
  readonly signed: boolean
}

/** A receiver that checks the signature of each notice, as its owner would. */
async function receiver(secret: Buffer) {
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const piece of request.setEncoding('utf8')) body += piece
    const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': sign } = request.headers
    const signed = sign === signature(secret, String(id), String(timestamp), body)
    received.push({ ...(JSON.parse(body) as Received), signed })
    response.writeHead(204).end()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    received,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

/** A file with a secret, as the documentation makes it. */
function secretFile(here: Place): { readonly path: string; readonly secret: Buffer } {
  const path = here.file('webhook.secret')
  const text = `whsec_${Buffer.alloc(32, 3).toString('base64')}\n`
  writeFileSync(path, text, { mode: 0o600 })
  return { path, secret: secretIn(text) }
}

test('with a key that may only read and watch, a user that waited learns of the grant by a signed webhook and by a command', async () => {
  await using here = new Place()
  const { url, createKey } = storeToServe(here)
  const admin = await createKey('--name', 'ops', '--allow', 'admin')
  const user = await createKey('--name', 'users', '--allow', 'acquire,read:gpus', '--allow', 'read,watch:devices/gpus')
  const notices = await createKey('--name', 'notices', '--allow', 'read,watch:gpus', '--allow', 'read,watch:devices/gpus')
  using pool = await servePool(here, url, admin)
  const { as } = pool
  const { path, secret } = secretFile(here)
  await using there = await receiver(secret)
  const words = ['pool', 'notify', 'gpus', '--webhook', there.url, '--secret-file', path, '--only', 'granted,recalled']
  const telling = here.start([...words, '--exec', `printf '%s\\n' "$LEASEHOLD_NOTICE_TEXT" >> ${here.file('told')}`], as(notices))
  await telling.printed(/notices of gpus go to http:\/\/127\.0\.0\.1:\d+ and the command of --exec\n/)
  const first = here.start(['pool', 'take', 'gpus', '--account', 'ann', '--', 'sleep', '600'], as(user))
  await first.printed(/took GPU-00000001/)
  const second = here.start(['pool', 'take', 'gpus', '--account', 'ben', '--', 'sh', '-c', 'echo up; exec sleep 600'], as(user))
  await second.printed(/waiting for 1 member/)
  first.process.kill('SIGTERM')
  await second.printed(/up/)
  await eventually('the notice arrived', () => there.received.length > 0)
  expect(there.received.map(({ kind, account, signed }) => [kind, account, signed])).toEqual([['granted', 'ben', true]])
  expect(telling.stdout()).toMatch(/^granted +ben: you have GPU-\S+ of gpus now, after /)
  await eventually('the command ran', () => existsSync(here.file('told')) && readFileSync(here.file('told'), 'utf8').endsWith('\n'))
  expect(readFileSync(here.file('told'), 'utf8')).toBe(`${there.received[0]!.text}\n`)
  telling.process.kill('SIGINT')
  expect((await telling.finished).code).toBe(130)
})

test('users learn that devices are idle, and who asks for them back and why', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1', utilisation: '0' })
  const idle = ['--idle-warn', '1s', '--idle-recall', '2s', '--idle-end', '10m']
  const host = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia', '--host', 'lab-a', '--interval', '200ms', ...idle], {
    env: gpus.env,
  })
  await host.printed(/offering 1 device/)
  const telling = here.start(['pool', 'notify', 'gpus', '--json'])
  await telling.printed(/notices of gpus go to this output/)
  const taker = here.start(['pool', 'take', 'gpus', '--anywhere', '--account', 'ann', '--', 'sleep', '600'])
  await taker.printed(/lab-a: idle for \S+ s asks for gpus\/GPU-\S+ \(lease \d+\) back/)
  await telling.printed(/"kind":"recalled"/)
  await telling.printed(/"kind":"idle"/)
  const told = telling
    .stdout()
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Received & { by?: string })
  // Whichever is seen first.
  told.sort((a, b) => a.kind.localeCompare(b.kind))
  expect(told.map(({ kind, account }) => [kind, account])).toEqual([
    ['idle', 'ann'],
    ['recalled', 'ann'],
  ])
  expect(told[0]!.text).toMatch(/^ann: GPU-\S+ of gpus has been idle for \S+ .* leasehold pool return \d+$/)
  expect(told[1]).toMatchObject({ by: expect.stringMatching(/^lab-a: idle for /) })
})

test('a webhook without a secret, a secret that others can read, and unknown notices are refused', async () => {
  await using here = new Place()
  const { path } = secretFile(here)
  const hook = ['pool', 'notify', 'gpus', '--webhook', 'http://127.0.0.1:9/']
  const without = await here.answer(hook)
  expect([without.code, without.stderr]).toEqual([64, expect.stringMatching(/--webhook needs --secret-file[\s\S]*openssl rand/)])
  chmodSync(path, 0o644)
  const open = await here.answer([...hook, '--secret-file', path])
  expect([open.code, open.stderr]).toEqual([77, expect.stringMatching(/has mode 0644[\s\S]*chmod 600/)])
  writeFileSync(path, 'password\n')
  chmodSync(path, 0o600)
  expect((await here.answer([...hook, '--secret-file', path])).code).toBe(64)
  expect((await here.answer(['pool', 'notify', 'gpus', '--webhook', 'ftp://a/', '--secret-file', path])).code).toBe(64)
  expect((await here.answer(['pool', 'notify', 'gpus', '--only', 'ending,late'])).stderr).toMatch(/there is no notice late/)
})

test('the example writes signed notices into a chat once, with names that call no other user, and refuses others', async () => {
  await using here = new Place()
  const { path, secret } = secretFile(here)
  const said: string[] = []
  const chat = createServer(async (request, response) => {
    let body = ''
    for await (const piece of request.setEncoding('utf8')) body += piece
    said.push((JSON.parse(body) as { text: string }).text)
    response.writeHead(said.length === 1 ? 500 : 200).end()
  })
  await new Promise<void>(resolve => chat.listen(0, '127.0.0.1', resolve))
  await using _ = { [Symbol.asyncDispose]: () => new Promise<void>(resolve => void chat.close(() => resolve()).closeAllConnections()) }
  const example = here.spawn(process.execPath, [fileURLToPath(new URL('../../../../examples/chat-notices.mjs', import.meta.url))], {
    env: { CHAT_URL: `http://127.0.0.1:${(chat.address() as AddressInfo).port}/room`, SECRET_FILE: path, PORT: '0' },
  })
  const [, url] = await example.printed(/(http:\/\/127\.0\.0\.1:\d+\/)/)
  const send = async (id: string, changes: Record<string, string> = {}) => {
    const body = JSON.stringify({ id, text: '<!channel>: your time ends' })
    const timestamp = String(Math.floor(systemClock.wall() / 1_000))
    const headers = {
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signature(secret, id, timestamp, body),
      ...changes,
    }
    return (await fetch(url!, { method: 'POST', body, headers })).status
  }
  expect(await send('a')).toBe(502) // the chat failed: it is to be sent again
  expect(await send('a')).toBe(204)
  expect(await send('a')).toBe(200) // it is in the room already
  expect(said).toEqual(['&lt;!channel&gt;: your time ends', '&lt;!channel&gt;: your time ends'])
  expect(await send('b', { 'webhook-signature': 'v1,AAAA' })).toBe(401)
  expect(await send('b', { 'webhook-timestamp': '1' })).toBe(401)
  expect(said).toHaveLength(2)
})
