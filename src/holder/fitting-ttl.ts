/** `ttl: { wish, min, max }`: asks for the wish, and for the nearest ttl that policies allow if that was refused. */
import { LeaseError } from '../errors.ts'
import { allowedTtls, fittingTtl, noFittingTtl } from '../lessor/ttl-range.ts'
import type { Lessor } from '../lessor.ts'
import { type TtlWish, ttlRangeOf } from './acquire-options.ts'

/** Policies are read only if the wish was refused: most wishes are allowed. */
export async function withFittingTtl<T>(
  lessor: Pick<Lessor, 'read'>,
  names: readonly string[],
  wished: TtlWish,
  acquire: (ttl: number) => Promise<T>,
): Promise<T> {
  const range = ttlRangeOf(wished)
  try {
    return await acquire(range.wish)
  } catch (error) {
    if (!LeaseError.is(error, 'INVALID')) throw error
    const { value: policies } = await lessor.read<'policies'>({ kind: 'policies' }, { consistent: true })
    const allowed = allowedTtls(names, policies)
    const ttl = fittingTtl(range, allowed)
    if (ttl === undefined) throw new LeaseError('INVALID', noFittingTtl(names, range, allowed), { cause: error, facts: { option: 'ttl' } })
    if (ttl === range.wish) throw error // it was refused for another reason
    return acquire(ttl)
  }
}
