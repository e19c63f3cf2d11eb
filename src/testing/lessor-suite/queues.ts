/** The contract of a lessor: waiters, shared holders and units. */
import assert from 'node:assert/strict'
import type { Command } from '../../kernel/command.ts'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, done, granted, holders, LONG, policy, queued, refused, renew, types } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const queuesCases: LessorCases = {
  'waiters are granted in order, each in the revision that frees the resource': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, '', first.revision)
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    const third = queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    assert.deepEqual([second.position, third.position], [0, 1])
    const { revision } = done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(types(await watcher.at(revision)), ['released a ann', 'granted a bob'])
    const { value } = await lessor.read({ kind: 'resource', resource: 'a' }, { atLeast: revision })
    assert.deepEqual(
      value.queue.map(({ holder, position }) => [holder, position]),
      [['eve', 0]],
    )
  },

  'a higher priority goes first': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true, priority: 5 })))
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
  },

  'a waiter that gave up is never granted': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    done(await propose(lessor, { kind: 'release', lease: second.lease }))
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
    assert.deepEqual(await renew(lessor, second.lease), [GONE])
  },

  'shared holders do not exclude each other, and exclude exclusive holders': async log => {
    const lessor = await log.open()
    for (const holder of ['ann', 'bob'])
      granted(await propose(lessor, { kind: 'acquire', holder, ttl: LONG, wants: [{ resource: 'a', shared: true }] }))
    refused('HELD', await propose(lessor, acquire('eve', ['a'])))
  },

  'units are granted up to the capacity of the policy, and never above it': async log => {
    const lessor = await log.open()
    done(await propose(lessor, policy('gpu', { capacity: 4 })))
    const take = (holder: string, units: number): Command => ({ kind: 'acquire', holder, ttl: LONG, wants: [{ resource: 'gpu/0', units }] })
    const three = granted(await propose(lessor, take('ann', 3)))
    refused('HELD', await propose(lessor, take('bob', 2)))
    granted(await propose(lessor, take('bob', 1)))
    refused('INVALID', await propose(lessor, take('eve', 5)))
    done(await propose(lessor, { kind: 'release', lease: three.lease }))
    granted(await propose(lessor, take('eve', 3)))
  },
}
