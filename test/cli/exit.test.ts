/** The advice and the exit codes for errors. */
import { expect, test } from 'vitest'
import { failureOf } from '../../src/cli/exit.ts'
import { LeaseError } from '../../src/errors.ts'

test('the advice for a wrong password of an engine differs from that for a file of another user', () => {
  const failure = (facts: Record<string, string>) => failureOf(new LeaseError('UNAVAILABLE', 'no', { facts }))
  expect(failure({ reason: 'permission', where: 'redis' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(failure({ reason: 'credentials', place: 'postgres' })).toMatchObject({ exit: 77, next: expect.stringMatching(/password/) })
  expect(failure({ reason: 'permission', path: '/x' })).toMatchObject({ exit: 77, next: expect.stringMatching(/owns the file/) })
  expect(failure({ reason: 'readonly', where: 'redis' }).exit).toBe(69)
})
