import { expect, test } from 'vitest'
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
