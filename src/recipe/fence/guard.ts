/** Every guard compares tokens, and says why it refused one. */
import { LeaseError } from '../../errors.ts'

/**
 * Remembers the highest token of each resource. Refuses an older one with `STALE`; the same one again is accepted. The guard of SQLite throws at once; the
 * others reject.
 *
 * @example
 * const guard = new FileGuard('/var/lib/reports/tokens')
 * await guard.admit('reports', lease.token) // throws STALE for a former holder
 */
export interface Guard {
  admit(resource: string, token: number): Promise<void> | void
}

export function stale(resource: string, token: number, highest: number | undefined): LeaseError {
  const seen = highest === undefined ? 'a newer one was seen' : `${highest} was seen`
  return new LeaseError('STALE', `token ${token} for ${resource} is out of date: ${seen}. Its lease has ended: acquire a new one`, {
    facts: { resource, token, ...(highest !== undefined && { highest }) },
  })
}

export function checkToken(resource: string, token: number): void {
  if (!Number.isSafeInteger(token) || token < 1) throw new LeaseError('INVALID', `${String(token)} is not a token, for ${resource}`)
}

/** A lease, or only its tokens, where another process sent them. */
export interface FencedWrite {
  readonly tokens: Readonly<Record<string, number>>
}

/** The resources of a write and their tokens, checked. Sorted: two writers that lock several rows must lock them in the same order. */
export function tokensOf(lease: FencedWrite): readonly (readonly [resource: string, token: number])[] {
  const { tokens } = (lease ?? {}) as Partial<FencedWrite>
  if (typeof tokens !== 'object' || tokens === null)
    throw new LeaseError('INVALID', 'write takes a lease, or { tokens: { NAME: TOKEN } }, and the work: write(lease, client => …)')
  const pairs = Object.entries(tokens).sort(([a], [b]) => (a < b ? -1 : 1))
  if (pairs.length === 0) throw new LeaseError('INVALID', 'the lease has no resource, and no token to compare: acquire what is written')
  for (const [resource, token] of pairs) checkToken(resource, token)
  return pairs
}
