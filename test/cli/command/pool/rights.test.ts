/** The keys that docs/operate/devices.md names are enough for what it says of them: one for a host, one for a user. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { eventually, Place } from '../../../support/cli.ts'
import { FakeNvidia } from '../../../support/fake-nvidia.ts'
import { storeToServe } from '../../../support/served-pool.ts'

/** The scopes of a key, as the page writes them. */
function scopesOnPage(name: string): string[] {
  const page = readFileSync(new URL('../../../../docs/operate/devices.md', import.meta.url), 'utf8')
  const line = page.split('\n').find(line => line.startsWith(`leasehold key create --name ${name} `))
  const scopes = [...(line ?? '').matchAll(/--allow (\S+)/g)].map(([, scope]) => scope!)
  if (scopes.length === 0) throw new Error(`docs/operate/devices.md creates no key ${name}`)
  return scopes.flatMap(scope => ['--allow', scope])
}

test('with the keys of the page, take prints no warning, usage works, and an idle taker is asked and ended', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1', utilisation: '80' }, { uuid: '2', utilisation: '80' })
  const { url, createKey } = storeToServe(here)
  await createKey('--name', 'ops', '--allow', 'admin')
  const hostKey = await createKey('--name', 'lab-a', ...scopesOnPage('lab-a'))
  const userKey = await createKey('--name', 'ann', ...scopesOnPage('ann'))
  await here.run(['policy', 'set', 'leasehold/usage', 'freeEntries=1000', '--store', url])
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--store', url])
  const [, address] = await server.printed(/(127\.0\.0\.1:\d+)/)
  const as = (key: string) => ({ env: { ...gpus.env, LEASEHOLD_URL: `leasehold://${address}`, LEASEHOLD_API_KEY: key } })
  const words = ['pool', 'offer', 'gpus', '--discover', 'nvidia', '--host', 'lab-a', '--interval', '200ms']
  const host = here.start([...words, '--idle-recall', '2s'], as(hostKey))
  await host.printed(/offering 2 devices/)
  const user = (...words: string[]) => here.run(['pool', ...words], as(userKey))

  const busy = here.start(
    ['pool', 'take', 'gpus', '--anywhere', '--account', 'ann', '--ttl', 'auto', '--', 'sh', '-c', 'echo up; read _'],
    as(userKey),
  )
  await busy.printed(/up/)
  await eventually('usage is recorded', async () => /sums of 1 host/.test((await user('usage', 'gpus')).stderr))
  expect((await user('usage', 'gpus', '--since', '1d')).code).toBe(0)
  for (const words of [
    ['ls', 'gpus'],
    ['queue', 'gpus'],
  ])
    expect((await user(...words)).code).toBe(0)
  busy.process.stdin!.end('\n')
  const ended = await busy.finished
  expect([ended.code, ended.stderr.trim().split('\n')]).toEqual([
    0,
    [expect.stringMatching(/^leasehold: took GPU-\S+ of gpus \(lease \d+\)$/)],
  ])

  gpus.setGpus({ uuid: '1', utilisation: '0' }, { uuid: '2', utilisation: '0' })
  const idler = here.start(['pool', 'take', 'gpus', '--anywhere', '--account', 'ann', '--', 'sleep', '600'], as(userKey))
  await idler.printed(/lab-a \(lab-a: idle for \S+ s\) asks for gpus\/GPU-\S+ \(lease \d+\) back/)
  host.process.kill('SIGTERM')
  await host.finished
  const strict = here.start([...words, '--idle-end', '1s'], as(hostKey))
  expect((await idler.finished).code).toBe(79)
  expect(idler.stderr()).toMatch(/revoked by lab-a \(lab-a: idle for /)
  expect(strict.stderr()).not.toMatch(/nothing was done|cannot be read/)
  expect(host.stderr()).not.toMatch(/nothing was done|cannot be read|not kept|no effect/)
})

test('free members that are kept for a reservation are said to be, in the list and to a waiter', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  const host = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia'], { env: gpus.env })
  await host.printed(/offering 1 device/)
  await here.answer(['pool', 'reserve', 'gpus', '--account', 'cid', '--from', '20h', '--for', '1h'])
  const kept = /1 is kept for a reservation of cid in (20|19\.\d) h/
  const { stdout } = await here.answer(['pool', 'ls', 'gpus'])
  expect(stdout).toMatch(/^gpus: 1 of 1 members free/)
  expect(stdout).toMatch(kept)
  expect(await here.run(['pool', 'take', 'gpus', '--for', '1h', '--', 'true'])).toMatchObject({ code: 0 })
  const waiter = here.start(['pool', 'take', 'gpus', '--', 'true'])
  await waiter.printed(/waiting for 1 member .*: 1 of 1 free \(1 is kept for a reservation of cid in /)
  waiter.process.kill('SIGTERM')
  await waiter.finished
})

test('a taker that is preempted is told by whom, and in what time its lease ends', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  const host = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia'], { env: gpus.env })
  await host.printed(/offering 1 device/)
  await here.answer(['policy', 'set', 'gpus', 'preempt=marked', 'preemptNotice=90s'])
  const first = here.start(['pool', 'take', 'gpus', '--preemptible', '--on-recall', 'term', '--', 'sleep', '600'])
  await first.printed(/took GPU-/)
  const second = await here.run(['pool', 'take', 'gpus', '--priority', '5', '--holder', 'ben', '--', 'true'])
  expect(second.code).toBe(0)
  expect(first.stderr()).toMatch(/ben asks for gpus\/GPU-\S+ \(lease \d+\) back; it ends in 90 s/)
})

test.each([
  ['a list of names instead of devices', '["GPU-1","GPU-2"]', /device 1 of the discovery: it is not an object: "GPU-1"/],
  ['a list in the wrong place', '{"gpus":[{"id":"a"}]}', /printed JSON without a list of devices: {"gpus":\[{"id":"a"}\]}/],
  ['devices without an id', '{"devices":[{"uuid":"a"}]}', /device 1 of the discovery: its id is not a text: {"uuid":"a"}/],
])('%s: offer refuses at once, and shows what was printed', async (_, json, message) => {
  await using here = new Place()
  const refused = await here.run(['pool', 'offer', 'gpus', '--discover', `echo '${json}'`])
  expect([refused.code, refused.stderr]).toEqual([69, expect.stringMatching(message)])
  expect(refused.stderr).toMatch(/No device was offered/)
})

test('offer names the devices that it did not understand, beside those that it offers', async () => {
  await using here = new Place()
  const host = here.start(['pool', 'offer', 'gpus', '--discover', `echo '[{"id":"a"},{"uuid":"b"}]'`])
  await host.printed(/offering 1 device/)
  expect(host.stderr()).toMatch(/device 2 of the discovery: its id is not a text: {"uuid":"b"}/)
})
