/** Corrections that are planted back, and found by the scenes of the profile `cases` (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['cases'] as const

export const CASE_BUGS: readonly Planted[] = [
  {
    name: 'a survivor that has not read all lost records reuses their numbers',
    file: 'src/kernel/rule/govern.js',
    find: 'raiseCounters(state);',
    put: '{}',
    expected: ['S3', 'S6', 'S7'],
    profiles,
  },
  {
    name: 'a lease that gave back its member is preempted all the same',
    file: 'src/kernel/rule/end.js',
    find: `endNotice(state, lease);
        cancelTimer(effects, lease, PREEMPT);`,
    put: '',
    expected: ['S14'],
    profiles,
  },
  {
    name: 'the send time of a renewal by a second thread is computed back from a validity that changes',
    file: 'src/holder/held-lease.js',
    find: 'this.sent = { number: this.sent.number, now: renewal.now, uptime: renewal.uptime };',
    put: 'const off = renewal.term * 0.99 - this.validity; this.sent = { number: this.sent.number, now: renewal.now + off, uptime: renewal.uptime + off };',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'a restored log grants before terms that the backup does not know are over',
    file: 'src/replica/restore.js',
    find: 'Math.max(longestTtl ?? 0, longest(target.state), longest(backup))',
    put: 'Math.max(longest(target.state), longest(backup))',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'a face trusts the mark of a lease whose resource was released',
    file: 'src/face/kubernetes/lease-objects.js',
    find: "return status !== 'frozen' && grants.some(grant => grant.resource === resource);",
    put: 'return true;',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'an acquire whose caller has gone is not sent again',
    file: 'src/holder/operations.js',
    find: 'if (late !== undefined && (uncertain || isUnknown(error)))',
    put: 'if (false)',
    expected: ['L1'],
    profiles,
  },
  {
    name: 'a request to a pool that does not wait is refused what one that waits gets at once',
    file: 'src/kernel/rule/acquire.js',
    find: 'const joins = !mustWait && wouldBeServed(',
    put: 'const joins = false && wouldBeServed(',
    expected: ['S10'],
    profiles,
  },
  {
    name: 'a renewal with a ttl goes beyond what the policy for an entry allows',
    file: 'src/kernel/rule/renew.js',
    find: `for (const key of entries ?? [])
        most = Math.min(most, rule(state, key, 'ttlMax'));`,
    put: '',
    expected: ['S5'],
    profiles,
  },
  {
    name: 'the notice of a lease that was passed on is not taken back when its waiter has gone',
    file: 'src/kernel/rule/pool/holders.js',
    find: `if (claim.notice !== 0)
        markPool(state, pool);`,
    put: '',
    expected: ['S14'],
    profiles,
  },
  {
    name: 'a waiter that has gone still counts against the limit of its key',
    file: 'src/kernel/state/key-use.js',
    find: 'change(state, lease.key, { ...pendingUse(lease), waiters: 1 }, -1)',
    put: 'change(state, lease.key, pendingUse(lease), -1)',
    expected: ['S10'],
    profiles,
  },
  {
    name: 'the limit of a key on its waiters is not looked at',
    file: 'src/kernel/rule/key-limit.js',
    find: 'waiters: waits ? 1 : 0,',
    put: 'waiters: 0,',
    expected: ['S10'],
    profiles,
  },
]
