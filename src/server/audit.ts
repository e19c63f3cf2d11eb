/**
 * What is written down: what operators do, and whatever is done to leases of others. Who renews and releases its own is not.
 *
 * Not promised: that it is written before it is done. What was asked and refused is written down, too, where it is always an operator's.
 */
import type { Command } from '../kernel/command.ts'
import { GONE, type Outcome } from '../kernel/outcome.ts'
import { UNCLAIMED } from '../kernel/state/leases.ts'
import type { Lessor } from '../lessor.ts'
import type { Caller } from './access-control.ts'

/** Who did what. Of a backup there is no outcome: it was begun. */
export interface Audited {
  readonly caller: Caller
  readonly command: Command | { readonly kind: 'backup' }
  readonly outcome?: Outcome
  /** Whose leases they were, where they were not the caller's. */
  readonly of?: readonly string[]
}

const ALWAYS: ReadonlySet<Command['kind']> = new Set([
  'revoke',
  'break',
  'policy',
  'key',
  'unkey',
  'transfer',
  'upgrade',
  'generation',
  'move',
])
/** Owners remembered: an administrator that keeps leases of its own renews them again and again. */
const MAX_REMEMBERED = 100_000

/** A lease that may be another's: its holder is not known where it has not been heard of here. */
interface Foreign {
  readonly lease: number
  readonly holder?: string
}

/** Begun before the command is handed on, so that it sees what the command met. Undefined: nothing is to be written down. */
export type Concern = Promise<readonly Foreign[]> | undefined

const NONE: Promise<readonly Foreign[]> = Promise.resolve([])

export class Audit {
  readonly #lessor: Lessor
  readonly #write: (done: Audited) => void
  /** Whose lease it is never changes, once it is somebody's. */
  readonly #owners = new Map<number, number>()

  constructor(lessor: Lessor, write: (done: Audited) => void) {
    this.#lessor = lessor
    this.#write = write
  }

  /** `key` is the one that is judged by; `administers`: it may touch what others hold. */
  concern(command: Command, key: number, administers: boolean): Concern {
    switch (command?.kind) {
      case 'acquire':
        return command.steal === undefined ? undefined : NONE
      case 'renew':
        return administers && Array.isArray(command.leases) ? this.#others(command.leases, key) : undefined
      case 'release':
        return administers ? this.#others([command.lease], key) : undefined
      default:
        return ALWAYS.has(command?.kind) ? NONE : undefined
    }
  }

  #others(leases: readonly number[], key: number): Concern {
    const perhaps = leases.filter(lease => this.#owners.get(lease) !== key)
    if (perhaps.length === 0) return undefined
    return Promise.all(perhaps.map(lease => this.#foreign(lease, key))).then(found => found.filter(one => one !== undefined))
  }

  async #foreign(lease: number, key: number): Promise<Foreign | undefined> {
    // What could not be found out is not known to be the caller's own.
    const { value } = await this.#lessor.read({ kind: 'lease', lease }).catch(() => ({ value: undefined }))
    if (value === undefined) return { lease }
    if (value.key === UNCLAIMED) return undefined // whoever renews it makes it theirs
    if (this.#owners.size >= MAX_REMEMBERED) this.#owners.delete(this.#owners.keys().next().value!)
    this.#owners.set(lease, value.key)
    return value.key === key ? undefined : { lease, holder: value.holder }
  }

  async done(caller: Caller, command: Command, outcome: Outcome, concern: NonNullable<Concern>): Promise<void> {
    // It may have any form, and nobody could have meant it.
    if (outcome.kind === 'refused' && outcome.code === 'INVALID') return
    if (command.kind !== 'renew' && command.kind !== 'release') return this.#write({ caller, command, outcome })
    const met = (await concern).filter(one => one.holder !== undefined || touched(command, outcome, one.lease))
    if (met.length === 0) return
    const of = met.flatMap(({ holder }) => holder ?? [])
    this.#write({
      caller,
      command: command.kind === 'renew' ? { ...command, leases: met.map(({ lease }) => lease) } : command,
      outcome,
      of,
    })
  }

  backup(caller: Caller): void {
    this.#write({ caller, command: { kind: 'backup' } })
  }
}

/** Whether something was done to a lease of which nothing is known: one that never was is nobody's. */
function touched(command: Command, outcome: Outcome, lease: number): boolean {
  if (command.kind === 'renew') return outcome.kind === 'renewed' && outcome.ttls[command.leases.indexOf(lease)] !== GONE
  return outcome.kind !== 'refused'
}
