/**
 * The audit: reports what operators do, and what administrators do to leases of other keys. What a caller does to its own leases is not reported.
 *
 * Not guaranteed: that an action is reported before it is done. Operator commands are reported even if they were refused.
 */
import type { Command } from '../kernel/command.ts'
import { GONE, type Outcome } from '../kernel/outcome.ts'
import { UNCLAIMED } from '../kernel/state/leases.ts'
import type { Lessor } from '../lessor.ts'
import { RecentMap } from '../recent-map.ts'
import type { Caller } from './access-control.ts'

/** One audited action. A backup has no outcome: it is reported when it starts. */
export interface AuditRecord {
  readonly caller: Caller
  readonly command: Command | { readonly kind: 'backup' }
  readonly outcome?: Outcome
  /** The holders of the leases, if these belong to other keys. */
  readonly of?: readonly string[]
  /** The name of the key that was changed or revoked. */
  readonly named?: string
}

const ALWAYS_AUDITED: ReadonlySet<Command['kind']> = new Set([
  'revoke',
  'break',
  'recall',
  'policy',
  'key',
  'rotate',
  'limit',
  'unkey',
  'transfer',
  'upgrade',
  'generation',
  'move',
])
/** Audited if they change leases of other keys. */
const ON_LEASES: ReadonlySet<Command['kind']> = new Set(['renew', 'release', 'extend', 'put'])
/** At least this many owners of leases are remembered: an administrator with leases of its own renews them again and again. */
const KEPT_OWNERS = 500_000

/** A lease that may belong to another key. The holder is undefined if this replica does not know the lease. */
interface ForeignLease {
  readonly lease: number
  readonly holder?: string
}

/** Read before the command is proposed, so that it shows the state the command met. Undefined if there is nothing to report. */
export type ForeignLeases = Promise<readonly ForeignLease[]> | undefined

interface Keys {
  get(id: number): { readonly name: string } | undefined
}

const NONE: Promise<readonly ForeignLease[]> = Promise.resolve([])

export class Audit {
  readonly #lessor: Lessor
  readonly #write: (record: AuditRecord) => void
  readonly #keys: Keys
  /** The key of each lease. It never changes once the lease is claimed. */
  readonly #owners = new RecentMap<number, number>(KEPT_OWNERS)

  /** `keys` are the present ones. */
  constructor(lessor: Lessor, write: (record: AuditRecord) => void, keys: Keys) {
    this.#lessor = lessor
    this.#write = write
    this.#keys = keys
  }

  /** `key` is the key that the command is judged by. `administers`: that key may act on leases of other keys. */
  foreignLeases(command: Command, key: number, administers: boolean): ForeignLeases {
    switch (command?.kind) {
      case 'acquire':
        return command.steal === undefined ? undefined : NONE
      case 'renew':
        return administers && Array.isArray(command.leases) ? this.#othersAmong(command.leases, key) : undefined
      case 'release':
      case 'extend':
      case 'put':
        return administers ? this.#othersAmong([command.lease], key) : undefined
      default:
        return ALWAYS_AUDITED.has(command?.kind) ? NONE : undefined
    }
  }

  #othersAmong(leases: readonly number[], key: number): ForeignLeases {
    const candidates = leases.filter(lease => this.#owners.get(lease) !== key)
    if (candidates.length === 0) return undefined
    return Promise.all(candidates.map(lease => this.#foreign(lease, key))).then(found => found.filter(foreign => foreign !== undefined))
  }

  async #foreign(lease: number, key: number): Promise<ForeignLease | undefined> {
    // A lease that cannot be read is not known to be the caller's own.
    const { value } = await this.#lessor.read({ kind: 'lease', lease }).catch(() => ({ value: undefined }))
    if (value === undefined) return { lease }
    if (value.key === UNCLAIMED) return undefined // the first key that renews it claims it
    this.#owners.set(lease, value.key)
    return value.key === key ? undefined : { lease, holder: value.holder }
  }

  async record(caller: Caller, command: Command, outcome: Outcome, foreign: NonNullable<ForeignLeases>): Promise<void> {
    // A malformed command may contain anything, and changed nothing.
    if (outcome.kind === 'refused' && outcome.code === 'INVALID') return
    if (!ON_LEASES.has(command.kind)) {
      const named = 'id' in command && command.id !== undefined ? this.#keys.get(command.id)?.name : undefined
      return this.#write({ caller, command, outcome, ...(named !== undefined && { named }) })
    }
    const affected = (await foreign).filter(({ lease, holder }) => holder !== undefined || wasChanged(command, outcome, lease))
    if (affected.length === 0) return
    const of = affected.flatMap(({ holder }) => holder ?? [])
    this.#write({
      caller,
      command: command.kind === 'renew' ? { ...command, leases: affected.map(({ lease }) => lease) } : command,
      outcome,
      of,
    })
  }

  recordBackup(caller: Caller): void {
    this.#write({ caller, command: { kind: 'backup' } })
  }
}

/** Returns whether the command changed a lease of unknown ownership. A lease that never existed belongs to no key and is not reported. */
function wasChanged(command: Command, outcome: Outcome, lease: number): boolean {
  if (command.kind === 'renew') return outcome.kind === 'renewed' && outcome.ttls[command.leases.indexOf(lease)] !== GONE
  return outcome.kind !== 'refused'
}
