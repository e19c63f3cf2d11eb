/** A lessor that follows its leases to another log, or from a stopped server to the server's store. */
import { expect, test, vi } from 'vitest'
import { turn } from '../../src/clock.ts'
import { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { LeaseError } from '../../src/errors.ts'
import type { Acquire, Command } from '../../src/kernel/command.ts'
import type { Event } from '../../src/kernel/event.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions } from '../../src/lessor.ts'
import { readBackup } from '../../src/replica/backup.ts'
import { Destination } from '../../src/replica/destination.ts'
import { moveLeases } from '../../src/replica/move-leases.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { fate, granted, Line, Rig } from '../support/replica/rig.ts'
import { submitting } from '../support/submitting.ts'

const acquire = (holder: string, resource: string): Acquire => ({ kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }] })

function twoLogs() {
  const clock = new ManualClock()
  const [old, next] = [new MemoryLog({ clock }), new MemoryLog({ clock })]
  const replica = (log: MemoryLog) => Replica.open(new MemoryStore({ log, clock }), { clock })
  return {
    clock,
    next,
    replica: () => replica(old),
    following: async () => new RelocatingLessor(await replica(old), { clock, open: () => replica(next) }),
    moveToNext: (from: Replica) => moveLeases(from, { place: 'next', open: async () => new MemoryStore({ log: next, clock }), clock }),
    there: () => replica(next),
  }
}

test('leases move to another log while they are held: tokens increase, and held resources are not granted again', async () => {
  const { clock, following, replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  await using leases = new Leases(await following(), { clock, holder: 'ann' })
  const lease = await leases.acquire('a', { ttl: 1_000 })
  await moveToNext(mover)
  for (let i = 0; i < 50; i++) {
    await clock.advance(100)
    await turn()
    lease.assertHeld()
  }
  await using rival = await there()
  expect(await propose(rival, acquire('bob', 'a'))).toMatchObject({ kind: 'refused', code: 'HELD' })
  await lease.release()
  const granted = await propose(rival, acquire('bob', 'a'))
  expect(granted.kind === 'granted' && granted.tokens[0]! > lease.token).toBe(true)
})

test('a command proposed during a move is decided by the new log', async () => {
  const { clock, following, replica, moveToNext } = twoLogs()
  await using mover = await replica()
  await using lessor = await following()
  await propose(mover, { kind: 'move' })
  const pending = propose(lessor, acquire('ann', 'a'))
  await clock.advance(500)
  await propose(mover, { kind: 'move', stay: true })
  await moveToNext(mover)
  for (let i = 0; i < 5; i++) await clock.advance(100)
  expect((await pending).kind).toBe('granted')
})

test('a request that waits too long for a move that was interrupted learns the reason', async () => {
  const { clock, following, replica } = twoLogs()
  await using mover = await replica()
  await using leases = new Leases(await following(), { clock, holder: 'ann' })
  await propose(mover, { kind: 'move' }) // and the process that moves them dies
  const pending = leases.acquire('a', { wait: 4_000 }).catch(error => error)
  for (let i = 0; i < 50; i++) await clock.advance(100)
  expect(await pending).toMatchObject({ code: 'TIMEOUT', message: expect.stringMatching(/leases are being moved to another store/) })
  await propose(mover, { kind: 'move', stay: true })
  for (let i = 0; i < 5; i++) await clock.advance(100)
})

test('a watch follows the leases and gets a resync event', async () => {
  const { following, replica, moveToNext } = twoLogs()
  await using mover = await replica()
  await using lessor = await following()
  const stop = new AbortController()
  const seen: Event[] = []
  const watching = (async () => {
    for await (const events of lessor.watch('', { after: mover.revision, signal: stop.signal })) seen.push(...events)
  })()
  await propose(mover, acquire('ann', 'a'))
  await moveToNext(mover)
  for (let i = 0; i < 20; i++) await turn()
  await propose(lessor, acquire('bob', 'b'))
  for (let i = 0; i < 20; i++) await turn()
  stop.abort()
  await watching
  expect(seen.map(({ type, resource }) => `${type} ${resource ?? ''}`.trim())).toEqual([
    'granted a',
    'moved',
    'moved',
    'moved',
    'resync',
    'granted b',
  ])
  for (const [i, { revision }] of seen.entries()) if (i > 0) expect(revision).toBeGreaterThan(seen[i - 1]!.revision)
})

test('a lessor that opens the old log later is redirected to the new one', async () => {
  const { following, replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  await propose(mover, acquire('ann', 'a'))
  await moveToNext(mover)
  await using lessor = await following()
  for (let i = 0; i < 20; i++) await turn()
  await using direct = await there()
  await propose(direct, acquire('bob', 'b'))
  await lessor.read({ kind: 'summary' }, { consistent: true })
  expect((await lessor.read({ kind: 'resources', prefix: '' })).value.map(({ resource }) => resource)).toEqual(['a', 'b'])
})

test('a command fails with UNAVAILABLE if the new place cannot be opened', async () => {
  const { clock, replica, moveToNext } = twoLogs()
  await using mover = await replica()
  const open = () => Promise.reject(new Error('no route'))
  await using lessor = new RelocatingLessor(await replica(), { clock, open })
  await moveToNext(mover)
  await expect(propose(lessor, acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { moved: 'next' } })
})

test('a read is answered by the new log, not by the log that the leases have left', async () => {
  const { clock, replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  let arrive!: (lessor: Lessor) => void
  await using lessor = new RelocatingLessor(await replica(), { clock, open: () => new Promise(resolve => (arrive = resolve)) })
  const { lease } = granted(await propose(mover, acquire('ann', 'a')))
  await moveToNext(mover)
  await using other = await there()
  await propose(other, { kind: 'release', lease })
  granted(await propose(other, acquire('bob', 'a')))
  const read = fate(lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true }))
  await clock.settle()
  expect(read.settled).toBe(false)
  arrive(await there())
  await clock.settle()
  expect(read.value?.value.grants.map(({ holder }) => holder)).toEqual(['bob'])
})

test('a read is not answered during a move, and the summary shows the move', async () => {
  const { clock, following, replica } = twoLogs()
  await using mover = await replica()
  await using lessor = await following()
  granted(await propose(mover, acquire('ann', 'a')))
  await propose(mover, { kind: 'move' })
  expect((await lessor.read({ kind: 'summary' }, { consistent: true })).value.moved).toBe('')
  const [read, late] = [fate(lessor.read({ kind: 'leases' })), fate(lessor.read({ kind: 'leases' }))]
  await clock.advance(29_000)
  expect(read.settled).toBe(false)
  await clock.advance(2_000)
  expect(late.error).toMatchObject({ code: 'UNAVAILABLE', facts: { moving: true } })
  const pending = fate(lessor.read({ kind: 'leases' }))
  await propose(mover, { kind: 'move', stay: true })
  await clock.advance(100)
  expect(pending.value?.value.map(({ holder }) => holder)).toEqual(['ann'])
})

test('a lessor that cannot open the new place fails every request, keeps trying, and follows as soon as it can', async () => {
  const { clock, replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  const place = { password: false, tries: 0 }
  const open = () => {
    place.tries++
    return place.password ? there() : Promise.reject(new Error('no password in this environment'))
  }
  await using lessor = new RelocatingLessor(await replica(), { clock, open })
  granted(
    await propose(mover, { kind: 'acquire', holder: 'api', ttl: 10_000, wants: [], entries: [{ key: 'services/api/1', value: 'x' }] }),
  )
  await lessor.read({ kind: 'summary' }, { consistent: true }) // so that the watch begins behind this
  const [stop, seen] = [new AbortController(), [] as string[]]
  const watch = async () => {
    for await (const events of lessor.watch('services', { signal: stop.signal })) seen.push(...events.map(({ type }) => type))
  }
  const watching = fate(watch())
  await clock.settle()
  await moveToNext(mover)
  await clock.advance(3_600_000)
  const why = { code: 'UNAVAILABLE', facts: { moved: 'next' }, message: expect.stringMatching(/no password/) }
  expect(watching.error).toMatchObject(why)
  await expect(lessor.read({ kind: 'entries', prefix: 'services' }, { consistent: true })).rejects.toMatchObject(why)
  await expect(propose(lessor, acquire('ann', 'a'))).rejects.toMatchObject(why)
  expect(place.tries).toBeGreaterThan(700)
  place.password = true
  await clock.advance(5_000)
  expect((await lessor.read({ kind: 'entries', prefix: 'services' })).value).toEqual([]) // lapsed there an hour ago
  const again = watch()
  await clock.settle()
  await propose(lessor, { kind: 'acquire', holder: 'api', ttl: 10_000, wants: [], entries: [{ key: 'services/api/2', value: 'x' }] })
  await clock.settle()
  stop.abort()
  await again
  expect(seen).toEqual(['put'])
})

test('a watch survives a new place that cannot be opened for a short time', async () => {
  const { clock, replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  let tries = 0
  const open = () => (++tries < 5 ? Promise.reject(new Error('it is owned')) : there())
  await using lessor = new RelocatingLessor(await replica(), { clock, open })
  const [stop, seen] = [new AbortController(), [] as string[]]
  const watching = (async () => {
    for await (const events of lessor.watch('', { signal: stop.signal })) seen.push(...events.map(({ type }) => type))
  })()
  await clock.settle()
  await moveToNext(mover)
  await clock.advance(5_000)
  granted(await propose(lessor, acquire('bob', 'b')))
  await clock.settle()
  stop.abort()
  await watching
  expect(seen).toEqual(['moved', 'moved', 'moved', 'moved', 'resync', 'granted'])
})

test('a command in flight when the leases left is decided by the new log, under the same operation number', async () => {
  const [from, next] = [new Rig(), new MemoryLog()]
  const { clock } = from
  const line = new Line()
  await using mover = await from.open()
  const open = () => Replica.open(new MemoryStore({ log: next, clock }), { clock })
  await using leases = new Leases(new RelocatingLessor(await from.open({ line }), { clock, open }), { clock, holder: 'ann' })
  await clock.settle()
  line.ways.append.push(20, 0)
  const pending = fate(leases.acquire('free', { ifAvailable: true, ttl: 60_000 }))
  await clock.settle()
  const { revision: since } = await propose(mover, { kind: 'move' }) // comes before the request in the log
  await clock.advance(100)
  await using there = await Destination.open(new MemoryStore({ log: next, clock }), clock)
  await there.copy(await readBackup(mover.backup()))
  await propose(mover, { kind: 'move', to: 'next', since })
  await there.complete()
  await clock.advance(1_000)
  expect(pending.error).toBeUndefined()
  expect(pending.value?.held).toBe(true)
})

test('leases are not moved into a log that holds other leases', async () => {
  const { replica, moveToNext, there } = twoLogs()
  await using mover = await replica()
  {
    await using other = await there()
    const command: Command = acquire('eve', 'x')
    await propose(other, command)
  }
  await expect(moveToNext(mover)).rejects.toMatchObject({ code: 'INVALID' })
  expect((await propose(mover, acquire('ann', 'a'))).kind).toBe('granted')
})

/** A lessor that was redirected to a server: a replica that can be cut off, and its store, which is owned while `place.owned` is true. */
function redirected() {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const replica = () => Replica.open(new MemoryStore({ log, clock }), { clock })
  const place = { owned: true, tries: 0 }
  const open = async () => {
    const there = await replica()
    let reached = true
    let lost: ((reason: unknown) => void)[] = []
    const server: Lessor & { readonly server: string | undefined } = {
      get server() {
        return reached ? 'a server' : undefined
      },
      profile: there.profile,
      signal: there.signal,
      submit(command: Command, options: ProposeOptions, completion: Completion): void {
        if (reached) there.submit(command, options, completion)
        else lost.push(error => completion.fail(error))
      },
      read: there.read.bind(there),
      watch: there.watch.bind(there),
      async [Symbol.asyncDispose]() {
        for (const reject of lost.splice(0)) reject(new LeaseError('UNAVAILABLE', 'this server has stopped'))
        await there[Symbol.asyncDispose]()
      },
    }
    const cut = (cut: boolean) => {
      reached = !cut
      if (!cut) lost = []
    }
    const home = async () => {
      place.tries++
      if (place.owned) throw new LeaseError('UNAVAILABLE', 'it is owned')
      return replica()
    }
    return { cut, server, following: new RelocatingLessor(server, { clock, open: () => Promise.reject(new Error('nothing moves')), home }) }
  }
  return { clock, open, place }
}

test('the lessor waits for a server that is unreachable for less than a sixth of the shortest ttl', async () => {
  const { clock, open, place } = redirected()
  const { cut, server, following } = await open()
  await using leases = new Leases(following, { clock, holder: 'ann' })
  await using lease = await leases.acquire('a', { ttl: 12_000 })
  cut(true)
  place.owned = false
  await clock.advance(1_900)
  cut(false)
  await clock.advance(5_000)
  expect([place.tries, following.here === server, lease.held]).toEqual([0, true, true])
})

test('the lessor waits for an unreachable server while its store is owned; then it continues on the store, and answers pending requests', async () => {
  const { clock, open, place } = redirected()
  const { cut, server, following } = await open()
  await using leases = new Leases(following, { clock, holder: 'ann' })
  await using lease = await leases.acquire('a', { ttl: 12_000 })
  cut(true)
  const pending = leases.acquire('b', { ttl: 12_000 })
  await clock.advance(4_000)
  expect(place.tries).toBeGreaterThan(1)
  expect(following.here).toBe(server)
  place.owned = false
  await clock.advance(1_000)
  expect(following.here).not.toBe(server)
  await using other = await pending
  expect(other.token).toBeGreaterThan(lease.token)
  for (let i = 0; i < 30; i++) {
    await clock.advance(1_000)
    lease.assertHeld()
  }
})

test('a lessor on the store itself looks for a server of the store, uses it, and keeps its leases', async () => {
  const rig = new Rig()
  const { clock } = rig
  const [here, other] = [await rig.open(), await rig.open()]
  let [searches, found]: [number, Lessor | undefined] = [0, undefined]
  const server = async () => {
    searches++
    const lessor = found
    found = undefined
    return lessor
  }
  const open = async () => rig.open()
  await using lessor = new RelocatingLessor(here, { clock, open, home: open, server })
  await using leases = new Leases(lessor, { clock, holder: 'ann' })
  await using lease = await leases.acquire('a', { ttl: 30_000 })
  const pass = async (seconds: number) => {
    for (let i = 0; i < seconds; i++) {
      await clock.advance(1_000)
      lease.assertHeld()
    }
  }
  await pass(60)
  expect(searches).toBeGreaterThan(1)
  expect(lessor.here).toBe(here)
  found = other
  await pass(30)
  expect(lessor.here).toBe(other)
  expect(here.signal.aborted).toBe(true)
  await pass(60)
})

test('a lessor that is closed while it returns to the store leaves nothing open', async () => {
  const rig = new Rig()
  const { clock } = rig
  const there = await rig.open()
  let [closed, home]: [(() => void)?, ((lessor: Lessor) => void)?] = []
  const gone = () => Promise.reject(new LeaseError('UNAVAILABLE', 'no server'))
  const here: Lessor & { readonly server: undefined } = {
    ...{ profile: there.profile, signal: new AbortController().signal, server: undefined, submit: submitting(gone), read: gone },
    async *watch() {},
    // Closing waits for a server that does not answer.
    [Symbol.asyncDispose]: () => new Promise(resolve => (closed = resolve)),
  }
  const following = new RelocatingLessor(here, { clock, open: gone, home: () => new Promise(resolve => (home = resolve)) })
  await clock.advance(11_500)
  const closing = following[Symbol.asyncDispose]()
  await clock.settle()
  home!(there)
  await clock.settle()
  closed!()
  await closing
  expect(there.signal.aborted).toBe(true)
})

test('a finished watch leaves no listener on long-lived signals', async () => {
  const { clock, following } = twoLogs()
  await using lessor = await following()
  await propose(lessor, acquire('ann', 'a'))
  await clock.settle()
  const any = vi.spyOn(AbortSignal, 'any')
  const listening = new Map<AbortSignal, number>()
  const { addEventListener, removeEventListener } = EventTarget.prototype
  const count = (signal: EventTarget, more: number) => {
    if (signal instanceof AbortSignal) listening.set(signal, (listening.get(signal) ?? 0) + more)
  }
  EventTarget.prototype.addEventListener = function (this: EventTarget, ...rest: Parameters<typeof addEventListener>) {
    count(this, 1)
    return addEventListener.apply(this, rest)
  }
  EventTarget.prototype.removeEventListener = function (this: EventTarget, ...rest: Parameters<typeof removeEventListener>) {
    count(this, -1)
    return removeEventListener.apply(this, rest)
  }
  const whole = new AbortController()
  try {
    for (let i = 0; i < 50; i++) for await (const _ of lessor.watch('', { after: 0, signal: whole.signal })) break
  } finally {
    Object.assign(EventTarget.prototype, { addEventListener, removeEventListener })
  }
  expect(any).not.toHaveBeenCalled()
  any.mockRestore()
  expect([...listening.values()].filter(left => left > 1)).toEqual([])
  expect(listening.get(whole.signal)).toBe(0)
})
