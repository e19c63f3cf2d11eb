/** The referee judges which holders use a lease at the same time, which writes a fence accepts, and whether a holder knows of the end of its lease. */
import { expect } from 'vitest'
import { cases, op, type RefereedWorld } from '../support/sim/refereed-world.ts'

/** Two holders use one resource: the first continues after its lease was revoked by force, and the referee has no exception for it. */
function twoHolders(c: RefereedWorld, shared: boolean): void {
  const a = c.acquire('a', 'x')
  const first = c.belief(a)
  c.referee.beliefs.begins(first)
  c.do({ kind: 'revoke', target: { lease: a }, force: true })
  c.referee.beliefs.begins(c.belief(c.acquire('b', 'x'), { shared }))
}

cases(
  'S1',
  {
    'a holder stops at the moment at which the next begins': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'readers share a resource': c => {
      for (const who of ['a', 'b', 'c']) {
        const lease = c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
        c.referee.beliefs.begins(c.belief(lease, { units: 0, shared: true }))
      }
    },
    'a pool is used up to its last unit': c => {
      c.policy('p', { capacity: 3 })
      c.referee.beliefs.begins(c.belief(c.acquire('a', [], { wants: [{ resource: 'p', units: 2 }] }), { units: 2 }))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'p')))
    },
    'a lease was revoked by force': c => {
      const first = c.belief(c.acquire('a', 'x'))
      c.referee.beliefs.begins(first)
      c.referee.beliefs.forced.add(first.lease)
      c.revoke(first.lease, true)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
    },
    'a holder that steals by force uses its lease at once': c => {
      c.referee.beliefs.begins(c.belief(c.acquire('a', 'x')))
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' })))
    },
    'holders from before a capacity was reduced continue': c => {
      c.policy('p', { capacity: 2 })
      const beliefs = ['a', 'b'].map(who => c.belief(c.acquire(who, 'p')))
      c.policy('p', { capacity: 1 })
      for (const belief of beliefs) c.referee.beliefs.begins(belief)
    },
    'a grant is answered after its term is over': c => {
      const first = c.belief(c.acquire('a', 'x'))
      first.stop()
      c.release(first.lease)
      c.referee.beliefs.begins(c.belief(c.acquire('b', 'x')))
      c.referee.beliefs.begins(first)
    },
  },
  {
    'two holders use one resource': c => twoHolders(c, false),
    'a reader and a writer use one resource': c => twoHolders(c, true),
    'more units are used than exist': c => {
      c.policy('p', { capacity: 3 })
      for (const who of ['a', 'b'])
        c.referee.beliefs.begins(c.belief(c.acquire(who, [], { wants: [{ resource: 'p', units: 1 }] }), { units: 2 }))
    },
  },
)

cases(
  'S2',
  {
    'a late write is refused': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      const next = c.belief(c.acquire('b', 'x'))
      expect(c.referee.beliefs.writes(next, 'x', next.grants[0]!.token)).toBe(true)
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(false)
    },
    'a late write is accepted before any newer token was seen': c => {
      const late = c.belief(c.acquire('a', 'x'))
      late.stop()
      c.release(late.lease)
      c.acquire('b', 'x')
      expect(c.referee.beliefs.writes(late, 'x', late.grants[0]!.token)).toBe(true)
    },
    'one token is used twice': c => {
      const belief = c.belief(c.acquire('a', 'x'))
      for (let i = 0; i < 2; i++) expect(c.referee.beliefs.writes(belief, 'x', belief.grants[0]!.token)).toBe(true)
    },
    'a holder that lost its lease by force is refused while it still uses the lease': c => {
      const first = c.belief(c.acquire('a', 'x'))
      const thief = c.belief(c.acquire('b', 'x', { wait: true, steal: 'force' }))
      c.referee.beliefs.writes(thief, 'x', thief.grants[0]!.token)
      expect(c.referee.beliefs.writes(first, 'x', first.grants[0]!.token)).toBe(false)
    },
    'a repeated operation gets its earlier answer': c => {
      const old = c.token(c.acquire('a', 'x'))
      c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) })
      const young = c.token(c.acquire('b', 'y'))
      c.do({ kind: 'fence', resource: 'x', token: young }, { op: op(2) })
      expect(c.do({ kind: 'fence', resource: 'x', token: old }, { op: op(1) }).kind).toBe('fenced')
    },
  },
  {
    'the present holder is refused': c => {
      const [a, b] = [c.belief(c.acquire('a', 'x')), c.belief(c.acquire('b', 'y'))]
      c.referee.beliefs.writes(b, 'x', b.grants[0]!.token)
      c.referee.beliefs.writes(a, 'x', a.grants[0]!.token)
    },
    'a fence accepts an older token': c => {
      const tokens = ['x', 'y'].map(resource => c.token(c.acquire('a', resource)))
      c.do({ kind: 'fence', resource: 'x', token: tokens[1]! })
      c.tamper = () => ({ kind: 'fenced', revision: 0, highest: tokens[0]! })
      c.do({ kind: 'fence', resource: 'x', token: tokens[0]! })
    },
  },
)

cases(
  'L3',
  {
    'the holder knows that its lease lapsed': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => true })
      c.due(lease)
    },
    'the lease is revoked, and the holder learns of it later': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => true, told: () => false })
      c.revoke(lease)
    },
    'the holder released the lease itself': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.release(lease)
    },
    'the holder of another lease does not know': c => {
      const [lease, other] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.referee.beliefs.watch({ ...c.belief(other), holds: () => true, told: () => false })
      c.due(lease)
    },
    'the holder transfers its lease, and has stopped': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.referee.givenUp.add(lease)
      c.due(lease)
    },
  },
  {
    'the holder does not know that its lease lapsed': c => {
      const lease = c.acquire('a', 'x')
      c.referee.beliefs.watch({ ...c.belief(lease), holds: () => false, told: () => false })
      c.due(lease)
    },
  },
)
