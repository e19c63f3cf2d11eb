/** What processes that only hold leases do with a shared file: they read it when they renew, and nothing looks at it between two renewals. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import type { Lease } from '../../../src/lease.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { FileLog } from '../../../src/store/file/log.ts'
import { eventually } from '../../support/eventually.ts'

/** A renewal comes after half of it. */
const TTL = 2_000

function place(): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-idle-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return join(folder, 'log.db')
}

/** The calls of one method of every log, until the test ends. */
function calls(method: 'read' | 'append' | 'look'): () => number {
  const spy = vi.spyOn(FileLog.prototype, method)
  onTestFinished(() => spy.mockRestore())
  return () => spy.mock.calls.length
}

test('processes that hold leases read the file once for each renewal and look at it at no other time', async () => {
  const path = place()
  const [reads, appends, looks] = [calls('read'), calls('append'), calls('look')]
  await using one = await connect(`file:${path}`, { holder: 'one' })
  await using two = await connect(`file:${path}`, { holder: 'two' })
  const held: Lease[] = []
  for (const [i, leases] of [one, two].entries()) held.push(await leases.acquire(`job/${i}`, { ttl: TTL, ifAvailable: true }))
  const counts = () => ({ reads: reads(), appends: appends(), looks: looks() })
  // The replicas follow the log for a moment after they were opened. After that, nothing looks at the file for several renewals in a row.
  let since = counts()
  await eventually(() => {
    if (looks() !== since.looks) since = counts()
    expect(appends()).toBeGreaterThanOrEqual(since.appends + 6)
  })
  // A process that stood still may read once more, so this is asked for as often as it takes.
  await eventually(async () => {
    const before = counts()
    for (let i = 0; i < 3; i++) for (const lease of held) await lease.renew()
    expect(counts()).toEqual({ reads: before.reads + 6, appends: before.appends + 6, looks: before.looks })
  })
})

test('a process is told at once that its lease was revoked', async () => {
  const path = place()
  await using holder = await connect(`file:${path}`, { holder: 'holder' })
  await using operator = await connect(`file:${path}`, { holder: 'operator' })
  const lease = await holder.acquire('mine', { ttl: 120_000, ifAvailable: true })
  const ended = new Promise<void>(resolve => lease!.signal.addEventListener('abort', () => resolve()))
  await operator.revoke({ lease: lease!.id })
  await ended // long before its next renewal, which is due after a minute
  expect(lease!.held).toBe(false)
})

test('a request that waits beside processes that only hold is granted when an abandoned lease ends', async () => {
  const path = place()
  await using holder = await connect(`file:${path}`, { holder: 'holder' })
  await holder.acquire('other', { ttl: TTL, ifAvailable: true })
  await using dead = await connect(`file:${path}`, { holder: 'dead' })
  expect(await dead.acquire('wanted', { ttl: 1_000, ifAvailable: true, renew: 'never' })).toBeDefined()
  await using waiter = await connect(`file:${path}`, { holder: 'waiter' })
  expect(await waiter.acquire('wanted', { ttl: TTL })).toBeDefined()
})

test('a file that is owned has no other processes to wake', () => {
  expect(new FileStore({ path: '/nowhere', own: { name: 'x' } }).waker).toBeUndefined()
})
