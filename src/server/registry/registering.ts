/** Registrations for those who have no library: each request stands for itself, and the server keeps nothing between them. */
import { LeaseError } from '../../errors.ts'
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Attachment, Command, Operation } from '../../kernel/command.ts'
import { GONE, type Outcome, type Renewed } from '../../kernel/outcome.ts'
import type { EntryView } from '../../lessor.ts'
import { entryOf, type InstanceState, keyOf, type RegistrationData, readState, stateEntryOf, stateOf } from '../../registry/entry.ts'
import type { Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'

/** A number that no lease will ever have. */
const NOBODYS = Number.MAX_SAFE_INTEGER

export interface Registrant {
  readonly desk: GuardedLessor
  readonly caller: Caller
}

/** What a heartbeat says: who, and, where it changed, how it is. */
export interface HeartbeatRequest extends Partial<InstanceState> {
  readonly service: string
  readonly instance: string
  readonly generation?: number
}

export interface KeptRegistration {
  readonly lease: number
  readonly ttl: number
  readonly revision: number
  /** It is renewed, but what it said of itself came above the rate and was not written. */
  readonly limited?: true
}

/** Lists it, or changes what it says of itself and renews it. Throws what the lessor refused. */
export async function register(
  { desk, caller }: Registrant,
  registration: RegistrationData,
  given: Partial<InstanceState>,
  { ttl, grace, op }: { readonly ttl: number; readonly grace: number; readonly op?: string },
): Promise<KeptRegistration & { readonly created: boolean }> {
  const holder = `${registration.service}/${registration.instance}`
  // Before anything is said about who is there.
  desk.gate.demand(caller, 'register', keyOf(registration))
  const state = stateOf(given)
  const entries = [entryOf(registration), ...(state.status === 'passing' && state.load === 0 ? [] : [stateEntryOf(registration, state)])]
  const command = { kind: 'acquire', holder, ttl, grace, wants: [], entries } as const
  const under = op === undefined ? {} : { op: operationNamed(op, command) }
  const there = await entryAt(desk, keyOf(registration))
  if (there?.holder === holder && there.generation === registration.generation) {
    const { value: lease } = await desk.lessor.read({ kind: 'lease', lease: there.lease })
    if (lease?.ttl === ttl && lease.status !== 'frozen') {
      // Under an op it may have been asked before, and have registered it then: that is heard. Else it is renewed, which no op remembers.
      const before = op === undefined ? undefined : accepted(await desk.propose(caller, { kind: 'renew', leases: [there.lease] }, under))
      const created = before?.kind === 'granted' && before.lease === there.lease
      const entry = entryOf(registration)
      const changed = [...(entry.value === there.value ? [] : [entry]), ...(await stateChange(desk, registration, there.lease, given))]
      const kept = await keep({ desk, caller }, there.lease, changed)
      if (kept?.over !== undefined) throw kept.over
      if (kept !== undefined) return { lease: kept.lease, ttl: kept.ttl, revision: kept.revision, created }
    }
  }
  const outcome = accepted(await desk.propose(caller, command, under))
  if (outcome.kind !== 'granted') throw new LeaseError('UNAVAILABLE', `this was answered with ${outcome.kind}: nothing was done`)
  return { lease: outcome.lease, ttl: outcome.ttl, revision: outcome.revision, created: true }
}

/** Renews it, however often it is asked to; writes only what changed. Throws `GONE` when it is listed no more: register again. */
export async function heartbeat({ desk, caller }: Registrant, beat: HeartbeatRequest): Promise<KeptRegistration> {
  const { service, instance, status, load } = beat
  if (!desk.gate.may(caller, 'renew', keyOf(beat))) desk.gate.demand(caller, 'register', keyOf(beat))
  const there = await entryAt(desk, keyOf(beat))
  if (there === undefined) throw gone(beat)
  mustBeNewest(there, beat)
  const names = { service, instance, generation: there.generation }
  const changed = await stateChange(desk, names, there.lease, {
    ...(status !== undefined && { status }),
    ...(load !== undefined && { load }),
  })
  const kept = await keep({ desk, caller }, there.lease, changed)
  if (kept === undefined) throw gone(beat)
  const { over, ...rest } = kept
  return over === undefined ? rest : { ...rest, limited: true }
}

/** Leaves. A lease that carries others too only loses this one. Throws `GONE` when it was not listed; under an `op` that it did before, nothing. */
export async function deregister(
  { desk, caller }: Registrant,
  names: Omit<HeartbeatRequest, 'status' | 'load'>,
  op?: Operation,
): Promise<number> {
  desk.gate.demand(caller, 'register', keyOf(names))
  const under = op === undefined ? {} : { op }
  const there = await entryAt(desk, keyOf(names))
  if (op !== undefined && (there === undefined || isNewer(there, names))) {
    // Perhaps it was asked before and left then: of no lease at all, only what was answered is heard.
    const before = await desk.propose(caller, { kind: 'release', lease: NOBODYS }, under)
    if (before.kind === 'done') return before.revision
    // An answer from before this registration came: there was nobody to leave then.
    if (there !== undefined && before.kind === 'refused' && before.revision < there.revision) throw gone(names)
  }
  if (there === undefined) throw gone(names)
  mustBeNewest(there, names)
  const { value: lease } = await desk.lessor.read({ kind: 'lease', lease: there.lease })
  const own = keyOf(names)
  const alone =
    lease === undefined || (lease.grants.length === 0 && lease.entries.every(({ key }) => key === own || key.startsWith(`${own}/`)))
  const left = (outcome: Outcome) => {
    // Also when it was asked before, and nobody was there to leave.
    if (outcome.kind === 'refused' && outcome.code === 'GONE') throw gone(names)
    return accepted(outcome).revision
  }
  if (alone) return left(await desk.propose(caller, { kind: 'release', lease: there.lease }, under))
  for (const { key } of lease.entries)
    if (key.startsWith(`${own}/`)) await desk.propose(caller, { kind: 'delete', key, lease: there.lease })
  return left(await desk.propose(caller, { kind: 'delete', key: own, lease: there.lease }, under))
}

/** The entry of exactly this key. */
async function entryAt(desk: GuardedLessor, key: string): Promise<EntryView | undefined> {
  // The first under a key is the key's own: what hangs below it, which may be much, is not read.
  const { value } = await desk.lessor.read({ kind: 'entries', prefix: key, limit: 1 })
  return value.find(entry => entry.key === key)
}

/** What of its state has to be written: most heartbeats change nothing. */
async function stateChange(
  desk: GuardedLessor,
  names: Pick<RegistrationData, 'service' | 'instance' | 'generation'>,
  lease: number,
  given: Partial<InstanceState>,
): Promise<readonly Attachment[]> {
  if (given.status === undefined && given.load === undefined) return []
  const entry = await entryAt(desk, keyOf(names, 'state'))
  const before = entry?.lease === lease ? readState(entry.value) : stateOf({})
  const after = stateOf(given, before)
  return after.status === before.status && after.load === before.load ? [] : [stateEntryOf(names as RegistrationData, after)]
}

/** Undefined when the lease is gone; `over` when it was renewed, and what changed was refused since too much was asked within a second. */
async function keep(
  { desk, caller }: Registrant,
  lease: number,
  changed: readonly Attachment[],
): Promise<(KeptRegistration & { readonly over?: LeaseError }) | undefined> {
  // Async, and all awaited together: when the lessor fails, each of them does, and nobody's failure goes unheard.
  const ask = async (command: Command) => desk.propose(caller, command)
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

/** Left out, a generation is 0, as it is where instances register. One that does not say which it is could be the one that was replaced. */
function isNewer({ generation: there }: EntryView, { generation = 0 }: { readonly generation?: number }): boolean {
  return generation < there
}

export function mustBeNewest(entry: EntryView, asked: { readonly generation?: number }): void {
  if (!isNewer(entry, asked)) return
  const { key, generation: there, holder } = entry
  const why =
    asked.generation === undefined
      ? 'say with generation which one you are, or renew and release the lease by its number'
      : 'this one is replaced'
  throw new LeaseError('STALE', `${key} belongs to generation ${there}, of ${holder}: ${why}`, {
    facts: { key, holder, generation: there },
  })
}

export function gone({ service, instance }: Pick<HeartbeatRequest, 'service' | 'instance'>): LeaseError {
  return new LeaseError('GONE', `${service}/${instance} is not registered, or lapsed: register again`, { facts: { service, instance } })
}

function accepted(outcome: Outcome): Exclude<Outcome, { readonly kind: 'refused' }> {
  if (outcome.kind === 'refused') throw new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
  return outcome
}
