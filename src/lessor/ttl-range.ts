/** A preferred ttl with its limits, and how it is fitted to what policies allow: pure functions, the same for the library and the server. */
import type { PolicyRules } from '../kernel/command.ts'
import { rule } from '../kernel/rule/policy.ts'

/** In ms. */
export interface TtlRange {
  readonly preferred: number
  readonly min: number
  readonly max: number
}

type TtlBounds = Pick<TtlRange, 'min' | 'max'>

/** The ttls that policies allow for all of the names. */
export function allowedTtls(
  names: readonly string[],
  policies: readonly { readonly prefix: string; readonly rules: PolicyRules }[],
): TtlBounds {
  const state = { policies: new Map(policies.map(({ prefix, rules }) => [prefix, rules])) }
  const of = names.length === 0 ? [''] : names
  const min = Math.max(...of.map(name => rule(state, name, 'ttlMin')))
  return { min, max: Math.min(...of.map(name => rule(state, name, 'ttlMax'))) }
}

/** The ttl nearest to the preferred ttl that both allow; undefined: there is none. */
export function fittingTtl({ preferred, min, max }: TtlRange, allowed: TtlBounds): number | undefined {
  const [low, high] = [Math.max(min, allowed.min), Math.min(max, allowed.max)]
  return low > high ? undefined : Math.min(high, Math.max(low, preferred))
}

/** Says why no ttl fits. */
export function noFittingTtl(names: readonly string[], { min, max }: TtlRange, allowed: TtlBounds): string {
  const asked = max === Number.POSITIVE_INFINITY ? `at least ${min} ms` : `${min} to ${max} ms`
  return `no ttl fits: ${asked} were asked for, and policies allow ${allowed.min} to ${allowed.max} ms for ${names.join(', ')}`
}
