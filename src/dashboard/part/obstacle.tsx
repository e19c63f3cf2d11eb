/** Tells what keeps a waiter from a name: a holder of the name itself, a covering claim above it or, if the waiter covers the name, a claim below it. */
import type { VNode } from 'preact'
import type { ResourceAnswer } from '../answers.ts'
import { HolderLink, ResourceName } from './basics.tsx'

export interface Obstacle {
  readonly holder: string
  readonly resource: string
  readonly status?: string
  /** A covering request above the name, or another one before, is not granted itself. */
  readonly waits?: boolean
}

/** Undefined: the waiter waits for something else. Claims of its own holder above and below are not in its way. */
export function obstacleOf(
  { grants, coveredBy = [], heldBelow = [], waitersAbove = [] }: ResourceAnswer,
  waiter: Pick<ResourceAnswer['queue'][number], 'lease' | 'holder' | 'covers'>,
): Obstacle | undefined {
  const isOther = ({ holder }: { readonly holder: string }) => holder !== waiter.holder
  const above = waitersAbove.filter(({ lease }) => lease < waiter.lease).map(one => ({ ...one, waits: true }))
  return grants[0] ?? [...coveredBy, ...(waiter.covers ? heldBelow : []), ...above].find(isOther)
}

/** `ann, who holds lib with all names below it` */
export function ObstacleText({ name, of: { holder, resource, status, waits } }: { readonly name: string; readonly of: Obstacle }): VNode {
  return (
    <>
      <HolderLink name={holder} />, who {waits ? 'waits for' : status === 'frozen' ? 'may still use' : 'holds'}{' '}
      <ResourceName name={resource} />
      {name.startsWith(`${resource}/`) ? ' with all names below it' : ''}
    </>
  )
}
