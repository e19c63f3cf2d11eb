/** After each step of a random program, these are compared: the leases of the kernel and those of the model in the same words. */
import { levelsOf } from '../../../src/kernel/rule/learn.ts'
import { addDuration, newDurations } from '../../../src/kernel/state/durations.ts'
import { CAP, type LeaseState, PREEMPT, WAITING } from '../../../src/kernel/state.ts'
import type { ModelLease, ProgramModel } from './program-model.ts'

const STATUS = ['waiting', 'live', 'suspect', 'frozen'] as const

export function kernelPicture(lease: LeaseState): string {
  const { id, holder: owner, incarnation, status, ttl: own, term, confirmed, extras, grants } = lease
  const timers = extras?.timers ?? []
  const running = (slot: number) => (timers[slot] === undefined ? [] : [`${timers[slot].duration}-${timers[slot].aged}`])
  const notice =
    timers[PREEMPT] === undefined || extras?.pool === undefined ? '' : ` notice for ${extras.pool.notice} ran ${timers[PREEMPT].aged}`
  const pool = extras?.pool
  return [
    `${id} ${owner.name}#${incarnation} ${STATUS[status]} ${own}/${term}${confirmed ? ' confirmed' : ''}${extras?.open ? ' open' : ''}`,
    `under ${extras?.parent?.id ?? 0} any ${status === WAITING ? (extras?.any ?? 0) : 0}`,
    `holds ${grants.map(({ resource, units, shared }) => `${resource.name}*${shared ? 'shared' : units}`).sort()}`,
    `cap ${running(CAP)} breaks ${[3, 4, 5, 6, ...(pool === undefined ? [7] : [])].flatMap(running)}${notice}`,
    `${pool?.yields ? 'yields ' : ''}${pool?.borrows ? 'borrows ' : ''}brings ${(extras?.pending ?? []).map(({ key }) => key)}`,
  ].join(', ')
}

export function modelPicture(model: ProgramModel, lease: ModelLease): string {
  const { id, status, ttl: own, term, confirmed, open, cap, breaks } = lease
  const claim = model.pool.leases.find(other => other.id === id)
  const running = ({ duration, ran }: { readonly duration: number; readonly ran: number }) => `${duration}-${ran}`
  const notice = claim?.noticeRan === undefined ? '' : ` notice for ${claim.notice} ran ${claim.noticeRan}`
  return [
    `${id} ${lease.holder}#${lease.incarnation} ${status} ${own}/${term}${confirmed ? ' confirmed' : ''}${open ? ' open' : ''}`,
    `under ${lease.parent} any ${lease.any}`,
    `holds ${model
      .held(lease)
      .map(({ resource, units, shared }) => `${resource}*${shared ? 'shared' : units}`)
      .sort()}`,
    `cap ${cap === undefined ? [] : [running(cap)]} breaks ${breaks.map(running)}${notice}`,
    `${claim?.yields ? 'yields ' : ''}${claim?.borrows ? 'borrows ' : ''}brings ${lease.pending.map(({ key }) => key)}`,
  ].join(', ')
}

type Learned = ReadonlyMap<string, ReturnType<typeof newDurations>>

export function learned({ learned: list }: ProgramModel): Learned {
  const found = new Map<string, ReturnType<typeof newDurations>>()
  for (const [work, ms, died] of list)
    for (const level of levelsOf(work)) {
      const known = found.get(level) ?? newDurations()
      addDuration(known, ms, died)
      found.set(level, known)
    }
  return found
}

export function durations(found: Learned): string[] {
  return [...found].map(([name, { ended, died, counts, sums }]) => `${name}: ${JSON.stringify([ended, died, counts, sums])}`).sort()
}
