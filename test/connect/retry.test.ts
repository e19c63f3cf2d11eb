/** `connect` with `retry`: a place that is down at the start is tried again; what no waiting can mend is not. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { type ConnectEvent, openWithRetry } from '../../src/connect/retry.ts'
import { type ErrorReason, LeaseError } from '../../src/errors.ts'
import { MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A place that cannot be opened for the first `failures` times. */
function failing(failures: number, reason: ErrorReason = 'unreachable') {
  let attempts = 0
  const open = async () => {
    if (++attempts <= failures) throw new LeaseError('UNAVAILABLE', 'db cannot be reached', { reason, facts: { where: 'db' } as never })
    return 'open'
  }
  return { open, attempts: () => attempts }
}

async function advance(clock: ManualClock, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 500) await clock.advance(500)
}

test('a place that comes up within retry is opened, and each attempt is reported', async () => {
  const clock = new ManualClock()
  const { open } = failing(3)
  const events: ConnectEvent[] = []
  const logged: string[] = []
  const logger = { info: (text: string) => logged.push(text), warn: (text: string) => logged.push(text) }
  const opening = openWithRetry(open, clock, { retry: '30s', onEvent: event => events.push(event), logger })
  await advance(clock, 5_000)
  expect(await opening).toBe('open')
  expect(events.map(({ type, attempt }) => [type, attempt])).toEqual([
    ['retrying', 1],
    ['retrying', 2],
    ['retrying', 3],
    ['connected', 4],
  ])
  expect(logged[0]).toMatch(/^leasehold: attempt 1 to connect failed, trying again for 30 s: db cannot be reached/)
  expect(logged.at(-1)).toMatch(/^leasehold: connected after .*, in attempt 4/)
})

test('after retry, the last error is thrown', async () => {
  const clock = new ManualClock()
  const { open, attempts } = failing(Number.POSITIVE_INFINITY)
  const opening = openWithRetry(open, clock, { retry: '10s' }).catch((error: LeaseError) => error.code)
  await advance(clock, 9_000)
  expect(attempts()).toBeGreaterThan(3)
  await advance(clock, 2_000)
  expect(await opening).toBe('UNAVAILABLE')
})

test.each([
  ['without retry', {}, 'unreachable'],
  ['if the password is wrong', { retry: '30s' }, 'password'],
] as const)('the first error is thrown %s', async (_, options, reason) => {
  const clock = new ManualClock()
  const { open, attempts } = failing(1, reason)
  await expect(openWithRetry(open, clock, options)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect(attempts()).toBe(1)
})

test('connect passes retry on, and refuses it for a store that is opened once', async () => {
  const events: ConnectEvent[] = []
  await using leases = await connect('memory:', { retry: '1s', onEvent: event => events.push(event), logger: undefined })
  expect(await leases.tryAcquire('jobs/nightly')).toBeDefined()
  expect(events).toMatchObject([{ type: 'connected', attempt: 1 }])
  await expect(connect(new MemoryStore(), { retry: '1s' })).rejects.toMatchObject({ code: 'INVALID' })
})
