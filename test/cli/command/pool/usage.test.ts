import { expect, test } from 'vitest'
import { connect } from '../../../../src/connect/connect.ts'
import { dayOf, sumsKey, UsageSums } from '../../../../src/devices/usage-sums.ts'
import { propose } from '../../../../src/lessor/propose.ts'
import { isLinux, Place } from '../../../support/cli.ts'
import { FakeNvidia } from '../../../support/fake-nvidia.ts'

test.runIf(isLinux)(
  'usage is shown by account and kind, as a table and as CSV, also of a host that is gone, and adopt counts for the account that it names',
  async () => {
    await using here = new Place()
    using gpus = new FakeNvidia({ uuid: '1', utilisation: '80' }, { uuid: '2', name: 'Tesla T4', memory: '15360', utilisation: '80' })
    const host = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia', '--interval', '200ms', '--host', 'lab-a'], { env: gpus.env })
    await host.printed(/offering 2 devices/)
    const take = ['pool', 'take', 'gpus', '--anywhere', '--account', '=vision', '--match', 'model=a100']
    const taker = here.start([...take, '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await taker.printed(/up/)
    const stranger = here.spawn('/bin/sleep', ['600'])
    const adopting = here.start([
      'pool',
      'adopt',
      'gpus',
      '--pid',
      String(stranger.pid),
      '--member',
      'GPU-00000002-0000-0000-0000-000000000000',
      '--account',
      'robots',
    ])
    await adopting.printed(/took GPU-/)
    const rows = async (by: string) => await here.json('pool', 'usage', 'gpus', '--by', by, '--since', '30d')
    // Only the host knows what is busy.
    await expect.poll(async () => (await rows('account')).some(({ name, busy }) => name === 'robots' && Number(busy) > 0)).toBe(true)
    host.process.kill('SIGTERM')
    await host.finished
    const names = async (by: string) => (await rows(by)).map(({ name }) => name).sort()
    expect(await names('account')).toEqual(['=vision', 'robots'])
    expect(await names('kind')).toEqual(['a100', 't4'])
    expect(await names('host')).toEqual(['lab-a'])
    const csv = await here.answer(['pool', 'usage', 'gpus', '--by', 'account', '--csv'])
    expect(csv.stdout).toMatch(/^pool,account,held_hours,busy_hours,unleased_hours\n/)
    // A spreadsheet must not take a name for a formula.
    expect(csv.stdout).toMatch(/^gpus,'=vision,[\d.]+,[\d.]+,0$/m)
    expect(csv.stderr).toMatch(/sums of 1 host by day \(UTC\), from \d{4}-\d{2}-\d{2} on/)
    expect((await here.answer(['pool', 'usage', 'gpus', '--by', 'account'])).stdout).toMatch(/POOL +ACCOUNT +HELD +SHARE +BUSY/)
  },
)

test('usage of all pools includes those whose hosts are all gone', async () => {
  await using here = new Place()
  await using leases = await connect(here.url)
  const day = dayOf(leases.clock.wall()) - 200
  const sums = new UsageSums()
  sums.add(day, { account: 'vision', user: 'ann', kind: 'a100' }, { held: 7_200_000 })
  await leases.setPolicy('leasehold/usage', { freeEntries: 10 })
  await propose(leases.lessor, { kind: 'transaction', success: [{ key: sumsKey('lab/gpus', 'old', day), value: sums.format(day, 'old') }] })
  expect(await here.json('pool', 'usage', '--by', 'account', '--since', '365d')).toMatchObject([
    { pool: 'lab/gpus', name: 'vision', held: 7_200_000 },
  ])
})
