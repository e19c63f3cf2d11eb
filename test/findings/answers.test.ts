/** Known findings: answers that are wrong. */
import { expect } from 'vitest'
import { connect } from '../../src/index.ts'
import { propose } from '../../src/lessor/propose.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { World } from '../support/kernel/world.ts'
import { knownFinding } from '../support/known-finding.ts'
import { acquire, granted } from '../support/replica/rig.ts'
import { place } from '../support/resp-place.ts'

knownFinding(
  'break-limit-number',
  'a refused break of a member of a pool states how many announced breaks its holder takes',
  async claim => {
    const world = new World()
    world.acquire('host', [], { ttl: 86_400_000, entries: [{ key: 'pool/g/a', value: '{}' }] })
    world.acquire('holder', [], { pool: { pool: 'g' } })
    let accepted = 0
    let outcome = world.do({ kind: 'break', resource: 'g/a', after: 60_000 })
    for (; outcome.kind === 'done'; outcome = world.do({ kind: 'break', resource: 'g/a', after: 60_000 - accepted * 1_000 })) accepted++
    expect(outcome).toMatchObject({ kind: 'refused', code: 'LIMIT', facts: { resource: 'g/a' } })
    const { facts } = world.refused(outcome, 'LIMIT')
    await claim(() => expect(facts).toMatchObject({ limit: accepted }))
  },
)

knownFinding('keyless-waiter-place', 'the place of a waiter without a key ends when the first key is created', async claim => {
  const clock = new ManualClock()
  await using here = await place({ clock })
  const { lessor, server, port } = here
  const { lease } = granted(await propose(lessor, acquire('holder', 'x', { ttl: 600_000 })))
  await propose(lessor, { kind: 'renew', leases: [lease] })
  const queue = async () => (await lessor.read({ kind: 'resource', resource: 'x' }, { consistent: true })).value.queue
  const leases = await connect(`leasehold://127.0.0.1:${port}`, { holder: 'waiter' })
  const waiting = leases.acquire('x', { ttl: 60_000, wait: 600_000 }).catch(error => error.code)
  while ((await queue()).length === 0) await clock.settle()
  const allow = [{ verb: 'admin', prefix: '' }] as const
  await server.guarded.propose({ key: 0, name: 'test', operator: true }, { kind: 'key', name: 'ops', hash: '0'.repeat(64), allow })
  expect(await waiting).toBe('UNAUTHENTICATED')
  await leases.close()
  await clock.advance(1_000)
  const left = await queue()
  await claim(() => expect(left).toEqual([]))
})
