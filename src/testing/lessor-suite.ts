/**
 * The contract of a lessor as test cases, for a local replica or a remote server on any store. The suite needs no test runner: each case has
 * a name that is a sentence, and a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of lessorSuite(openFixture)) test(name, run)
 * ```
 *
 * The suite uses lessors only through their contract, and lets time pass only through the fixture. With a manual clock that takes no time,
 * with a real one a few seconds.
 */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { pause, systemClock } from '../clock.ts'
import { type ErrorCode, LeaseError } from '../errors.ts'
import type { Acquire, Command, Operation, PolicyRules, Scope } from '../kernel/command.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { type Done, GONE, type Granted, type Outcome, type Queued, type RefusalCode, type Refused } from '../kernel/outcome.ts'
import type { ListPart } from '../lessor/list-part.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor, ProposeOptions, Query, WatchOptions } from '../lessor.ts'
import type { SuiteCase } from './store-suite.ts'

/** One fresh, empty log. */
export interface LessorFixture extends AsyncDisposable {
  /** Opens one more lessor on the log, as another process would. The suite closes it. */
  lessor(): Promise<Lessor>
  /** Lets this much time pass for every lessor, and timers that expire meanwhile fire. */
  advance(ms: number): Promise<void>
  /** Only one lessor can be open at a time: the suite uses it for both parts. */
  readonly alone?: boolean
  /** A lapse may be this late, in ms. Default: 200. */
  readonly late?: number
  /** The number of events kept for watches that resume. If given, the suite also tests what happens beyond it. */
  readonly keeps?: number
  /** Restarts what is behind the lessors. Left out: closing them all does that. */
  restart?(): Promise<void>
}

/** Ends a case that hangs; no case waits for it. */
const TIMEOUT = 60_000
/** Long enough not to expire within a case. */
const LONG = 600_000
const SHORT = 1_000

export function lessorSuite(open: () => Promise<LessorFixture>): SuiteCase[] {
  return Object.entries(sentences).map(([name, check]) => ({
    name,
    run: async () => {
      await using fixture = await open()
      await using log = new LessorLog(fixture)
      await check(log)
    },
  }))
}

const sentences: Record<string, (log: LessorLog) => Promise<void>> = {
  // Commands

  'a grant has a lease, an incarnation, a ttl, and a token for each resource in the order asked for': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['b', 'a'], { ttl: SHORT })))
    assert.deepEqual(lease.resources, ['b', 'a'])
    assert.equal(lease.ttl, SHORT)
    assert.equal(lease.incarnation, lease.lease)
    assert.ok(lease.tokens[0]! < lease.tokens[1]!)
    const { value, revision } = await lessor.read({ kind: 'lease', lease: lease.lease }, { atLeast: lease.revision })
    assert.equal(revision, lease.revision)
    assert.equal(value?.holder, 'ann')
    assert.deepEqual(
      value.grants.map(({ resource, token }) => [resource, token]),
      [
        ['b', lease.tokens[0]],
        ['a', lease.tokens[1]],
      ],
    )
  },

  'a transaction changes entries in one revision, all or none, and only if its comparisons are true': async log => {
    const [one, other] = [await log.open(), await log.other()]
    const change = { kind: 'transaction', success: [{ key: 'kv/a', value: '1' }, { key: 'kv/b' }] } as const
    const refused = await propose(one, change)
    assert.ok(refused.kind === 'refused' && refused.code === 'INVALID', 'no policy allows it')
    await propose(one, { kind: 'policy', prefix: 'kv', rules: { freeEntries: 2 } })
    const lease = granted(await propose(one, acquire('ann', [], { ttl: LONG })))
    const made = await propose(one, change)
    assert.deepEqual(made, { kind: 'transacted', revision: lease.revision + 1, succeeded: true })
    const isNew = { key: 'kv/a', field: 'created', is: 'equal' } as const
    const failure = [
      { key: 'kv/a', value: '2', lease: lease.lease },
      { key: 'kv/b', delete: true },
    ]
    const second = await propose(other, { kind: 'transaction', compare: [isNew], success: [{ key: 'kv/c' }], failure })
    assert.deepEqual(second, { kind: 'transacted', revision: lease.revision + 2, succeeded: false })
    const { value } = await other.read({ kind: 'entries', prefix: 'kv' }, { consistent: true })
    assert.deepEqual(
      value.map(({ key, value: text, lease: on, created, revision, version }) => [key, text, on, created, revision, version]),
      [['kv/a', '2', lease.lease, made.revision, second.revision, 2]],
    )
    await propose(one, { kind: 'transaction', success: [{ key: 'kv/free', value: 'stays' }] })
    await propose(one, { kind: 'release', lease: lease.lease })
    const left = await other.read({ kind: 'entries', prefix: 'kv' }, { consistent: true })
    assert.deepEqual(
      left.value.map(({ key, lease: on, holder, status }) => [key, on, holder, status]),
      [['kv/free', 0, '', 'live']],
    )
  },

  'every change has a revision of its own, and a command that changed nothing has the last one': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = granted(await propose(lessor, acquire('ann', ['b'])))
    assert.equal(second.revision, first.revision + 1)
    const held = refused('HELD', await propose(lessor, acquire('bob', ['a'])))
    assert.equal(held.revision, second.revision)
    const renewed = await propose(lessor, { kind: 'renew', leases: [first.lease] })
    assert.equal(renewed.revision, second.revision)
    assert.equal(done(await propose(lessor, { kind: 'release', lease: first.lease })).revision, second.revision + 1)
  },

  'tokens and ids only grow, across releases, other resources and a restart': async log => {
    let lessor = await log.open()
    let last = { lease: 0, token: 0 }
    for (let i = 0; i < 12; i++) {
      if (i === 6) lessor = await log.restart()
      const lease = granted(await propose(lessor, acquire('ann', [i % 3 === 0 ? 'a' : `a/${i}`])))
      assert.ok(lease.lease > last.lease && lease.tokens[0]! > last.token, JSON.stringify({ lease, last }))
      last = { lease: lease.lease, token: lease.tokens[0]! }
      done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    }
  },

  'a caller that changes a command object after proposing it changes nothing': async log => {
    const lessor = await log.open()
    const rules = { capacity: 2 }
    const wants = [{ resource: 'pool', units: 2 }]
    const answers = [
      propose(lessor, { kind: 'policy', prefix: 'pool', rules }),
      propose(lessor, { kind: 'acquire', holder: 'ann', ttl: LONG, wants }),
    ] as const
    rules.capacity = 1
    wants[0]!.resource = 'other'
    done(await answers[0])
    assert.deepEqual(granted(await answers[1]).resources, ['pool'])
    const { value } = await lessor.read({ kind: 'resource', resource: 'pool' }, { consistent: true })
    assert.equal(value.capacity, 2)
    const again = await log.restart()
    assert.deepEqual(await holders(again, 'pool'), ['ann'])
    assert.equal((await again.read({ kind: 'resource', resource: 'pool' }, { consistent: true })).value.capacity, 2)
  },

  'several resources are granted all or none': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['b'])))
    const held = refused('HELD', await propose(lessor, acquire('bob', ['a', 'b', 'c'])))
    assert.equal(held.facts.resource, 'b')
    assert.equal(held.facts.holder, 'ann')
    assert.deepEqual(await holders(lessor, 'a'), [])
    assert.deepEqual(await holders(lessor, 'c'), [])
    granted(await propose(lessor, acquire('bob', ['a', 'c'])))
  },

  'any k of a set are granted as soon as k are free': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    assert.deepEqual(granted(await propose(lessor, acquire('bob', ['a', 'b', 'c'], { any: 2 }))).resources, ['b', 'c'])
    refused('HELD', await propose(lessor, acquire('eve', ['a', 'b', 'c'], { any: 1 })))
  },

  'a lease without resources carries entries, labels and children': async log => {
    const lessor = await log.open()
    const parent = granted(
      await propose(lessor, acquire('ann', [], { entries: [{ key: 'service/a', value: 'here' }], labels: [['zone', 'x']] })),
    )
    const child = granted(await propose(lessor, acquire('ann', ['a'], { parent: parent.lease, incarnation: parent.incarnation })))
    const { value } = await lessor.read({ kind: 'lease', lease: parent.lease }, { consistent: true })
    assert.deepEqual(value?.entries, [{ key: 'service/a', value: 'here' }])
    assert.deepEqual(value.labels, [['zone', 'x']])
    assert.deepEqual(value.children, [child.lease])
    assert.equal(child.incarnation, parent.incarnation)
  },

  'a long grant begins with a short ttl, and has its whole ttl after the first renewal': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    assert.equal(lease.ttl, 30_000)
    assert.deepEqual(await renew(lessor, lease.lease), [LONG])
  },

  'renewing many leases says for each, in order, its ttl or that it is gone': async log => {
    const lessor = await log.open()
    const a = granted(await propose(lessor, acquire('ann', ['a'], { ttl: 5_000 })))
    const b = granted(await propose(lessor, acquire('ann', ['b'], { ttl: 6_000 })))
    const c = granted(await propose(lessor, acquire('ann', ['c'], { ttl: 7_000 })))
    done(await propose(lessor, { kind: 'release', lease: b.lease }))
    assert.deepEqual(await renew(lessor, a.lease, b.lease, c.lease, c.lease + 1_000), [5_000, GONE, 7_000, GONE])
    assert.deepEqual(await renew(lessor), [])
    assert.deepEqual(await renew(lessor, c.lease, a.lease), [7_000, 5_000])
  },

  'a command with too many renewals is refused as a whole': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    assert.deepEqual(await renew(lessor, lease.lease), [LONG])
    refused('LIMIT', await propose(lessor, { kind: 'renew', leases: Array<number>(10_001).fill(lease.lease) }))
    assert.equal(ttls(await propose(lessor, { kind: 'renew', leases: Array<number>(10_000).fill(lease.lease) })).length, 10_000)
  },

  'renewing only waiting leases does not renew a lease that was granted meanwhile': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true, ttl: 5_000 })))
    const ask = { kind: 'renew', leases: [first.lease, second.lease], waiting: true } as const
    assert.deepEqual(ttls(await propose(lessor, ask)), [0, 5_000])
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(ttls(await propose(lessor, ask)), [GONE, 0])
  },

  'a lease is released whole or grant by grant, and only once': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a', 'b'])))
    done(await propose(lessor, { kind: 'release', lease: lease.lease, resource: 'a' }))
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease, resource: 'a' }))
    assert.deepEqual(await holders(lessor, 'a'), [])
    assert.deepEqual(await holders(lessor, 'b'), ['ann'])
    done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease }))
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
  },

  'one release ends a lease and its descendants in one revision, and frees those that their holder has stopped using': async log => {
    const lessor = await log.open()
    const parent = granted(await propose(lessor, acquire('ann', ['a'])))
    const child = granted(await propose(lessor, acquire('ann', ['b'], { parent: parent.lease, entries: [{ key: 'e', value: 'v' }] })))
    const grandchild = granted(await propose(lessor, acquire('ann', ['c'], { parent: child.lease })))
    const foreign = granted(await propose(lessor, acquire('bob', ['d'], { parent: parent.lease })))
    await using watcher = log.watch(lessor, '', foreign.revision)
    const stopped = [child.lease, grandchild.lease]
    const { revision } = done(await propose(lessor, { kind: 'release', lease: parent.lease, stopped }))
    assert.equal(revision, foreign.revision + 1)
    assert.deepEqual(types(await watcher.at(revision)), [
      'released a ann',
      'released b ann',
      'deleted e ann',
      'released c ann',
      'revoked d bob',
      'frozen d bob',
    ])
    granted(await propose(lessor, acquire('eve', ['a', 'b', 'c'])))
    // Its holder has not said that it stopped, so it may still use it.
    refused('HELD', await propose(lessor, acquire('eve', ['d'])))
    done(await propose(lessor, { kind: 'release', lease: foreign.lease }))
    granted(await propose(lessor, acquire('eve', ['d'])))
  },

  'waiters are granted in order, each in the revision that frees the resource': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, '', first.revision)
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    const third = queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    assert.deepEqual([second.position, third.position], [0, 1])
    const { revision } = done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(types(await watcher.at(revision)), ['released a ann', 'granted a bob'])
    const { value } = await lessor.read({ kind: 'resource', resource: 'a' }, { atLeast: revision })
    assert.deepEqual(
      value.queue.map(({ holder, position }) => [holder, position]),
      [['eve', 0]],
    )
  },

  'a higher priority goes first': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true, priority: 5 })))
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
  },

  'a waiter that gave up is never granted': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    done(await propose(lessor, { kind: 'release', lease: second.lease }))
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
    assert.deepEqual(await renew(lessor, second.lease), [GONE])
  },

  'shared holders do not exclude each other, and exclude exclusive holders': async log => {
    const lessor = await log.open()
    for (const holder of ['ann', 'bob'])
      granted(await propose(lessor, { kind: 'acquire', holder, ttl: LONG, wants: [{ resource: 'a', shared: true }] }))
    refused('HELD', await propose(lessor, acquire('eve', ['a'])))
  },

  'units are granted up to the capacity of the policy, and never above it': async log => {
    const lessor = await log.open()
    done(await propose(lessor, policy('gpu', { capacity: 4 })))
    const take = (holder: string, units: number): Command => ({ kind: 'acquire', holder, ttl: LONG, wants: [{ resource: 'gpu/0', units }] })
    const three = granted(await propose(lessor, take('ann', 3)))
    refused('HELD', await propose(lessor, take('bob', 2)))
    granted(await propose(lessor, take('bob', 1)))
    refused('INVALID', await propose(lessor, take('eve', 5)))
    done(await propose(lessor, { kind: 'release', lease: three.lease }))
    granted(await propose(lessor, take('eve', 3)))
  },

  'entries are put, changed and deleted, and belong to their holder': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', [])))
    const other = granted(await propose(lessor, acquire('bob', [])))
    const first = done(await propose(lessor, { kind: 'put', lease: lease.lease, key: 'service/a', value: 'one' }))
    const second = done(await propose(lessor, { kind: 'put', lease: lease.lease, key: 'service/a', value: 'two' }))
    assert.equal(second.revision, first.revision + 1)
    refused('HELD', await propose(lessor, { kind: 'put', lease: other.lease, key: 'service/a', value: 'mine' }))
    refused('STALE', await propose(lessor, { kind: 'delete', key: 'service/a', lease: other.lease }))
    const { value } = await lessor.read({ kind: 'entries', prefix: 'service' }, { consistent: true })
    assert.deepEqual(
      value.map(({ key, value: text, holder, revision }) => [key, text, holder, revision]),
      [['service/a', 'two', 'ann', second.revision]],
    )
    done(await propose(lessor, { kind: 'delete', key: 'service/a', lease: lease.lease }))
    refused('NOT_FOUND', await propose(lessor, { kind: 'delete', key: 'service/a' }))
  },

  'registrations are counted by service, and an older generation never overwrites a newer one': async log => {
    const lessor = await log.open()
    const entry = (instance: string, generation?: number) => {
      return { key: `services/web/${instance}`, value: '{}', ...(generation !== undefined && { generation }) }
    }
    granted(await propose(lessor, acquire('ann', [], { entries: [entry('1', 2), entry('2')] })))
    const held = refused('HELD', await propose(lessor, acquire('bob', [], { entries: [entry('2')] })))
    assert.equal(held.facts.holder, 'ann')
    refused('STALE', await propose(lessor, acquire('bob', [], { entries: [entry('1', 1)] })))
    const bob = granted(await propose(lessor, acquire('bob', [], { entries: [entry('2', 1)] })))
    const { value } = await lessor.read({ kind: 'services' }, { consistent: true })
    assert.deepEqual(value, [{ service: 'web', instances: 2, suspect: 0, suppressed: 0, preserving: false, since: 0, removed: 0 }])
    assert.deepEqual((await lessor.read({ kind: 'services', service: 'other' })).value, [])
    const { value: entries } = await lessor.read({ kind: 'entries', prefix: 'services/web' }, { consistent: true })
    assert.deepEqual(
      entries.map(({ key, holder, generation, suppressed }) => [key, holder, generation, suppressed]),
      [
        ['services/web/1', 'ann', 2, false],
        ['services/web/2', 'bob', 1, false],
      ],
    )
    done(await propose(lessor, { kind: 'put', lease: bob.lease, ...entry('2', 3) }))
    refused('STALE', await propose(lessor, { kind: 'put', lease: bob.lease, ...entry('2', 2) }))
  },

  'a lease, a holder and a prefix can be revoked; without a match it is NOT_FOUND': async log => {
    const lessor = await log.open()
    const a = granted(await propose(lessor, acquire('ann', ['jobs/a'])))
    granted(await propose(lessor, acquire('bob', ['jobs/b', 'other'])))
    granted(await propose(lessor, acquire('eve', ['jobs/c'])))
    granted(await propose(lessor, acquire('eve', ['jobsuite'])))
    refused('NOT_FOUND', await propose(lessor, { kind: 'revoke', target: { holder: 'absent' } }))
    refused('GONE', await propose(lessor, { kind: 'revoke', target: { lease: a.lease + 1_000 } }))
    done(await propose(lessor, { kind: 'revoke', target: { lease: a.lease }, force: true }))
    done(await propose(lessor, { kind: 'revoke', target: { holder: 'bob' }, force: true }))
    done(await propose(lessor, { kind: 'revoke', target: { prefix: 'jobs/' }, force: true }))
    const { value } = await lessor.read({ kind: 'leases' }, { consistent: true })
    assert.deepEqual(
      value.flatMap(({ grants }) => grants.map(({ resource }) => resource)),
      ['jobsuite'],
    )
    const { value: past } = await lessor.read({ kind: 'history', resource: 'jobs/a' }, { consistent: true })
    assert.deepEqual(
      past.map(({ lease, cause }) => [lease, cause]),
      [[a.lease, 'revoked']],
    )
  },

  'a transfer by a holder that has stopped takes effect at once, under a new lease and a new token': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    const received = done(await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob', stopped: true })).id!
    const { value } = await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.lease, received)
    assert.equal(value.grants[0].holder, 'bob')
    assert.ok(value.grants[0].token > lease.tokens[0]!)
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
    refused('GONE', await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob' }))
  },

  'a transfer that the holder did not ask for waits until the holder has stopped, and goes before all waiters': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: SHORT })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    const received = done(await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob' })).id!
    assert.equal((await status(lessor, received)) ?? 'none', 'waiting')
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    await log.advance(SHORT / 2, { late: false })
    assert.deepEqual(await renew(lessor, received), [SHORT])
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    await log.advance(SHORT / 2)
    assert.deepEqual(await holders(lessor, 'a'), ['bob'])
  },

  'a break ends the holder when its time is over, and a second break can only shorten the time': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    await renew(lessor, lease.lease)
    done(await propose(lessor, { kind: 'break', resource: 'a', after: SHORT, by: 'ops' }))
    done(await propose(lessor, { kind: 'break', resource: 'a', after: LONG, by: 'ops' }))
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'live')
    await log.advance(SHORT)
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
    refused('NOT_FOUND', await propose(lessor, { kind: 'break', resource: 'free/resource' }))
  },

  'a recall tells the holder and takes nothing away': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, 'a', lease.revision)
    const { revision } = done(await propose(lessor, { kind: 'recall', resource: 'a', by: 'bob' }))
    const [event] = await watcher.at(revision)
    assert.equal(event?.type, 'recalled')
    assert.equal(event.by, 'bob')
    assert.equal((await lessor.read({ kind: 'lease', lease: lease.lease }, { atLeast: revision })).value?.recalled, true)
    refused('NOT_FOUND', await propose(lessor, { kind: 'recall', resource: 'b' }))
  },

  'a policy limits later commands, for whole segments, until it is deleted': async log => {
    const lessor = await log.open()
    done(await propose(lessor, policy('jobs', { ttlMax: 5_000 })))
    refused('INVALID', await propose(lessor, acquire('ann', ['jobs/a'], { ttl: 5_001 })))
    granted(await propose(lessor, acquire('ann', ['jobs/a'], { ttl: 5_000 })))
    granted(await propose(lessor, acquire('ann', ['jobsuite'], { ttl: 5_001 })))
    assert.deepEqual((await lessor.read({ kind: 'policies' }, { consistent: true })).value, [{ prefix: 'jobs', rules: { ttlMax: 5_000 } }])
    done(await propose(lessor, { kind: 'policy', prefix: 'jobs' }))
    refused('NOT_FOUND', await propose(lessor, { kind: 'policy', prefix: 'jobs' }))
    granted(await propose(lessor, acquire('ann', ['jobs/b'], { ttl: 5_001 })))
  },

  'a key may do what its scopes say, on its own leases, until it is revoked': async log => {
    const lessor = await log.open()
    const jobs = done(await propose(lessor, createKey('ci', [{ verb: 'acquire', prefix: 'jobs' }]))).id!
    const other = done(await propose(lessor, createKey('cd', [{ verb: 'acquire', prefix: '' }]))).id!
    const lease = granted(await propose(lessor, acquire('ann', ['jobs/a']), { key: jobs }))
    refused('FORBIDDEN', await propose(lessor, acquire('ann', ['jobsuite']), { key: jobs }))
    refused('FORBIDDEN', await propose(lessor, policy('jobs', { capacity: 2 }), { key: jobs }))
    assert.deepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: other })), [GONE])
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease }, { key: other }))
    assert.notDeepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: jobs })), [GONE])
    done(await propose(lessor, { kind: 'unkey', id: jobs }))
    refused('FORBIDDEN', await propose(lessor, acquire('ann', ['jobs/b']), { key: jobs }))
    assert.deepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: jobs })), [GONE])
    refused('NOT_FOUND', await propose(lessor, { kind: 'unkey', id: jobs }))
    assert.deepEqual(
      (await lessor.read({ kind: 'keys' }, { consistent: true })).value.map(({ name }) => name),
      ['cd'],
    )
  },

  'a fence accepts a token until it has seen a newer one': async log => {
    const lessor = await log.open()
    const tokens: number[] = []
    for (const holder of ['ann', 'bob']) {
      const lease = granted(await propose(lessor, acquire(holder, ['a'])))
      tokens.push(lease.tokens[0]!)
      done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    }
    const show = (token: number) => propose(lessor, { kind: 'fence', resource: 'a', token })
    assert.equal((await show(tokens[0]!)).kind, 'fenced')
    assert.equal((await show(tokens[1]!)).kind, 'fenced')
    assert.equal(refused('STALE', await show(tokens[0]!)).facts.highest, tokens[1])
    assert.equal((await show(tokens[1]!)).kind, 'fenced')
    refused('INVALID', await show(tokens[1]! + 1_000))
    assert.equal((await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })).value.fence, tokens[1])
  },

  'commands that only replicas write are refused to clients': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    const internal: Command[] = [
      { kind: 'due', timer: lease.lease * 8, epoch: 1 },
      { kind: 'aged', marks: [{ timer: lease.lease * 8, epoch: 1, ms: LONG }] },
      { kind: 'aged-together', run: 1, ms: LONG },
      { kind: 'run', owned: true },
      { kind: 'tick', n: 1, elapsed: 1 },
    ]
    for (const command of internal) refused('INVALID', await propose(lessor, command))
    assert.deepEqual(await holders(lessor, 'a'), ['ann'])
  },

  'a malformed command is INVALID, says why, and changes nothing': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    const wrong: unknown[] = [
      ...[0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, 1.5, '1000', null, 99, 86_400_001].map(ttl => ({
        ...acquire('ann', ['b']),
        ttl,
      })),
      ...['', '/b', 'b/', 'b//c', '.', 'b/../c', 'b\n', '\u0085', 'é'.repeat(257), 'x'.repeat(513), '\ud800', 7].map(name =>
        acquire('ann', [name as string]),
      ),
      acquire('', ['b']),
      acquire('ann', ['b', 'b']),
      acquire('ann', ['b'], { parent: lease.lease + 1_000 }),
      acquire('ann', ['b'], { incarnation: lease.lease + 1_000 }),
      acquire('ann', [], { wait: true }),
      acquire('ann', ['a'], { wait: true, holding: [lease.lease] }),
      { ...acquire('ann', ['b']), wants: [{ resource: 'b', units: 2 }] },
      { ...acquire('ann', ['b']), wants: 'b' },
      { ...acquire('ann', ['b']), colour: 'blue' },
      { kind: 'renew', leases: [1.5] },
      { kind: 'renew', leases: lease.lease },
      { kind: 'release' },
      { kind: 'release', lease: 0 },
      { kind: 'put', lease: lease.lease, key: '../etc', value: 'x' },
      { kind: 'put', lease: lease.lease, key: 'b', value: 'x'.repeat(20_000) },
      { kind: 'revoke', target: {} },
      { kind: 'revoke', target: { holder: 'ann', prefix: 'a' } },
      { kind: 'transfer', lease: lease.lease, to: '' },
      { kind: 'break', resource: 'a', after: -1 },
      { kind: 'policy', prefix: 'a', rules: { ttlMin: 10, ttlMax: 5 } },
      { kind: 'policy', prefix: '/', rules: {} },
      { kind: 'key', name: 'ci', hash: 'abc', allow: [] },
      { kind: 'key', name: 'ci', hash: 'a'.repeat(64), allow: [{ verb: 'fly', prefix: '' }] },
      { kind: 'fence', resource: 'a', token: 0 },
      { kind: 'steal' },
      { kind: 'constructor' },
      {},
      null,
      'acquire',
    ]
    for (const command of wrong) {
      const answer = await propose(lessor, command as Command)
      assert.ok(answer.kind === 'refused' && answer.code === 'INVALID', `${JSON.stringify(command)}: ${JSON.stringify(answer)}`)
      assert.ok(answer.reason.length > 3, JSON.stringify(answer))
    }
    const after = await lessor.read({ kind: 'summary' }, { consistent: true })
    assert.equal(after.revision, revision)
    assert.equal(after.value.leases, 1)
    granted(await propose(lessor, acquire('bob', ['b'])))
  },

  'a malformed operation or key is INVALID, and does not affect other proposals made at the same time': async log => {
    const lessor = await log.open()
    const wrong: unknown[] = [
      { op: { session: 's', seq: Number.NaN, acked: 0 } },
      { op: { session: 's', seq: -1, acked: 0 } },
      { op: { session: 's', seq: 1, acked: 0.5 } },
      { op: { session: 7, seq: 1, acked: 0 } },
      { op: { session: '\ud800', seq: 1, acked: 0 } },
      { op: { seq: 1, acked: 0 } },
      { key: -1 },
      { key: 0.5 },
      { key: 'ci' },
    ]
    const answers = wrong.flatMap((options, i) => [
      propose(lessor, acquire('bad', [`bad/${i}`]), options as ProposeOptions),
      propose(lessor, acquire('good', [`good/${i}`])),
    ])
    for (const [i, answer] of (await Promise.all(answers)).entries()) {
      if (i % 2 === 1) granted(answer)
      else refused('INVALID', answer)
    }
    const again = await log.restart()
    assert.equal((await again.read({ kind: 'leases', holder: 'good' }, { consistent: true })).value.length, wrong.length)
    assert.equal((await again.read({ kind: 'leases', holder: 'bad' }, { consistent: true })).value.length, 0)
  },

  'the rules version cannot be raised above the one that the lessor knows': async log => {
    const lessor = await log.open()
    const { rules } = (await lessor.read({ kind: 'summary' })).value
    const answer = await propose(lessor, { kind: 'upgrade', rules: rules + 1 })
    assert.equal(answer.kind, 'refused')
    granted(await propose(lessor, acquire('ann', ['a'])))
  },

  // One order for all lessors

  'after an acquisition is acknowledged, every lessor refuses; after its release is acknowledged, every lessor grants': async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 10; i++) {
      const [one, two] = i % 2 === 0 ? [a, b] : [b, a]
      const lease = granted(await propose(one, acquire('ann', ['a'])))
      const held = refused('HELD', await propose(two, acquire('bob', ['a'])))
      assert.ok(held.revision >= lease.revision)
      assert.equal(held.facts.holder, 'ann')
      assert.equal(held.facts.lease, lease.lease)
      done(await propose(one, { kind: 'release', lease: lease.lease }))
      const next = granted(await propose(two, acquire('bob', ['a'])))
      assert.ok(next.tokens[0]! > lease.tokens[0]!)
      done(await propose(one, { kind: 'release', lease: next.lease }))
      refused('GONE', await propose(two, { kind: 'release', lease: next.lease }))
    }
  },

  'of many concurrent requests for one resource, through any lessor, exactly one is granted': async log => {
    const [a, b] = await log.pair()
    const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => propose(i % 2 === 0 ? a : b, acquire(`holder-${i}`, ['a']))))
    const won = answers.filter(({ kind }) => kind === 'granted')
    assert.equal(won.length, 1)
    for (const answer of answers) if (answer.kind !== 'granted') refused('HELD', answer)
  },

  'the proposals of one lessor are decided in the order they were made': async log => {
    const lessor = await log.open()
    const asked: Promise<Outcome>[] = []
    for (let i = 0; i < 30; i++) {
      asked.push(propose(lessor, acquire(`w${i}`, ['a'], { wait: true })))
    }
    const answers = await Promise.all(asked)
    granted(answers[0]!)
    assert.deepEqual(
      answers.slice(1).map(answer => queued(answer).position),
      Array.from({ length: 29 }, (_, i) => i),
    )
  },

  // Operations

  'an operation that is sent twice has one effect and one answer, through any lessor and at any time': async log => {
    const [a, b] = await log.pair()
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const ask = acquire('ann', ['a'], { ttl: LONG })
    const first = granted(await propose(a, ask, { op }))
    assert.deepEqual(await propose(a, ask, { op }), first)
    assert.deepEqual(await propose(b, ask, { op }), first)
    assert.deepEqual(await propose(b, ask, { op: { ...op, again: true } }), first)
    const put = { kind: 'put', lease: first.lease, key: 'k', value: 'v' } as const
    const second = done(await propose(b, put, { op: { session: 's', seq: 2, acked: 1 } }))
    assert.deepEqual(await propose(a, put, { op: { session: 's', seq: 2, acked: 1, again: true } }), second)
    assert.equal((await a.read({ kind: 'summary' }, { consistent: true })).revision, second.revision)
    const later = await log.restart()
    assert.deepEqual(await propose(later, put, { op: { session: 's', seq: 2, acked: 1, again: true } }), second)
  },

  'copies of one operation that arrive together have one effect and one answer': async log => {
    const [a, b] = await log.pair()
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const answers = await Promise.all([a, b, a, b].map(lessor => propose(lessor, acquire('ann', ['a'], { wait: true }), { op })))
    for (const answer of answers) assert.deepEqual(answer, answers[0])
    assert.equal((await a.read({ kind: 'leases' }, { consistent: true })).value.length, 1)
  },

  'an operation that may have been sent before is refused for good': async log => {
    const [a, b] = await log.pair()
    const first = granted(await propose(a, acquire('ann', ['a'])))
    const op: Operation = { session: 's', seq: 1, acked: 0, again: true }
    const held = refused('HELD', await propose(b, acquire('bob', ['a']), { op }))
    done(await propose(a, { kind: 'release', lease: first.lease }))
    // The first copy, still on its way, arrives now: a client that was refused with HELD must not be granted later.
    const { again: _, ...copy } = op
    assert.deepEqual(await propose(a, acquire('bob', ['a']), { op: copy }), held)
    assert.deepEqual(await holders(a, 'a'), [])
  },

  'the same session and number under another key is another operation': async log => {
    const lessor = await log.open()
    const key = done(await propose(lessor, createKey('ci', [{ verb: 'acquire', prefix: '' }]))).id!
    const op: Operation = { session: 's', seq: 1, acked: 0 }
    const mine = granted(await propose(lessor, acquire('ann', ['a']), { op }))
    const theirs = granted(await propose(lessor, acquire('bob', ['b']), { op, key }))
    assert.notEqual(mine.lease, theirs.lease)
    assert.deepEqual(await propose(lessor, acquire('ann', ['a']), { op }), mine)
    assert.deepEqual(await propose(lessor, acquire('bob', ['b']), { op, key }), theirs)
  },

  'an operation whose answer was acknowledged is STALE, and never repeated': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a']), { op: { session: 's', seq: 1, acked: 0 } }))
    done(await propose(lessor, { kind: 'release', lease: first.lease }, { op: { session: 's', seq: 2, acked: 1 } }))
    const again: Operation = { session: 's', seq: 1, acked: 0, again: true }
    refused('STALE', await propose(lessor, acquire('ann', ['a']), { op: again }))
    assert.deepEqual(await holders(lessor, 'a'), [])
  },

  // Reading

  "one reads what one was told: at least the revision of one's own answer": async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 5; i++) {
      const lease = granted(await propose(a, acquire('ann', [`a/${i}`])))
      const local = await a.read({ kind: 'lease', lease: lease.lease })
      assert.ok(local.revision >= lease.revision)
      assert.equal(local.value?.lease, lease.lease)
      const elsewhere = await b.read({ kind: 'lease', lease: lease.lease }, { atLeast: lease.revision })
      assert.ok(elsewhere.revision >= lease.revision)
      assert.equal(elsewhere.value?.lease, lease.lease)
    }
  },

  'a consistent read sees everything that any lessor acknowledged before it': async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 5; i++) {
      const lease = granted(await propose(a, acquire('ann', ['a'])))
      assert.deepEqual(await holders(b, 'a'), ['ann'])
      done(await propose(b, { kind: 'release', lease: lease.lease }))
      assert.deepEqual(await holders(a, 'a'), [])
    }
  },

  'a read at a revision that was never reached is UNAVAILABLE': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('ann', ['a'])))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }, { atLeast: revision + 1_000_000 }))
  },

  'a list ends at its limit, says that there are more items, and contains only names within its prefixes': async log => {
    const lessor = await log.open()
    for (const name of ['a/1', 'a/2', 'b/1', 'b/2', 'c'])
      granted(await propose(lessor, { ...acquire('ann', [name]), entries: [{ key: `${name}/e`, value: '' }] }))
    const asked = async (query: Query, names: number, more?: true) => {
      const view = await lessor.read<'leases'>(query as Extract<Query, { kind: 'leases' }>, { consistent: true })
      assert.deepEqual([view.value.length, view.more], [names, more], JSON.stringify(query))
    }
    for (const list of [{ kind: 'leases' }, { kind: 'resources', prefix: '' }, { kind: 'entries', prefix: '' }] as const) {
      await asked({ ...list, limit: 2 }, 2, true)
      await asked({ ...list, limit: 5 }, 5)
      await asked({ ...list, within: ['a', 'c/'] }, 3)
      await asked({ ...list, within: ['a', 'c'], limit: 2 }, 2, true)
      await asked({ ...list, prefix: 'b', within: ['a', 'b/1'], limit: 1 }, 1)
      await asked({ ...list, within: [] }, 0)
    }
    await asked({ kind: 'leases', within: [], own: { key: 7, claims: [] } }, 0)
    const { value } = await lessor.read({ kind: 'entries', prefix: 'a/1/e', limit: 1 })
    assert.deepEqual(
      value.map(({ key }) => key),
      ['a/1/e'],
    )
  },

  'a page of a list, where a lessor has them, is its part of the list in the order asked for': async log => {
    const lessor = await log.open()
    if (lessor.page === undefined) return
    for (const [i, name] of ['b/2', 'a/1', 'c', 'b/1', 'a/2'].entries())
      granted(await propose(lessor, acquire(i % 2 === 0 ? 'ann' : 'bob', [name])))
    const asked = async (page: ListPart, within?: readonly string[]) => {
      const { total, value } = await lessor.page!<'resources'>({ kind: 'resources', prefix: '', ...(within && { within }) }, page)
      return [total, value.map(({ resource }) => resource).join()]
    }
    assert.deepEqual(await asked({ sort: 'name' }), [5, 'a/1,a/2,b/1,b/2,c'])
    assert.deepEqual(await asked({ sort: '-token', offset: 1, limit: 2 }), [5, 'b/1,c'])
    assert.deepEqual(await asked({ sort: '-name', holder: 'bob' }), [2, 'b/1,a/1'])
    assert.deepEqual(await asked({ sort: 'holder', text: 'B/' }), [2, 'b/2,b/1'])
    assert.deepEqual(await asked({ sort: 'name', offset: 9 }, ['a', 'c']), [3, ''])
    assert.deepEqual(await asked({ sort: 'name' }, []), [0, ''])
    await rejectsWith('INVALID', lessor.page({ kind: 'leases' }, { sort: 'colour' as 'name' }))
  },

  'every query has an answer on an empty log and on one in use': async log => {
    const lessor = await log.open()
    const ask = async () => ({
      summary: (await lessor.read({ kind: 'summary' }, { consistent: true })).value,
      lease: (await lessor.read({ kind: 'lease', lease: 1 })).value,
      leases: (await lessor.read({ kind: 'leases' })).value,
      under: (await lessor.read({ kind: 'leases', prefix: 'a' })).value,
      resource: (await lessor.read({ kind: 'resource', resource: 'a/b' })).value,
      resources: (await lessor.read({ kind: 'resources', prefix: 'a' })).value,
      entries: (await lessor.read({ kind: 'entries', prefix: '' })).value,
      services: (await lessor.read({ kind: 'services' })).value,
      history: (await lessor.read({ kind: 'history', resource: 'a/b' })).value,
      policies: (await lessor.read({ kind: 'policies' })).value,
      keys: (await lessor.read({ kind: 'keys' })).value,
    })
    const empty = await ask()
    assert.equal(empty.summary.leases, 0)
    assert.equal(empty.lease, undefined)
    assert.deepEqual(empty.resource, { resource: 'a/b', capacity: 1, grants: [], queue: [], fence: 0 })
    for (const list of [
      empty.leases,
      empty.under,
      empty.resources,
      empty.entries,
      empty.services,
      empty.history,
      empty.policies,
      empty.keys,
    ])
      assert.deepEqual(list, [])
    const first = granted(await propose(lessor, acquire('ann', ['a/b', 'ab'], { entries: [{ key: 'k', value: 'v' }] })))
    const second = queued(await propose(lessor, acquire('bob', ['a/b'], { wait: true })))
    const used = await ask()
    assert.deepEqual([used.summary.leases, used.summary.waiting, used.summary.resources, used.summary.entries], [2, 1, 2, 1])
    assert.deepEqual(
      used.leases.map(({ lease, status }) => [lease, status]),
      [
        [first.lease, 'live'],
        [second.lease, 'waiting'],
      ],
    )
    assert.deepEqual(
      used.resources.map(({ resource }) => resource),
      ['a/b'],
    )
    assert.equal(used.resource.queue[0]?.holder, 'bob')
    assert.equal(used.entries[0]?.value, 'v')
    assert.deepEqual(used.leases[1]?.wants, [{ resource: 'a/b', units: 1, shared: false, position: 0 }])
  },

  // Watching

  'a watch yields every change once, in order, one array for each revision': async log => {
    const lessor = await log.open()
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    await using watcher = log.watch(lessor, '', revision)
    const last = await log.busyLife(lessor)
    await watcher.at(last)
    const revisions = watcher.seen.map(events => events[0]!.revision)
    for (const [i, events] of watcher.seen.entries()) {
      assert.ok(events.length > 0)
      for (const event of events) assert.equal(event.revision, revisions[i])
      if (i > 0) assert.equal(revisions[i], revisions[i - 1]! + 1)
    }
    assert.equal(revisions.at(-1), last)
  },

  'a watch can resume after any revision, on any lessor, and misses nothing': async log => {
    const [a, b] = await log.pair()
    granted(await propose(a, acquire('first', ['first'])))
    const { revision } = await a.read({ kind: 'summary' }, { consistent: true })
    await using full = log.watch(a, '', revision)
    const last = await log.busyLife(a)
    await full.at(last)
    for (let i = 0; i < full.seen.length; i++) {
      await using resumed = log.watch(i % 2 === 0 ? b : a, '', full.seen[i]![0]!.revision)
      if (i < full.seen.length - 1) await resumed.at(last)
      assert.deepEqual(resumed.seen, full.seen.slice(i + 1))
    }
  },

  'a watch without a revision begins with the next change': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, '')
    await watcher.begun(lessor)
    const { revision } = granted(await propose(lessor, acquire('ann', ['b'])))
    await watcher.at(revision)
    assert.ok(!watcher.seen.some(events => events.some(event => event.resource === 'a')))
  },

  'a watch sees the names under its prefix, by whole segments': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    await using slash = log.watch(lessor, 'jobs/', revision)
    await using bare = log.watch(lessor, 'jobs', revision)
    granted(await propose(lessor, acquire('ann', ['jobs', 'jobsuite'])))
    granted(await propose(lessor, acquire('ann', ['jobs/a', 'other'])))
    granted(await propose(lessor, acquire('ann', ['jobsuite/b'])))
    const last = granted(await propose(lessor, acquire('ann', ['jobs/a/b'])))
    for (const watcher of [slash, bare]) {
      await watcher.at(last.revision)
      assert.deepEqual(
        watcher.seen.map(events => events.map(({ resource }) => resource)),
        [['jobs'], ['jobs/a'], ['jobs/a/b']],
      )
    }
  },

  'a watch sees only the types it asked for': async log => {
    const lessor = await log.open()
    const { revision, lease } = granted(await propose(lessor, acquire('ann', ['jobs/a', 'other'])))
    await using watcher = log.watch(lessor, 'jobs', revision, ['released', 'granted'])
    done(await propose(lessor, { kind: 'put', lease, key: 'jobs/entry', value: '' }))
    done(await propose(lessor, { kind: 'release', lease }))
    const last = granted(await propose(lessor, acquire('bob', ['jobs/b'])))
    await watcher.at(last.revision)
    assert.deepEqual(
      watcher.seen.map(events => events.map(({ type, resource }) => `${type} ${resource}`)),
      [['released jobs/a'], ['granted jobs/b']],
    )
  },

  'a watch ends with its signal and leaves no listener on it': async log => {
    const lessor = await log.open()
    const controller = new AbortController()
    const events = lessor.watch('', { signal: controller.signal, after: (await lessor.read({ kind: 'summary' })).revision })
    const iterator = events[Symbol.asyncIterator]()
    const first = iterator.next()
    granted(await propose(lessor, acquire('ann', ['a'])))
    assert.equal((await within(first)).done, false)
    const second = iterator.next()
    controller.abort()
    assert.equal((await within(second)).done, true)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    for await (const _ of lessor.watch('', { signal: controller.signal })) assert.fail('it was over before it began')
  },

  'a watch that is left in the middle leaves no listener on its signal': async log => {
    const lessor = await log.open()
    const controller = new AbortController()
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    granted(await propose(lessor, acquire('ann', ['a'])))
    granted(await propose(lessor, acquire('ann', ['b'])))
    for await (const _ of lessor.watch('', { signal: controller.signal, after: revision })) break
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'a slow watcher delays no other client, and either sees everything or gets a resync': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    const controller = new AbortController()
    const slow = lessor.watch('', { signal: controller.signal, after: revision })[Symbol.asyncIterator]()
    const first = slow.next()
    await using quick = log.watch(lessor, '', revision)
    const last = await log.pour(lessor, 300)
    await quick.at(last)
    let at = revision
    for (let next = await within(first); ; next = await within(slow.next())) {
      assert.equal(next.done, false)
      const event: Event = next.value![0]!
      if (event.type !== 'resync') assert.equal(event.revision, at + 1)
      assert.ok(event.revision > at)
      at = event.revision
      if (at >= last) break
    }
    controller.abort()
    assert.equal((await within(slow.next())).done, true)
  },

  'a watch from a revision that is no longer kept begins with a resync, and continues without a gap': async log => {
    const { keeps } = log.fixture
    if (keeps === undefined) return
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    const poured = await log.pour(lessor, keeps + 50)
    await using watcher = log.watch(lessor, 'nothing/ever', revision)
    await watcher.at(poured)
    assert.deepEqual(
      watcher.seen.map(events => events.map(({ type, lease }) => [type, lease])),
      [[['resync', 0]]],
    )
    await using later = log.watch(lessor, '', watcher.seen[0]![0]!.revision)
    const next = granted(await propose(lessor, acquire('ann', ['nothing/ever'])))
    assert.deepEqual(types(await watcher.at(next.revision)), ['granted nothing/ever ann'])
    await later.at(next.revision)
    assert.equal(later.seen.length, next.revision - poured)
  },

  'a watch from a revision that the log never reached gets a resync': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    await using watcher = log.watch(lessor, '', revision + 1_000_000)
    await watcher.begun(lessor)
    const next = granted(await propose(lessor, acquire('ann', ['a'])))
    await watcher.at(next.revision)
    assert.equal(watcher.seen[0]?.[0]?.type, 'resync')
    assert.ok(watcher.seen[0][0].revision <= next.revision)
  },

  // Time

  'a lease that is not renewed lapses, not before its deadline, and the next waiter is granted in the same revision': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: SHORT, entries: [{ key: 'service/ann', value: 'up' }] })))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    await using watcher = log.watch(lessor, '', second.revision)
    await log.advance(SHORT / 2, { late: false })
    assert.deepEqual(await holders(lessor, 'a'), ['ann'])
    await log.advance(SHORT / 2)
    const { value, revision } = await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.holder, 'bob')
    assert.ok(value.grants[0].token > first.tokens[0]!)
    await watcher.at(revision)
    assert.deepEqual(types(watcher.seen.find(events => events.some(({ type }) => type === 'lapsed'))!), [
      'lapsed a ann',
      'deleted service/ann ann',
      'granted a bob',
    ])
  },

  'a lease that is renewed in time, through any lessor, never lapses': async log => {
    const [a, b] = await log.pair()
    const lease = granted(await propose(a, acquire('ann', ['a'], { ttl: SHORT })))
    for (let i = 0; i < 12; i++) {
      await log.advance(SHORT / 2, { late: false })
      assert.deepEqual(await renew(i % 3 === 0 ? b : a, lease.lease), [SHORT])
    }
    const { value } = await b.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.token, lease.tokens[0])
  },

  'a holder that comes back too late gets GONE, and changes nothing of its successor': async log => {
    const [a, b] = await log.pair()
    const late = granted(await propose(a, acquire('ann', ['a'], { ttl: SHORT })))
    done(await propose(a, { kind: 'put', lease: late.lease, key: 'leader', value: 'ann' }))
    await log.advance(SHORT)
    const next = granted(await propose(b, acquire('bob', ['a'], { entries: [{ key: 'leader', value: 'bob' }] })))
    assert.deepEqual(await renew(a, late.lease), [GONE])
    refused('GONE', await propose(a, { kind: 'release', lease: late.lease }))
    refused('GONE', await propose(a, { kind: 'release', lease: late.lease, resource: 'a' }))
    refused('GONE', await propose(a, { kind: 'put', lease: late.lease, key: 'leader', value: 'ann' }))
    refused('STALE', await propose(a, { kind: 'delete', lease: late.lease, key: 'leader' }))
    refused('GONE', await propose(a, { kind: 'transfer', lease: late.lease, to: 'eve', stopped: true }))
    refused('GONE', await propose(a, acquire('ann', ['b'], { parent: late.lease })))
    const { value } = await b.read({ kind: 'lease', lease: next.lease }, { consistent: true })
    assert.equal(value?.status, 'live')
    assert.equal(value.grants[0]?.token, next.tokens[0])
    assert.deepEqual(value.entries, [{ key: 'leader', value: 'bob' }])
  },

  'a waiter that died is skipped': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    const dead = queued(await propose(lessor, acquire('bob', ['a'], { wait: true, ttl: SHORT })))
    const live = queued(await propose(lessor, acquire('eve', ['a'], { wait: true, ttl: 10 * SHORT })))
    await log.advance(SHORT)
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
    assert.deepEqual(await renew(lessor, dead.lease, live.lease), [GONE, 10 * SHORT])
  },

  'children end with their parent in one revision, with their entries': async log => {
    const lessor = await log.open()
    const parent = granted(await propose(lessor, acquire('ann', ['p'], { ttl: SHORT })))
    const { incarnation } = parent
    const child = granted(
      await propose(lessor, acquire('ann', ['c'], { ttl: LONG, parent: parent.lease, incarnation, entries: [{ key: 'e', value: '' }] })),
    )
    const grandchild = granted(await propose(lessor, acquire('ann', ['g'], { ttl: LONG, parent: child.lease, incarnation })))
    await using watcher = log.watch(lessor, '', grandchild.revision)
    await log.advance(SHORT)
    const { value, revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    assert.equal(value.entries, 0)
    await watcher.at(revision)
    assert.equal(watcher.seen.length, 1)
    const all = types(watcher.seen[0]!)
    for (const event of ['lapsed p ann', 'revoked c ann', 'deleted e ann', 'revoked g ann', 'frozen c ann', 'frozen g ann'])
      assert.ok(all.includes(event), `${event} is missing from ${all.join(', ')}`)
    assert.deepEqual(await renew(lessor, parent.lease, child.lease, grandchild.lease), [GONE, GONE, GONE])
  },

  'after a revoke the units stay frozen until the last acknowledged ttl has expired, or their holder releases them': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: 2 * SHORT })))
    await log.advance(SHORT, { late: false })
    assert.deepEqual(await renew(lessor, first.lease), [2 * SHORT])
    const second = granted(await propose(lessor, acquire('bob', ['b'], { ttl: 2 * SHORT })))
    for (const { lease } of [first, second]) done(await propose(lessor, { kind: 'revoke', target: { lease }, by: 'ops' }))
    assert.deepEqual(await renew(lessor, first.lease, second.lease), [GONE, GONE])
    for (const name of ['a', 'b']) refused('HELD', await propose(lessor, acquire('eve', [name])))
    done(await propose(lessor, { kind: 'release', lease: second.lease }))
    granted(await propose(lessor, acquire('eve', ['b'])))
    await log.advance(SHORT, { late: false })
    refused('HELD', await propose(lessor, acquire('eve', ['a']))) // its ttl has expired since the grant, but not since the renewal
    await log.advance(SHORT)
    granted(await propose(lessor, acquire('eve', ['a'])))
  },

  'a restart neither ends a lease that was just renewed nor keeps an abandoned one': async log => {
    let lessor = await log.open()
    const kept = granted(await propose(lessor, acquire('ann', ['kept'], { ttl: 4 * SHORT })))
    const left = granted(await propose(lessor, acquire('bob', ['left'], { ttl: 4 * SHORT })))
    let gone = false
    for (let i = 0; i < 6; i++) {
      await log.advance(2 * SHORT, { late: false })
      assert.deepEqual(await renew(lessor, kept.lease), [4 * SHORT])
      lessor = await log.restart()
      gone ||= (await status(lessor, left.lease)) === undefined
    }
    assert.ok(gone, 'an abandoned lease of 4 s was still there after 12 s')
    assert.deepEqual(await renew(lessor, kept.lease), [4 * SHORT])
  },

  // Giving up, closing, and afterwards

  "an aborted proposal or read throws the signal's own reason and leaves nothing on it": async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    const reason = new Error('no timeout')
    const before = AbortSignal.abort(reason)
    await assert.rejects(propose(lessor, acquire('ann', ['b']), { signal: before }), reason)
    await assert.rejects(lessor.read({ kind: 'summary' }, { signal: before }), reason)
    const asked: ((signal: AbortSignal) => Promise<unknown>)[] = [
      signal => propose(lessor, acquire('ann', ['b']), { signal }),
      signal => propose(lessor, acquire('bob', ['a']), { signal }), // would be refused
      signal => propose(lessor, acquire('bob', ['a'], { wait: true }), { signal }),
      signal => lessor.read({ kind: 'summary' }, { consistent: true, signal }),
    ]
    for (const ask of asked) {
      const controller = new AbortController()
      const answer = ask(controller.signal)
      controller.abort(reason)
      await assert.rejects(within(answer), reason)
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    }
    const controller = new AbortController()
    granted(await propose(lessor, acquire('ann', ['c']), { signal: controller.signal }))
    await lessor.read({ kind: 'summary' }, { consistent: true, signal: controller.signal })
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'closing settles every proposal under way: applied, certainly not applied, or UNKNOWN': async log => {
    const lessor = await log.open()
    const other = await log.other()
    const asked = Array.from({ length: 200 }, (_, i) => propose(lessor, acquire('ann', [`a/${i}`])))
    asked.push(...Array.from({ length: 20 }, () => propose(lessor, acquire('bob', ['a/0']))))
    const settled = Promise.allSettled(asked)
    await within(lessor[Symbol.asyncDispose]())
    const answers = await within(settled)
    const after = other === lessor ? await log.restart() : other
    const there = new Set(
      (await after.read({ kind: 'resources', prefix: 'a' }, { consistent: true })).value.map(({ resource }) => resource),
    )
    for (const [i, answer] of answers.entries()) {
      if (answer.status === 'fulfilled') {
        if (i < 200)
          assert.ok(
            granted(answer.value).resources.every(name => there.has(name)),
            `a/${i} was acknowledged and is not there`,
          )
      } else {
        assert.ok(answer.reason instanceof LeaseError, String(answer.reason))
        assert.ok(['UNAVAILABLE', 'UNKNOWN'].includes(answer.reason.code), answer.reason.message)
        if (i < 200 && answer.reason.code === 'UNAVAILABLE') assert.ok(!there.has(`a/${i}`), `a/${i} was UNAVAILABLE and is there`)
      }
    }
  },

  'after it was closed every call is UNAVAILABLE, its signal says why, and closing again does nothing': async log => {
    const lessor = await log.open()
    assert.equal(lessor.signal.aborted, false)
    const { revision } = granted(await propose(lessor, acquire('ann', ['a'])))
    const waiting = lessor.watch('', { signal: new AbortController().signal, after: revision })[Symbol.asyncIterator]().next()
    const ended = rejectsWith('UNAVAILABLE', waiting)
    await within(lessor[Symbol.asyncDispose]())
    await within(ended)
    assert.equal(lessor.signal.aborted, true)
    assert.equal((lessor.signal.reason as LeaseError).code, 'UNAVAILABLE')
    await rejectsWith('UNAVAILABLE', propose(lessor, acquire('ann', ['b'])))
    await rejectsWith('UNAVAILABLE', propose(lessor, { kind: 'renew', leases: [1] }))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }, { consistent: true }))
    await rejectsWith('UNAVAILABLE', lessor.watch('', { signal: new AbortController().signal })[Symbol.asyncIterator]().next())
    await within(lessor[Symbol.asyncDispose]())
    const next = await log.restart()
    assert.deepEqual(await holders(next, 'a'), ['ann'])
  },

  'it reports the profile of its store': async log => {
    const { profile } = await log.open()
    assert.ok(profile.store.length > 0)
    for (const promise of [profile.durable, profile.failover, profile.push, profile.shared, profile.ages])
      assert.equal(typeof promise, 'boolean')
  },
}

/** The lessors that a case has opened, closed when it ends. */
class LessorLog implements AsyncDisposable {
  readonly fixture: LessorFixture
  readonly #lessors: Lessor[] = []

  constructor(fixture: LessorFixture) {
    this.fixture = fixture
  }

  async open(): Promise<Lessor> {
    const lessor = await this.fixture.lessor()
    this.#lessors.push(lessor)
    return lessor
  }

  /** Opens one more, or returns the only one where there can be only one. */
  async other(): Promise<Lessor> {
    return this.fixture.alone ? (this.#lessors[0] ?? this.open()) : this.open()
  }

  async pair(): Promise<readonly [Lessor, Lessor]> {
    return [await this.open(), await this.other()]
  }

  async restart(): Promise<Lessor> {
    await this.close()
    await this.fixture.restart?.()
    return this.open()
  }

  /** This much time, and the time that a lapse may be late. */
  async advance(ms: number, { late = true }: { readonly late?: boolean } = {}): Promise<void> {
    await this.fixture.advance(ms + (late ? (this.fixture.late ?? 200) : 0))
  }

  watch(lessor: Lessor, prefix: string, after?: number, types?: readonly EventType[]): Watcher {
    return new Watcher(lessor, prefix, { ...(after !== undefined && { after }), ...(types !== undefined && { types }) })
  }

  /** Causes events of every type; returns the last revision. */
  async busyLife(lessor: Lessor): Promise<number> {
    const ann = granted(await propose(lessor, acquire('ann', ['a', 'b'], { entries: [{ key: 'service/ann', value: 'up' }] })))
    queued(await propose(lessor, acquire('bob', ['a'], { wait: true, recall: true })))
    await propose(lessor, { kind: 'put', lease: ann.lease, key: 'service/ann', value: 'busy' })
    await propose(lessor, policy('jobs', { capacity: 2 }))
    const child = granted(await propose(lessor, acquire('ann', ['jobs/a'], { parent: ann.lease, incarnation: ann.incarnation })))
    await propose(lessor, { kind: 'release', lease: ann.lease, resource: 'b' })
    await propose(lessor, { kind: 'revoke', target: { lease: child.lease } })
    await propose(lessor, { kind: 'release', lease: child.lease })
    await propose(lessor, { kind: 'release', lease: ann.lease })
    return granted(await propose(lessor, acquire('eve', ['c']))).revision
  }

  /** Makes this many revisions as quickly as possible; returns the last one. */
  async pour(lessor: Lessor, count: number): Promise<number> {
    const lease = granted(await propose(lessor, acquire('pour', [])))
    const answers = await Promise.all(
      Array.from({ length: count }, (_, i) => propose(lessor, { kind: 'put', lease: lease.lease, key: `pour/${i % 10}`, value: `${i}` })),
    )
    return Math.max(...answers.map(answer => done(answer).revision))
  }

  async close(): Promise<void> {
    for (const lessor of this.#lessors.splice(0)) await within(lessor[Symbol.asyncDispose]())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/** Collects the events of a watch. */
class Watcher implements AsyncDisposable {
  readonly seen: (readonly Event[])[] = []
  readonly #controller = new AbortController()
  readonly #running: Promise<void>
  #failed: unknown
  #wake = () => {}

  constructor(lessor: Lessor, prefix: string, options: Omit<WatchOptions, 'signal'>) {
    this.#running = this.#run(lessor, prefix, options).catch(error => {
      this.#failed = error
      this.#wake()
    })
  }

  async #run(lessor: Lessor, prefix: string, options: Omit<WatchOptions, 'signal'>): Promise<void> {
    for await (const events of lessor.watch(prefix, { ...options, signal: this.#controller.signal })) {
      this.seen.push(events)
      this.#wake()
    }
  }

  /** The events of a revision, once they have arrived. */
  async at(revision: number): Promise<readonly Event[]> {
    return within(
      (async () => {
        for (;;) {
          if (this.#failed !== undefined) throw this.#failed
          const found = this.seen.find(events => events[0]!.revision >= revision)
          if (found !== undefined) return found
          await new Promise<void>(resolve => {
            this.#wake = resolve
          })
        }
      })(),
    )
  }

  /** Waits for the answer to a read: a remote lessor has received the watch by then. */
  async begun(lessor: Lessor): Promise<void> {
    await lessor.read({ kind: 'summary' }, { consistent: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort()
    await within(this.#running)
  }
}

function acquire(holder: string, names: readonly string[], options: Partial<Acquire> = {}): Acquire {
  return { kind: 'acquire', holder, ttl: LONG, wants: names.map(resource => ({ resource })), ...options }
}

function policy(prefix: string, rules: PolicyRules): Command {
  return { kind: 'policy', prefix, rules }
}

function createKey(name: string, allow: readonly Scope[]): Command {
  return { kind: 'key', name, hash: name.charCodeAt(0).toString(16).padEnd(64, '0'), allow }
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 500)
}

function granted(outcome: Outcome): Granted {
  assert.ok(outcome.kind === 'granted', `expected a grant, got ${shown(outcome)}`)
  return outcome
}

function queued(outcome: Outcome): Queued {
  assert.ok(outcome.kind === 'queued', `expected to wait, got ${shown(outcome)}`)
  return outcome
}

function done(outcome: Outcome): Done {
  assert.ok(outcome.kind === 'done', `expected it to be done, got ${shown(outcome)}`)
  return outcome
}

function refused(code: RefusalCode, outcome: Outcome): Refused {
  assert.ok(outcome.kind === 'refused' && outcome.code === code, `expected ${code}, got ${shown(outcome)}`)
  return outcome
}

function ttls(outcome: Outcome): readonly number[] {
  assert.ok(outcome.kind === 'renewed', `expected a renewal, got ${shown(outcome)}`)
  return outcome.ttls
}

async function renew(lessor: Lessor, ...leases: readonly number[]): Promise<readonly number[]> {
  return ttls(await propose(lessor, { kind: 'renew', leases }))
}

async function holders(lessor: Lessor, resource: string): Promise<readonly string[]> {
  return (await lessor.read({ kind: 'resource', resource }, { consistent: true })).value.grants.map(({ holder }) => holder)
}

async function status(lessor: Lessor, lease: number): Promise<string | undefined> {
  return (await lessor.read({ kind: 'lease', lease }, { consistent: true })).value?.status
}

/** An event in short: its type, resource and holder, as in `granted a ann`. */
function types(events: readonly Event[]): string[] {
  return events.map(({ type, resource, key, holder }) => [type, resource ?? key, holder].filter(Boolean).join(' '))
}

async function rejectsWith(code: ErrorCode, call: Promise<unknown>): Promise<void> {
  let found: unknown
  try {
    found = await call
  } catch (error) {
    assert.ok(error instanceof LeaseError, String(error))
    assert.equal(error.code, code, error.message)
    return
  }
  assert.fail(`expected ${code}, got ${shown(found)}`)
}

async function within<T>(promise: PromiseLike<T>): Promise<T> {
  const over = new AbortController()
  const late = pause(systemClock, TIMEOUT, over.signal, { ref: true }).then(() => assert.fail(`nothing happened for ${TIMEOUT} ms`))
  try {
    return await Promise.race([promise, late])
  } finally {
    late.catch(() => {})
    over.abort()
  }
}
