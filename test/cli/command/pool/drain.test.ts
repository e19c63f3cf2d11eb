import { expect, test } from 'vitest'
import { eventually, Place } from '../../../support/cli.ts'
import { FakeNvidia, uuidOf } from '../../../support/fake-nvidia.ts'

test('a drained host names who is affected, and gives its devices to no new taker, also after it died, until the drain is cancelled', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' }, { uuid: '2' })
  const words = ['pool', 'offer', 'gpus', '--discover', 'nvidia', '--host', 'lab-a', '--interval', '200ms', '--ttl', '2s', '--grace', '1s']
  const host = here.start(words, { env: gpus.env })
  await host.printed(/offering 2 devices/)
  const taker = here.start([
    'pool',
    'take',
    'gpus',
    '--anywhere',
    '--account',
    'ann',
    '--for',
    '5h',
    '--',
    'sh',
    '-c',
    'echo up; exec sleep 600',
  ])
  await taker.printed(/up/)
  const later = await here.answer(['pool', 'drain', 'gpus', '--on-host', 'lab-a', '--from', '20h'])
  expect([later.code, later.stderr]).toEqual([
    0,
    expect.stringMatching(/host lab-a of gpus is drained from .* in 20 h[\s\S]*no present holder is affected/),
  ])
  expect((await here.answer(['pool', 'ls', 'gpus'])).stdout).toMatch(/host lab-a is drained in (20|19\.9) h\./)
  const now = await here.answer(['pool', 'drain', 'gpus', '--on-host', 'lab-a'])
  expect(now.stderr).toMatch(/host lab-a of gpus is drained from now on/)
  expect(now.stdout).toMatch(new RegExp(`MEMBER +ACCOUNT[\\s\\S]*${uuidOf('1')} +ann .* in (5|4\\.9) h at the latest`))
  await host.printed(/is drained by/)
  const offered = async () => (await here.json('pool', 'ls', 'gpus')).filter(({ status }) => status === 'live').length
  await eventually('nothing is offered', async () => (await offered()) === 0)
  host.process.kill('SIGKILL')
  await host.finished
  const back = here.start(words, { env: gpus.env })
  await back.printed(/offering 0 devices/)
  expect(await offered()).toBe(0)
  expect((await here.answer(['pool', 'drain', 'gpus'])).stdout).toMatch(/host lab-a +now/)
  const cancelled = await here.answer(['pool', 'drain', 'gpus', '--on-host', 'lab-a', '--cancel'])
  expect([cancelled.code, cancelled.stderr]).toEqual([0, expect.stringMatching(/is offered again/)])
  await eventually('both are offered', async () => (await offered()) === 2)
  expect((await here.answer(['pool', 'drain', 'gpus', '--on-host', 'lab-a', '--cancel'])).stderr).toMatch(/is not drained/)
  expect((await here.answer(['pool', 'drain', 'gpus', '--from', '2h'])).code).toBe(64)
})
