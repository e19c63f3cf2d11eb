/** Covering claims, as the judges see them: every claim is compared with every other one, by its name. */
import type { Acquire } from '../src/kernel/command.ts'
import { FROZEN, type LeaseState, type State, WAITING } from '../src/kernel/state.ts'

export interface Claim {
  readonly resource: string
  readonly shared: boolean
  readonly covers: boolean
}

function isUnder(name: string, above: Claim): boolean {
  return above.covers && name.startsWith(`${above.resource}/`)
}

/** Returns whether one of two names is below the other, and that one is covered. */
export function meets(one: Claim, other: Claim): boolean {
  return isUnder(one.resource, other) || isUnder(other.resource, one)
}

export function conflicts(one: Claim, other: Claim): boolean {
  return meets(one, other) && !(one.shared && other.shared)
}

/** The claims that a lease holds. */
export function claimsHeld({ grants, extras }: LeaseState): readonly Claim[] {
  return grants.map(({ resource, shared }) => ({ resource: resource.name, shared, covers: extras?.covers === true }))
}

/** The claims that a waiter wants. */
export function claimsWanted({ extras }: LeaseState): readonly Claim[] {
  return (extras?.wants ?? []).map(({ resource, shared }) => ({ resource, shared, covers: extras!.covers }))
}

export function claimsAsked({ wants, covers = false }: Acquire): readonly Claim[] {
  return wants.map(({ resource, shared = false }) => ({ resource, shared, covers }))
}

/** Returns whether any lease of the state covers. */
export function hasCovering(state: State): boolean {
  for (const { extras } of state.leases.values()) if (extras?.covers === true) return true
  return false
}

/** The leases that hold a claim above or below which conflicts. */
export function holdersAround(state: State, claim: Claim): readonly LeaseState[] {
  return [...state.leases.values()].filter(lease => claimsHeld(lease).some(held => conflicts(held, claim)))
}

/** The waiters for a claim above or below. */
export function waitersAround(state: State, claim: Claim): readonly LeaseState[] {
  return [...state.leases.values()].filter(lease => lease.status === WAITING && claimsWanted(lease).some(wanted => meets(wanted, claim)))
}

/** Returns whether a lease is one that the client of a request named in `holding`. */
export function isOwn(holder: string, holding: readonly number[], lease: LeaseState): boolean {
  return lease.status !== FROZEN && lease.holder.name === holder && holding.includes(lease.id)
}

/** Returns whether a client holds a covering claim above. */
export function isUnderOwn(state: State, claim: Claim, holder: string, holding: readonly number[]): boolean {
  const covers = (held: Claim) => isUnder(claim.resource, held) && (claim.shared || !held.shared)
  return [...state.leases.values()].some(lease => isOwn(holder, holding, lease) && claimsHeld(lease).some(covers))
}
