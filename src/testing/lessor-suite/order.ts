/** The contract of a lessor: one order for all lessors, and operations that are sent again. */
import assert from 'node:assert/strict'
import type { Operation } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, createKey, done, granted, holders, LONG, queued, refused } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const orderCases: LessorCases = {
  'after an acquisition is acknowledged, every lessor refuses; after its release is acknowledged, every lessor grants': async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 10; i++) {
      const [one, two] = i % 2 === 0 ? [a, b] : [b, a]
      const lease = granted(await propose(one, acquire('ann', ['a'])))
      const held = refused('HELD', await propose(two, acquire('bob', ['a'])))
      assert.ok(held.revision >= lease.revision)
      assert.equal(held.facts.holder, 'ann')
      assert.equal(held.facts.lease, lease.lease)
      done(await propose(one, { kind: 'release', lease: lease.lease }))
      const next = granted(await propose(two, acquire('bob', ['a'])))
      assert.ok(next.tokens[0]! > lease.tokens[0]!)
      done(await propose(one, { kind: 'release', lease: next.lease }))
      refused('GONE', await propose(two, { kind: 'release', lease: next.lease }))
    }
  },

  'of many concurrent requests for one resource, through any lessor, exactly one is granted': async log => {
    const [a, b] = await log.pair()
    const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => propose(i % 2 === 0 ? a : b, acquire(`holder-${i}`, ['a']))))
    const won = answers.filter(({ kind }) => kind === 'granted')
    assert.equal(won.length, 1)
    for (const answer of answers) if (answer.kind !== 'granted') refused('HELD', answer)
  },

  'the proposals of one lessor are decided in the order they were made': async log => {
    const lessor = await log.open()
    const asked: Promise<Outcome>[] = []
    for (let i = 0; i < 30; i++) {
      asked.push(propose(lessor, acquire(`w${i}`, ['a'], { wait: true })))
    }
    const answers = await Promise.all(asked)
    granted(answers[0]!)
    assert.deepEqual(
      answers.slice(1).map(answer => queued(answer).position),
      Array.from({ length: 29 }, (_, i) => i),
    )
  },

  // Operations

  'an operation that is sent twice has one effect and one answer, through any lessor and at any time': async log => {
    const [a, b] = await log.pair()
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const ask = acquire('ann', ['a'], { ttl: LONG })
    const first = granted(await propose(a, ask, { op }))
    assert.deepEqual(await propose(a, ask, { op }), first)
    assert.deepEqual(await propose(b, ask, { op }), first)
    assert.deepEqual(await propose(b, ask, { op: { ...op, again: true } }), first)
    const put = { kind: 'put', lease: first.lease, key: 'k', value: 'v' } as const
    const second = done(await propose(b, put, { op: { session: 's', seq: 2, acked: 1 } }))
    assert.deepEqual(await propose(a, put, { op: { session: 's', seq: 2, acked: 1, again: true } }), second)
    assert.equal((await a.read({ kind: 'summary' }, { consistent: true })).revision, second.revision)
    const later = await log.restart()
    assert.deepEqual(await propose(later, put, { op: { session: 's', seq: 2, acked: 1, again: true } }), second)
  },

  'copies of one operation that arrive together have one effect and one answer': async log => {
    const [a, b] = await log.pair()
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const answers = await Promise.all([a, b, a, b].map(lessor => propose(lessor, acquire('ann', ['a'], { wait: true }), { op })))
    for (const answer of answers) assert.deepEqual(answer, answers[0])
    assert.equal((await a.read({ kind: 'leases' }, { consistent: true })).value.length, 1)
  },

  'an operation that may have been sent before is refused for good': async log => {
    const [a, b] = await log.pair()
    const first = granted(await propose(a, acquire('ann', ['a'])))
    const op: Operation = { session: 's', seq: 1, acked: 0, again: true }
    const held = refused('HELD', await propose(b, acquire('bob', ['a']), { op }))
    done(await propose(a, { kind: 'release', lease: first.lease }))
    // The first copy, still on its way, arrives now: a client that was refused with HELD must not be granted later.
    const { again: _, ...copy } = op
    assert.deepEqual(await propose(a, acquire('bob', ['a']), { op: copy }), held)
    assert.deepEqual(await holders(a, 'a'), [])
  },

  'the same session and number under another key is another operation': async log => {
    const lessor = await log.open()
    const key = done(await propose(lessor, createKey('ci', [{ verb: 'acquire', prefix: '' }]))).id!
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const mine = granted(await propose(lessor, acquire('ann', ['a']), { op }))
    const theirs = granted(await propose(lessor, acquire('bob', ['b']), { op, key }))
    assert.notEqual(mine.lease, theirs.lease)
    assert.deepEqual(await propose(lessor, acquire('ann', ['a']), { op }), mine)
    assert.deepEqual(await propose(lessor, acquire('bob', ['b']), { op, key }), theirs)
  },

  'an operation whose answer was acknowledged is STALE, and never repeated': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a']), { op: { session: 's', seq: 1, acked: 0 } }))
    done(await propose(lessor, { kind: 'release', lease: first.lease }, { op: { session: 's', seq: 2, acked: 1 } }))
    const again: Operation = { session: 's', seq: 1, acked: 0, again: true }
    refused('STALE', await propose(lessor, acquire('ann', ['a']), { op: again }))
    assert.deepEqual(await holders(lessor, 'a'), [])
  },
}
