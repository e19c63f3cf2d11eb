/** Checks S9 to S12: answers to clients agree with the log, and an operation has one outcome, however often it is sent. */
import type { Operation, Proposal } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { LogView } from './log-view.ts'
import type { World } from './world.ts'

/** A refusal because of the key, or by a log whose leases have moved, is not remembered: it is decided again, at a later revision. */
function isForgotten(outcome: Outcome): boolean {
  return outcome.kind === 'refused' && (outcome.code === 'FORBIDDEN' || outcome.code === 'UNAVAILABLE')
}

export function operationName(key: number, { session, seq }: Operation): string {
  return `${key}:${session}:${seq}`
}

export class AnswerChecker {
  readonly #world: World
  readonly #log: LogView
  readonly #failed = new Set<string>()
  readonly #done = new Set<string>()
  /** Operations that changed something, of which a caller was told. */
  readonly #acknowledged = new Set<string>()
  /** Operations that a failover undid. They may be done again. */
  readonly #undone = new Set<string>()
  /** The outcome of each operation, as JSON. */
  readonly #outcomes = new Map<string, string>()
  /** The tokens of each lease. */
  readonly #tokens = new Map<number, readonly number[]>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  granted(lease: number, tokens: readonly number[]): void {
    this.#tokens.set(lease, tokens)
  }

  grantedToken(lease: number, token: number): void {
    this.#tokens.set(lease, [...(this.#tokens.get(lease) ?? []), token])
  }

  wasGranted(lease: number): boolean {
    return this.#tokens.has(lease)
  }

  /** The log lost records: the rest is replayed. */
  lose(): void {
    this.#outcomes.clear()
    this.#done.clear()
  }

  /** A failover undid these proposals. Called after the rest was replayed. */
  undo(proposals: readonly Proposal[]): void {
    for (const { op, key = 0 } of proposals) if (op !== undefined) this.#judgeUndone(operationName(key, op))
  }

  #judgeUndone(name: string): void {
    if (this.#outcomes.has(name)) return // another copy is left
    this.#undone.add(name)
    if (this.#acknowledged.has(name)) this.#world.violate('S9', `${name} was acknowledged, and a failover undid it`)
  }

  /** Returns whether this operation was answered before. The answer must be the same. */
  isRepeated({ command, key = 0, op }: Proposal, outcome: Outcome): boolean {
    if (op === undefined) return false
    const name = operationName(key, op)
    const known = this.#outcomes.has(name)
    this.#judgeOperation(name, outcome)
    return known && command.kind !== 'renew'
  }

  #judgeOperation(name: string, outcome: Outcome): void {
    this.#world.note(`operation ${name} ${outcome.kind}`)
    if (this.#failed.has(name) && outcome.kind !== 'refused')
      this.#world.violate('S12', `${name} was reported as certainly not done, and was done`)
    if (outcome.kind !== 'refused') this.#done.add(name)
    const text = JSON.stringify(outcome)
    const known = this.#outcomes.get(name)
    if (known === undefined) this.#outcomes.set(name, text)
    else if (isForgotten(JSON.parse(known) as Outcome)) this.#outcomes.set(name, text)
    else if (known !== text && outcome.kind !== 'renewed' && !(outcome.kind === 'refused' && outcome.code === 'STALE'))
      this.#world.violate('S11', `${name} was answered ${known} and then ${text}`)
  }

  /** A replica has answered. `asked`: the log's revision when the request was made. */
  answered(outcome: Outcome, op: string | undefined, asked: number, losses: number): void {
    this.#acknowledge(outcome, op)
    if (losses !== this.#log.losses) return
    const world = this.#world
    // An owner that has not noticed the loss may still refuse by its own state; that grants nothing.
    if (losses > 0 && outcome.kind !== 'granted') return
    const { revision } = this.#log.state
    if (outcome.revision > revision) world.violate('S9', `an answer from revision ${outcome.revision}, and the log is at ${revision}`)
    if (outcome.kind === 'granted') {
      const tokens = this.#tokens.get(outcome.lease)
      if (tokens === undefined || !outcome.tokens.every(token => tokens.includes(token)))
        world.violate(losses > 0 ? 'S24' : 'S9', `lease ${outcome.lease} was acknowledged, and is not in the log`)
    }
    // An operation that was sent before may get its earlier answer.
    const fresh = op === undefined || !this.#outcomes.has(op)
    if (fresh && outcome.kind === 'refused' && outcome.code === 'HELD' && outcome.revision < asked)
      world.violate('S10', `refused as of revision ${outcome.revision}, when the log was at ${asked}`)
  }

  #acknowledge(outcome: Outcome, op: string | undefined): void {
    if (op === undefined || outcome.kind === 'refused') return
    this.#acknowledged.add(op)
    const known = this.#outcomes.get(op)
    if (!this.#undone.has(op)) return
    const lease = known === undefined ? undefined : (JSON.parse(known) as { readonly lease?: number }).lease
    if (known === undefined || ('lease' in outcome && outcome.lease !== lease))
      this.#world.violate('S9', `${op} is answered ${outcome.kind}, and a failover undid that`)
  }

  /** The outcome as the client received it: local or remote, after any number of attempts. */
  received(outcome: Outcome, op: string | undefined, asked: number, losses: number): void {
    this.answered(outcome, op, asked, losses)
    if (losses !== this.#log.losses || op === undefined) return
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued' && outcome.kind !== 'done') return
    const known = this.#outcomes.get(op)
    if (known === undefined) return this.#world.violate('S11', `${op} was answered ${outcome.kind}, and the log has no such operation`)
    const { kind, lease } = JSON.parse(known) as Outcome & { readonly lease?: number }
    if (kind !== outcome.kind || ('lease' in outcome && outcome.lease !== lease))
      this.#world.violate('S11', `${op} was answered ${JSON.stringify(outcome)}, and in the log it is ${known}`)
  }

  /** A client was told that the operation was certainly not done. */
  failed(name: string): void {
    this.#world.note(`failed ${name}`)
    this.#failed.add(name)
    if (this.#done.has(name)) this.#world.violate('S12', `${name} was done, and is reported as certainly not done`)
  }

  /** An operation that is sent again may be done after all. */
  sentAgain(name: string): void {
    this.#failed.delete(name)
  }
}
