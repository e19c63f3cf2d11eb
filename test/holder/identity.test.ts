import { afterEach, expect, test, vi } from 'vitest'
import type { LeaseError } from '../../src/errors.ts'
import { Leases } from '../../src/leases.ts'
import { SilentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

afterEach(() => vi.restoreAllMocks())

function code(error: unknown): string {
  return (error as LeaseError).code
}

test('several clients may use one lessor, and each has its own incarnation', async () => {
  const clock = new ManualClock()
  await using lessor = new SilentLessor(clock)
  const first = new Leases(lessor, { clock, holder: 'same' })
  const second = new Leases(lessor, { clock, holder: 'same' })
  const [one, two, three] = await Promise.all([first.acquire('a'), first.acquire('b'), second.acquire('c')])
  const { value } = await lessor.read({ kind: 'leases', holder: 'same' })
  const of = (id: number) => value.find(({ lease }) => lease === id)!.incarnation
  expect(of(one.id)).toBe(of(two.id))
  expect(of(three.id)).not.toBe(of(one.id))
  expect(code(await first.acquire('c', { ifAvailable: true }).catch(error => error))).toBe('HELD')
})
