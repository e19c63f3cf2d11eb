/** A new run of the log begins here: under an owner that may keep renewals in memory, or shared again after one. */
import type { Clock } from '../clock.ts'
import type { Command, Run } from '../kernel/command.ts'
import { RULES, type State } from '../kernel/state.ts'

export interface NewRunOptions {
  readonly clock: Clock
  readonly owned: boolean
  /** Leave the rules of an owned log as they are. */
  readonly holdRules?: boolean | undefined
  /** The present run has lasted at least this many ms. */
  readonly ms: number
}

/** To be written in one record: a run begins with the first record that its owner writes, and all records before it belong to the last run. */
export function beginRun(state: State, { clock, owned, ms, holdRules = false }: NewRunOptions): readonly Command[] {
  const { run, rules } = state
  const commands: Command[] = []
  if (run.owned && ms > run.ms) commands.push({ kind: 'aged-together', run: run.number, ms })
  // An owner is the only reader of its log, so no older build can be left behind. On a shared log, the operator raises the rules.
  if (owned && !holdRules) for (let next = rules + 1; next <= RULES; next++) commands.push({ kind: 'upgrade', rules: next })
  return [...commands, newRun(state, clock, owned)]
}

/** Once the commands are in the log. */
export function reportRaised(commands: readonly Command[], raised: (from: number, to: number) => void = () => {}): void {
  const versions = commands.flatMap(command => (command.kind === 'upgrade' ? [command.rules] : []))
  if (versions.length > 0) raised(versions[0]! - 1, versions.at(-1)!)
}

function newRun({ lineage }: State, clock: Clock, owned: boolean): Run {
  const nonce = Number(clock.bits() >> 11n) || 1
  if (lineage.secret !== '') return { kind: 'run', owned, nonce }
  return { kind: 'run', owned, nonce, secret: [clock.bits(), clock.bits()].map(part => part.toString(16).padStart(16, '0')).join('') }
}
