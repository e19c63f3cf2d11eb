import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { expect, test } from 'vitest'
import { parseTime } from '../../../src/cli/command/pool/reserve.ts'
import { alive, eventually, isLinux, Place, type Running } from '../../support/cli.ts'
import { FakeNvidia, uuidOf } from '../../support/fake-nvidia.ts'
import { servePool, storeToServe } from '../../support/served-pool.ts'

/** For tests of what a host notices later. Each look starts two processes. */
const OFTEN = ['--interval', '200ms']

/** A host that offers the GPUs of a fake `nvidia-smi` in the pool `gpus`. */
async function offer(here: Place, gpus: FakeNvidia, ...more: string[]): Promise<Running> {
  const running = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia', ...more], { env: gpus.env })
  await running.printed(/offering \d+ device/)
  return running
}

async function grants(here: Place): Promise<{ member: string; grants: { lease: number; account: string; expect: number }[] }[]> {
  return (await here.json('pool', 'ls', 'gpus')) as never
}

test('a host offers its GPUs, a command takes two that match, and they are free when it has ended', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia(
    { uuid: '1' },
    { uuid: '2', name: 'NVIDIA H100 80GB HBM3', memory: '81559' },
    { uuid: '3', name: 'Tesla T4', memory: '15360' },
  )
  await offer(here, gpus)
  const words = ['pool', 'take', 'gpus', '-n', '2', '--match', 'model in (a100,h100)', '--expect', '4h', '--account', 'ann']
  const script = 'echo "$CUDA_VISIBLE_DEVICES [$LEASEHOLD_POOL] $LEASEHOLD_MEMBERS"; read _; exit 7'
  const taker = here.start([...words, '--', 'sh', '-c', script])
  const both = `${uuidOf('1')},${uuidOf('2')}`
  await taker.printed(new RegExp(`${both} \\[gpus\\] ${both}`))
  expect((await grants(here)).map(({ grants }) => grants.map(({ account, expect }) => [account, expect]))).toEqual([
    [['ann', 14_400_000]],
    [['ann', 14_400_000]],
    [],
  ])
  const table = await here.answer(['pool', 'ls', 'gpus'])
  expect(table.stdout).toMatch(/^gpus: 1 of 3 members free, 0 waiting\n/)
  expect(table.stdout).toMatch(new RegExp(`GPU-00000001 +a100 +40 +${hostname()} +taken +ann `))
  const refused = await here.run(['pool', 'take', 'gpus', '--no-wait', '--match', 'mem>=40', '--', 'true'])
  expect([refused.code, refused.stderr]).toEqual([75, expect.stringMatching(/cannot give 1 member now[\s\S]*pool queue gpus/)])
  expect((await here.run(['pool', 'take', 'gpus', '--no-wait', '--skip-ok', '--match', 'mem>=40', '--', 'true'])).code).toBe(0)
  taker.process.stdin!.end('\n')
  expect((await taker.finished).code).toBe(7)
  const env = ['--env', 'ONE={members}', '--env', 'TWO={indexes}/{hosts}']
  const other = await here.run([
    'pool',
    'take',
    'gpus',
    '--match',
    'model=t4',
    ...env,
    '--',
    'sh',
    '-c',
    'echo "$ONE $TWO [$CUDA_VISIBLE_DEVICES]"',
  ])
  expect(other.stdout).toBe(`${uuidOf('3')} 2/${hostname()} []\n`)
})

test('a request that the pool can never serve is refused at once, with the reason and what to do', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  await offer(here, gpus)
  const never = await here.run(['pool', 'take', 'gpus', '-n', '2', '--', 'true'])
  expect([never.code, never.stderr]).toEqual([69, expect.stringMatching(/can never give 2 members[\s\S]*pool ls gpus/)])
  const bad = await here.run(['pool', 'take', 'gpus', '--match', 'mem>=', '--', 'true'])
  expect([bad.code, bad.stderr]).toEqual([64, expect.stringMatching(/lacks a number/)])
  const elsewhere = await here.run(['pool', 'take', 'gpus', '--host', 'other', '--', 'true'])
  expect([elsewhere.code, elsewhere.stderr]).toEqual([
    69,
    expect.stringMatching(/no member of gpus is on this host \(other\)[\s\S]*--anywhere/),
  ])
  expect((await here.run(['pool', 'take', 'gpus', '--host', 'other', '--anywhere', '--', 'true'])).code).toBe(0)
  expect((await here.run(['pool', 'take', 'gpus', '--env', 'X={nothing}', '--', 'true'])).code).toBe(64)
  expect((await here.run(['pool', 'take', 'none', '--', 'true'])).code).toBe(69)
})

test.runIf(isLinux)('a taker that is killed frees its GPUs after its ttl, and its command does not survive it', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  await offer(here, gpus)
  const taker = here.start(['pool', 'take', 'gpus', '--ttl', '2s', '--grace', '500ms', '--', 'sh', '-c', 'echo "pid $$"; sleep 600'])
  const [, pid] = await taker.printed(/pid (\d+)/)
  taker.process.kill('SIGKILL')
  await eventually('the command is gone', () => !alive(Number(pid)))
  await eventually('the member is free', async () => (await grants(here))[0]!.grants.length === 0)
})

test('a waiter is listed in the queue, and gets the GPU when its holder gives it back', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  await offer(here, gpus)
  const first = here.start(['pool', 'take', 'gpus', '--account', 'ann', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await first.printed(/up/)
  const second = here.start(['pool', 'take', 'gpus', '--account', 'ben', '--expect', '10m', '--', 'echo', 'mine'])
  const [waiter] = await eventually('it waits', async () => {
    const queue = await here.json('pool', 'queue', 'gpus')
    return queue.length > 0 ? queue : undefined
  })
  const endless = await here.answer(['pool', 'extend', 'gpus/GPU-00000001', '2h'])
  expect([endless.code, endless.stderr]).toEqual([
    64,
    expect.stringMatching(/was taken without --for: it lasts as long as its command runs/),
  ])
  expect((await here.answer(['pool', 'queue', 'gpus', '--explain'])).stdout).toMatch(
    /ben \(\S+\) is number 1 of 1[\s\S]*: ann \(\S+\), held for/,
  )
  expect(waiter).toMatchObject({ account: 'ben', position: 0, possible: true, request: { count: 1, expect: 600_000 } })
  expect((await here.answer(['pool', 'queue', 'gpus'])).stdout).toMatch(/1 +ben +1 member \(host=\S+\) +10 min/)
  expect((await here.answer(['explain', 'gpus'])).stdout).toMatch(
    /gpus is a pool: 0 of 1 members are free, 1 waiting[\s\S]*No policy applies/,
  )
  const returned = await here.answer(['pool', 'return', 'gpus/GPU-00000001'])
  expect([returned.code, returned.stderr]).toEqual([0, expect.stringMatching(/ends; its members are free/)])
  expect((await first.finished).code).toBe(79)
  expect(await second.finished).toMatchObject({ code: 0, stdout: 'mine\n' })
  expect((await here.answer(['pool', 'return', 'gpus/GPU-00000001'])).stderr).toMatch(/is not taken/)
  expect(await here.run(['pool', 'take', 'gpus', '--expect', 'auto', '--', 'echo', 'again'])).toMatchObject({ code: 0, stdout: 'again\n' })
  expect((await here.run(['pool', 'take', 'gpus', '--expect', 'soon', '--', 'true'])).stderr).toMatch(/--expect/)
  expect((await here.answer(['pool', 'return', 'gpus/GPU-9'])).stderr).toMatch(/has no member GPU-9/)
})

test('a waiter that its quota holds back is told so, beside a member that is free', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' }, { uuid: '2' })
  await offer(here, gpus)
  await here.answer(['policy', 'set', 'gpus/accounts/ann', 'quotaUnits=1'])
  const first = here.start(['pool', 'take', 'gpus', '--account', 'ann', '--expect', '10m', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await first.printed(/up/)
  const second = here.start(['pool', 'take', 'gpus', '--account', 'ann', '--expect', '10m', '--', 'true'])
  await second.printed(/1 of 2 free, but ann holds 1 of the 1 units that its quota allows/)
  const listed = await here.answer(['pool', 'queue', 'gpus', '--explain'])
  expect(listed.stdout).toMatch(/\nann holds 1 of the 1 units[\s\S]*It starts in about/)
  expect((await here.answer(['explain', 'gpus'])).stdout).toMatch(/The policy of gpus\/accounts\/ann applies: quotaUnits=1\./)
  await here.answer(['pool', 'return', String((await grants(here)).flatMap(({ grants }) => grants)[0]!.lease)])
  expect((await second.finished).code).toBe(0)
})

test('a lease is extended while no client waits, and refused with the waiter when one does', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  await offer(here, gpus)
  const first = here.start(['pool', 'take', 'gpus', '--for', '1h', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await first.printed(/up/)
  const longer = await here.answer(['pool', 'extend', 'gpus/GPU-00000001', '2h'])
  expect([longer.code, longer.stderr]).toEqual([0, expect.stringMatching(/may be kept 2h longer/)])
  const second = here.start(['pool', 'take', 'gpus', '--holder', 'ben', '--account', 'vision', '--', 'true'])
  await eventually('it waits', async () => (await here.json('pool', 'queue', 'gpus')).length > 0)
  const refused = await here.answer(['pool', 'extend', 'gpus/GPU-00000001', '2h'])
  expect([refused.code, refused.stderr]).toEqual([75, expect.stringMatching(/vision waits for members of gpus that lease \d+ holds/)])
  second.process.kill('SIGTERM')
  await second.finished
  const reserved = await here.answer(['pool', 'reserve', 'gpus', '--from', '3h', '--for', '1h', '--account', 'speech'])
  expect([reserved.code, reserved.stderr]).toEqual([0, expect.stringContaining('reserved 1 member')])
  const later = await here.answer(['pool', 'extend', 'gpus/GPU-00000001', '2h'])
  expect([later.code, later.stderr]).toEqual([75, expect.stringMatching(/speech has reserved members of gpus for that time/)])
})

test('members and places of another user can be neither returned nor extended, and the answer says that they are not yours', async () => {
  await using here = new Place()
  const { url, createKey } = storeToServe(here)
  const keyFor = (name: string, scope: string) => createKey('--name', name, '--allow', scope)
  const [admin, ann, ben] = [
    await keyFor('ops', 'admin'),
    await keyFor('ann', 'acquire,read:gpus'),
    await keyFor('ben', 'acquire,read:gpus'),
  ]
  using pool = await servePool(here, url, admin)
  const { as } = pool
  const holder = here.start(
    ['pool', 'take', 'gpus', '--for', '1h', '--holder', 'ann', '--account', 'vision', '--', 'sh', '-c', 'echo up; exec sleep 600'],
    as(ann),
  )
  await holder.printed(/up/)
  const queue = async () => (await here.run(['pool', 'queue', 'gpus', '--json'], as(ben))).stdout
  const waiter = here.start(['pool', 'take', 'gpus', '--holder', 'ann', '--account', 'vision', '--', 'true'], as(ann))
  await eventually('it waits', async () => (await queue()).includes('lease'))
  const { lease } = JSON.parse((await queue()).split('\n')[0]!) as { lease: number }
  for (const words of [
    ['return', 'gpus/GPU-00000001'],
    ['extend', 'gpus/GPU-00000001', '2h'],
    ['return', `${lease}`],
  ])
    expect(await here.run(['pool', ...words], as(ben)), words.join(' ')).toMatchObject({
      code: 77,
      stderr: expect.stringMatching(/belongs to vision, and the key in use may not change it/),
    })
  expect((await here.run(['pool', 'return', '1'], as(ben))).stderr).toMatch(/has ended already/)
  expect((await here.run(['pool', 'return', `${lease}`], as(ann))).code).toBe(0)
  await waiter.finished
})

test('a reservation is listed, used by a command when its window begins, and can be given back', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  await offer(here, gpus)
  const far = await here.answer(['pool', 'reserve', 'gpus', '--from', '20h', '--for', '1h', '--account', 'vision'])
  expect([far.code, far.stderr]).toEqual([0, expect.stringMatching(/reserved 1 member[\s\S]*pool take gpus --reservation/)])
  const id = far.stdout.trim()
  expect(await here.json('pool', 'queue', 'gpus')).toMatchObject([{ lease: Number(id) }])
  const twice = await here.answer(['pool', 'reserve', 'gpus', '--from', '20h', '--for', '1h'])
  expect([twice.code, twice.stderr]).toEqual([75, expect.stringMatching(/is reserved at that time by vision:[\s\S]*pool queue gpus/)])
  expect((await here.answer(['pool', 'return', id])).code).toBe(0)
  expect(await here.json('pool', 'queue', 'gpus')).toEqual([])
  const soon = (await here.answer(['pool', 'reserve', 'gpus', '--from', '1s', '--for', '1h'])).stdout.trim()
  const taker = await here.run(['pool', 'take', 'gpus', '--reservation', soon, '--', 'sh', '-c', 'echo "has $LEASEHOLD_MEMBERS"'])
  expect([taker.code, taker.stdout]).toEqual([0, `has ${uuidOf('1')}\n`])
  await eventually('it is free', async () => (await grants(here))[0]!.grants.length === 0)
  expect((await here.answer(['pool', 'reserve', 'gpus', '--from', 'noon', '--for', '1h'])).code).toBe(64)
})

test('the time of a reservation is a time of day, a date or a duration', () => {
  const at = (hours: number, minutes: number) => new Date(2026, 10, 16, hours, minutes).getTime()
  expect(parseTime('14:00', at(12, 30))).toBe(90 * 60_000)
  expect(parseTime('14:00', at(14, 0))).toBe(24 * 3_600_000)
  expect(parseTime('2026-11-16T14:00', at(12, 0))).toBe(2 * 3_600_000)
  expect(parseTime('2026-11-16 14:00', at(12, 0))).toBe(2 * 3_600_000)
  expect(parseTime('+90m', 0)).toBe(90 * 60_000)
  for (const wrong of ['25:00', '14', '0s', 'tomorrow', '2026-13-45T00:00', '2026-11-15T14:00'])
    expect(() => parseTime(wrong, at(12, 0))).toThrow()
})

test.runIf(isLinux)('use without a lease is shown, and a process that runs already can be adopted until it has ended', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1' })
  const stranger = here.spawn('/bin/sleep', ['600'])
  gpus.setApps({ uuid: '1', pid: stranger.pid, name: 'python train.py' })
  const host = await offer(here, gpus, ...OFTEN)
  await host.printed(new RegExp(`used without a lease: process ${stranger.pid}`))
  const listed = await here.answer(['pool', 'ls', 'gpus'])
  expect(listed.stdout).toMatch(
    new RegExp(`NO LEASE[\\s\\S]*GPU-00000001 is used without a lease: process ${stranger.pid} of \\S+ \\(python train.py\\)`),
  )
  const adopting = here.start(['pool', 'adopt', 'gpus', '--pid', String(stranger.pid)])
  await adopting.printed(/took GPU-00000001\S* of gpus for process/)
  await eventually('it has a lease', async () => !/NO LEASE/.test((await here.answer(['pool', 'ls', 'gpus'])).stdout))
  await eventually('the time for which it is held counts', async () => {
    const [, held] = /GPU-00000001.* \S+@\S+:\d+ +(\d\S* m?s)/.exec((await here.answer(['pool', 'ls', 'gpus'])).stdout) ?? []
    return held !== undefined && held !== '0 ms'
  })
  const again = await here.run(['pool', 'adopt', 'gpus', '--pid', String(stranger.pid)])
  expect(again.code).toBe(75)
  stranger.process.kill('SIGKILL')
  expect(await adopting.finished).toMatchObject({ code: 0, stderr: expect.stringMatching(/has ended; the members are free/) })
  expect((await grants(here))[0]!.grants).toEqual([])
  expect((await here.run(['pool', 'adopt', 'gpus', '--pid', '999999999'])).stderr).toMatch(/there is no process 999999999/)
  expect((await here.run(['pool', 'adopt', 'gpus', '--pid', String(process.pid)])).code).toBe(64)
})

test('an idle taker is warned and asked to give its GPU back; with --on-recall term its command gets TERM', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1', utilisation: '80' })
  const host = await offer(here, gpus, ...OFTEN, '--idle-warn', '1s', '--idle-recall', '3s', '--idle-end', '10m')
  const script = 'trap "echo bye; exit 3" TERM; echo up; while :; do sleep 0.05; done'
  const taker = here.start(['pool', 'take', 'gpus', '--on-recall', 'term', '--', 'sh', '-c', script])
  await taker.printed(/up/)
  gpus.setGpus({ uuid: '1', utilisation: '0' })
  await taker.printed(/GPU-00000001\S* has been idle for/)
  expect(await taker.finished).toMatchObject({ code: 3, stdout: 'up\nbye\n' })
  expect(host.stderr()).toMatch(/idle for \S+ s and is warned[\s\S]*is asked to return them/)
})

test('a host records who held its GPUs, also over a restart', async () => {
  await using here = new Place()
  using gpus = new FakeNvidia({ uuid: '1', utilisation: '80' })
  const file = here.file('usage.json')
  const host = await offer(here, gpus, ...OFTEN, '--usage-file', file, '--host', 'lab-a')
  const taker = here.start(['pool', 'take', 'gpus', '--anywhere', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await taker.printed(/up/)
  // Before the host has recorded anything, the answer is counted from the present holders, without what is busy.
  const usage = () => here.json('pool', 'usage', '--by', 'user', '--since', '7d')
  const busy = await eventually('it is recorded', async () => (await usage()).find(row => Number(row.busy) > 0))
  expect(busy).toMatchObject({ pool: 'gpus', by: 'user', held: expect.any(Number) })
  expect((await here.answer(['pool', 'usage'])).stdout).toMatch(/gpus +\S+ +0\.\d\d h/)
  host.process.kill('SIGTERM')
  expect((await host.finished).code).toBe(143)
  expect(JSON.parse(readFileSync(file, 'utf8'))).toHaveLength(1)
  await offer(here, gpus, ...OFTEN, '--usage-file', file, '--host', 'lab-a')
  await eventually('it is published again', async () => (await here.json('pool', 'usage', 'gpus', '--by', 'host'))[0]?.name === 'lab-a')
  expect((await here.answer(['pool', 'usage'])).stdout).toMatch(/POOL +USER +HELD +SHARE +BUSY/)
})

test('a host whose devices cannot be found says why and offers nothing; one that finds devices another host offers says which', async () => {
  await using here = new Place()
  const none = await here.run(['pool', 'offer', 'gpus', '--discover', 'echo hello'])
  expect([none.code, none.stderr]).toEqual([69, expect.stringMatching(/printed no JSON: hello[\s\S]*No device was offered/)])
  const missing = await here.run(['pool', 'offer', 'gpus', '--discover', 'nvidia'], { env: { PATH: '/nonexistent' } })
  expect([missing.code, missing.stderr]).toEqual([69, expect.stringMatching(/nvidia-smi was not found/)])
  expect((await here.run(['pool', 'offer', 'gpus', '--discover', 'nvidia', '--idle-warn', '2h', '--idle-end', '1h'])).code).toBe(64)
  const words = ['pool', 'offer', 'benches', '--discover', `echo '{"devices":[{"id":"b1","labels":{"model":"x"}}]}'`, '--interval', '200ms']
  const first = here.start([...words, '--host', 'lab-a'])
  await first.printed(/offering 1 device of lab-a/)
  const second = here.start([...words, '--host', 'lab-b'])
  await second.printed(/b1 is refused: lab-a offers a device with the same id already/)
  expect(await here.json('pool', 'ls')).toMatchObject([{ pool: 'benches', members: 1 }])
  first.process.kill('SIGTERM')
  await second.printed(/offered b1/)
})
