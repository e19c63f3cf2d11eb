/** The advice and the exit codes for errors. */
import { expect, test } from 'vitest'
import { failureOf } from '../../src/cli/exit.ts'
import { type ErrorReason, LeaseError } from '../../src/errors.ts'

test('the advice for a wrong password of an engine differs from that for a file of another user', () => {
  const failure = (reason: ErrorReason, facts: Record<string, string>) => failureOf(new LeaseError('UNAVAILABLE', 'no', { reason, facts }))
  expect(failure('permission', { where: 'redis' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(failure('credentials', { where: 'postgres' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(failure('permission', { path: '/x' })).toMatchObject({ exit: 77, next: expect.stringMatching(/owns the file/) })
  expect(failure('readonly', { where: 'redis' }).exit).toBe(69)
})
