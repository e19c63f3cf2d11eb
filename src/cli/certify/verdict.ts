/** The findings of `certify`, the verdict that follows from them, and the table that shows them. */
import type { Profile } from '../../store.ts'
import type { TableRow } from '../output.ts'
import type { Fault } from './fault.ts'
import type { Latency, Measured } from './measure.ts'

export interface Tried {
  readonly name: string
  readonly result: 'passed' | 'failed' | 'not tried'
  readonly reason?: string
}

export interface Findings {
  readonly profile: Profile
  readonly sentences: readonly Tried[]
  /** The measurements, or why there are none. */
  readonly measured: Measured | { readonly failed: string }
  readonly faults: { readonly answersCut: Fault; readonly writerKilled: Fault; readonly restart: Fault }
  readonly left: readonly string[]
}

/** Why the engine is not certified; empty if it is. Checks that were not tried do not count against it, and are listed. */
export function objections({ profile, sentences, measured, faults }: Findings): string[] {
  const all: string[] = []
  // The settings decide, not the restart: a killed engine still finds in the system's cache what a power failure would lose.
  if (!profile.durable) all.push(`not durable on acknowledgement, as the store itself says: ${profile.notes[0] ?? ''}`)
  for (const { name, result, reason } of sentences) if (result === 'failed') all.push(`${name}: ${reason}`)
  if ('failed' in measured) all.push(`measuring: ${measured.failed}`)
  else if (!measured.order.kept) all.push(`order: ${measured.order.reason}`)
  for (const [name, { result, reason }] of Object.entries(faults)) if (result === 'failed') all.push(`${FAULTS[name]}: ${reason}`)
  return all
}

export const FAULTS: Readonly<Record<string, string>> = {
  answersCut: 'answers cut off',
  writerKilled: 'writer killed',
  restart: 'restart',
}

export function count(sentences: readonly Tried[]): { passed: number; failed: number; notTried: number } {
  const of = (result: Tried['result']) => sentences.filter(each => each.result === result).length
  return { passed: of('passed'), failed: of('failed'), notTried: of('not tried') }
}

export function rows({ profile, sentences, measured, faults }: Findings): TableRow[] {
  const { answersCut, writerKilled, restart } = faults
  const { passed, failed, notTried } = count(sentences)
  const outcome = (fault: Fault, kept: string) => (fault.result === 'passed' ? kept : `${fault.result}: ${fault.reason}`)
  return [
    ['durable on acknowledgement', yes(profile.durable), outcome(restart, `${restart.acknowledged} acknowledged, none lost in a restart`)],
    ['survives the loss of a machine', yes(profile.failover), 'not tried: no machine was removed'],
    ...measurements(profile, measured),
    [
      FAULTS.answersCut!,
      'sent again, applied once',
      outcome(answersCut, `${answersCut.cut} cut: all there, ${answersCut.twice} twice, applied once`),
    ],
    [FAULTS.writerKilled!, 'nothing acknowledged is lost', outcome(writerKilled, `${writerKilled.acknowledged} acknowledged, none lost`)],
    [
      'a restart loses',
      profile.durable ? 'nothing' : 'what its notes say',
      restart.lost === undefined ? outcome(restart, '') : `${restart.lost} of ${restart.acknowledged}`,
    ],
    ['a restart takes', '', restart.unavailable === undefined ? 'not tried' : `${restart.unavailable} ms without an acknowledgement`],
    ['sentences of the store suite', 'all', `${passed} passed, ${failed} failed, ${notTried} not tried`],
  ]
}

function measurements({ push: pushes }: Profile, measured: Findings['measured']): TableRow[] {
  if ('failed' in measured) return [['measurements', '', `failed: ${measured.failed}`]]
  const { commit, push, throughput, order } = measured
  const { perSecond, openings, entries } = throughput
  return [
    ['one order for all', 'yes', order.kept ? `yes, ${entries} entries by ${openings} openings` : `no: ${order.reason}`],
    ['commit latency', '', times(commit)],
    ['push latency', pushes ? 'pushed' : 'polled', times(push)],
    ['appends of 1 KiB', '', `${perSecond} a second, ${openings} under way`],
  ]
}

function yes(promised: boolean): string {
  return promised ? 'yes' : 'no'
}

function times({ p50, p99 }: Latency): string {
  return `p50 ${p50} ms, p99 ${p99} ms`
}
