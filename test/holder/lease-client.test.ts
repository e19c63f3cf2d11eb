/** Closing leases while requests are under way leaves no lease behind. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { LeaseError } from '../../src/errors.ts'
import type { Leases } from '../../src/leases.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { eventually } from '../support/eventually.ts'
import { place } from '../support/resp-place.ts'

const address = 'http://10.0.0.7:8080'

interface Somewhere extends AsyncDisposable {
  open(holder: string): Promise<Leases>
}

let places = 0
const somewhere: Readonly<Record<string, () => Promise<Somewhere>>> = {
  async 'memory:'() {
    const url = `memory:closing-${places++}`
    return { open: holder => connect(url, { holder }), async [Symbol.asyncDispose]() {} }
  },
  async 'file:'() {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-closing-'))
    return {
      open: holder => connect(`file:${join(folder, 'leases.db')}`, { holder }),
      async [Symbol.asyncDispose]() {
        rmSync(folder, { recursive: true, force: true })
      },
    }
  },
  'leasehold:': () => served('leasehold'),
  'http:': () => served('http'),
}

async function served(scheme: string): Promise<Somewhere> {
  const here = await place({ http: httpListener({}) })
  return {
    open: holder => connect(`${scheme}://127.0.0.1:${here.port}`, { holder }),
    [Symbol.asyncDispose]: () => here[Symbol.asyncDispose](),
  }
}

describe.each(Object.entries(somewhere))('leases of %s that are closed', (_, begin) => {
  test.each([0, 1, 3, 8, 30])('release what was requested %i turns ago and is granted or queued meanwhile', async turns => {
    await using there = await begin()
    await using other = await there.open('other')
    await using _held = await other.acquire('held')
    const leases = await there.open('leaver')
    const calls = [
      leases.acquire('free'),
      leases.acquire('held'),
      leases.request('other', () => {}),
      leases.registry.register({ service: 's', instance: '1', address }),
    ].map(answer => answer.then(() => 'done').catch((error: LeaseError) => error.code))
    for (let turn = 0; turn < turns; turn++) await null
    await leases[Symbol.asyncDispose]()
    for (const answer of await Promise.all(calls)) expect(['done', 'UNAVAILABLE']).toContain(answer)
    const { held, pending } = await other.query()
    expect([held.map(({ resource }) => resource), pending]).toEqual([['held'], []])
    expect((await other.read({ kind: 'entries', prefix: '' }, { consistent: true })).value).toEqual([])
  })
})

test('close waits at most a second for an answer that does not come', async () => {
  const { leases, lessor, clock } = silentLessor()
  await leases.acquire('k').then(lease => lease.release())
  lessor.stopAnswering()
  const pending = [leases.acquire('k'), leases.registry.register({ service: 's', instance: '1', address })]
  const outcomes = Promise.allSettled(pending)
  let closed = false
  const closing = leases[Symbol.asyncDispose]().then(() => (closed = true))
  await clock.advance(900)
  expect(closed).toBe(false)
  await clock.advance(1_200)
  expect(closed).toBe(true)
  await closing
  expect(await outcomes).toMatchObject([{ reason: { code: 'UNAVAILABLE' } }, { status: 'rejected' }])
})

test('a waiter is rejected at once when the lessor has ended, not when its place would have lapsed', async () => {
  const { leases, lessor, clock } = silentLessor()
  const lease = await leases.acquire('k')
  const waiting = leases.acquire('k').catch((error: unknown) => error)
  await clock.settle()
  const ended = new LeaseError('UNAVAILABLE', 'another process owns it now')
  lessor.end(ended)
  expect(await waiting).toBe(ended)
  expect(lease.held).toBe(true) // by its own clock, until its time is over
  await expect(lease.renew()).rejects.toBe(ended)
})

test('adopt is refused before, during and after closing', async () => {
  for (let turns = 0; turns < 40; turns += 3) {
    const a = silentLessor({ holder: 'a' })
    const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
    const given = await (await a.leases.acquire('k')).transfer('b')
    const adopted = b.leases.adopt(given).then(
      () => 'adopted',
      (error: LeaseError) => error.code,
    )
    for (let turn = 0; turn < turns; turn++) await null
    await b.leases[Symbol.asyncDispose]()
    expect(['adopted', 'GONE', 'UNAVAILABLE']).toContain(await adopted)
    await expect(b.leases.adopt(given)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await a.leases[Symbol.asyncDispose]()
  }
})

test('cancelled calls leave no memory behind, and leases without pending calls close at once', async () => {
  const { leases, clock } = silentLessor()
  const lease = await leases.acquire('k')
  const pending: WeakRef<AbortController>[] = []
  for (let i = 0; i < 100; i++) {
    const controller = new AbortController()
    const waiting = leases.acquire('k', { signal: controller.signal }).catch(() => {})
    pending.push(new WeakRef(controller))
    await clock.settle()
    controller.abort()
    await waiting
  }
  await clock.settle()
  expect(leases.stats.leases).toBe(1)
  await lease.release()
  let closed = false
  void leases[Symbol.asyncDispose]().then(() => (closed = true))
  await clock.settle()
  expect(closed).toBe(true)
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  await eventually(() => {
    collect()
    expect(pending.filter(ref => ref.deref() !== undefined).length).toBeLessThan(5)
  })
  expect(leases.stats.leases).toBe(0) // the client itself is still referenced
})
