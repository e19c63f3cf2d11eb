/** Checks covering claims in every state, and the table of claims worked out again the naive way. */
import { claimsHeld, conflicts, hasCovering } from '../../../sim/covers.ts'
import type { ClaimNode } from '../../../src/kernel/state/claim-tree.ts'
import { type LeaseState, type State, WAITING } from '../../../src/kernel/state.ts'

export function* claimViolations(state: State): Generator<string> {
  const covering = hasCovering(state)
  if (covering && state.claims === undefined) yield 'a lease covers, and there is no table of claims'
  for (const lease of state.leases.values())
    for (const { covers, resource } of claimsHeld(lease))
      if (covers && state.claims?.segments.has(resource.split('/')[0]!) !== true) yield `${resource} is covered and not listed`
  if (covering) yield* exclusion(state)
  if (state.claims !== undefined) yield* table(state)
}

/** Only claims of one holder name may meet: those that it named as its own. */
function* exclusion(state: State): Generator<string> {
  const held = [...state.leases.values()].flatMap(lease => claimsHeld(lease).map(claim => ({ lease, claim })))
  for (const one of held.filter(({ claim }) => claim.covers))
    for (const other of held)
      if (other.lease !== one.lease && other.lease.holder.name !== one.lease.holder.name && conflicts(one.claim, other.claim))
        yield `${one.lease.id} covers ${one.claim.resource}, and ${other.lease.id} holds ${other.claim.resource}`
}

function* table(state: State): Generator<string> {
  const names = new Set<string>()
  const isListed = (name: string) => state.claims!.segments.has(name.split('/')[0]!)
  const grants = [...state.leases.values()].flatMap(lease => lease.grants).filter(({ resource }) => isListed(resource.name))
  const waiters: { readonly lease: LeaseState; readonly name: string }[] = []
  for (const lease of state.leases.values())
    if (lease.status === WAITING)
      for (const { resource } of lease.extras!.wants) if (isListed(resource)) waiters.push({ lease, name: resource })
  const coverings =
    grants.filter(({ lease }) => lease.extras?.covers === true).length + waiters.filter(({ lease }) => lease.extras!.covers).length
  if (state.claims!.coverings !== coverings) yield `${coverings} claims cover, ${state.claims!.coverings} are counted`
  for (const name of [...grants.map(({ resource }) => resource.name), ...waiters.map(waiter => waiter.name)])
    for (let end = name.length; end > 0; end = name.lastIndexOf('/', end - 1)) names.add(name.slice(0, end))
  for (const name of names) {
    const below = grants.filter(({ resource }) => resource.name.startsWith(`${name}/`))
    const here = grants.filter(({ resource, lease }) => resource.name === name && lease.extras?.covers === true)
    const queued = (isMeant: (waiter: (typeof waiters)[number]) => boolean) => {
      const list = waiters.filter(isMeant).map(({ lease }) => lease)
      return list.sort((one, other) => one.extras!.rank - other.extras!.rank || one.id - other.id).map(({ id }) => id)
    }
    const expected = [
      ...[below.filter(({ shared }) => !shared).length, below.filter(({ shared }) => shared).length],
      ...[here.filter(({ shared }) => !shared).length, here.filter(({ shared }) => shared).length],
      queued(waiter => waiter.name === name && waiter.lease.extras!.covers),
      queued(waiter => waiter.name.startsWith(`${name}/`)),
      false,
    ]
    const place = state.claims!.at(name)
    const counted = place === undefined ? 'nothing' : JSON.stringify(contents(place))
    if (counted !== JSON.stringify(expected)) yield `the claims of ${name} are ${counted}, and ought to be ${JSON.stringify(expected)}`
    const names = [...(place?.below ?? [])].map(one => one.name)
    if (names.some((one, i) => i > 0 && names[i - 1]! >= one)) yield `${name}: below it is no order`
  }
  let idle = 0
  const visit = (place: ClaimNode) => {
    if (place.name !== '' && !names.has(place.name)) idle++
    for (const below of place.below ?? []) visit(below)
  }
  visit(state.claims!.root)
  if (idle > 0) yield `${idle} places without claims are kept`
}

function contents({ exclusiveBelow, sharedBelow, exclusiveCovers, sharedCovers, covering, waiting, freed }: ClaimNode): readonly unknown[] {
  return [exclusiveBelow, sharedBelow, exclusiveCovers, sharedCovers, covering.map(({ id }) => id), waiting.map(({ id }) => id), freed]
}
