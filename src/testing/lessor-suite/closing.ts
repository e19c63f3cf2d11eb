/** The contract of a lessor: a caller gives up, and a lessor is closed. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { LeaseError } from '../../errors.ts'
import { propose } from '../../lessor/propose.ts'
import { rejectsWith, within } from '../suite-case.ts'
import { acquire, granted, holders } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const closingCases: LessorCases = {
  "an aborted proposal or read throws the signal's own reason and leaves nothing on it": async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    const reason = new Error('no timeout')
    const before = AbortSignal.abort(reason)
    await assert.rejects(propose(lessor, acquire('ann', ['b']), { signal: before }), reason)
    await assert.rejects(lessor.read({ kind: 'summary' }, { signal: before }), reason)
    const asked: ((signal: AbortSignal) => Promise<unknown>)[] = [
      signal => propose(lessor, acquire('ann', ['b']), { signal }),
      signal => propose(lessor, acquire('bob', ['a']), { signal }), // would be refused
      signal => propose(lessor, acquire('bob', ['a'], { wait: true }), { signal }),
      signal => lessor.read({ kind: 'summary' }, { consistent: true, signal }),
    ]
    for (const ask of asked) {
      const controller = new AbortController()
      const answer = ask(controller.signal)
      controller.abort(reason)
      await assert.rejects(within(answer), reason)
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    }
    const controller = new AbortController()
    granted(await propose(lessor, acquire('ann', ['c']), { signal: controller.signal }))
    await lessor.read({ kind: 'summary' }, { consistent: true, signal: controller.signal })
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'closing settles every proposal under way: applied, certainly not applied, or UNKNOWN': async log => {
    const lessor = await log.open()
    const other = await log.other()
    const asked = Array.from({ length: 200 }, (_, i) => propose(lessor, acquire('ann', [`a/${i}`])))
    asked.push(...Array.from({ length: 20 }, () => propose(lessor, acquire('bob', ['a/0']))))
    const settled = Promise.allSettled(asked)
    await within(lessor[Symbol.asyncDispose]())
    const answers = await within(settled)
    const after = other === lessor ? await log.restart() : other
    const there = new Set(
      (await after.read({ kind: 'resources', prefix: 'a' }, { consistent: true })).value.map(({ resource }) => resource),
    )
    for (const [i, answer] of answers.entries()) {
      if (answer.status === 'fulfilled') {
        if (i < 200)
          assert.ok(
            granted(answer.value).resources.every(name => there.has(name)),
            `a/${i} was acknowledged and is not there`,
          )
      } else {
        assert.ok(answer.reason instanceof LeaseError, String(answer.reason))
        assert.ok(['UNAVAILABLE', 'UNKNOWN'].includes(answer.reason.code), answer.reason.message)
        if (i < 200 && answer.reason.code === 'UNAVAILABLE') assert.ok(!there.has(`a/${i}`), `a/${i} was UNAVAILABLE and is there`)
      }
    }
  },

  'after it was closed every call is UNAVAILABLE, its signal says why, and closing again does nothing': async log => {
    const lessor = await log.open()
    assert.equal(lessor.signal.aborted, false)
    const { revision } = granted(await propose(lessor, acquire('ann', ['a'])))
    const waiting = lessor.watch('', { signal: new AbortController().signal, after: revision })[Symbol.asyncIterator]().next()
    const ended = rejectsWith('UNAVAILABLE', waiting)
    await within(lessor[Symbol.asyncDispose]())
    await within(ended)
    assert.equal(lessor.signal.aborted, true)
    assert.equal((lessor.signal.reason as LeaseError).code, 'UNAVAILABLE')
    await rejectsWith('UNAVAILABLE', propose(lessor, acquire('ann', ['b'])))
    await rejectsWith('UNAVAILABLE', propose(lessor, { kind: 'renew', leases: [1] }))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }, { consistent: true }))
    await rejectsWith('UNAVAILABLE', lessor.watch('', { signal: new AbortController().signal })[Symbol.asyncIterator]().next())
    await within(lessor[Symbol.asyncDispose]())
    const next = await log.restart()
    assert.deepEqual(await holders(next, 'a'), ['ann'])
  },

  'it reports the profile of its store': async log => {
    const { profile } = await log.open()
    assert.ok(profile.store.length > 0)
    for (const promise of [profile.durable, profile.failover, profile.push, profile.shared, profile.ages])
      assert.equal(typeof promise, 'boolean')
  },
}
