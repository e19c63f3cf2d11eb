/** The referee judges answers to clients: they agree with the log, and an operation has one outcome. */
import { expect } from 'vitest'
import type { Outcome, Refused } from '../../src/kernel/outcome.ts'
import { cases, op, plain } from '../support/sim/refereed-world.ts'

const deadlock: Refused = { kind: 'refused', revision: 0, code: 'DEADLOCK', reason: 'deadlock', facts: { cycle: [] } }

cases(
  'S9',
  {
    'an answer comes from the end of the log': c => c.referee.answers.answered(c.do(plain('a', 'x')), undefined, c.referee.revision, 0),
    'answered late': c => {
      const outcome = c.do(plain('a', 'x'))
      c.acquire('b', 'y')
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'a grant is acknowledged after its lease has ended': c => {
      const outcome = c.do(plain('a', 'x'))
      c.release((outcome as { lease: number }).lease)
      c.referee.answers.answered(outcome, undefined, 0, 0)
    },
    'an answer comes from before a loss': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'an owner that has not noticed the loss refuses a request': c => {
      c.do(plain('a', 'x'))
      const refused = c.do(plain('b', 'x'))
      c.lose(1)
      c.referee.answers.answered({ ...refused, revision: refused.revision + 5 }, undefined, 0, 1)
    },
    'a lease without resources is granted': c => c.referee.answers.answered(c.do({ ...plain('a', 'x'), wants: [] }), undefined, 0, 0),
  },
  {
    'an answer comes from a revision that the log has not reached': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, revision: outcome.revision + 1 }, undefined, 0, 0)
    },
    'a grant that is not in the log is acknowledged': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, lease: 7 } as Outcome, undefined, 0, 0)
    },
    'a grant is acknowledged with another token': c => {
      const outcome = c.do(plain('a', 'x'))
      c.referee.answers.answered({ ...outcome, tokens: [7] } as Outcome, undefined, 0, 0)
    },
  },
)

cases(
  'S10',
  {
    'a request is refused as of the revision at which it was sent': c => {
      c.acquire('a', 'x')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, c.referee.revision, 0)
    },
    'a request is refused as of a later revision': c => {
      c.acquire('a', 'x')
      const asked = c.referee.revision
      c.acquire('a', 'y')
      c.referee.answers.answered(c.do(plain('b', 'x')), undefined, asked, 0)
    },
    'a repeated operation gets its earlier answer': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'), { op: op(1) })
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, '0:s:1', c.referee.revision, 0)
    },
    'one of two resources is granted when one is enough': c => {
      c.acquire('a', 'x')
      expect(c.acquire('b', ['x', 'y'], { any: 1 })).not.toBe(0)
    },
    'a waiter is granted both resources at once': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.release(x)
      c.release(y)
    },
    'a request that would close a cycle is refused': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      expect(c.do({ ...plain('b', 'x'), wait: true, holding: [y] })).toMatchObject({ code: 'DEADLOCK' })
    },
    'a refusal for a cycle is repeated after the cycle is gone': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      const waiter = c.acquire('a', 'y', { wait: true, holding: [x] })
      const wish = { ...plain('b', 'x'), wait: true, holding: [y] }
      c.do(wish, { op: op(1) })
      c.release(waiter)
      expect(c.do(wish, { op: op(1) })).toMatchObject({ code: 'DEADLOCK' })
    },
  },
  {
    'a request is refused from an old state': c => {
      c.acquire('a', 'x')
      const refused = c.do(plain('b', 'x'))
      c.acquire('a', 'y')
      c.referee.answers.answered(refused, undefined, c.referee.revision, 0)
    },
    'one of two resources is granted when both were requested': c => {
      c.tamper = (_, events) => {
        events.pop()
        return undefined
      }
      c.acquire('a', ['x', 'y'])
    },
    'a request is refused for a cycle that does not exist': c => {
      const y = c.acquire('b', 'y')
      c.acquire('a', 'x')
      c.tamper = () => deadlock
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)

cases(
  'S11',
  {
    'an operation gets the same answer twice': c => {
      for (let i = 0; i < 2; i++) c.do(plain('a', 'x'), { op: op(1) })
    },
    'two sessions use the same number': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'x'), { op: op(1, 't') })
    },
    'two keys use the same session': c => {
      const key = c.key('y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('b', 'y'), { op: op(1), key })
    },
    'an operation is repeated after its answer was forgotten': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.do(plain('a', 'y'), { op: { ...op(2), acked: 1 } })
      expect(c.do(plain('a', 'x'), { op: op(1) })).toMatchObject({ code: 'STALE' })
    },
    'a repeated renewal is done again': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
      c.release(lease)
      c.do({ kind: 'renew', leases: [lease] }, { op: op(1) })
    },
    'an operation is repeated after its answer was lost with the log': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.acquire('c', 'x')
      c.do(plain('a', 'x'), { op: op(1) })
    },
    'a client receives the outcome that is in the log': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
    'a client receives a refusal that is not in the log': c => {
      c.acquire('a', 'x')
      c.referee.answers.received(
        { kind: 'refused', revision: c.state.revision, code: 'HELD', reason: 'reserved', facts: { resource: 'x', queue: 0 } },
        '0:s:1',
        0,
        0,
      )
    },
    'a client receives an outcome that was lost meanwhile': c => {
      c.acquire('b', 'y')
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.received(outcome, '0:s:1', 0, 0)
    },
  },
  {
    'a client receives an outcome of an operation that is not in the log': c => {
      const outcome = c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.received(outcome, '0:s:2', 0, 0)
    },
    'a proposer receives the answer to another proposal': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      const other = c.do(plain('a', 'y'), { op: op(2) })
      c.referee.answers.received(other, '0:s:1', 0, 0)
    },
    'another answer': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.tamper = (_, __, outcome) => ({ ...outcome, lease: 5 }) as Outcome
      c.do(plain('a', 'x'), { op: op(1) })
    },
  },
)

cases(
  'S12',
  {
    'a failed operation never arrives': c => c.referee.answers.failed('0:s:1'),
    'a failed operation arrives and is refused': c => {
      c.acquire('a', 'x')
      c.referee.answers.failed('0:s:1')
      c.do(plain('b', 'x'), { op: op(1) })
    },
    'the next operation of the same session is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(2) })
    },
    'the operation with the same number of another key is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1), key: c.key('x') })
    },
    'an operation is done without any report': c => void c.do(plain('a', 'x'), { op: op(1) }),
    'a failed operation was done in a record that is lost': c => {
      c.acquire('b', 'y')
      c.do(plain('a', 'x'), { op: op(1) })
      c.lose(1)
      c.referee.answers.failed('0:s:1')
    },
  },
  {
    'an operation that was done is reported as failed': c => {
      c.do(plain('a', 'x'), { op: op(1) })
      c.referee.answers.failed('0:s:1')
    },
    'an operation that was reported as failed is done': c => {
      c.referee.answers.failed('0:s:1')
      c.do(plain('a', 'x'), { op: op(1) })
    },
  },
)
