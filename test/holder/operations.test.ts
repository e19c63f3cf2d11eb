/** UNAVAILABLE says that nothing was done and never will be. Once one copy of a request is uncertain, no later failure may say so. */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { type ErrorCode, LeaseError } from '../../src/errors.ts'
import type { Command } from '../../src/kernel/command.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions } from '../../src/lessor.ts'
import { SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { failingWith } from '../support/submitting.ts'

afterEach(() => vi.restoreAllMocks())

/** A lessor behind a connection that loses what is sent to it, or answers. */
class LosingLessor extends SilentLessor {
  loses: 'requests' | 'answers' | 'nothing' = 'nothing'

  override submit(command: Command, options: ProposeOptions, completion: Completion): void {
    const lost = new LeaseError('UNKNOWN', 'no answer, as the test said')
    if (this.loses === 'requests') return completion.fail(lost)
    super.submit(command, options, {
      settle: outcome => (this.loses === 'answers' ? completion.fail(lost) : completion.settle(outcome)),
      fail: error => completion.fail(error),
    })
  }
}

const unknown = () => new LeaseError('UNKNOWN', 'no answer')

test('an acquire whose answer took longer than its ttl is LOST, and its lease is released', async () => {
  const { clock, leases, lessor } = silentLessor()
  lessor.loseAnswers()
  const request = leases.tryAcquire('k', { ttl: 1_000 })
  await clock.advance(995)
  lessor.answer()
  await expect(request).rejects.toMatchObject({
    code: 'LOST',
    message: expect.stringMatching(/k was granted, but the answer took longer than the ttl of 1 s.*released/),
    facts: { resource: 'k', cause: 'late-answer' },
  })
  await clock.settle()
  expect((await leases.query()).held).toEqual([])
  await leases[Symbol.asyncDispose]()
})

describe('after a copy that may have been carried out', () => {
  test.each(['UNAUTHENTICATED', 'FORBIDDEN', 'LIMIT', 'UNAVAILABLE'] as ErrorCode[])('%s of the next copy is UNKNOWN', async code => {
    const { clock, leases, lessor } = silentLessor()
    const submit = vi
      .spyOn(lessor, 'submit')
      .mockImplementation(failingWith(new LeaseError(code, 'not now')))
      .mockImplementationOnce(failingWith(unknown()))
    const request = expect(leases.tryAcquire('k', { ttl: 1_000 })).rejects.toMatchObject({ code: 'UNKNOWN', cause: { code } })
    await clock.advance(20_000)
    await request
    submit.mockRestore()
    await leases[Symbol.asyncDispose]()
  })

  test('LIMIT of the next copy is retried, and the answer to the retry counts', async () => {
    const { clock, leases, lessor } = silentLessor()
    vi.spyOn(lessor, 'submit')
      .mockImplementationOnce(failingWith(unknown()))
      .mockImplementationOnce(failingWith(new LeaseError('LIMIT', 'slowly')))
    const request = leases.tryAcquire('k', { ttl: 1_000 })
    await clock.advance(2_000)
    expect((await request)?.held).toBe(true)
    await leases[Symbol.asyncDispose]()
  })

  test('a lessor that continues elsewhere does not send it again: only its sender may', async () => {
    const clock = new ManualClock()
    const { signal } = new AbortController()
    const base = { profile: {} as Lessor['profile'], signal, read: () => new Promise<never>(() => {}), async *watch() {} }
    let lose = (_: unknown) => {}
    const server = {
      ...base,
      server: undefined,
      submit(_command: Command, _options: ProposeOptions, completion: Completion) {
        lose = error => completion.fail(error)
      },
      [Symbol.asyncDispose]: async () => lose(unknown()),
    }
    const submit = vi.fn(failingWith(new LeaseError('UNAVAILABLE', 'the file cannot be written')))
    const home = async () => ({ ...base, submit, [Symbol.asyncDispose]: async () => {} })
    const following = new RelocatingLessor(server, { clock, open: () => Promise.reject(new Error('nothing moves')), home })
    const op = { session: 's', seq: 1, acked: 0 }
    const request = propose(following, { kind: 'acquire', holder: 'me', ttl: 1_000, wants: [{ resource: 'k' }] }, { op })
    const rejection = expect(request).rejects.toMatchObject({ code: 'UNKNOWN' })
    await clock.advance(12_000)
    await rejection
    expect(submit).not.toHaveBeenCalled()
    await following[Symbol.asyncDispose]()
  })
})

test('after an outage, a client does not wait for a lease that it was granted itself', async () => {
  const clock = new ManualClock()
  const lessor = new LosingLessor(clock)
  await using leases = new Leases(lessor, { clock, holder: 'a' })
  lessor.loses = 'requests'
  let first: string | undefined
  leases.tryAcquire('k', { ttl: 30_000 }).catch(error => {
    first = error.code
  })
  await clock.advance(28_000)
  // The last copies of the request arrive, and the caller is told that its outcome is unknown.
  lessor.loses = 'answers'
  await clock.advance(4_000)
  expect(first).toBe('UNKNOWN')
  expect((await lessor.read({ kind: 'resource', resource: 'k' })).value.grants).toHaveLength(1)
  lessor.loses = 'nothing'
  let again: string | undefined
  leases.acquire('k', { ttl: 30_000, wait: 60_000 }).then(
    () => {
      again = 'granted'
    },
    error => {
      again = error.code
    },
  )
  await clock.advance(2_000)
  expect(again).toBe('granted')
})

test('an acquire whose outcome is unknown is sent again when no copy has arrived, and what it is granted is released', async () => {
  const clock = new ManualClock()
  const lessor = new LosingLessor(clock)
  await using leases = new Leases(lessor, { clock, holder: 'a' })
  lessor.loses = 'requests'
  const request = expect(leases.tryAcquire('k', { ttl: 1_000 })).rejects.toMatchObject({ code: 'UNKNOWN' })
  await clock.advance(20_000)
  await request
  lessor.loses = 'nothing'
  await clock.advance(2_000)
  expect(lessor.proposals.map(({ kind }) => kind)).toEqual(['acquire', 'release'])
  await clock.advance(60_000)
  expect(lessor.proposals).toHaveLength(2)
})
