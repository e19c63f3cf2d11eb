/** The contract of a store: owners of a log. */
import assert from 'node:assert/strict'
import { systemClock, turn } from '../../clock.ts'
import type { LeaseError } from '../../errors.ts'
import type { Granted } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { Replica } from '../../replica/replica.ts'
import { START } from '../../store.ts'
import { rejectsWith, within } from '../suite-case.ts'
import { appendAll, bytes, chunks, readAll, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const owningCases: StoreCases = {
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
    assert.equal((await within(waiting)).kind, 'disowned')
  },
}
