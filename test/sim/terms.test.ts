/** The referee judges when leases end: none before its acknowledged term is over, and none long after. */
import { expect } from 'vitest'
import { RHO } from '../../sim/world.ts'
import { encodeBatch } from '../../src/kernel/codec/batch.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { timerId } from '../../src/kernel/state/timers.ts'
import { BREAK, type Slot, TERM } from '../../src/kernel/state.ts'
import { cases, type History, type RefereedWorld } from '../support/sim/refereed-world.ts'

cases(
  'S4',
  {
    'a lost lease number is granted to another holder before a survivor notices the loss': c => {
      c.acquire('first', 'y')
      const lost = c.acquire('a', 'x', { ttl: 4_000 })
      c.referee.terms.acknowledged(lost, 0, 4_000)
      c.lose(1)
      expect(c.acquire('b', 'x', { ttl: 300 })).toBe(lost)
      c.now = 400
      c.due(lost)
    },
    'a lease lapses exactly at its deadline': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO)
      c.due(lease)
    },
    'a renewal is acknowledged after the release of its lease': c => {
      const lease = c.acquire('a', 'x')
      c.renew(lease)
      c.release(lease)
      c.now = 5
      c.referee.terms.acknowledged(lease, 1, 1_000)
    },
    'a lease is revoked long before its deadline': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.revoke(lease)
    },
    'an older renewal is acknowledged after a newer one': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 100, 1_000)
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_100
      c.due(lease)
    },
    'a lease whose grant was never acknowledged lapses early': c => {
      const lease = c.acquire('a', 'x')
      c.now = 1
      c.due(lease)
    },
    'a lease is suspect after its term, and gone after its grace': c => {
      const lease = c.acquire('a', 'x', { grace: 50 })
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000
      c.due(lease)
      c.due(lease)
    },
    'a waiter without any acknowledgement is withdrawn': c => {
      c.acquire('a', 'x')
      const waiter = c.acquire('b', 'x', { wait: true })
      c.now = 1
      c.due(waiter)
    },
    'a lost renewal does not count before a survivor writes a generation': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.now = 1_010
      c.due(lease)
    },
    'the delay of a break continues when later records are lost': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 300
      c.acquire('b', 'y')
      c.lose(1)
      c.now = 400
      c.due(lease, BREAK)
    },
    'the delay of a break continues in the log that the leases moved to, beside a second break': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.referee.beginWith({ chunks: [...c.saved()], index: c.state.index }, 'migration')
      c.now = 300
      c.do({ kind: 'break', resource: 'x', after: 150 })
      c.now = 400
      c.due(lease, BREAK)
    },
  },
  {
    'a lease lapses one millisecond early': c => {
      const lease = c.acquire('a', 'x')
      c.referee.terms.acknowledged(lease, 0, 1_000)
      c.now = 1_000 / (1 + RHO) - 1
      c.due(lease)
    },
    'a renewal is acknowledged after its lease has lapsed early': c => {
      const lease = c.acquire('a', 'x')
      c.now = 500
      c.due(lease)
      c.referee.terms.acknowledged(lease, 100, 1_000)
    },
    'a lease is broken before the delay is over': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 390
      c.due(lease, BREAK)
    },
    'a lease with a lost renewal lapses early after a survivor wrote a generation': c => {
      const lease = c.acquire('a', 'x')
      c.now = 900
      c.renew(lease)
      c.referee.terms.acknowledged(lease, 900, 1_000)
      c.lose(1)
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 1_000 })
      c.now = 1_010
      c.due(lease)
    },
    'a lease is broken before the delay is over, when later records were lost': c => {
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'break', resource: 'x', after: 400 })
      c.now = 300
      c.acquire('b', 'y')
      c.lose(1)
      c.now = 390
      c.due(lease, BREAK)
    },
  },
)

/** In a world without stalls, a lapse may be half a second late. */
function calm(history: History): History {
  return c => {
    c.referee.terms.lateness = 500
    history(c)
  }
}

cases(
  'S5',
  {
    'the latest time that is allowed': calm(c => {
      const lease = c.acquire('a', 'x')
      c.now = 1_000 * (1 + RHO) + 500
      c.due(lease)
    }),
    'each renewal begins a new term': calm(c => {
      const lease = c.acquire('a', 'x')
      for (c.now = 0; c.now < 10_000; c.now += 900) c.renew(lease)
      c.due(lease)
    }),
    'the grace is added to the term': calm(c => {
      const lease = c.acquire('a', 'x', { grace: 3_000 })
      c.now = 1_400
      c.due(lease)
      c.now = 4_800
      c.due(lease)
    }),
    'a long term follows a short first term': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 60_000 })
      c.now = 20_000
      c.renew(lease)
      c.now = 80_400
      c.due(lease)
    }),
    'the shorter of two breaks counts': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.do({ kind: 'break', resource: 'x', after: 1_000 })
      c.now = 1_400
      c.due(lease, (BREAK + 1) as Slot)
      c.now = 20_000
      c.due(lease)
      c.referee.nothingIsLeft('after its units have thawed')
    }),
    'a world with stalls has no limit for lateness': c => {
      const lease = c.acquire('a', 'x')
      c.now = 3_600_000
      c.due(lease)
      c.referee.nothingIsLeft('at last')
    },
  },
  {
    'too late': calm(c => {
      const lease = c.acquire('a', 'x')
      c.now = 1_600
      c.due(lease)
    }),
    'a second break lengthens the first': calm(c => {
      const lease = c.acquire('a', 'x', { ttl: 20_000 })
      c.do({ kind: 'break', resource: 'x', after: 200 })
      c.do({ kind: 'break', resource: 'x', after: 5_000 })
      c.now = 5_000
      c.due(lease, BREAK)
    }),
    'a first term is longer than the limit': c => {
      c.tamper = (_, __, outcome) => ({ ...outcome, ttl: 60_000 }) as Outcome
      c.acquire('a', 'x', { ttl: 60_000 })
    },
    'a lease is left at the end of the run': c => {
      c.acquire('a', 'x')
      c.referee.nothingIsLeft('after a year')
    },
  },
)

/** A server that was stalled from 100 to 600, and a renewal that reached it at 200. */
function stalled(c: RefereedWorld, { appending = false, arrived = 200 } = {}): number {
  const lease = c.acquire('a', 'x', { ttl: 400 })
  c.referee.terms.server = {
    arrivedWhileStalled: new Map([[lease, arrived]]),
    renewals: new Map(),
    machine: { lastStall: { from: 100, to: 600, appending }, life: 1, rough: -1 },
  }
  return lease
}

/** A server that was stalled from 100 to 600, and acknowledged a renewal at 600. */
function renewedOnWaking(c: RefereedWorld, { life = 1, rough = -1, losses = 0 } = {}): number {
  const lease = stalled(c, { arrived: 50 })
  c.referee.terms.server!.renewals.set(lease, { at: 600, term: 400, life, losses })
  Object.assign(c.referee.terms.server!.machine, { rough })
  return lease
}

function lapseAt(c: RefereedWorld, lease: number, at: number, sentAt = at): void {
  c.now = at
  const it = findLease(c.state, lease)!
  const proposals = [{ command: { kind: 'due', timer: timerId(it, TERM), epoch: it.epoch } as const }]
  c.append(encodeBatch({ proposer: 2, seq: at, applied: c.state.index, decisionHash: [0, 0], wall: 0, proposals }), sentAt)
}

cases(
  'S19',
  {
    'a lease lapses long after the renewal that waited': c => lapseAt(c, stalled(c), 700),
    'no renewal of the lease had arrived': c => {
      stalled(c)
      lapseAt(c, c.acquire('b', 'y', { ttl: 400 }), 600)
    },
    'the lapse was proposed before the stall': c => lapseAt(c, stalled(c, { arrived: 450 }), 610, 90),
    'the lapse waited behind an append in progress': c => lapseAt(c, stalled(c, { appending: true, arrived: 450 }), 610),
    'the renewal arrived before the stall': c => lapseAt(c, stalled(c, { arrived: 50 }), 610),
    'no server is judged': c => {
      const lease = stalled(c, { arrived: 450 })
      c.referee.terms.server = undefined
      lapseAt(c, lease, 610)
    },
  },
  { 'a lease lapses at the moment at which the stall ends': c => lapseAt(c, stalled(c, { arrived: 450 }), 610) },
)

cases(
  'S5',
  {
    'a lease lapses one term after the renewal': c => lapseAt(c, renewedOnWaking(c), 1_010),
    'the lapse waited behind an append that failed': c => lapseAt(c, renewedOnWaking(c, { rough: 900 }), 5_000),
    'the server was killed after the renewal': c => lapseAt(c, renewedOnWaking(c, { life: 0 }), 5_000),
    'the log lost records after the renewal': c => lapseAt(c, renewedOnWaking(c, { losses: -1 }), 5_000),
    'the lapse was proposed in time, and arrived late': c => lapseAt(c, renewedOnWaking(c), 5_000, 1_010),
    'a generation restarted the term': c => {
      const lease = renewedOnWaking(c)
      c.now = 4_000
      c.do({ kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 400 })
      lapseAt(c, lease, 5_000)
    },
  },
  { 'a stall from before the renewal is added to its term': c => lapseAt(c, renewedOnWaking(c), 1_010 + 1_000) },
)

cases(
  'L2',
  {
    'at once': c => c.referee.grantableAfter(0, 700, 500),
    'a resource is granted when its term is over': c => c.referee.grantableAfter(700, 700, 500),
    'a resource is granted late because clock rates differ as much as allowed': c => c.referee.grantableAfter(700 * (1 + RHO), 700, 0),
    'the latest time that is allowed': c => c.referee.grantableAfter(700 * (1 + RHO) + 500, 700, 500),
    'a resource with a long term is granted late': c => c.referee.grantableAfter(45_000, 45_000, 500),
  },
  { 'too late': c => c.referee.grantableAfter(1_300, 700, 500) },
)
