/**
 * A proposer applies its command as it was given, everyone else as it was written and read. So whatever passes the form must lead to the same,
 * or one careless client would set replicas apart.
 */
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { applyBatch, type Batch, decodeBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { Reader, Writer } from '../../../src/kernel/codec/bytes.ts'
import { formOf, readProposal, tableEncoding, writeProposal } from '../../../src/kernel/codec/encode.ts'
import { malformed } from '../../../src/kernel/codec/form.ts'
import { StateLoader, saveState, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import { type Command, POOL_TESTS } from '../../../src/kernel/command.ts'
import { RULES, type State } from '../../../src/kernel/state.ts'
import { Stream } from '../../support/kernel/stream.ts'
import { World } from '../../support/kernel/world.ts'
import { runs } from '../../support/runs.ts'

const number = fc.constantFrom(0, 1, 2, 3, 4, 5, 8, 9, 16, 100, 5_000, 30_000, 2 ** 31, 2 ** 32 + 5, Number.MAX_SAFE_INTEGER)
const signed = fc.oneof(number, fc.constantFrom(-1, -3, -1_000, -(2 ** 51)))
const text = fc.constantFrom(
  'a',
  'a/b',
  'p',
  'p/1',
  'q/1/2',
  'h1',
  'svc/3',
  'services/many/1',
  '',
  'é',
  ' ',
  '\u0007',
  '/',
  '..',
  'x'.repeat(600),
)
const yesNo = fc.boolean()

type Fields = Readonly<Record<string, fc.Arbitrary<unknown>>>

/** Fields that may be left out, or be given as undefined. */
function some(needed: Fields, optional: Fields = {}): fc.Arbitrary<object> {
  const maybe = Object.fromEntries(Object.entries(optional).map(([name, of]) => [name, fc.option(of, { nil: undefined })]))
  return fc.record({ ...needed, ...maybe }, { requiredKeys: Object.keys(needed) })
}

const list = (of: fc.Arbitrary<unknown>) => fc.array(of, { maxLength: 3 })
const kind = (name: Command['kind']) => fc.constant(name)
const wants = list(some({ resource: text }, { units: number, shared: yesNo }))
const keyLimits = some(
  {},
  { leases: number, waiters: number, entries: number, bytes: number, connections: number, requests: number, burst: number },
)
const rules = some(
  {},
  Object.fromEntries(
    (
      'ttlMin ttlMax capacity lockDelay grace maxLife maxHold quota waiters aging leases leasesPerKey flapPenalty flapHalfLife flapSuppress ' +
      'flapReuse preserveShare preserveLeast preserveMost sweepShare shareHalfLife sharePenalty shareWeight quotaUnits quotaBorrow minHold ' +
      'preemptNotice freeEntries freeBytes quotaWeek'
    )
      .split(' ')
      .map(name => [name, number]),
  ),
)

const compare = list(
  some(
    {
      key: text,
      field: fc.constantFrom('created', 'revision', 'version', 'lease', 'value'),
      is: fc.constantFrom('equal', 'unequal', 'less', 'greater'),
    },
    { number, value: text },
  ),
)
const change = (more: Fields = {}) => some({ key: text }, { value: text, lease: number, delete: yesNo, ...more })

const COMMANDS: Readonly<Record<Exclude<Command['kind'], 'upgrade'>, fc.Arbitrary<object>>> = {
  acquire: some(
    { kind: kind('acquire'), holder: text, ttl: fc.oneof(number, fc.constantFrom(5_000, 30_000)), wants },
    {
      ...{ incarnation: number, any: number, wait: yesNo, priority: signed, parent: number, holding: list(number), grace: number },
      ...{ maxLife: number, steal: fc.constantFrom('after', 'force'), recall: yesNo, labels: list(fc.tuple(text, text)) },
      entries: list(some({ key: text, value: text }, { generation: number })),
      ...{ compare, changes: list(change({ own: yesNo })) },
      pool: some(
        { pool: text },
        {
          ...{ count: number, units: number, total: number, near: text, account: text, expect: number, preemptible: yesNo, from: number },
          match: list(some({ label: text, test: fc.constantFrom(...POOL_TESTS) }, { values: list(text) })),
        },
      ),
    },
  ),
  extend: some({ kind: kind('extend'), lease: number, by: number }),
  widen: some({ kind: kind('widen'), lease: number, wants }),
  claim: some({ kind: kind('claim'), lease: number }, { incarnation: number }),
  renew: some({ kind: kind('renew'), leases: list(number) }, { waiting: yesNo }),
  release: some({ kind: kind('release'), lease: number }, { resource: text, stopped: list(number), compare, changes: list(change()) }),
  due: some({ kind: kind('due'), timer: number, epoch: number }),
  aged: some({ kind: kind('aged'), marks: list(some({ timer: number, epoch: number, ms: number })) }),
  'aged-together': some({ kind: kind('aged-together'), run: number, ms: number }),
  run: some({ kind: kind('run'), owned: yesNo }),
  put: some({ kind: kind('put'), lease: number, key: text, value: text }, { generation: number }),
  delete: some({ kind: kind('delete'), key: text }, { lease: number }),
  transaction: some(
    { kind: kind('transaction') },
    {
      compare,
      success: list(change()),
      failure: list(change()),
    },
  ),
  revoke: some(
    { kind: kind('revoke'), target: fc.oneof(some({ lease: number }), some({ holder: text }), some({ prefix: text })) },
    { force: yesNo, by: text },
  ),
  transfer: some({ kind: kind('transfer'), lease: number, to: text }, { incarnation: number, stopped: yesNo }),
  break: some({ kind: kind('break'), resource: text }, { after: number, by: text }),
  recall: some({ kind: kind('recall'), resource: text }, { by: text }),
  policy: some({ kind: kind('policy'), prefix: text }, { rules }),
  key: some(
    {
      ...{ kind: kind('key'), name: text, hash: fc.constantFrom('0123456789abcdef'.repeat(4), 'x') },
      allow: list(some({ verb: fc.constantFrom('acquire', 'renew', 'release', 'revoke', 'break', 'admin'), prefix: text })),
    },
    {
      ...{ accounts: list(text), holders: list(text), priority: some({ low: fc.integer(), high: fc.integer() }), noMembers: yesNo },
      ...{ group: text, limits: keyLimits, expires: number },
    },
  ),
  rotate: some({ kind: kind('rotate'), id: number, hash: text }, { overlap: number, expires: number }),
  limit: some({ kind: kind('limit') }, { id: number, group: text, limits: keyLimits }),
  unkey: some({ kind: kind('unkey'), id: number }),
  fence: some({ kind: kind('fence'), resource: text, token: number }),
  tick: some({ kind: kind('tick'), n: number, elapsed: number }),
  move: some({ kind: kind('move') }, { to: text, stay: yesNo, since: number, into: fc.constantFrom('begin', 'end') }),
  generation: some({ kind: kind('generation'), lease: number, token: number, revision: number, quiet: number }, { key: number }),
}

const operation = fc.record(
  { session: fc.constantFrom('s0', 's1', 'é'), seq: fc.nat(30), acked: fc.nat(30), asked: fc.constantFrom(0, 1, 2, 2 ** 53 - 1) },
  { requiredKeys: ['session', 'seq', 'acked'] },
)

function copy(state: State): State {
  const loader = new StateLoader()
  for (const chunk of saveState(state)) loader.add(chunk)
  return loader.finish()
}

const states = [1, 2, 3, 4].map(seed => {
  const world = new World({ strict: false })
  const stream = new Stream(seed, { calm: seed % 2 === 0 })
  for (let i = 0; i < 60; i++) world.entry([], { proposals: [stream.next(world.state)] })
  return world.state
})

test.each(Object.entries(COMMANDS))(
  '%s: every replica that reads the command decides as its proposer does',
  { timeout: 900_000 },
  (name, given) => {
    const tries = name === 'acquire' || name === 'widen' ? 6_000 : 600
    let sound = 0
    fc.assert(
      fc.property(
        given,
        fc.constantFrom(...states),
        fc.constantFrom(0, 0, 1, 99),
        fc.option(operation, { nil: undefined }),
        (made, state, key, op) => {
          const command = made as Command
          if (malformed(command) !== undefined) return
          sound++
          const { index, decisionHashA, decisionHashB } = state
          const batch: Batch = {
            proposer: 9,
            seq: 1,
            applied: index,
            decisionHash: [decisionHashA, decisionHashB],
            wall: 1_000,
            rules: RULES,
            proposals: [{ command, key, ...(op && { op }) }],
          }
          const [own, read] = [batch, decodeBatch(encodeBatch(batch))].map(as => {
            const mine = copy(state)
            const applied = applyBatch(mine, index + 1, as, { events: [], timer() {} })
            return { applied, hash: stateHash(mine), decisionHash: [mine.decisionHashA, mine.decisionHashB] }
          })
          expect(own).toEqual(read)
        },
      ),
      { numRuns: runs(tries) },
    )
    expect(sound).toBeGreaterThan(runs(tries) / 10)
  },
)

test.each(['acquire', 'renew', 'release'] as const)('%s: the hand-written codec writes and reads the bytes of the command table', kind => {
  const table = tableEncoding(kind)
  fc.assert(
    fc.property(COMMANDS[kind], made => {
      const command = made as Command
      if (malformed(command) !== undefined) return
      const to = new Writer(64)
      writeProposal(to, { command })
      const expected = new Writer(64)
      const encoding = formOf(table, command)
      expected.byte(encoding.number)
      encoding.layout.write(expected, command)
      expect(to.view()).toEqual(expected.view())
      expect(readProposal(new Reader(to.view())).command).toStrictEqual(encoding.layout.read(new Reader(to.view().subarray(1))))
    }),
    { numRuns: runs(2_000) },
  )
})
