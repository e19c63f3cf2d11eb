import { describe, expect, test } from 'vitest'
import { openInPlace } from '../../src/connect/connect.ts'
import { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { storeOf } from '../../src/connect/store-of.ts'
import { LeaseError } from '../../src/errors.ts'
import { encodeBatch } from '../../src/kernel/codec/batch.ts'
import { propose } from '../../src/lessor/propose.ts'
import { readBackup } from '../../src/replica/backup.ts'
import { type MovePlan, moveLeases } from '../../src/replica/move-leases.ts'
import type { Replica } from '../../src/replica/replica.ts'
import { restore } from '../../src/replica/restore.ts'
import { MemoryStore } from '../../src/store/memory.ts'
import type { Store } from '../../src/store.ts'
import { broken, killedAtTheEnd } from '../support/broken-store.ts'
import { describeEngine, engine } from '../support/engine.ts'
import { acquire, fate, granted, Line, leases, Rig, renew } from '../support/replica/rig.ts'
import { intercept } from '../support/submitting.ts'

const place = 'there'

/** Two logs, and a lease of ann's in the first. */
async function house() {
  const [from, to] = [new Rig(), new Rig()]
  const old = await from.open()
  const ann = granted(await propose(old, acquire('ann', 'job', { ttl: 60_000 })))
  const { clock } = to
  const open = async (): Promise<Store> => new MemoryStore({ log: to.log, clock })
  return { from, to, old, ann, clock, open, carry: () => moveLeases(old, { place, open, clock }) }
}

async function held(replica: Replica): Promise<readonly string[]> {
  await replica.read({ kind: 'summary' }, { consistent: true })
  return leases(replica)
}

describe('a replica that has the new log open while leases are moved into it', () => {
  test('serves the leases that arrive, as replicas opened later do', async () => {
    const { to, carry, ann, clock } = await house()
    await using server = await to.open() // started first, as one does
    await using other = await to.open()
    const { lease } = granted(await propose(other, acquire('eve', 'x')))
    await propose(other, { kind: 'release', lease })
    await carry()
    await using later = await to.open()
    for (const replica of [server, other, later]) {
      expect(await held(replica)).toEqual(['ann'])
      expect(await propose(replica, acquire('bob', 'job'))).toMatchObject({ kind: 'refused', code: 'HELD' })
    }
    expect(await renew(server, ann.lease)).toEqual([60_000])
    const next = granted(await propose(other, acquire('bob', 'free')))
    expect(next.tokens[0]).toBeGreaterThan(ann.tokens[0]!)
    await clock.settle()
    for (const replica of [server, other, later]) await replica.read({ kind: 'summary' }, { consistent: true })
    expect(new Set([server.hash(), other.hash(), later.hash()]).size).toBe(1)
    // Its terms run there as they do where it was read anew.
    await clock.advance(61_000)
    expect(await held(server)).toEqual([])
  })

  test('sends its watches a resync', async () => {
    const { to, carry, clock } = await house()
    await using server = await to.open()
    const stop = new AbortController()
    const seen: string[] = []
    const watching = (async () => {
      for await (const events of server.watch('', { after: 0, signal: stop.signal })) seen.push(...events.map(({ type }) => type))
    })()
    await clock.settle()
    await carry()
    await clock.settle()
    expect(seen).toContain('resync')
    granted(await propose(server, acquire('bob', 'free')))
    await clock.settle()
    stop.abort()
    await watching
    expect(seen.slice(-2)).toEqual(['resync', 'granted'])
  })

  test('answers a pending request by the leases that arrived', async () => {
    const { to, carry, clock } = await house()
    const line = new Line()
    await using server = await to.open({ line })
    await clock.settle()
    line.ways.append.push(20, 0)
    const asked = [fate(propose(server, acquire('bob', 'job'))), fate(propose(server, acquire('bob', 'free')))]
    await clock.settle()
    await carry()
    await clock.advance(100)
    expect(asked.map(({ value }) => value)).toMatchObject([{ kind: 'refused', code: 'HELD' }, { kind: 'granted' }])
    await using later = await to.open()
    for (const replica of [server, later]) expect(await held(replica)).toEqual(['ann', 'bob'])
  })

  test.each(['before they are written', 'after they were written', 'before, and it comes in when they are there'])(
    'may write to it itself: %s',
    async when => {
      const { to, old, clock } = await house()
      const line = new Line()
      await using server = await to.open({ line })
      await using other = await to.open()
      const write = async () => {
        if (when.endsWith('there')) line.ways.append.push(20, 0)
        await server.read({ kind: 'summary' }, { consistent: true })
        const written = propose(server, { kind: 'move', stay: true }) // refused in every case, but by the log
        if (!when.endsWith('there')) expect(await written).toMatchObject({ kind: 'refused' })
      }
      const open = async () => {
        const store = new MemoryStore({ log: to.log, clock })
        return broken(store, {
          async snapshot(at, bytes) {
            if (when.startsWith('before')) await write()
            const kept = await store.snapshot(at, bytes)
            await using later = await to.open() // it has read what is carried in before it is in force
            if (when.startsWith('after')) await write()
            await expect(later.read({ kind: 'leases' }, { consistent: true })).rejects.toMatchObject({ facts: { moving: true } })
            return kept
          },
        })
      }
      await moveLeases(old, { place, open, clock })
      await clock.advance(100)
      await using later = await to.open()
      for (const replica of [server, other, later]) expect(await held(replica)).toEqual(['ann'])
      expect(new Set([server.hash(), other.hash(), later.hash()]).size).toBe(1)
      granted(await propose(server, acquire('bob', 'free')))
      await clock.settle()
      for (const { signal } of [server, other, later]) expect(signal.aborted).toBe(false)
    },
  )

  test('serves a backup that is restored into the log as well', async () => {
    const { to, old, open, clock } = await house()
    await using server = await to.open()
    await restore(await open(), await readBackup(old.backup()), { clock, clientsStopped: true })
    expect(await held(server)).toEqual(['ann'])
    expect(await propose(server, acquire('bob', 'job', { wait: true }))).toMatchObject({ kind: 'queued' })
    await using later = await to.open()
    expect(await held(later)).toEqual(['ann', 'bob'])
  })

  test('keeps its state when the leases cannot be written there', async () => {
    const { to, old, clock } = await house()
    await using server = await to.open()
    const open = async () => broken(new MemoryStore({ log: to.log, clock }), { snapshot: async () => 'older' })
    await expect(moveLeases(old, { place, open, clock })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    granted(await propose(server, acquire('bob', 'job')))
    granted(await propose(old, acquire('eve', 'free')))
  })
})

describe('what the old log decides while its leases are copied', () => {
  /** The store of the new log. `meanwhile` is called when the copy is written. */
  function copying(to: Rig, meanwhile: () => Promise<void>): () => Promise<Store> {
    return async () => {
      const store = new MemoryStore({ log: to.log, clock: to.clock })
      return broken(store, {
        async snapshot(at, bytes) {
          await meanwhile()
          return store.snapshot(at, bytes)
        },
      })
    }
  }

  test('is carried after them: ids, tokens, entries and answers are the same in the new log', async () => {
    const { to, old, ann, clock } = await house()
    await using server = await to.open() // it has used the log before
    const { lease } = granted(await propose(server, acquire('eve', 'x')))
    await propose(server, { kind: 'release', lease })
    const op = { session: 's', seq: 1, acked: 0 }
    let eve = granted(await propose(old, acquire('eve', 'other', { ttl: 60_000 })))
    const open = copying(to, async () => {
      await propose(old, { kind: 'release', lease: eve.lease })
      eve = granted(await propose(old, acquire('eve', 'other', { ttl: 60_000 }), { op }))
      await propose(old, { kind: 'put', lease: eve.lease, key: 'k', value: '1' })
      await propose(old, { kind: 'key', name: 'root', hash: 'a'.repeat(64), allow: [{ verb: 'admin', prefix: '' }] })
      expect(await propose(old, acquire('bob', 'job', { wait: true, ttl: 60_000 }))).toMatchObject({ kind: 'queued' })
    })
    const [entry] = await (async () => {
      await moveLeases(old, { place, open, clock })
      return (await server.read({ kind: 'entries', prefix: 'k' }, { consistent: true })).value
    })()
    const { revision } = await old.read({ kind: 'summary' })
    expect(entry).toMatchObject({ key: 'k', value: '1', lease: eve.lease })
    expect(entry!.revision).toBeLessThan(revision)
    expect((await server.read({ kind: 'summary' })).revision).toBeGreaterThan(revision)
    await using later = await to.open()
    for (const replica of [server, later]) {
      expect(await held(replica)).toEqual(['ann', 'eve', 'bob'])
      expect(await propose(replica, acquire('eve', 'other', { ttl: 60_000 }), { op: { ...op, again: true } })).toMatchObject({
        lease: eve.lease,
        tokens: eve.tokens,
      })
    }
    await server.read({ kind: 'summary' }, { consistent: true }) // the last record is that of the other one
    expect(server.hash()).toBe(later.hash())
    expect((await later.read({ kind: 'keys' })).value).toMatchObject([{ name: 'root' }])
    await propose(server, { kind: 'release', lease: ann.lease })
    const next = granted(await propose(later, acquire('zoe', 'free')))
    expect(next.tokens[0]).toBeGreaterThan(eve.tokens[0]!)
  })

  test('it does not stop: it grants and renews until the copy is written', async () => {
    const { to, old, ann, clock } = await house()
    const open = copying(to, async () => {
      granted(await propose(old, acquire('bob', 'free')))
      expect(await renew(old, ann.lease)).toEqual([60_000])
    })
    expect(await moveLeases(old, { place, open, clock })).toMatchObject({ leases: 2, stopped: 0 })
  })

  test.each([
    ['a new run', { kind: 'run', owned: true } as const],
    ['a new generation', { kind: 'generation', lease: 9, token: 9, revision: 9, quiet: 0 } as const],
  ])('%s of it cancels the move before it stops', async (_, command) => {
    const { from, to, old, clock } = await house()
    const open = copying(to, async () => {
      const store = from.store()
      const { head } = await store.open()
      await store.append(
        encodeBatch({ proposer: old.survivor.lease, seq: 1, applied: 0, decisionHash: [0, 0], wall: 0, proposals: [{ command }] }),
        head,
      )
    })
    await expect(moveLeases(old, { place, open, clock })).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { move: 'called-off' } })
  })

  test('replicas that have it open load the copy before it stops', async () => {
    const { from, to, old, clock, open } = await house()
    const opened: (string | undefined)[] = []
    await using following = new RelocatingLessor(await from.open(), {
      clock,
      open: async () => {
        opened.push((await old.read({ kind: 'summary' })).value.moved)
        return to.open()
      },
    })
    await clock.settle()
    await moveLeases(old, { place, open, clock })
    await clock.settle()
    expect(opened).toEqual([undefined])
    granted(await propose(following, acquire('bob', 'free')))
    expect((await following.read({ kind: 'leases' })).value).toHaveLength(2)
  })
})

describe('before a move', () => {
  test('its length is estimated, and the leases are counted that it may cost', async () => {
    const { old, clock, open } = await house()
    granted(await propose(old, acquire('bob', 'short', { ttl: 900 })))
    const { revision } = await old.read({ kind: 'summary' })
    const plans: MovePlan[] = []
    const refuse = (plan: MovePlan) => {
      plans.push(plan)
      throw new Error('no')
    }
    await expect(moveLeases(old, { place, open, clock, confirm: refuse })).rejects.toThrow('no')
    expect(plans).toEqual([{ leases: 2, stop: 500, shortest: 1_000, atRisk: 1 }])
    expect((await old.read({ kind: 'summary' }, { consistent: true })).revision).toBe(revision)
    expect(await moveLeases(old, { place, open, clock })).toMatchObject({ leases: 2 }) // the place is still empty
  })
})

test('a move whose old log can no longer be followed fails at once, although no proposal is answered', async () => {
  const { old, clock, open } = await house()
  intercept(old, async (ask, command, options) => {
    if (command.kind !== 'move' || command.prepare === true) return ask(command, options)
    await old[Symbol.asyncDispose]() // as when the connection to its server is lost
    return new Promise(() => {})
  })
  const failed = await moveLeases(old, { place, open, clock }).catch(error => error)
  expect(failed).toMatchObject({ code: 'UNAVAILABLE', facts: { move: 'not-complete' } })
})

describe('leases are granted in one log at most', () => {
  test('when the move is cancelled before they have left', async () => {
    const { to, old, clock, open } = await house()
    intercept(old, async (ask, command, options) => {
      if (command.kind === 'move' && command.to !== undefined && command.since !== undefined) {
        await ask({ kind: 'move', stay: true }, {})
        granted(await ask(acquire('eve', 'free'), {}))
      }
      return ask(command, options)
    })
    await expect(moveLeases(old, { place, open, clock })).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringMatching(/called off/),
    })
    expect(await propose(old, acquire('bob', 'job'))).toMatchObject({ code: 'HELD' })
    await using there = await to.open()
    expect(await propose(there, acquire('bob', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moving: true } })
    await expect(there.read({ kind: 'leases' })).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { moving: true } })
  })

  test('when the new store cannot be closed after they were written there', async () => {
    const { to, old, clock } = await house()
    const open = async () =>
      broken(new MemoryStore({ log: to.log, clock }), { [Symbol.asyncDispose]: () => Promise.reject(new Error('no answer')) })
    expect(await moveLeases(old, { place, open, clock })).toMatchObject({ leases: 1 })
    expect(await propose(old, acquire('bob', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moved: place } })
    await using there = await to.open()
    granted(await propose(there, acquire('eve', 'free')))
  })

  test('when the move fails after they have left: a repetition completes it, and a third call has nothing to do', async () => {
    const { to, old, clock, carry: carryOn, open } = await house()
    await expect(moveLeases(old, { place, open: async () => killedAtTheEnd(await open()), clock })).rejects.toThrow('killed')
    expect(await propose(old, acquire('bob', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moved: place } })
    await using there = await to.open()
    expect(await propose(there, acquire('bob', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moving: true } })
    expect(await carryOn()).toBeUndefined()
    granted(await propose(there, acquire('bob', 'free')))
    expect(await propose(there, acquire('bob', 'job'))).toMatchObject({ code: 'HELD' })
    await expect(carryOn()).rejects.toMatchObject({ code: 'INVALID', facts: { moved: place } })
    await expect(moveLeases(old, { place: 'elsewhere', open, clock })).rejects.toMatchObject({ code: 'INVALID', facts: { moved: place } })
    expect(await propose(old, acquire('eve', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moved: place } })
  })

  test('when another process is moving them already: that move is not cancelled', async () => {
    const { old, carry } = await house()
    await propose(old, { kind: 'move' })
    await expect(carry()).rejects.toMatchObject({ code: 'INVALID', facts: { moving: true } })
    expect(await propose(old, acquire('bob', 'free'))).toMatchObject({ code: 'UNAVAILABLE', facts: { moving: true } })
  })
})

test('a backup of a log whose leases have left, and such a log, are not restored', async () => {
  const { old, carry, clock } = await house()
  await carry()
  const rig = new Rig()
  const backup = await readBackup(old.backup())
  await expect(restore(new MemoryStore({ log: rig.log, clock }), backup, { clock })).rejects.toMatchObject({ facts: { moved: place } })
})

describeEngine('redis', 'a server on an engine', () => {
  test('that was started before the leases arrived serves them', async () => {
    await using redis = await engine('redis')
    const url = `${redis.url}?name=new`
    await using server = (await openInPlace(url)) as Replica
    await using old = (await openInPlace(`${redis.url}?name=old`)) as Replica
    const ann = granted(await propose(old, acquire('ann', 'job', { ttl: 60_000 })))
    await moveLeases(old, { place: url, open: () => storeOf(url) })
    expect(await propose(server, acquire('bob', 'job'))).toMatchObject({ kind: 'refused', code: 'HELD' })
    expect(await renew(server, ann.lease)).toEqual([60_000])
    await using later = (await openInPlace(url)) as Replica
    expect(await held(later)).toEqual(['ann'])
    granted(await propose(later, acquire('bob', 'free')))
    expect(await held(server)).toEqual(['ann', 'bob'])
  })
})

describe('a place that cannot be used', () => {
  test('is rejected before the old log is changed', async () => {
    const { old, clock } = await house()
    const { revision } = await old.read({ kind: 'summary' })
    const missing = new LeaseError('UNSUPPORTED', 'the driver is missing')
    const open = async (): Promise<Store> => Object.assign(new MemoryStore({ clock }), { open: () => Promise.reject(missing) })
    await expect(moveLeases(old, { place, open, clock })).rejects.toBe(missing)
    expect((await old.read({ kind: 'summary' })).revision).toBe(revision)
  })

  test('is reported with the state of the move when it had begun and was cancelled', async () => {
    const { to, old, clock } = await house()
    const open = async (): Promise<Store> => {
      const store = new MemoryStore({ log: to.log, clock })
      return Object.assign(store, { snapshot: () => Promise.reject(new LeaseError('UNAVAILABLE', 'the disk is full')) })
    }
    const failed = await moveLeases(old, { place, open, clock }).catch(error => error)
    expect(failed).toMatchObject({ code: 'UNAVAILABLE', facts: { move: 'called-off' } })
    expect(failed.message).toMatch(/stay where they are.*the disk is full/)
    expect((await old.read({ kind: 'summary' })).value.moved).toBeUndefined()
  })
})

test('a restore that fails after it has begun reports so', async () => {
  const { to, old, clock } = await house()
  const backup = await readBackup(old.backup())
  const store = broken(new MemoryStore({ log: to.log, clock, own: { name: 'restore' } }), {
    snapshot: () => Promise.reject(new LeaseError('UNAVAILABLE', 'the disk is full')),
  })
  await expect(restore(store, backup, { clock, clientsStopped: true })).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    facts: { restore: 'begun' },
  })
})
