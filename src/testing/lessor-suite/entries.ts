/** The contract of a lessor: entries and registrations. */
import assert from 'node:assert/strict'
import { propose } from '../../lessor/propose.ts'
import { acquire, done, granted, refused } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const entriesCases: LessorCases = {
  'entries are put, changed and deleted, and belong to their holder': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', [])))
    const other = granted(await propose(lessor, acquire('bob', [])))
    const first = done(await propose(lessor, { kind: 'put', lease: lease.lease, key: 'service/a', value: 'one' }))
    const second = done(await propose(lessor, { kind: 'put', lease: lease.lease, key: 'service/a', value: 'two' }))
    assert.equal(second.revision, first.revision + 1)
    refused('HELD', await propose(lessor, { kind: 'put', lease: other.lease, key: 'service/a', value: 'mine' }))
    refused('STALE', await propose(lessor, { kind: 'delete', key: 'service/a', lease: other.lease }))
    const { value } = await lessor.read({ kind: 'entries', prefix: 'service' }, { consistent: true })
    assert.deepEqual(
      value.map(({ key, value: text, holder, revision }) => [key, text, holder, revision]),
      [['service/a', 'two', 'ann', second.revision]],
    )
    done(await propose(lessor, { kind: 'delete', key: 'service/a', lease: lease.lease }))
    refused('NOT_FOUND', await propose(lessor, { kind: 'delete', key: 'service/a' }))
  },

  'registrations are counted by service, and an older generation never overwrites a newer one': async log => {
    const lessor = await log.open()
    const entry = (instance: string, generation?: number) => {
      return { key: `services/web/${instance}`, value: '{}', ...(generation !== undefined && { generation }) }
    }
    granted(await propose(lessor, acquire('ann', [], { entries: [entry('1', 2), entry('2')] })))
    const held = refused('HELD', await propose(lessor, acquire('bob', [], { entries: [entry('2')] })))
    assert.equal(held.facts.holder, 'ann')
    refused('STALE', await propose(lessor, acquire('bob', [], { entries: [entry('1', 1)] })))
    const bob = granted(await propose(lessor, acquire('bob', [], { entries: [entry('2', 1)] })))
    const { value } = await lessor.read({ kind: 'services' }, { consistent: true })
    assert.deepEqual(value, [{ service: 'web', instances: 2, suspect: 0, suppressed: 0, preserving: false, since: 0, removed: 0 }])
    assert.deepEqual((await lessor.read({ kind: 'services', service: 'other' })).value, [])
    const { value: entries } = await lessor.read({ kind: 'entries', prefix: 'services/web' }, { consistent: true })
    assert.deepEqual(
      entries.map(({ key, holder, generation, suppressed }) => [key, holder, generation, suppressed]),
      [
        ['services/web/1', 'ann', 2, false],
        ['services/web/2', 'bob', 1, false],
      ],
    )
    done(await propose(lessor, { kind: 'put', lease: bob.lease, ...entry('2', 3) }))
    refused('STALE', await propose(lessor, { kind: 'put', lease: bob.lease, ...entry('2', 2) }))
  },
}
