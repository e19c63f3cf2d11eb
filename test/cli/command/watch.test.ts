/** `leasehold watch`. */
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { Place } from '../../support/cli.ts'

test('watch prints events from a revision on as they happen, until it is interrupted', async () => {
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
