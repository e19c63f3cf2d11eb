/** The fake timers of a test runner do not stop the library: it captured the timers of the system when it was loaded. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

// Jest replaces queueMicrotask and nextTick too; vitest does so only if asked, and needs nextTick itself.
beforeEach(() => void vi.useFakeTimers({ toFake: [...TO_FAKE] }))
afterEach(() => void vi.useRealTimers())

const TO_FAKE = ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] as const
const TIME = ['Date', 'performance', 'hrtime', 'queueMicrotask'] as const

test('the test kit moves its own clock under fake timers', async () => {
  const { clock, leases, lessor } = silentLessor()
  const lease = await leases.acquire('jobs/nightly', { ttl: '10s' })
  lessor.stopAnswering()
  await clock.advance(9_000)
  expect(lease.held).toBe(true)
  await clock.advance(1_000)
  expect({ held: lease.held, aborted: lease.signal.aborted }).toEqual({ held: false, aborted: true })
})

test('memory: grants, passes on and times out waits under fake timers that replace the clocks too', async () => {
  vi.useRealTimers()
  vi.useFakeTimers({ toFake: [...TO_FAKE, ...TIME] })
  await using leases = await connect('memory:')
  await leases.request('jobs/nightly', async lease => {
    vi.setSystemTime(0) // a date of the test must not look like a jump of the wall clock
    expect(lease.held).toBe(true)
    expect((await leases.acquire('other')).held).toBe(true)
    await expect(leases.acquire('other', { wait: 1 })).rejects.toMatchObject({ code: 'TIMEOUT' })
  })
  expect(await leases.tryAcquire('jobs/nightly')).toBeDefined()
})

test('a file grants under fake timers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-fake-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  await using leases = await connect(`file:${join(folder, 'leases.db')}`)
  await leases.request('jobs/nightly', lease => expect(lease.held).toBe(true))
})
