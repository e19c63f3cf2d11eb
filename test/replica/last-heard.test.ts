import { expect, test } from 'vitest'
import { LeaseState } from '../../src/kernel/state/lease-state.ts'
import { LastHeard } from '../../src/replica/last-heard.ts'

const NOW = 1_000_000

/** A lease whose term counts from now: how long it was silent depends on the records only. */
function found(id: number): LeaseState {
  const lease = new LeaseState({ id, holder: { name: 'h', process: 0, leases: 1 }, key: 0, ttl: 1_000, status: 0, run: 0, since: 0 })
  lease.zero = NOW
  return lease
}

test('a lease is silent since the record that acquired or last renewed it, or since the snapshot that had it', () => {
  const heard = new LastHeard()
  heard.load(NOW, 9_000, 10)
  const [loaded, renewedOnly, ...acquired] = [3, 4, 10, 11, 12, 20].map(found) as [LeaseState, LeaseState, ...LeaseState[]]
  heard.entering(NOW, 5_000)
  for (const lease of acquired.slice(0, 2)) heard.acquired(lease)
  heard.entering(NOW, 4_000)
  heard.renewed(acquired[0]!)
  heard.renewed(renewedOnly)
  heard.entering(NOW, 3_000)
  for (const lease of acquired.slice(2)) heard.acquired(lease)
  const silences = [loaded, renewedOnly, ...acquired].map(lease => heard.silence(lease, NOW))
  expect(silences).toEqual([9_000, 4_000, 4_000, 5_000, 3_000, 3_000])
})

test('a lease that has come from another log, with an id below those that this log has given, is silent since its own record', () => {
  const heard = new LastHeard()
  heard.load(NOW, 9_000, 10)
  const [own, other] = [found(10), found(2)]
  heard.entering(NOW, 5_000)
  heard.acquired(own)
  heard.entering(NOW, 3_000)
  heard.acquired(other)
  expect([own, other, found(3)].map(lease => heard.silence(lease, NOW))).toEqual([5_000, 3_000, 9_000])
})

test('nothing is known of a lease whose record was written by a clock that was set back, and a state that is loaded later begins anew', () => {
  const heard = new LastHeard()
  heard.load(NOW, 9_000, 10)
  heard.entering(NOW, -60_000)
  heard.acquired(found(10))
  heard.entering(NOW, 3_000)
  heard.acquired(found(11))
  expect([10, 11].map(id => heard.silence(found(id), NOW))).toEqual([Number.POSITIVE_INFINITY, 3_000])
  heard.load(NOW, 2_000, 12)
  expect([10, 11].map(id => heard.silence(found(id), NOW))).toEqual([2_000, 2_000])
})
