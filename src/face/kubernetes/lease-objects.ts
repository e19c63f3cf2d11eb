/**
 * Lease objects of Kubernetes on entries and leases of Leasehold.
 *
 * In Kubernetes a Lease is data. Its holder is a text in it, and every client decides by its own clock when that text is too old. Here the object is data
 * as well: the free entry `kubernetes/NAMESPACE/NAME`, whose revision is the resourceVersion. In addition, the holder that it names holds the resource of the
 * same name, or the one that a map names for it, by a lease of Leasehold, with the identity as its holder and `leaseDurationSeconds` as its ttl. So page, history, tokens and fences see it, and an
 * elector and every other client exclude each other. The lease carries the entry `kubernetes/NAMESPACE/NAME/holder`, which tells it from leases of other
 * clients for this resource.
 *
 * A write that claims the object (its spec has a holder, and changes) takes two steps: first hold, then write.
 * 1. Renew the lease of this identity if there is one that holds the resource, otherwise acquire. If another holds the resource: `Conflict`. A lease that has the
 *    mark and does not hold the resource, because it was released by a native command, is ended first.
 * 2. In one transaction: if the object has not changed since it was read, and the lease of step 1 is still there, write the object. Afterwards the lease must
 *    hold the resource still, otherwise `Conflict`: the mark alone does not say so.
 * A write that gives up the holder goes the other way: first write, and take the mark off the lease in the same transaction; then release.
 *
 * What follows, for every order of failures:
 * - A claim that was answered with success was written in a revision in which its holder held the resource, and its term began at most a second before
 *   the answer: one that took longer is renewed once more. client-go leads for its renew deadline after an answer, with defaults 10 of 15 seconds, and
 *   kubelets and others for less than the duration. So a holder stops before its lease ends.
 * - A crash or a conflict between the two steps of a claim leaves a lease that the object does not name. No request renews it but one of the same
 *   identity, which takes it over; otherwise it ends with its first term. It is never released to undo the claim: another request of the same identity
 *   may rely on it by then. Others are kept out a little longer, and never let in too early.
 * - A crash between the two steps of giving up leaves a lease without its mark until its term is over. That is also only longer. A request of the same
 *   identity that comes between them does not find the mark, so it cannot rely on a lease that is released a moment later.
 * - No decision uses a time in the object. Clocks of clients matter only to the clients, as in Kubernetes.
 * - An elector that finds the object's holder expired by its own clock, a moment before the lease has ended here, gets `Conflict` and tries again.
 *
 * Another client of Leasehold that holds the resource does not change the object. The first claim that is refused for it writes that holder into the object, as
 * data like any other: electors then see who holds, and watchers get an event. Deleting an object does not end the lease of its holder, which may still
 * believe in it: the holder may create the object again, and others must wait until the term is over.
 */
import type { Command, Comparison, Renew } from '../../kernel/command.ts'
import { GONE, type Outcome, type Refused } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { EntryView, LeaseView, ReadOptions } from '../../lessor.ts'
import { sentenceOf } from '../../wording.ts'
import type { FaceCaller } from '../face.ts'
import { mapInSlices } from '../slices.ts'
import {
  isSameSpec,
  type KubeLease,
  keyOf,
  nameOf,
  type ObjectName,
  PREFIX,
  storedLease,
  storedValue,
  type WriteMark,
} from './lease-object.ts'
import { alreadyExists, conflict, invalid, modified, refusalOf } from './status.ts'
import { microTime } from './time-text.ts'

/** The term of a holder whose Lease has no duration: client-go's default. */
const DEFAULT_SECONDS = 15
const SECOND = 1_000
/** A claim that took longer than this starts its term again before it is answered, in ms. */
const LATE = SECOND

/** An object as it was found, with what its next write must compare. */
export interface FoundLease {
  /** Undefined: there is no object of this name. */
  readonly lease?: KubeLease
  /** Of the entry, which may be there without an object; 0: none. */
  readonly revision: number
  /** The lease of its holder. */
  readonly held?: { readonly lease: number; readonly holder: string }
}

/** Some objects, all of one revision. */
export interface FoundLeases {
  readonly revision: number
  readonly items: readonly KubeLease[]
}

interface ObjectChange {
  readonly value: string
  readonly held?: number
  readonly gone?: boolean
}

export class LeaseObjects {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  /** Reads one object. Without `consistent`, what this server has applied so far: enough if a transaction compares it afterwards. */
  async find(name: ObjectName, { consistent = true, atLeast = 0 } = {}): Promise<FoundLease> {
    const key = keyOf(name)
    const { value } = await this.#caller.lessor.read<'entries'>({ kind: 'entries', prefix: key }, this.#asNewAs(consistent, atLeast))
    const heldBy = holderKey(name)
    let entry: EntryView | undefined
    let holder: EntryView | undefined
    for (const each of value)
      if (each.key === key) entry = each
      else if (each.key === heldBy && each.lease !== 0) holder = each
    return {
      ...(entry !== undefined && objectOf(entry)),
      revision: entry?.revision ?? 0,
      ...(holder !== undefined && { held: { lease: holder.lease, holder: holder.holder } }),
    }
  }

  /** All objects of a namespace, or of all, by name. */
  async list(namespace: string | undefined, { consistent = true, atLeast = 0 } = {}): Promise<FoundLeases> {
    const prefix = namespace === undefined ? PREFIX : `${PREFIX}/${namespace}`
    const { revision, value } = await this.#caller.lessor.read<'entries'>({ kind: 'entries', prefix }, this.#asNewAs(consistent, atLeast))
    const read = await mapInSlices(
      this.#caller,
      value,
      entry => objectOf(entry).lease,
      entry => entry.value.length,
    )
    return { revision, items: read.filter(lease => lease !== undefined) }
  }

  #asNewAs(consistent: boolean, atLeast: number): ReadOptions {
    // An object that exists already needs no wait, so nothing that ends a wait.
    if (!consistent && atLeast === 0) return {}
    const { signal } = this.#caller
    return consistent ? { consistent, signal } : { atLeast, signal }
  }

  async create(name: ObjectName, before: FoundLease, lease: KubeLease): Promise<KubeLease> {
    if (before.lease !== undefined) throw alreadyExists(name.name)
    return this.#write(name, before, lease, '+')
  }

  /** Replaces the object that was found. Throws `Conflict` if it has changed since. */
  async replace(name: ObjectName, before: FoundLease, lease: KubeLease): Promise<KubeLease> {
    return this.#write(name, before, lease, '=')
  }

  /** Deletes the object that was found, and returns its last form. The lease of its holder ends with its term. */
  async remove(name: ObjectName, before: FoundLease): Promise<KubeLease> {
    const key = keyOf(name)
    // First a value that says so: the event of a deletion has no value, and watchers are sent the object. A value that a crash leaves here is no object.
    const revision = await this.#change(name, before, { value: storedValue('-', before.lease!) })
    await this.#propose({
      kind: 'transaction',
      compare: [{ key, field: 'revision', is: 'equal', number: revision }],
      success: [{ key, delete: true }],
    })
    return at(before.lease!, revision)
  }

  async #write(name: ObjectName, before: FoundLease, lease: KubeLease, mark: WriteMark): Promise<KubeLease> {
    const value = storedValue(mark, lease)
    const { holderIdentity = '' } = lease.spec
    const claims = holderIdentity !== '' && !(before.lease !== undefined && isSameSpec(lease, before.lease))
    if (claims) {
      const { clock } = this.#caller
      const since = clock.now()
      const held = await this.#hold(name, before, lease)
      const revision = await this.#change(name, before, { value, held })
      if (clock.now() - since > LATE && !(await this.#renew(name, held, ttlOf(lease)))) throw modified(name.name)
      const view = await this.#leaseOf(held, revision)
      if (view === undefined || !this.#isHolding(name, view)) throw modified(name.name)
      return at(lease, revision)
    }
    const { held } = before
    if (holderIdentity !== '' || held === undefined) return at(lease, await this.#change(name, before, { value }))
    const revision = await this.#change(name, before, { value, held: held.lease, gone: true })
    await this.#propose({ kind: 'release', lease: held.lease })
    return at(lease, revision)
  }

  /**
   * Writes the value if the object is as it was found, and its holder still has the lease `held`. With `gone`, the lease loses its mark in the same
   * revision: no request takes it over any more, and it can be released. Returns the revision.
   */
  async #change(name: ObjectName, before: FoundLease, { value, held, gone = false }: ObjectChange): Promise<number> {
    const [key, holder] = [keyOf(name), holderKey(name)]
    const same: Comparison = { key, field: 'revision', is: 'equal', number: before.revision }
    const outcome = await this.#propose({
      kind: 'transaction',
      compare: held === undefined ? [same] : [same, { key: holder, field: 'lease', is: 'equal', number: held }],
      success: gone
        ? [
            { key, value },
            { key: holder, delete: true },
          ]
        : [{ key, value }],
    })
    if (outcome.kind === 'refused') throw refusalOf(name.name, outcome)
    if (outcome.kind === 'transacted' && outcome.succeeded) return outcome.revision
    throw before.lease === undefined ? alreadyExists(name.name) : modified(name.name)
  }

  /** Returns the lease by which the identity that the object names holds its resource for a whole term from now on. */
  async #hold(name: ObjectName, before: FoundLease, lease: KubeLease): Promise<number> {
    const { holderIdentity: holder = '' } = lease.spec
    const ttl = ttlOf(lease)
    const { held } = before
    const view = held && (await this.#leaseOf(held.lease))
    if (view !== undefined && !this.#isHolding(name, view)) await this.#propose({ kind: 'release', lease: view.lease })
    else if (held?.holder === holder && (await this.#renew(name, held.lease, ttl))) {
      if (await this.#isQuiet())
        throw conflict(
          name.name,
          `records of the log were lost: it is not known whether ${holder} has released it since, and nothing is granted yet`,
        )
      return held.lease
    }
    const outcome = await this.#propose({
      kind: 'acquire',
      holder,
      ttl,
      wants: [{ resource: this.#resource(name) }],
      entries: [{ key: holderKey(name), value: '' }],
    })
    if (outcome.kind === 'granted') {
      // The first term may be shorter than the ttl until the first renewal.
      if (outcome.ttl < ttl && !(await this.#renew(name, outcome.lease, ttl))) throw modified(name.name)
      return outcome.lease
    }
    if (outcome.kind !== 'refused') throw modified(name.name)
    if (outcome.code === 'HELD') await this.#showHolder(name, before, lease, outcome)
    if (outcome.code !== 'HELD') throw refusalOf(name.name, outcome)
    const { holder: present } = outcome.facts
    const why =
      typeof present === 'string' ? `${this.#resource(name)} is held by ${present}, and its term is not over` : sentenceOf(outcome)
    throw before.lease === undefined ? alreadyExists(name.name) : conflict(name.name, why)
  }

  #resource(name: ObjectName): string {
    return this.#caller.names.resource(keyOf(name))
  }

  /** The lease at this revision or a later one. Undefined: it has ended, or this client may not see it. */
  async #leaseOf(lease: number, atLeast = 0): Promise<LeaseView | undefined> {
    return (await this.#caller.lessor.read<'lease'>({ kind: 'lease', lease }, this.#asNewAs(false, atLeast))).value
  }

  /** Returns whether the lease holds the resource of the object. */
  #isHolding(name: ObjectName, { status, grants }: LeaseView): boolean {
    const resource = this.#resource(name)
    return status !== 'frozen' && grants.some(grant => grant.resource === resource)
  }

  /**
   * Returns whether the log has lost records, as after the restore of a backup, and their grants may still be in use. An identity is no proof then: it may have released
   * the lease that is in the log again, and another may hold the resource. Asked after a change, so that this server has seen the loss if the change came after it.
   */
  async #isQuiet(): Promise<boolean> {
    return (await this.#caller.lessor.read<'summary'>({ kind: 'summary' })).value.quiet
  }

  /** False: the lease has ended. */
  async #renew(name: ObjectName, lease: number, ttl: number): Promise<boolean> {
    // A renewal that changes no ttl may be kept in memory, and nearly none changes it.
    let term = await this.#term(name, { kind: 'renew', leases: [lease] })
    if (term !== GONE && term < ttl) term = await this.#term(name, { kind: 'renew', leases: [lease], ttl })
    if (term === GONE) return false
    if (term < ttl)
      throw invalid(name.name, [
        {
          reason: 'FieldValueInvalid',
          message: `Invalid value: ${ttl / SECOND}: a policy allows at most ${Math.floor(term / SECOND)}`,
          field: 'spec.leaseDurationSeconds',
        },
      ])
    return true
  }

  /** The term that a renewal began, or GONE. */
  async #term(name: ObjectName, command: Renew): Promise<number> {
    const outcome = await this.#propose(command)
    if (outcome.kind !== 'renewed') throw outcome.kind === 'refused' ? refusalOf(name.name, outcome) : modified(name.name)
    return outcome.ttls[0] ?? GONE
  }

  /** Writes the present holder into the object, if it is another than the object names. Whether that succeeds is not important: it is repeated. */
  async #showHolder(name: ObjectName, before: FoundLease, wanted: KubeLease, { facts }: Refused): Promise<void> {
    const { holder, lease, since } = facts
    if (typeof holder !== 'string' || typeof lease !== 'number' || lease === 0) return
    // Under its own name an elector would take itself for the leader.
    if (holder === wanted.spec.holderIdentity || holder === before.lease?.spec.holderIdentity) return
    const { metadata, spec } = before.lease ?? wanted
    const now = this.#caller.clock.wall()
    const shown: KubeLease = {
      ...wanted,
      metadata,
      spec: {
        ...spec,
        holderIdentity: holder,
        leaseDurationSeconds: wanted.spec.leaseDurationSeconds ?? DEFAULT_SECONDS,
        acquireTime: microTime(typeof since === 'number' && since > 0 ? since : now),
        renewTime: microTime(now),
        leaseTransitions: (before.lease?.spec.leaseTransitions ?? 0) + 1,
      },
    }
    const key = keyOf(name)
    await this.#propose({
      kind: 'transaction',
      compare: [{ key, field: 'revision', is: 'equal', number: before.revision }],
      success: [{ key, value: storedValue(before.lease === undefined ? '+' : '=', shown) }],
    })
  }

  #propose(command: Command): Promise<Outcome> {
    return propose(this.#caller.lessor, command)
  }
}

function ttlOf({ spec: { leaseDurationSeconds = DEFAULT_SECONDS } }: KubeLease): number {
  return leaseDurationSeconds * SECOND
}

/** An entry that ends with the holder's lease. No object has this name: names of objects have no slash. */
function holderKey(name: ObjectName): string {
  return `${keyOf(name)}/holder`
}

/** The object of an entry, if it is one. */
function objectOf({ key, value, lease, revision }: EntryView): { readonly lease?: KubeLease } {
  if (lease !== 0 || nameOf(key) === undefined) return {}
  const stored = storedLease(value, revision)
  return stored === undefined || stored.mark === '-' ? {} : { lease: stored.lease }
}

function at(lease: KubeLease, revision: number): KubeLease {
  return { ...lease, metadata: { ...lease.metadata, resourceVersion: String(revision) } }
}
