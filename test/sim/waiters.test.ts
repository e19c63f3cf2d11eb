/** The referee judges queues: the order of waiters, and whether free resources are granted. */
import { expect } from 'vitest'
import { LeaseState } from '../../src/kernel/state/lease-state.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { cases, plain } from '../support/sim/refereed-world.ts'

cases(
  'S14',
  {
    'the recipient of a transfer is granted before waiters': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'transfer', lease, to: 'heir' })
      c.due(lease)
    },
    'a waiter with higher priority is granted first': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.acquire('c', 'x', { wait: true, priority: 1 })
      c.release(lease)
    },
    'a waiter that fits overtakes a waiter that needs more': c => {
      c.policy('p', { capacity: 2, queue: 'fit' })
      c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      expect(c.acquire('c', 'p')).not.toBe(0)
    },
    'a waiter that has waited long is granted before one with higher priority': c => {
      c.policy('x', { aging: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'tick', n: 1, elapsed: 1_000 })
      c.acquire('c', 'x', { wait: true, priority: 2 })
      c.release(lease)
    },
    'a waiter whose key was revoked is skipped': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true }, { key })
      c.acquire('c', 'x', { wait: true })
      c.do({ kind: 'unkey', id: key })
      c.release(lease)
    },
    'a waiter for two resources delays a waiter for one of them': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('a', 'y')]
      c.acquire('b', ['x', 'y'], { wait: true })
      c.acquire('c', 'x', { wait: true })
      c.release(x)
      c.release(y)
    },
  },
  {
    'the second waiter is granted before the first': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      const second = c.acquire('c', 'x', { wait: true })
      const waiter = c.state.resources.get('x')!.queue[0]!
      const first = Object.assign(new LeaseState(waiter), waiter, { extras: { ...waiter.extras! } })
      c.tamper = (state, events) => {
        state.resources.get('x')!.queue.unshift(first)
        for (const [i, event] of events.entries()) if (event.type === 'granted') events[i] = { ...event, lease: second }
        return undefined
      }
      c.release(lease)
    },
    'a waiter whose key was revoked is granted': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x')
      const waiter = findLease(c.state, c.acquire('b', 'x', { wait: true }, { key }))!
      // As if its place in the queue had not been removed.
      waiter.key = 0
      c.do({ kind: 'unkey', id: key })
      waiter.key = key
      c.release(lease)
    },
    'a waiter that was withdrawn is granted': c => {
      c.acquire('a', 'x')
      const gone = c.acquire('b', 'x', { wait: true })
      c.release(gone)
      c.tamper = (_, events) => {
        events[0] = { ...events[0]!, lease: gone }
        return undefined
      }
      c.acquire('c', 'y')
    },
    'a waiter has a rank that does not follow from its priority': c => {
      c.acquire('a', 'x')
      c.tamper = state => {
        state.resources.get('x')!.queue[0]!.extras!.rank = 5
        return undefined
      }
      c.acquire('b', 'x', { wait: true })
    },
  },
)

cases(
  'L1',
  {
    'the resource is held': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
    },
    'one of two resources is free': c => {
      c.acquire('a', 'x')
      c.acquire('b', ['x', 'y'], { wait: true })
    },
    'the log is in its quiet time after a loss': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.do({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 1_000 })
      c.release(lease)
    },
    'no waiter fits since the capacity was reduced': c => {
      c.policy('p', { capacity: 2 })
      const lease = c.acquire('a', 'p')
      c.acquire('b', [], { wants: [{ resource: 'p', units: 2 }], wait: true })
      c.policy('p', { capacity: 1 })
      c.release(lease)
    },
    'a frozen resource is not free': c => {
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.revoke(lease)
    },
    'a lock-delay follows a lapse': c => {
      c.policy('x', { lockDelay: 100 })
      const lease = c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.due(lease)
    },
  },
  {
    'a free resource is not granted to its waiter': c => {
      c.acquire('a', 'x')
      c.acquire('b', 'x', { wait: true })
      c.tamper = state => {
        state.resources.get('x')!.held = []
        return undefined
      }
      c.do({ kind: 'recall', resource: 'x' })
    },
    'two resources are free, and the first waiter for both is not granted them': c => {
      const lease = c.acquire('a', ['x', 'y'])
      c.acquire('b', ['x', 'y'], { wait: true })
      findLease(c.state, lease)!.held = []
      for (const name of ['x', 'y']) c.state.resources.get(name)!.held = []
      c.referee.checkWhole()
    },
    'a released resource is withheld': c => {
      const lease = c.acquire('a', 'x')
      const it = findLease(c.state, lease)!
      c.tamper = state => {
        it.status = 3
        state.leases.set(lease - state.origin, it)
        return undefined
      }
      c.release(lease)
    },
    'a request closes a waiting cycle': c => {
      const [x, y] = [c.acquire('a', 'x'), c.acquire('b', 'y')]
      c.acquire('a', 'y', { wait: true, holding: [x] })
      const b = c.acquire('b', 'x', { wait: true })
      c.tamper = () => ({ kind: 'queued', revision: 0, lease: b, incarnation: 1, ttl: 1_000, position: 0 })
      c.do({ ...plain('b', 'x'), wait: true, holding: [y] })
    },
  },
)
