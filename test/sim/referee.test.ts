/** The referee judges grants and the ends of leases: tokens, capacities, and what ends together with a lease. */
import { expect } from 'vitest'
import type { Event } from '../../src/kernel/event.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { QUIET } from '../../src/kernel/state.ts'
import { cases } from '../support/sim/refereed-world.ts'

/** Drops the events of one lease, as if nothing had happened to it. */
function silence(events: Event[], lease: number): void {
  const kept = events.filter(event => event.lease !== lease)
  events.splice(0, events.length, ...kept)
}

cases(
  'S3',
  {
    'one command grants several resources': c => void c.acquire('a', ['x', 'y', 'z']),
    'a resource is granted again after a release': c => {
      c.release(c.acquire('a', 'x'))
      c.acquire('a', 'x')
    },
    'tokens skip numbers after a generation': c => {
      c.acquire('a', 'x')
      c.do({ kind: 'generation', lease: 0, token: c.state.nextToken + 1_000_000, revision: 0, quiet: 0 })
      c.do({ kind: 'due', timer: QUIET, epoch: c.state.quiet!.epoch })
      c.acquire('a', 'y')
    },
    'the recipient of a transfer gets a new token': c => {
      const lease = c.acquire('a', 'x')
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
    'a late copy of a lost record arrives before a survivor writes a generation': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.lose(1)
      c.acquire('b', 'y')
    },
    'an old holder renews between new grants': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'y')
      c.renew(lease)
      c.acquire('c', 'z')
    },
  },
  {
    'a token is granted twice': c => {
      const token = c.token(c.acquire('a', 'x'))
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, token }
        return undefined
      }
      c.acquire('b', 'y')
    },
  },
)

cases(
  'S6',
  {
    'a late release finds no lease': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.release(lease).kind).toBe('refused')
    },
    'a late renewal is answered that its lease is gone': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      expect(c.renew(lease)).toMatchObject({ ttls: [-1] })
    },
    'a revoked lease is freed when its holder releases it': c => {
      const lease = c.acquire('a', 'x')
      c.revoke(lease)
      c.now = 10
      c.release(lease)
    },
    'a replica that has not read the end of a lease renews it': c => {
      const lease = c.acquire('a', 'x')
      const known = c.referee.length
      c.due(lease)
      c.referee.renewed(lease, known, 0)
    },
    'a lease whose end was lost is renewed': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.lose(1)
      c.renew(lease)
      c.referee.renewed(lease, c.referee.length, 1)
    },
    'a waiter is granted after a renewal in the queue': c => {
      const [first, second] = [c.acquire('a', 'x'), c.acquire('b', 'x', { wait: true })]
      c.do({ kind: 'renew', leases: [second], waiting: true })
      c.release(first)
      c.renew(second)
    },
  },
  {
    'a lease is renewed after its end': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.referee.renewed(lease, c.referee.length, 0)
    },
    'a lease is granted after its end': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, lease }
        return undefined
      }
      c.acquire('b', 'x')
    },
    'ended twice': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      const other = c.acquire('b', 'x')
      c.now = 10
      c.tamper = (_, events) => {
        for (const [i, event] of events.entries()) events[i] = { ...event, lease }
        return undefined
      }
      c.due(other)
    },
  },
)

cases(
  'S8',
  {
    'parent, child and grandchild end together': c => {
      const parent = c.register('a', 'e')
      const child = c.acquire('a', 'x', { parent })
      c.acquire('a', 'y', { parent: child })
      c.due(parent)
    },
    'a child ends before its parent': c => {
      const parent = c.register('a', 'e')
      c.release(c.acquire('a', 'x', { parent }))
      c.release(parent)
    },
    'a child still waits when its parent ends': c => {
      c.acquire('b', 'x')
      const parent = c.register('a', 'e')
      c.acquire('a', 'x', { parent, wait: true })
      c.release(parent)
    },
    'an entry was taken over by another lease': c => {
      const first = c.register('a', 'e')
      c.register('a', 'e', first)
      c.release(first)
    },
    'one grant is released, and the lease continues': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.do({ kind: 'release', lease, resource: 'x' })
    },
    'frozen units outlive the entries of their lease': c => {
      const lease = c.acquire('a', 'x', { entries: [{ key: 'e', value: '' }] })
      c.revoke(lease)
    },
  },
  {
    'an entry outlives its lease': c => {
      const lease = c.register('a', 'e')
      const entry = c.state.entries.get('e')!
      c.tamper = state => {
        state.entries.set('e', entry)
        return undefined
      }
      c.release(lease)
    },
    'a child outlives its parent': c => {
      const parent = c.register('a', 'e')
      const child = c.acquire('a', 'x', { parent })
      c.tamper = (_, events) => {
        silence(events, child)
        return undefined
      }
      c.release(parent)
    },
    'a lease outlives its end': c => {
      const lease = c.acquire('a', 'x')
      const it = findLease(c.state, lease)!
      c.tamper = state => {
        state.leases.set(lease - state.origin, it)
        return undefined
      }
      c.release(lease)
    },
    'a resource is held by a lease that is gone': c => {
      const lease = c.acquire('a', 'x')
      c.state.leases.delete(lease - c.state.origin)
      c.referee.checkWhole()
    },
  },
)

cases(
  'S15',
  {
    'all units are granted': c => {
      c.policy('p', { capacity: 2 })
      for (const who of ['a', 'b']) c.acquire(who, 'p')
    },
    'grants exceed a capacity that was reduced after them': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.acquire('c', 'p', { wait: true })
      c.release(first!)
    },
    'a lease is transferred after the capacity was reduced': c => {
      c.policy('p', { capacity: 2 })
      const [first] = ['a', 'b'].map(who => c.acquire(who, 'p'))
      c.policy('p', { capacity: 1 })
      c.referee.givenUp.add(first!)
      c.do({ kind: 'transfer', lease: first!, to: 'c', stopped: true })
    },
    'readers take no units': c => {
      for (const who of ['a', 'b', 'c']) c.acquire(who, [], { wants: [{ resource: 'x', shared: true }] })
    },
    'a larger capacity grants a waiter at once': c => {
      c.acquire('a', 'p')
      c.acquire('b', 'p', { wait: true })
      c.policy('p', { capacity: 2 })
    },
  },
  {
    'one unit too many is granted': c => {
      c.acquire('a', 'x')
      c.state.resources.get('x')!.used = 0
      c.acquire('b', 'x')
    },
    'a writer is granted beside readers': c => {
      c.policy('x', { capacity: 2 })
      c.acquire('a', [], { wants: [{ resource: 'x', shared: true }] })
      c.state.resources.get('x')!.sharers = 0
      c.acquire('b', 'x')
    },
  },
)
