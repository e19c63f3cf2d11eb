/** UNAVAILABLE says that nothing was done and never will be. Once one copy of a request is uncertain, no later failure may say so. */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { type ErrorCode, LeaseError } from '../../src/errors.ts'
import type { Command } from '../../src/kernel/command.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions } from '../../src/lessor.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { failingWith } from '../support/submitting.ts'

afterEach(() => vi.restoreAllMocks())

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
