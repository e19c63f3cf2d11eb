/**
 * A server looks this up before it acquires, if the request asks for it: the ttl that policies allow, and the lease that the holder has already.
 * Both are reads in front of an ordinary command, so the rules of the kernel know nothing of them: if something changes in between, they decide.
 */
import { LeaseError } from '../errors.ts'
import type { Acquire } from '../kernel/command.ts'
import type { Granted } from '../kernel/outcome.ts'
import { allowedTtls, fittingTtl, noFittingTtl, type TtlRange } from '../lessor/ttl-range.ts'
import type { Caller } from './access-control.ts'
import type { GuardedLessor } from './guarded-lessor.ts'

/** Throws unless min ≤ preferred ≤ max. */
export function checkedTtlRange(preferred: number, min = 0, max = Number.POSITIVE_INFINITY): TtlRange {
  if (min > preferred || preferred > max) throw new LeaseError('INVALID', 'ttl must have min ≤ preferred ≤ max')
  return { preferred, min, max }
}

/** Replaces the ttl by the one nearest to the preferred ttl that policies allow. */
export async function withFittingTtl(guarded: GuardedLessor, command: Acquire, range: TtlRange): Promise<Acquire> {
  const names = command.pool === undefined ? command.wants.map(({ resource }) => resource) : [command.pool.pool]
  const { value: policies } = await guarded.lessor.read<'policies'>({ kind: 'policies' })
  const allowed = allowedTtls(names, policies)
  const ttl = fittingTtl(range, allowed)
  if (ttl === undefined) throw new LeaseError('INVALID', noFittingTtl(names, range, allowed), { facts: { option: 'ttl' } })
  return { ...command, ttl }
}

/**
 * The lease that this holder has on exactly these resources, renewed; undefined: it has none. For clients that keep nothing between two requests. The
 * incarnation tells two processes of one name apart, so it must be given: without it, two workers with the same name would share a lease.
 */
export async function ownLease(guarded: GuardedLessor, caller: Caller, command: Acquire): Promise<Granted | undefined> {
  const { incarnation, wants, covers = false } = command
  if (incarnation === undefined || wants.length === 0 || command.any !== undefined || command.pool !== undefined)
    throw new LeaseError('INVALID', 'reuse needs resources and the incarnation of the first answer, and neither any nor pool')
  const { value: first } = await guarded.read<'resource'>(caller, { kind: 'resource', resource: wants[0]!.resource, waiters: 0 })
  const own = first.grants.find(
    ({ holder, incarnation: of, status }) => holder === command.holder && of === incarnation && status === 'live',
  )
  if (own === undefined) return undefined
  const { value: lease } = await guarded.read<'lease'>(caller, { kind: 'lease', lease: own.lease })
  const grants = new Map(lease?.grants.map(grant => [grant.resource, grant]))
  const same = wants.every(({ resource, units = 1, shared = false }) => {
    const grant = grants.get(resource)
    return grant !== undefined && grant.shared === shared && grant.units === units && (grant.covers ?? false) === covers
  })
  if (lease === undefined || !same || grants.size !== new Set(wants.map(({ resource }) => resource)).size) return undefined
  const outcome = await guarded.propose(caller, { kind: 'renew', leases: [lease.lease] })
  if (outcome.kind !== 'renewed' || outcome.ttls[0]! <= 0) return undefined
  // After a loss the lease may be one that this client had released, and another holder may rely on what it holds: the request is decided as any other.
  const { value: summary } = await guarded.read<'summary'>(caller, { kind: 'summary' }, { atLeast: outcome.revision })
  if (summary.quiet) return undefined
  // In the order of the request: the first token is that of the first resource.
  const resources = [...new Set(wants.map(({ resource }) => resource))]
  return {
    ...{ kind: 'granted', lease: lease.lease, incarnation, ttl: outcome.ttls[0]!, revision: outcome.revision },
    ...{ resources, tokens: resources.map(resource => grants.get(resource)!.token) },
  }
}
