/** Registers, renews and deregisters instances for clients without a library. The server keeps no state between two requests. */
import { LeaseError } from '../../errors.ts'
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Attachment, Command, Operation } from '../../kernel/command.ts'
import { GONE, type Outcome, type Renewed } from '../../kernel/outcome.ts'
import type { EntryView } from '../../lessor.ts'
import { refusedError } from '../../refused-error.ts'
import { entryOf, type InstanceState, keyOf, type RegistrationData, readState, stateEntryOf, stateOf } from '../../registry/entry.ts'
import type { Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'

/** A lease id that no lease ever has. */
const NO_LEASE = Number.MAX_SAFE_INTEGER

export interface Registrant {
  readonly guarded: GuardedLessor
  readonly caller: Caller
}

/** The instance that sends a heartbeat, and its state where that changed. */
export interface HeartbeatRequest extends Partial<InstanceState> {
  readonly service: string
  readonly instance: string
  readonly generation?: number
}

export interface KeptRegistration {
  readonly lease: number
  readonly ttl: number
  readonly revision: number
  /** The lease was renewed, but the changed state was not written: the client exceeded its rate limit. */
  readonly limited?: true
}

/** Registers an instance, or changes and renews one that is registered. Throws what the lessor refused. */
export async function register(
  { guarded, caller }: Registrant,
  registration: RegistrationData,
  given: Partial<InstanceState>,
  { ttl, grace, op }: { readonly ttl: number; readonly grace: number; readonly op?: string },
): Promise<KeptRegistration & { readonly created: boolean }> {
  const holder = `${registration.service}/${registration.instance}`
  // Check this first: a refusal must not reveal whether the instance exists.
  guarded.access.require(caller, 'register', keyOf(registration))
  const state = stateOf(given)
  const entries = [entryOf(registration), ...(state.status === 'passing' && state.load === 0 ? [] : [stateEntryOf(registration, state)])]
  const command = { kind: 'acquire', holder, ttl, grace, wants: [], entries } as const
  const options = op === undefined ? {} : { op: operationNamed(op, command) }
  const existing = await entryAt(guarded, keyOf(registration))
  if (existing?.holder === holder && existing.generation === registration.generation) {
    const { value: lease } = await guarded.lessor.read({ kind: 'lease', lease: existing.lease })
    if (lease?.ttl === ttl && lease.status !== 'frozen') {
      // A request repeated under its op gets the answer of the first one, which may be the grant. Any other request renews; renewals have no op.
      const before =
        op === undefined ? undefined : accepted(await guarded.propose(caller, { kind: 'renew', leases: [existing.lease] }, options))
      const created = before?.kind === 'granted' && before.lease === existing.lease
      const entry = entryOf(registration)
      const changed = [
        ...(entry.value === existing.value ? [] : [entry]),
        ...(await stateChange(guarded, registration, existing.lease, given)),
      ]
      const kept = await keep({ guarded: guarded, caller }, existing.lease, changed)
      if (kept?.over !== undefined) throw kept.over
      if (kept !== undefined) return { lease: kept.lease, ttl: kept.ttl, revision: kept.revision, created }
    }
  }
  const outcome = accepted(await guarded.propose(caller, command, options))
  if (outcome.kind !== 'granted') throw new LeaseError('UNAVAILABLE', `the lessor answered ${outcome.kind}: nothing was done`)
  return { lease: outcome.lease, ttl: outcome.ttl, revision: outcome.revision, created: true }
}

/** Renews an instance, and writes its state if that changed. Throws `GONE` if it is not registered: the client must register again. */
export async function heartbeat({ guarded, caller }: Registrant, beat: HeartbeatRequest): Promise<KeptRegistration> {
  const { service, instance, status, load } = beat
  if (!guarded.access.may(caller, 'renew', keyOf(beat))) guarded.access.require(caller, 'register', keyOf(beat))
  const existing = await entryAt(guarded, keyOf(beat))
  if (existing === undefined) throw gone(beat)
  mustBeNewest(existing, beat)
  const names = { service, instance, generation: existing.generation }
  const changed = await stateChange(guarded, names, existing.lease, {
    ...(status !== undefined && { status }),
    ...(load !== undefined && { load }),
  })
  const kept = await keep({ guarded: guarded, caller }, existing.lease, changed)
  if (kept === undefined) throw gone(beat)
  const { over, ...rest } = kept
  return over === undefined ? rest : { ...rest, limited: true }
}

/**
 * Removes an instance. Its lease ends, unless it carries more than this instance. Throws `GONE` if the instance is not registered, except when a
 * request is repeated under its `op`.
 */
export async function deregister(
  { guarded, caller }: Registrant,
  names: Omit<HeartbeatRequest, 'status' | 'load'>,
  op?: Operation,
): Promise<number> {
  guarded.access.require(caller, 'register', keyOf(names))
  const options = op === undefined ? {} : { op }
  const existing = await entryAt(guarded, keyOf(names))
  if (op !== undefined && (existing === undefined || isNewer(existing, names))) {
    // The request may be a repeated one. Releasing no lease has no effect, but returns the answer that was given under this op.
    const before = await guarded.propose(caller, { kind: 'release', lease: NO_LEASE }, options)
    if (before.kind === 'done') return before.revision
    // The answer is older than this registration: the first request found no instance.
    if (existing !== undefined && before.kind === 'refused' && before.revision < existing.revision) throw gone(names)
  }
  if (existing === undefined) throw gone(names)
  mustBeNewest(existing, names)
  const { value: lease } = await guarded.lessor.read({ kind: 'lease', lease: existing.lease })
  const own = keyOf(names)
  const alone =
    lease === undefined || (lease.grants.length === 0 && lease.entries.every(({ key }) => key === own || key.startsWith(`${own}/`)))
  const left = (outcome: Outcome) => {
    // Also the answer to a repeated request that found no instance.
    if (outcome.kind === 'refused' && outcome.code === 'GONE') throw gone(names)
    return accepted(outcome).revision
  }
  if (alone) return left(await guarded.propose(caller, { kind: 'release', lease: existing.lease }, options))
  for (const { key } of lease.entries)
    if (key.startsWith(`${own}/`)) await guarded.propose(caller, { kind: 'delete', key, lease: existing.lease })
  return left(await guarded.propose(caller, { kind: 'delete', key: own, lease: existing.lease }, options))
}

/** The entry of exactly this key. */
async function entryAt(guarded: GuardedLessor, key: string): Promise<EntryView | undefined> {
  // The key itself comes first under its prefix. Do not read the entries below it, which may be many.
  const { value } = await guarded.lessor.read({ kind: 'entries', prefix: key, limit: 1 })
  return value.find(entry => entry.key === key)
}

/** The entry to write for a changed state; most heartbeats change nothing. */
async function stateChange(
  guarded: GuardedLessor,
  names: Pick<RegistrationData, 'service' | 'instance' | 'generation'>,
  lease: number,
  given: Partial<InstanceState>,
): Promise<readonly Attachment[]> {
  if (given.status === undefined && given.load === undefined) return []
  const entry = await entryAt(guarded, keyOf(names, 'state'))
  const before = entry?.lease === lease ? readState(entry.value) : stateOf({})
  const after = stateOf(given, before)
  return after.status === before.status && after.load === before.load ? [] : [stateEntryOf(names as RegistrationData, after)]
}

/** Renews the lease and writes `changed`. Undefined: the lease is gone. `over`: it was renewed, but the writes exceeded the rate limit. */
async function keep(
  { guarded, caller }: Registrant,
  lease: number,
  changed: readonly Attachment[],
): Promise<(KeptRegistration & { readonly over?: LeaseError }) | undefined> {
  // All are awaited together: if the lessor fails, all of them reject, and none of the rejections may stay unhandled.
  const ask = async (command: Command) => guarded.propose(caller, command)
  let over: LeaseError | undefined
  const unlessOver = (error: unknown) => {
    if (!(error instanceof LeaseError && error.code === 'LIMIT')) throw error
    over = error
  }
  const [renewed, ...puts] = await Promise.all([
    ask({ kind: 'renew', leases: [lease] }),
    ...changed.map(entry => ask({ kind: 'put', lease, ...entry }).catch(unlessOver)),
  ])
  const revisions = puts.map(outcome => {
    if (outcome === undefined) return 0
    return outcome.kind === 'refused' && outcome.code === 'GONE' ? GONE : accepted(outcome).revision
  })
  const { ttls, revision } = accepted(renewed!) as Renewed
  if (revisions.includes(GONE) || ttls[0] === GONE) return undefined
  return { lease, ttl: ttls[0]!, revision: Math.max(revision, ...revisions), ...(over && { over }) }
}

/** A missing generation is 0, as in a registration. A client that does not send its generation could be the instance that was replaced. */
function isNewer(existing: EntryView, { generation = 0 }: { readonly generation?: number }): boolean {
  return generation < existing.generation
}

/** Throws `STALE` if the request comes from an older generation than the registered one. */
export function mustBeNewest(entry: EntryView, request: { readonly generation?: number }): void {
  if (!isNewer(entry, request)) return
  const { key, generation, holder } = entry
  const why =
    request.generation === undefined ? 'send your generation, or renew and release the lease by its id' : 'this generation was replaced'
  throw new LeaseError('STALE', `${key} belongs to generation ${generation}, of ${holder}: ${why}`, {
    facts: { key, holder, generation },
  })
}

export function gone({ service, instance }: Pick<HeartbeatRequest, 'service' | 'instance'>): LeaseError {
  return new LeaseError('GONE', `${service}/${instance} is not registered, or lapsed: register again`, { facts: { service, instance } })
}

function accepted(outcome: Outcome): Exclude<Outcome, { readonly kind: 'refused' }> {
  if (outcome.kind === 'refused') throw refusedError(outcome)
  return outcome
}
