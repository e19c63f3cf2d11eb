/** The referee judges the log and its replicas: who has it open, that a record counts once, and that replicas agree with it. */
import { expect } from 'vitest'
import { encodeBatch } from '../../src/kernel/codec/batch.ts'
import { StateLoader, saveState, stateHash } from '../../src/kernel/codec/snapshot.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { RULES } from '../../src/kernel/state.ts'
import { cases, plain } from '../support/sim/refereed-world.ts'

cases(
  'S20',
  {
    'several processes share the log': c => {
      for (const name of ['a', 'b', 'c']) c.referee.users.opened(name, false)
    },
    'one process after another owns the log': c => {
      c.referee.users.opened('a', true)
      c.referee.users.closed('a')
      c.referee.users.opened('b', true)
    },
    'a process owns the log after all others have closed it': c => {
      for (const name of ['a', 'b']) c.referee.users.opened(name, false)
      for (const name of ['a', 'b']) c.referee.users.closed(name)
      c.referee.users.opened('a', true)
    },
    'processes share the log after its owner has closed it': c => {
      c.referee.users.opened('a', true)
      c.referee.users.closed('a')
      for (const name of ['a', 'b']) c.referee.users.opened(name, false)
    },
    'an owner opens the log again after a failure': c => {
      c.referee.users.opened('a', true)
      c.referee.users.opened('a', true)
    },
  },
  {
    'two processes own the log': c => {
      c.referee.users.opened('a', true)
      c.referee.users.opened('b', true)
    },
    'a process shares a log that another owns': c => {
      c.referee.users.opened('a', true)
      c.referee.users.opened('b', false)
    },
    'a process owns a log that another uses': c => {
      c.referee.users.opened('a', false)
      c.referee.users.opened('b', true)
    },
  },
)

const machine = { name: 'm' }

cases(
  'S22',
  {
    'a replica has the same state': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, c.state.index, () => c.referee.hash())
    },
    'a replica has the same state before the first record': c => c.referee.sameState(machine, 0, () => c.referee.hash()),
    'a replica is behind': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 0, () => 'its earlier state')
    },
    'a replica is ahead of a log that lost records': c => {
      c.acquire('a', 'x')
      c.acquire('a', 'y')
      const hash = c.referee.hash()
      c.lose(1)
      c.referee.sameState(machine, 2, () => hash)
    },
    'a replica began from a snapshot': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      const loader = new StateLoader()
      for (const chunk of saveState(c.state)) loader.add(chunk.slice())
      const state = loader.finish()
      c.referee.sameState(machine, state.index, () => stateHash(state))
    },
    'a replica that does not know the newer rules stops where they were raised': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica that knows the newer rules continues': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES + 1, c.state.index)
    },
    'the rules were raised in a record that is lost': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.lose(1)
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica reads the records again after a loss': c => {
      c.acquire('a', 'x')
      const hash = c.referee.hash()
      c.acquire('a', 'y')
      c.lose(1)
      c.referee.sameState(machine, 1, () => hash)
    },
  },
  {
    'a replica that does not know the newer rules continues under them': c => {
      c.do({ kind: 'upgrade', rules: RULES + 1 })
      c.acquire('a', 'x')
      c.referee.decided('m', RULES, c.state.index)
    },
    'a replica has another state at the same record': c => {
      c.acquire('a', 'x')
      c.referee.sameState(machine, 1, () => 'other')
    },
    'a holder has no name': c => {
      const lease = findLease(c.state, c.acquire('a', 'x'))!
      Object.assign(lease.holder, { name: '' })
      c.referee.checkWhole()
    },
  },
)

cases(
  'S24',
  {
    'a record arrives twice and counts once': c => {
      c.acquire('a', 'x')
      c.again()
    },
    'a record arrives three times, with others in between': c => {
      const lease = c.acquire('a', 'x')
      c.again()
      c.again()
      c.renew(lease)
    },
    'two proposers use the same number': c => {
      c.acquire('a', 'x')
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 1, decisionHash: [0, 0], wall: 0, proposals }))
    },
    'a record that claims to have applied later records is void': c => {
      const proposals = [{ command: plain('b', 'y') }]
      c.append(encodeBatch({ proposer: 9, seq: 1, applied: 500, decisionHash: [0, 0], wall: 0, proposals }))
      expect(c.state.leases.size).toBe(0)
    },
    'a copy of a lost record counts': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.lose(1)
      c.again()
    },
    'a grant is acknowledged after a loss of later records': c => {
      const outcome = c.do(plain('a', 'x'))
      c.do(plain('b', 'y'))
      c.lose(1)
      c.referee.answers.answered(outcome, undefined, 0, 1)
    },
  },
  {
    'a record is applied twice': c => {
      c.acquire('a', 'x')
      c.state.proposers.clear()
      c.again()
    },
    'a grant that was never in the log is acknowledged after a loss': c => {
      const outcome = c.do(plain('a', 'x'))
      c.lose(1)
      c.referee.answers.answered({ ...outcome, revision: 0, lease: 5 } as Outcome, undefined, 0, 1)
    },
  },
)
