/** The referee judges who may act on a lease, and what a key allows. */
import { expect } from 'vitest'
import { findLease } from '../../src/kernel/state/leases.ts'
import { cases, type RefereedWorld } from '../support/sim/refereed-world.ts'

/** A lease that its holder transferred, with a key, to a name without a known process. */
function given(c: RefereedWorld, key: number): number {
  const lease = c.acquire('a', 'x', {}, { key })
  c.referee.givenUp.add(lease)
  return (c.do({ kind: 'transfer', lease, to: 'heir', stopped: true }, { key }) as { id: number }).id
}

cases(
  'S7',
  {
    'a holder releases its lease': c => void c.release(c.acquire('a', 'x')),
    'an operator revokes a lease': c => void c.revoke(c.acquire('a', 'x')),
    'a lease is renewed with its own key': c => {
      const key = c.key('x')
      expect(c.renew(c.acquire('a', 'x', {}, { key }), key)).toMatchObject({ ttls: [1_000] })
    },
    'a renewal with another key finds no lease': c => {
      const [mine, other] = [c.key('x'), c.key('x')]
      expect(c.renew(c.acquire('a', 'x', {}, { key: mine }), other)).toMatchObject({ ttls: [-1] })
    },
    'a process with the store renews the lease of a key': c => {
      const key = c.key('x')
      c.renew(c.acquire('a', 'x', {}, { key }))
    },
    'a late release arrives when another holder has the resource': c => {
      const lease = c.acquire('a', 'x')
      c.due(lease)
      c.acquire('b', 'x')
      c.release(lease)
    },
    'a lease transferred to a name is claimed with a key that allows it': c => {
      const [giver, taker] = [c.key('x'), c.key('x')]
      expect(c.renew(given(c, giver), taker)).toMatchObject({ ttls: [1_000] })
    },
    'a claim with a key that does not allow the lease is refused': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      expect(c.renew(given(c, giver), stranger)).toMatchObject({ ttls: [-1] })
    },
  },
  {
    'a lease transferred to a name is claimed with a key that does not allow it': c => {
      const [giver, stranger] = [c.key('x'), c.key('y')]
      const lease = given(c, giver)
      c.tamper = state => {
        findLease(state, lease)!.key = stranger
        return { kind: 'renewed', revision: 0, ttls: [1_000] }
      }
      c.renew(lease, stranger)
    },
    'another process releases a lease': c => void c.do({ kind: 'release', lease: c.acquire('a', 'x') }),
    'a lease is renewed with another key': c => {
      const lease = c.acquire('a', 'x', {}, { key: c.key('x') })
      const other = c.key('x')
      c.tamper = () => ({ kind: 'renewed', revision: 0, ttls: [1_000] })
      c.renew(lease, other)
    },
    'another holder takes an entry': c => {
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('b', 'e')
    },
  },
)

cases(
  'S25',
  {
    'a key allows the resource with the name of its prefix': c => void c.acquire('a', 'x', {}, { key: c.key('x') }),
    'a key allows a resource under its prefix': c => void c.acquire('a', 'x/y/z', {}, { key: c.key('x') }),
    'a key does not allow a name that only begins with the letters of its prefix': c =>
      expect(c.acquire('a', 'xy', {}, { key: c.key('x') })).toBe(0),
    'a key with an empty prefix allows everything': c => void c.acquire('a', 'y', {}, { key: c.key('') }),
    'a process with the store needs no key': c => {
      c.key('x')
      c.acquire('a', 'y')
    },
    'a process with the store transfers the lease of a revoked key': c => {
      const key = c.key('x')
      const lease = c.acquire('a', 'x', {}, { key })
      c.do({ kind: 'unkey', id: key })
      c.referee.givenUp.add(lease)
      c.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    },
  },
  {
    'a key allows more than its prefixes': c => {
      const key = c.key('x')
      c.state.keys.set(key, { ...c.state.keys.get(key)!, allow: [{ verb: 'acquire', prefix: '' }] })
      c.acquire('a', 'y', {}, { key })
    },
  },
)
