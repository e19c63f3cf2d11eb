/**
 * The contract of a store as test cases. The suite needs no test runner: each case has a name that is a sentence, and a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of storeSuite(openFixture)) test(name, run)
 * ```
 */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { pause, systemClock, turn } from '../clock.ts'
import { type ErrorCode, LeaseError } from '../errors.ts'
import type { Granted } from '../kernel/outcome.ts'
import { propose } from '../lessor/propose.ts'
import { Replica } from '../replica/replica.ts'
import { type Appended, type LogRecord, type Position, type Read, START, type Store } from '../store.ts'

/** One fresh, empty log on a real engine, and the failures that the suite can cause. */
export interface StoreFixture extends AsyncDisposable {
  /** One more store on the same log, as another process would have. Not open yet; the suite closes it. */
  store(): Store
  /** The same, but it asks to own the log. Absent: this store cannot be owned, and its profile says so. */
  owner?(name: string): Store
  /** The engine takes its owner for dead, although it is alive. */
  forgetOwner?(): Promise<void>
  /** The engine loses its last records, like an engine that acknowledged before it had synced. */
  loseTail(count: number): Promise<void>
  /** Copies all data of the store; the returned function restores the copy. Called while no store has the log open, where it can be owned. */
  copy?(): Promise<() => Promise<void>>
  /**
   * A store on the same log that reaches the engine over a link of its own, which the suite breaks. Every shared store on a remote engine has
   * one. Absent: nothing can be lost between this store and its engine.
   */
  linked?(): Promise<LinkedStore>
}

export interface LinkedStore extends AsyncDisposable {
  /** Not open yet. Its requests time out after a few hundred ms. */
  readonly store: Store
  /** Takes effect with the next request. */
  fail(failure: LinkFailure): void
}

/** The engine executes a request and its answer is lost. Soon afterwards every request is refused. */
export interface LinkFailure {
  /** Answers that pass before the one that is lost. */
  readonly before: number
  /** Answers that pass after it, until requests are refused. */
  readonly after: number
  /** Connections are refused, or the engine refuses for lack of permission. */
  readonly end: 'disconnected' | 'forbidden'
}

export interface SuiteCase {
  readonly name: string
  run(): Promise<void>
}

/** Ends a case that hangs; no case waits for it. Real engines can be slow. */
const TIMEOUT = 60_000
/** A store over a breakable link is opened this many times before its failure counts. */
const MAX_OPENS = 50

export function storeSuite(open: () => Promise<StoreFixture>): SuiteCase[] {
  return Object.entries(sentences).map(([name, check]) => ({
    name,
    run: async () => {
      await using fixture = await open()
      await using log = new StoreLog(fixture)
      await check(log)
    },
  }))
}

const sentences: Record<string, (log: StoreLog) => Promise<void>> = {
  'an empty log begins at START, has no snapshot and nothing to read': async log => {
    const store = log.store()
    const opened = await store.open()
    assert.deepEqual(opened.head, START)
    assert.equal(opened.snapshot, undefined)
    assert.equal(await store.newest(), undefined)
    assert.deepEqual(await store.read(START), { kind: 'records', records: [] })
  },

  'records are read back in order, by the store that appended them, by another one and after all were closed': async log => {
    const first = await log.open()
    const other = await log.open()
    const positions = await appendAll(first, ['a', 'b', 'c'])
    assert.deepEqual(
      positions.map(({ index }) => index),
      [1, 2, 3],
    )
    for (const store of [first, other]) assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
    await log.close()
    const later = log.store()
    const { head } = await later.open()
    assert.deepEqual(head, positions.at(-1))
    const entries = await readAll(later)
    assert.deepEqual(
      entries.map(entry => entry.position),
      positions,
    )
    assert.deepEqual(texts(entries), ['a', 'b', 'c'])
  },

  'several stores that append at once see one order, without gaps, duplicates or losses': async log => {
    const followers = await Promise.all([1, 2, 3, 4].map(async () => new LogFollower(await log.open())))
    await Promise.all(
      followers.map(async (follower, me) => {
        for (let i = 0; i < 50; i++) await follower.append(`${me}:${i}`)
      }),
    )
    await Promise.all(followers.map(follower => follower.catchUp()))
    const [first, ...others] = followers.map(({ seen }) => seen)
    assert.equal(first!.length, 200)
    assert.deepEqual(
      first!.map(({ position }) => position.index),
      first!.map((_, i) => i + 1),
    )
    assert.equal(new Set(first!.map(({ text }) => text)).size, 200)
    assert.equal(new Set(first!.map(({ position }) => position.nonce)).size, 200)
    for (const seen of others) assert.deepEqual(seen, first)
  },

  'an append returns the records between the position it was made at and its own': async log => {
    const [one, two] = [await log.open(), await log.open()]
    const [a] = await appendAll(one, ['a'])
    await appendAll(two, ['b', 'c'], a)
    const answer = appended(await one.append(bytes('d'), a!))
    assert.equal(answer.position.index, 4)
    assert.deepEqual(texts(answer.missed), ['b', 'c'])
    assert.deepEqual(
      answer.missed.map(({ position }) => position.index),
      [2, 3],
    )
  },

  'the same bytes appended again are a second record, with another position and another nonce': async log => {
    const store = await log.open()
    const [a, again] = await appendAll(store, ['a', 'a'])
    assert.equal(again!.index, a!.index + 1)
    assert.notEqual(again!.nonce, a!.nonce)
    assert.deepEqual(texts(await readAll(store)), ['a', 'a'])
  },

  'a caller may reuse its buffer, and a view into a larger buffer is appended as that view': async log => {
    const store = await log.open()
    const buffer = bytes('-mine-')
    const { position } = appended(await store.append(buffer.subarray(1, 5), START))
    assert.equal(text(buffer), '-mine-')
    buffer.fill(0)
    await appendAll(store, ['other'], position)
    assert.deepEqual(texts(await readAll(store)), ['mine', 'other'])
  },

  'every byte is preserved, and so is an empty record': async log => {
    const store = await log.open()
    const all = Uint8Array.from({ length: 1_024 }, (_, i) => i % 256)
    const entries = [all, new Uint8Array(), new Uint8Array(64), all.toReversed()]
    let after = START
    for (const entry of entries) after = appended(await store.append(entry, after)).position
    assert.deepEqual(
      (await readAll(store)).map(entry => [...entry.bytes]),
      entries.map(entry => [...entry]),
    )
  },

  'a record of 1 MiB is stored whole': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const big = noise(1_048_576, 7)
    const { position } = appended(await store.append(big, START))
    await appendAll(store, ['small'], position)
    const entries = await readAll(other)
    assert.equal(entries.length, 2)
    assert.ok(Buffer.from(big).equals(entries[0]!.bytes))
  },

  'an append that missed more records than an answer carries is behind, and reading on closes the gap in bounded pieces': async log => {
    const [store, other] = [await log.open(), await log.open()]
    let after = START
    for (let i = 0; i < 16; i++) after = appended(await store.append(noise(262_144, i), after)).position
    const answer = await other.append(bytes('late'), START)
    assert.deepEqual({ ...answer, position: answer.kind === 'behind' && answer.position.index }, { kind: 'behind', position: 17 })
    const first = entriesOf(await other.read(START))
    assert.ok(first.length > 0 && first.length < 17, `one answer carried ${first.length} entries of 256 KiB`)
    const all = await readAll(other)
    assert.deepEqual(
      all.map(({ position }) => position.index),
      Array.from({ length: 17 }, (_, i) => i + 1),
    )
    assert.equal(text(all[16]!.bytes), 'late')
    for (const [i, entry] of all.slice(0, 16).entries()) assert.ok(Buffer.from(noise(262_144, i)).equals(entry.bytes))
  },

  'an append at a position with another nonce is diverged, and appends nothing': async log => {
    const store = await log.open()
    const [a, b] = await appendAll(store, ['a', 'b'])
    for (const wrong of [
      { index: 2, nonce: a!.nonce },
      { index: 1, nonce: b!.nonce ^ 1n },
      { index: 0, nonce: 1n },
    ]) {
      assert.equal((await store.append(bytes('c'), wrong)).kind, 'diverged')
      assert.equal((await store.read(wrong)).kind, 'diverged')
    }
    assert.deepEqual(texts(await readAll(store)), ['a', 'b'])
  },

  'an append beyond the end is diverged, and appends nothing': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    const beyond = { index: 2, nonce: a!.nonce }
    assert.equal((await store.append(bytes('b'), beyond)).kind, 'diverged')
    assert.equal((await store.read(beyond)).kind, 'diverged')
    assert.equal((await store.read(beyond, { wait: new AbortController().signal })).kind, 'diverged')
    assert.deepEqual(texts(await readAll(store)), ['a'])
  },

  'a log that lost its tail is diverged for a store that was at the tail, even after it has grown again': async log => {
    const [witness, other] = [await log.open(), await log.open()]
    const positions = await appendAll(witness, ['1', '2', '3', '4', '5'])
    const [third, last] = [positions[2]!, positions[4]!]
    await log.fixture.loseTail(2)
    assert.equal((await witness.append(bytes('6'), last)).kind, 'diverged')
    assert.equal((await witness.read(last)).kind, 'diverged')
    await appendAll(other, ['four', 'five', 'six'], third)
    assert.equal((await witness.append(bytes('6'), last)).kind, 'diverged')
    assert.equal((await witness.read(last)).kind, 'diverged')
    assert.equal((await witness.read(last, { wait: new AbortController().signal })).kind, 'diverged')
    assert.deepEqual(texts(await readAll(other)), ['1', '2', '3', 'four', 'five', 'six'])
  },

  'a reader that waits at the end of a log that loses its tail and grows again gets diverged': async log => {
    const [witness, other] = [await log.open(), await log.open()]
    const positions = await appendAll(witness, ['1', '2', '3'])
    const waiting = witness.read(positions[2]!, { wait: new AbortController().signal })
    await log.fixture.loseTail(2)
    await appendAll(other, ['two', 'three', 'four'], positions[0])
    assert.equal((await soon(waiting)).kind, 'diverged')
  },

  'a log that lost everything is diverged for a store at any position in it': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a', 'b'])
    await log.fixture.loseTail(2)
    assert.equal((await store.read(a!)).kind, 'diverged')
    assert.equal((await store.append(bytes('c'), a!)).kind, 'diverged')
    assert.deepEqual(await readAll(store), [])
  },

  'a reader that waits wakes when another store appends': async log => {
    const [reader, writer] = [await log.open(), await log.open()]
    let after = START
    for (const word of ['first', 'second']) {
      const controller = new AbortController()
      const waiting = reader.read(after, { wait: controller.signal })
      ;[after] = (await appendAll(writer, [word], after)) as [Position]
      assert.deepEqual(texts(entriesOf(await soon(waiting))), [word])
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    }
  },

  'a reader that waits is answered at once if there are records already': async log => {
    const store = await log.open()
    await appendAll(store, ['a'])
    assert.deepEqual(texts(entriesOf(await soon(store.read(START, { wait: new AbortController().signal })))), ['a'])
  },

  'a reader that stops waiting gets the reason of its signal and leaves no listener': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    const controller = new AbortController()
    const reason = new Error('enough')
    const waiting = Promise.all([1, 2, 3].map(() => assert.rejects(store.read(a!, { wait: controller.signal }), error => error === reason)))
    await store.read(START) // by now the reads wait
    controller.abort(reason)
    await soon(waiting)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    await assert.rejects(store.read(a!, { wait: controller.signal }), error => error === reason)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    await appendAll(store, ['b'], a) // and the store still works
  },

  'ages are lower bounds, never negative, and known where the profile says so': async log => {
    const store = await log.open()
    const began = systemClock.now()
    const [a] = await appendAll(store, ['a'])
    await store.snapshot(a!, chunks(['s']))
    const lowerBound = (age: number) => assert.ok(age >= 0 && age <= systemClock.now() - began, `age ${age}`)
    const other = await log.open()
    for (;;) {
      const ages = [store, other].map(async reader => (await readAll(reader))[0]!.age)
      const all = [...(await Promise.all(ages)), (await store.newest())!.age]
      for (const age of all) lowerBound(age)
      if (!store.profile.ages || all.every(age => age > 0)) break
      assert.ok(systemClock.now() - began < TIMEOUT, `the profile says that ages are known, but they stay ${all}`)
    }
    lowerBound(appended(await other.append(bytes('b'), START)).missed[0]!.age)
  },

  'the next store to open finds the whole snapshot, with the position it was taken at': async log => {
    const store = await log.open()
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const pieces = [noise(300_000, 1), new Uint8Array(), noise(1, 2), noise(1_500_000, 3)]
    assert.equal(await store.snapshot(positions[1]!, chunks(pieces)), 'kept')
    const opened = await log.store().open()
    assert.deepEqual(opened.head, positions[2])
    assert.deepEqual(opened.snapshot?.position, positions[1])
    const whole = Buffer.concat(pieces)
    assert.ok(whole.equals(await collect(opened.snapshot!.bytes)))
    assert.ok(whole.equals(await collect((await store.newest())!.bytes)))
    assert.deepEqual(texts(entriesOf(await store.read(positions[1]!))), ['c'])
  },

  'an empty snapshot is kept like any other': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    assert.equal(await store.snapshot(a!, chunks([])), 'kept')
    const newest = await (await log.open()).newest()
    assert.deepEqual(newest?.position, a)
    assert.equal((await collect(newest!.bytes)).length, 0)
  },

  'a snapshot that is not newer than the last is refused and changes nothing': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    assert.equal(await store.snapshot(positions[1]!, chunks(['two'])), 'kept')
    assert.equal(await other.snapshot(positions[0]!, chunks(['one'])), 'older')
    assert.equal(await other.snapshot(positions[1]!, chunks(['two again'])), 'older')
    assert.equal(text(await collect((await other.newest())!.bytes)), 'two')
    assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
  },

  'of two snapshots written at once the newer one is kept': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const newer = other.snapshot(positions[2]!, chunks(['three']))
    const answers = await Promise.all([store.snapshot(positions[1]!, chunks(['t', 'w', 'o'])), newer])
    assert.equal(answers[1], 'kept')
    const newest = (await store.newest())!
    assert.deepEqual(newest.position, positions[2])
    assert.equal(text(await collect(newest.bytes)), 'three')
  },

  'a snapshot at a record that the log does not contain is refused': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    await rejectsWith('DIVERGED', store.snapshot({ index: 1, nonce: a!.nonce ^ 1n }, chunks(['x'])))
    await rejectsWith('DIVERGED', store.snapshot({ index: 2, nonce: a!.nonce }, chunks(['x'])))
    assert.equal(await store.newest(), undefined)
  },

  'an interrupted snapshot leaves the last one in force, and the next one is kept': async log => {
    const store = await log.open()
    const positions = await appendAll(store, ['a', 'b', 'c'])
    await store.snapshot(positions[0]!, chunks(['one']))
    const accident = new Error('out of memory')
    await assert.rejects(store.snapshot(positions[1]!, interrupted([noise(200_000, 1)], accident)), error => error === accident)
    for (const reader of [store, await log.open()]) {
      const newest = (await reader.newest())!
      assert.deepEqual(newest.position, positions[0])
      assert.equal(text(await collect(newest.bytes)), 'one')
    }
    assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
    assert.equal(await store.snapshot(positions[2]!, chunks(['thr', 'ee'])), 'kept')
    assert.equal(text(await collect((await store.newest())!.bytes)), 'three')
  },

  'appends continue while a snapshot is written': async log => {
    const [store, other] = [await log.open(), await log.open()]
    let after = (await appendAll(store, ['a', 'b']))[1]!
    const at = after
    async function* slowly(): AsyncGenerator<Uint8Array> {
      for (const word of ['c', 'd', 'e']) {
        yield noise(100_000, 1)
        for (const writer of [store, other]) [after] = (await soon(appendAll(writer, [word], after))) as [Position]
      }
    }
    assert.equal(await store.snapshot(at, slowly()), 'kept')
    assert.deepEqual(texts(await readAll(other, at)), ['c', 'c', 'd', 'd', 'e', 'e'])
  },

  'trimming removes records before the last snapshot but one, and never later ones': async log => {
    const store = await log.open()
    const positions = await appendAll(store, [...'abcdefghij'])
    await store.snapshot(positions[3]!, chunks(['four']))
    assert.deepEqual(texts(await readAll(store, positions[3])), [...'efghij'])
    await store.snapshot(positions[7]!, chunks(['eight']))
    for (const reader of [store, await log.open()]) {
      for (const after of [START, positions[0]!, positions[2]!]) {
        assert.equal((await reader.read(after)).kind, 'trimmed')
        assert.equal((await reader.read(after, { wait: new AbortController().signal })).kind, 'trimmed')
        assert.equal((await reader.append(bytes('k'), after)).kind, 'trimmed')
      }
      // At the last record that was removed, no record is missing.
      assert.deepEqual(texts(entriesOf(await reader.read(positions[3]!))), [...'efghij'])
      assert.equal((await reader.read({ ...positions[3]!, nonce: positions[3]!.nonce ^ 1n })).kind, 'diverged')
    }
    assert.deepEqual(texts(appended(await store.append(bytes('k'), positions[3]!)).missed), [...'efghij'])
    const opened = await log.store().open()
    assert.deepEqual(opened.snapshot?.position, positions[7])
    assert.equal(opened.head.index, 11)
  },

  'a log that is trimmed to its end still knows its end': async log => {
    const store = await log.open()
    let after = START
    for (const word of ['a', 'b', 'c']) {
      ;[after] = (await appendAll(store, [word], after)) as [Position]
      await store.snapshot(after, chunks([word]))
    }
    await log.close()
    const later = log.store()
    const opened = await later.open()
    assert.deepEqual([opened.head, opened.snapshot?.position], [after, after])
    assert.deepEqual(await later.read(after), { kind: 'records', records: [] })
    assert.equal(appended(await later.append(bytes('d'), after)).position.index, 4)
  },

  'a snapshot that is being read when a newer one is kept is read whole, or refused': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const pieces = [1, 2, 3, 4].map(seed => noise(400_000, seed))
    await store.snapshot(positions[0]!, chunks(pieces))
    const reading = (await other.newest())!.bytes[Symbol.asyncIterator]()
    const read = [(await reading.next()).value as Uint8Array]
    for (const at of positions.slice(1)) await store.snapshot(at, chunks(['newer']))
    try {
      for (let next = await reading.next(); !next.done; next = await reading.next()) read.push(next.value)
    } catch (error) {
      assert.ok(error instanceof LeaseError && error.code === 'UNAVAILABLE', String(error))
      return
    }
    assert.ok(Buffer.concat(pieces).equals(Buffer.concat(read)))
  },

  'an owner excludes other owners and shared users, and their errors name it': async log => {
    if (!log.ownable) return log.assertShared()
    const owner = log.owner('alpha')
    await owner.open()
    assert.equal(owner.profile.shared, false)
    await appendAll(owner, ['a'])
    for (const other of [log.owner('beta'), log.store()]) {
      const error = await rejectsWith('UNAVAILABLE', other.open())
      assert.match(error.message, /alpha/)
      await rejectsWith('UNAVAILABLE', other.append(bytes('x'), START))
      await rejectsWith('UNAVAILABLE', other.read(START))
    }
    assert.deepEqual(texts(await readAll(owner)), ['a'])
  },

  'a log in shared use cannot be owned until its users have closed': async log => {
    if (!log.ownable) return log.assertShared()
    const user = await log.open()
    assert.equal(user.profile.shared, true)
    await appendAll(user, ['a'])
    await rejectsWith('UNAVAILABLE', log.owner('alpha').open())
    await appendAll(user, ['b'], (await readAll(user)).at(-1)!.position)
    await log.close()
    const owner = log.owner('alpha')
    await owner.open()
    assert.deepEqual(texts(await readAll(owner)), ['a', 'b'])
  },

  'after an owner has closed, another owner or shared users can open the log': async log => {
    if (!log.ownable) return log.assertShared()
    for (const name of ['alpha', 'beta']) {
      const owner = log.owner(name)
      const { head } = await owner.open()
      await appendAll(owner, [name], head)
      await log.close()
    }
    const [one, two] = [await log.open(), await log.open()]
    assert.deepEqual(texts(await readAll(one)), ['alpha', 'beta'])
    await appendAll(two, ['shared'], (await readAll(two)).at(-1)!.position)
  },

  'of several stores that ask to own the log at once, exactly one does': async log => {
    if (!log.ownable) return log.assertShared()
    const owners = Array.from('abcde', name => log.owner(name))
    const answers = await Promise.allSettled(owners.map(owner => owner.open()))
    const won = owners.filter((_, i) => answers[i]!.status === 'fulfilled')
    assert.equal(won.length, 1)
    for (const answer of answers) if (answer.status === 'rejected') assert.equal((answer.reason as LeaseError).code, 'UNAVAILABLE')
    await appendAll(won[0]!, ['mine'])
  },

  'after a copy was restored, an owner reuses no id and no token, and recognises witnesses of lost records': async log => {
    if (!log.ownable) return log.assertShared()
    const owned = (name: string) => Replica.open(log.owner(name), { owned: true })
    const grant = async (replica: Replica, resource: string) => {
      const outcome = await propose(replica, { kind: 'acquire', holder: resource, ttl: 60_000, wants: [{ resource }] })
      assert.equal(outcome.kind, 'granted')
      return outcome as Granted
    }
    const first = await owned('alpha')
    await grant(first, 'kept')
    const kept = first.witness
    await first[Symbol.asyncDispose]()
    const putBack = await log.fixture.copy!()

    const second = await owned('beta')
    assert.equal(await second.continues(kept), true)
    const [a, lost] = [await grant(second, 'x'), second.witness]
    await second[Symbol.asyncDispose]()
    // Counters advance with milliseconds, and no operator restores a copy within one.
    for (const before = systemClock.wall(); systemClock.wall() <= before + 1; ) await turn()
    await putBack()

    // On another machine: only clients know that the log went back.
    const third = await Replica.open(Object.defineProperty(log.owner('gamma'), 'witness', { value: undefined }), { owned: true })
    const b = await grant(third, 'y')
    assert.ok(b.lease > a.lease, `lease ${b.lease} follows ${a.lease}, which was lost`)
    assert.ok(b.tokens[0]! > a.tokens[0]!, `token ${b.tokens[0]} follows ${a.tokens[0]}, which was lost`)
    const late = await propose(third, { kind: 'renew', leases: [a.lease, b.lease] })
    assert.deepEqual(late.kind === 'renewed' ? late.ttls : late, [-1, 60_000])
    assert.equal(await third.continues(kept), true)
    assert.equal((await third.read({ kind: 'summary' })).value.quiet, false)
    assert.equal(await third.continues(lost), false)
    // The log itself has signed the witness: nothing is granted until every holder by a lost record has stopped.
    assert.equal((await third.read({ kind: 'summary' })).value.quiet, true)
    const { revision } = await third.read({ kind: 'summary' })
    assert.equal(await third.continues(lost), false)
    assert.equal((await third.read({ kind: 'summary' })).revision, revision, 'a second client that tells of the same begins nothing')
    await third[Symbol.asyncDispose]()

    // Later answers are in the log after another restart.
    const fourth = await owned('delta')
    assert.equal(await fourth.continues(third.witness), true)
    await fourth[Symbol.asyncDispose]()
  },

  'an owner taken for dead loses the log to the next owner, and appends nothing': async log => {
    if (!log.ownable) return log.assertShared()
    const first = log.owner('alpha')
    await first.open()
    const [a] = await appendAll(first, ['a'])
    await log.fixture.forgetOwner!()
    const second = log.owner('beta')
    await second.open()
    const answer = await first.append(bytes('b'), a!)
    assert.equal(answer.kind, 'disowned')
    assert.match(answer.kind === 'disowned' ? answer.by : '', /beta/)
    assert.equal((await first.read(a!)).kind, 'disowned')
    await rejectsWith('UNAVAILABLE', first.snapshot(a!, chunks(['x'])))
    assert.equal(await second.newest(), undefined)
    await appendAll(second, ['c'], a)
    assert.deepEqual(texts(await readAll(second)), ['a', 'c'])
    await first[Symbol.asyncDispose]() // closing it takes nothing from its successor
    assert.deepEqual(texts(await readAll(second)), ['a', 'c'])
    await rejectsWith('UNAVAILABLE', log.owner('gamma').open())
  },

  'an owner taken for dead loses the log to shared users too': async log => {
    if (!log.ownable) return log.assertShared()
    const owner = log.owner('alpha')
    await owner.open()
    const [a] = await appendAll(owner, ['a'])
    await log.fixture.forgetOwner!()
    const user = await log.open()
    assert.equal((await owner.append(bytes('b'), a!)).kind, 'disowned')
    await appendAll(user, ['c'], a)
    assert.deepEqual(texts(await readAll(user)), ['a', 'c'])
  },

  'an owner that waits to read wakes when it loses the log': async log => {
    if (!log.ownable) return log.assertShared()
    const first = log.owner('alpha')
    await first.open()
    const waiting = first.read(START, { wait: new AbortController().signal })
    await log.fixture.forgetOwner!()
    await log.owner('beta').open()
    assert.equal((await soon(waiting)).kind, 'disowned')
  },

  'an append that fails after an answer was lost is UNKNOWN, unless the record is certainly not in the log': async log => {
    for (const end of ['disconnected', 'forbidden'] as const)
      for (let after = 0; after < 4; after++) {
        const what = `${end} after ${after}`
        await log.breakLink(async (store, fail, head) => {
          fail({ before: 0, after, end })
          const result = await store.append(bytes(what), head).catch(failureOf)
          const there = (await log.everything()).includes(what)
          if (result instanceof LeaseError)
            assert.ok(result.code === 'UNKNOWN' || !there, `${what}: it is in the log, and its caller was told ${result.code}`)
          else assert.equal(there, result.kind === 'appended' || result.kind === 'behind', `${what}: ${result.kind}`)
        })
      }
  },

  'a snapshot that fails after an answer was lost is UNKNOWN, unless it certainly is not in force': async log => {
    for (const end of ['disconnected', 'forbidden'] as const)
      for (let before = 0; before < 3; before++)
        for (let after = 0; after < 2; after++) {
          const what = `${end}, ${before} before and ${after} after`
          const direct = await log.open()
          const at = appended(await direct.append(bytes(what), log.end)).position
          log.end = at
          await log.breakLink(async (store, fail) => {
            // The link breaks at the end of an empty snapshot: the requests after that put it in force.
            async function* nothing(): AsyncGenerator<Uint8Array> {
              fail({ before, after, end })
              yield* []
            }
            const result = await store.snapshot(at, nothing()).catch(failureOf)
            const inForce = (await direct.newest())?.position.index === at.index
            if (result instanceof LeaseError)
              assert.ok(result.code === 'UNKNOWN' || !inForce, `${what}: it is in force, and its caller was told ${result.code}`)
            else assert.equal(result, inForce ? 'kept' : 'older', what)
          })
          await direct[Symbol.asyncDispose]()
        }
  },

  'closing while a read waits ends the read as UNAVAILABLE': async log => {
    const store = await log.open()
    const controller = new AbortController()
    const waiting = rejectsWith('UNAVAILABLE', store.read(START, { wait: controller.signal }))
    await store.read(START) // by now the read waits
    await store[Symbol.asyncDispose]()
    await soon(waiting)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'before it is opened and after it was closed every call is UNAVAILABLE, and closing again does nothing': async log => {
    const store = log.store()
    const every = [
      () => store.append(bytes('a'), START),
      () => store.read(START),
      () => store.read(START, { wait: new AbortController().signal }),
      () => store.snapshot(START, chunks(['x'])),
      () => store.newest(),
    ]
    for (const call of every) await rejectsWith('UNAVAILABLE', call())
    await store.open()
    await appendAll(store, ['a'])
    await store[Symbol.asyncDispose]()
    for (const call of [...every, () => store.open()]) await rejectsWith('UNAVAILABLE', call())
    await store[Symbol.asyncDispose]()
    assert.deepEqual(texts(await readAll(await log.open())), ['a'])
  },

  'a store that was never opened can be closed': async log => {
    await log.store()[Symbol.asyncDispose]()
  },
}

/** The stores that a case has opened, closed when it ends. */
class StoreLog implements AsyncDisposable {
  readonly fixture: StoreFixture
  readonly #stores: Store[] = []
  /** The position of a case that appends through several stores. */
  end = START

  constructor(fixture: StoreFixture) {
    this.fixture = fixture
  }

  get ownable(): boolean {
    return this.fixture.owner !== undefined
  }

  store(): Store {
    return this.#kept(this.fixture.store())
  }

  async open(): Promise<Store> {
    const store = this.store()
    await store.open()
    return store
  }

  owner(name: string): Store {
    return this.#kept(this.fixture.owner!(name))
  }

  /** Opens a store over a link that can break. */
  async breakLink(use: (store: Store, fail: (failure: LinkFailure) => void, head: Position) => Promise<void>): Promise<void> {
    if (this.fixture.linked === undefined) return
    for (let attempts = 1; ; attempts++) {
      await using link = await this.fixture.linked()
      await using store = link.store
      const opened = await store.open().catch(failureOf)
      if (!(opened instanceof LeaseError)) return await use(store, failure => link.fail(failure), opened.head)
      // Its timeout is short, so that the failures after this take little time: a machine that stalls can exceed it.
      if (attempts === MAX_OPENS || opened.code !== 'UNAVAILABLE') throw opened
    }
  }

  /** All records, read over a link that works. */
  async everything(): Promise<string[]> {
    const store = await this.open()
    return texts(await readAll(store))
  }

  /** A store that cannot be owned must not claim to be. */
  assertShared(): void {
    assert.equal(this.store().profile.shared, true)
  }

  async close(): Promise<void> {
    for (const store of this.#stores.splice(0)) await store[Symbol.asyncDispose]()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #kept(store: Store): Store {
    this.#stores.push(store)
    return store
  }
}

/** Follows the log by the answers to its own appends, as a replica does. */
class LogFollower {
  readonly seen: { position: Position; text: string }[] = []
  readonly #store: Store
  #at = START

  constructor(store: Store) {
    this.#store = store
  }

  async append(word: string): Promise<void> {
    const answer = await this.#store.append(bytes(word), this.#at)
    if (answer.kind === 'behind') return this.catchUp()
    const { position, missed } = appended(answer)
    this.#see([...missed, { position, bytes: bytes(word), age: 0 }])
  }

  async catchUp(): Promise<void> {
    this.#see(await readAll(this.#store, this.#at))
  }

  #see(entries: readonly LogRecord[]): void {
    for (const entry of entries) this.seen.push({ position: entry.position, text: text(entry.bytes) })
    this.#at = entries.at(-1)?.position ?? this.#at
  }
}

function appended(answer: Appended): Extract<Appended, { kind: 'appended' }> {
  assert.ok(answer.kind === 'appended', `expected to be appended, got ${answer.kind}`)
  return answer
}

function entriesOf(read: Read): readonly LogRecord[] {
  assert.ok(read.kind === 'records', `expected entries, got ${read.kind}`)
  return read.records
}

async function appendAll(store: Store, words: readonly string[], after: Position = START): Promise<Position[]> {
  const positions: Position[] = []
  for (const word of words) {
    after = appended(await store.append(bytes(word), after)).position
    positions.push(after)
  }
  return positions
}

async function readAll(store: Store, after: Position = START): Promise<LogRecord[]> {
  const all: LogRecord[] = []
  for (;;) {
    const entries = entriesOf(await store.read(all.at(-1)?.position ?? after))
    if (entries.length === 0) return all
    all.push(...entries)
  }
}

async function rejectsWith(code: ErrorCode, call: Promise<unknown>): Promise<LeaseError> {
  let found: unknown
  try {
    found = await call
  } catch (error) {
    assert.ok(error instanceof LeaseError, String(error))
    assert.equal(error.code, code, error.message)
    return error
  }
  assert.fail(`expected ${code}, got ${String(found)}`)
}

function failureOf(error: unknown): LeaseError {
  assert.ok(error instanceof LeaseError, String(error))
  return error
}

async function soon<T>(promise: Promise<T>): Promise<T> {
  const over = new AbortController()
  const late = pause(systemClock, TIMEOUT, over.signal, { ref: true }).then(() => assert.fail(`nothing happened for ${TIMEOUT} ms`))
  try {
    return await Promise.race([promise, late])
  } finally {
    late.catch(() => {})
    over.abort()
  }
}

async function* chunks(pieces: readonly (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) yield typeof piece === 'string' ? bytes(piece) : piece
}

async function* interrupted(pieces: readonly Uint8Array[], accident: Error): AsyncGenerator<Uint8Array> {
  yield* pieces
  throw accident
}

async function collect(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return Buffer.concat(all)
}

function bytes(word: string): Uint8Array {
  return new TextEncoder().encode(word)
}

function text(entry: Uint8Array): string {
  return new TextDecoder().decode(entry)
}

function texts(entries: readonly LogRecord[]): string[] {
  return entries.map(entry => text(entry.bytes))
}

/** Bytes that do not compress and are the same for the same seed. */
function noise(length: number, seed: number): Uint8Array {
  const all = new Uint8Array(length)
  let state = seed * 2_654_435_761 + 1
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    all[i] = state >>> 24
  }
  return all
}
