/**
 * What becomes of a proposed command: answered without the log, refused from a state known to be at the log's end, or written by the outbox.
 *
 * A command that is certain to be refused is not written. An owner keeps renewals in memory where the timekeeper allows it.
 */
import { unlessAborted } from '../clock.ts'
import { isInternal, refusal } from '../kernel/apply.ts'
import { answered } from '../kernel/codec/batch.ts'
import { malformed, malformedAsker } from '../kernel/codec/form.ts'
import type { Command, Operation, Proposal } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import { GONE, type Outcome, type Refused, type Renewed } from '../kernel/outcome.ts'
import type { Flaw } from '../kernel/reason.ts'
import { mayRenew } from '../kernel/rule/authority.ts'
import { refuseFlaw } from '../kernel/rule/refuse.ts'
import { MAX_RENEWALS } from '../kernel/rule/renew.ts'
import { findLease } from '../kernel/state/leases.ts'
import { RULES, type State } from '../kernel/state.ts'
import { complete } from '../lessor/complete.ts'
import type { Completion, ProposeOptions } from '../lessor.ts'
import { type Outbox, OutboxItem } from './outbox.ts'
import type { Timekeeper } from './timekeeper.ts'

export interface ProposalsOptions {
  readonly owned: boolean
  readonly state: () => State
  readonly outbox: Outbox
  readonly timekeeper: Timekeeper
  readonly readToEnd: () => Promise<void>
}

/** Renewals of which some were kept in memory: a ttl of 0 stands for each lease in `logged`, whose renewal must be written. */
interface PartlyRenewed {
  readonly kind: 'partly'
  readonly ttls: readonly number[]
  readonly logged: readonly number[]
}

export class Proposals {
  readonly #owned: boolean
  readonly #state: () => State
  readonly #outbox: Outbox
  readonly #timekeeper: Timekeeper
  readonly #readToEnd: () => Promise<void>
  /** For metrics and tests. */
  readonly stats = { memoryRenewals: 0 }

  constructor({ owned, state, outbox, timekeeper, readToEnd }: ProposalsOptions) {
    this.#owned = owned
    this.#state = state
    this.#outbox = outbox
    this.#timekeeper = timekeeper
    this.#readToEnd = readToEnd
  }

  /** Not async itself: the usual way is one promise from here to the answer. */
  propose(command: Command, { op, key = 0, signal }: ProposeOptions): Promise<Outcome> {
    const known = this.#withoutLog(command, key, op)
    if (known?.kind === 'partly') return this.#renewRest(known, key, signal)
    if (known !== undefined) return Promise.resolve(known)
    // A copy: the caller may change its objects while the proposal waits, and the bytes that are written must be what is applied.
    const own = copyOf(command)
    const ownOp = op && { ...op }
    const answer =
      op?.again !== true && this.#looksRefused(own) ? this.#writeUnlessRefused(own, key, ownOp, signal) : this.write(own, key, ownOp)
    return unlessAborted(answer, signal)
  }

  /** As `propose`, without a promise where none is needed. The caller has handed the command over, so it is not copied. */
  submit(command: Command, { op, key = 0 }: Omit<ProposeOptions, 'signal'>, completion: Completion): void {
    const known = this.#withoutLog(command, key, op)
    if (known === undefined) {
      if (op?.again !== true && this.#looksRefused(command)) complete(completion, this.#writeUnlessRefused(command, key, op, undefined))
      else this.#put(command, key, op, completion)
    } else if (known.kind === 'partly') complete(completion, this.#renewRest(known, key, undefined))
    else completion.settle(known)
  }

  /** Writes a command to the log, and resolves with what the log decided. */
  write(command: Command, key = 0, op?: Operation): Promise<Outcome> {
    return new Promise((settle, fail) => this.#put(command, key, op, { settle, fail }))
  }

  /** Answers malformed commands, and renewals that an owner keeps in memory. Undefined: the log decides. */
  #withoutLog(command: Command, key: number, op: Operation | undefined): Refused | Renewed | PartlyRenewed | undefined {
    const state = this.#state()
    const wrong = malformed(command) ?? notToBeWritten(command) ?? malformedAsker(key, op)
    if (wrong !== undefined) return refuseFlaw(state, wrong)
    if (command.kind !== 'renew' || command.waiting === true || command.ttl !== undefined || !this.#owned || op !== undefined)
      return undefined
    if (state.moved !== undefined || command.leases.length > MAX_RENEWALS) return undefined
    return this.#renewInMemory(command.leases, key)
  }

  #put(command: Command, key: number, op: Operation | undefined, completion: Completion): void {
    if (command.kind === 'transfer' || command.kind === 'extend') this.#timekeeper.markBeforeTransfer(command.lease)
    this.#outbox.put(new OutboxItem(command, key, op, completion, false))
  }

  async #writeUnlessRefused(command: Command, key: number, op: Operation | undefined, signal: AbortSignal | undefined): Promise<Outcome> {
    const proposal: Proposal = { command, key, op }
    await unlessAborted(this.#readToEnd(), signal)
    const refused = answered(this.#state(), proposal) ?? refusal(this.#state(), proposal)
    return refused ?? this.write(command, key, op)
  }

  /** A cheap guess whether the command will be refused. A wrong `false` is harmless: the log decides then. */
  #looksRefused(command: Command): boolean {
    const state = this.#state()
    if (state.moved !== undefined) return true
    if (command.kind === 'release') return findLease(state, command.lease) === undefined
    if (command.kind !== 'acquire' || command.wait === true) return false
    if (command.pool !== undefined) return true
    for (const { resource } of command.wants) if (state.resources.has(resource)) return true
    return false
  }

  #renewInMemory(leases: readonly number[], key: number): Renewed | PartlyRenewed {
    const state = this.#state()
    const ttls: number[] = []
    const logged: number[] = []
    const now = this.#timekeeper.now()
    for (const id of leases) {
      const lease = findLease(state, id)
      if (lease === undefined || !mayRenew(state, key, lease)) ttls.push(GONE)
      else if (this.#timekeeper.renewInMemory(lease, now)) ttls.push(lease.ttl)
      else {
        ttls.push(0)
        logged.push(id)
      }
    }
    this.stats.memoryRenewals += leases.length - logged.length
    return logged.length === 0 ? { kind: 'renewed', revision: state.revision, ttls } : { kind: 'partly', ttls, logged }
  }

  async #renewRest({ ttls, logged }: PartlyRenewed, key: number, signal: AbortSignal | undefined): Promise<Outcome> {
    const outcome = await unlessAborted(this.write({ kind: 'renew', leases: logged }, key), signal)
    if (outcome.kind !== 'renewed') return outcome
    const written = outcome.ttls.values()
    return {
      kind: 'renewed',
      revision: outcome.revision,
      ttls: ttls.map(ttl => (ttl === 0 ? written.next().value! : ttl)),
    } satisfies Renewed
  }
}

function notToBeWritten(command: Command): Flaw | undefined {
  if (isInternal(command)) return { reason: 'internal-command', facts: { command: command.kind } }
  // A replica that does not know the new rules stops at this record, for ever. This replica would be the first to stop.
  if (command.kind === 'upgrade' && command.rules > RULES) return { reason: 'unknown-rules', facts: { rules: RULES, given: command.rules } }
  return undefined
}
