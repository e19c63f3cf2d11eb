/** `ttl: { preferred, min, max }`: asks for the preferred ttl, and for the nearest ttl that policies allow if that was refused. */
import { LeaseError } from '../errors.ts'
import { allowedTtls, fittingTtl, noFittingTtl } from '../lessor/ttl-range.ts'
import type { Lessor } from '../lessor.ts'
import { type PreferredTtl, ttlRangeOf } from './acquire-options.ts'

/** Policies are read only if the preferred ttl was refused: most are allowed. */
export async function withFittingTtl<T>(
  lessor: Pick<Lessor, 'read'>,
  names: readonly string[],
  preference: PreferredTtl,
  acquire: (ttl: number) => Promise<T>,
): Promise<T> {
  const range = ttlRangeOf(preference)
  try {
    return await acquire(range.preferred)
  } catch (error) {
    if (!LeaseError.is(error, 'INVALID')) throw error
    const { value: policies } = await lessor.read<'policies'>({ kind: 'policies' }, { consistent: true })
    const allowed = allowedTtls(names, policies)
    const ttl = fittingTtl(range, allowed)
    if (ttl === undefined) throw new LeaseError('INVALID', noFittingTtl(names, range, allowed), { cause: error, facts: { option: 'ttl' } })
    if (ttl === range.preferred) throw error // it was refused for another reason
    return acquire(ttl)
  }
}
