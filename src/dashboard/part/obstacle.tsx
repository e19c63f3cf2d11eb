/** Tells what keeps a waiter from a name: a holder of the name itself, a covering claim above it or, if the waiter covers the name, a claim below it. */
import type { VNode } from 'preact'
import type { ResourceAnswer } from '../answers.ts'
import { HolderLink, ResourceName } from './basics.tsx'

export interface Obstacle {
  readonly holder: string
  readonly resource: string
  /** It has ended, but its holder may still use it. */
  readonly frozen: boolean
  /** It is a covering request above the name, which came before. */
  readonly waits: boolean
}

type Waiter = Pick<ResourceAnswer['queue'][number], 'lease' | 'holder' | 'covers'>

/** Undefined: the waiter waits for something else. Claims of its own holder above and below are not in its way. */
export function obstacleOf(
  { resource, grants, coveredBy = [], heldBelow = [], waitersAbove = [] }: ResourceAnswer,
  waiter: Waiter,
): Obstacle | undefined {
  const around = [...coveredBy, ...(waiter.covers === true ? heldBelow : [])].filter(({ holder }) => holder !== waiter.holder)
  const held = [...grants, ...around]
  const grant = held.find(({ status }) => status === 'frozen') ?? held[0]
  if (grant !== undefined) return { holder: grant.holder, resource: grant.resource, frozen: grant.status === 'frozen', waits: false }
  const above = waitersAbove.find(({ lease, holder }) => lease < waiter.lease && holder !== waiter.holder)
  return above && { holder: above.holder, resource: above.resource ?? resource, frozen: false, waits: true }
}

/** `ann, who holds lib with all names below it` */
export function ObstacleText({ name, of: { holder, resource, frozen, waits } }: { readonly name: string; readonly of: Obstacle }): VNode {
  const what = frozen ? 'has not certainly stopped using' : waits ? 'waits for' : 'holds'
  return (
    <>
      <HolderLink name={holder} />, who {what} <ResourceName name={resource} />
      {name.startsWith(`${resource}/`) ? ' with all names below it' : ''}
    </>
  )
}
