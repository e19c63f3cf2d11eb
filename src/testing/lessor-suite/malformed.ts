/** The contract of a lessor: commands that are refused for their form. */
import assert from 'node:assert/strict'
import type { Command } from '../../kernel/command.ts'
import { propose } from '../../lessor/propose.ts'
import type { ProposeOptions } from '../../lessor.ts'
import { acquire, granted, holders, LONG, refused } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const malformedCases: LessorCases = {
  'commands that only replicas write are refused to clients': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    const internal: Command[] = [
      { kind: 'due', timer: lease.lease * 8, epoch: 1 },
      { kind: 'aged', marks: [{ timer: lease.lease * 8, epoch: 1, ms: LONG }] },
      { kind: 'aged-together', run: 1, ms: LONG },
      { kind: 'run', owned: true },
      { kind: 'tick', n: 1, elapsed: 1 },
    ]
    for (const command of internal) refused('INVALID', await propose(lessor, command))
    assert.deepEqual(await holders(lessor, 'a'), ['ann'])
  },

  'a malformed command is INVALID, says why, and changes nothing': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    const wrong: unknown[] = [
      ...[0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, 1.5, '1000', null, 99, 86_400_001].map(ttl => ({
        ...acquire('ann', ['b']),
        ttl,
      })),
      ...['', '/b', 'b/', 'b//c', '.', 'b/../c', 'b\n', '\u0085', 'é'.repeat(257), 'x'.repeat(513), '\ud800', 7].map(name =>
        acquire('ann', [name as string]),
      ),
      acquire('', ['b']),
      acquire('ann', ['b', 'b']),
      acquire('ann', ['b'], { parent: lease.lease + 1_000 }),
      acquire('ann', ['b'], { incarnation: lease.lease + 1_000 }),
      acquire('ann', [], { wait: true }),
      acquire('ann', ['a'], { wait: true, holding: [lease.lease] }),
      { ...acquire('ann', ['b']), wants: [{ resource: 'b', units: 2 }] },
      { ...acquire('ann', ['b']), wants: 'b' },
      { ...acquire('ann', ['b']), colour: 'blue' },
      { kind: 'renew', leases: [1.5] },
      { kind: 'renew', leases: lease.lease },
      { kind: 'release' },
      { kind: 'release', lease: 0 },
      { kind: 'put', lease: lease.lease, key: '../etc', value: 'x' },
      { kind: 'put', lease: lease.lease, key: 'b', value: 'x'.repeat(20_000) },
      { kind: 'revoke', target: {} },
      { kind: 'revoke', target: { holder: 'ann', prefix: 'a' } },
      { kind: 'transfer', lease: lease.lease, to: '' },
      { kind: 'break', resource: 'a', after: -1 },
      { kind: 'policy', prefix: 'a', rules: { ttlMin: 10, ttlMax: 5 } },
      { kind: 'policy', prefix: '/', rules: {} },
      { kind: 'key', name: 'ci', hash: 'abc', allow: [] },
      { kind: 'key', name: 'ci', hash: 'a'.repeat(64), allow: [{ verb: 'fly', prefix: '' }] },
      { kind: 'fence', resource: 'a', token: 0 },
      { kind: 'steal' },
      { kind: 'constructor' },
      {},
      null,
      'acquire',
    ]
    for (const command of wrong) {
      const answer = await propose(lessor, command as Command)
      assert.ok(answer.kind === 'refused' && answer.code === 'INVALID', `${JSON.stringify(command)}: ${JSON.stringify(answer)}`)
      assert.ok(answer.reason.length > 3, JSON.stringify(answer))
    }
    const after = await lessor.read({ kind: 'summary' }, { consistent: true })
    assert.equal(after.revision, revision)
    assert.equal(after.value.leases, 1)
    granted(await propose(lessor, acquire('bob', ['b'])))
  },

  'a malformed operation or key is INVALID, and does not affect other proposals made at the same time': async log => {
    const lessor = await log.open()
    const wrong: unknown[] = [
      { op: { session: 's', seq: Number.NaN, acked: 0 } },
      { op: { session: 's', seq: -1, acked: 0 } },
      { op: { session: 's', seq: 1, acked: 0.5 } },
      { op: { session: 7, seq: 1, acked: 0 } },
      { op: { session: '\ud800', seq: 1, acked: 0 } },
      { op: { seq: 1, acked: 0 } },
      { key: -1 },
      { key: 0.5 },
      { key: 'ci' },
    ]
    const answers = wrong.flatMap((options, i) => [
      propose(lessor, acquire('bad', [`bad/${i}`]), options as ProposeOptions),
      propose(lessor, acquire('good', [`good/${i}`])),
    ])
    for (const [i, answer] of (await Promise.all(answers)).entries()) {
      if (i % 2 === 1) granted(answer)
      else refused('INVALID', answer)
    }
    const again = await log.restart()
    assert.equal((await again.read({ kind: 'leases', holder: 'good' }, { consistent: true })).value.length, wrong.length)
    assert.equal((await again.read({ kind: 'leases', holder: 'bad' }, { consistent: true })).value.length, 0)
  },

  'the rules version cannot be raised above the one that the lessor knows': async log => {
    const lessor = await log.open()
    const { rules } = (await lessor.read({ kind: 'summary' })).value
    const answer = await propose(lessor, { kind: 'upgrade', rules: rules + 1 })
    assert.equal(answer.kind, 'refused')
    granted(await propose(lessor, acquire('ann', ['a'])))
  },
}
