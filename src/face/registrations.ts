/**
 * Services of foreign protocols as registrations of our registry: the same entries as any other client's (docs/registry.md), so both worlds see each other.
 * A face keeps nothing of them in memory.
 */
import { LeaseError } from '../errors.ts'
import type { Attachment, Command } from '../kernel/command.ts'
import { GONE, type Outcome } from '../kernel/outcome.ts'
import { propose } from '../lessor/propose.ts'
import type { EntryView } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import { Directory } from '../registry/directory.ts'
import {
  entryOf,
  type InstanceState,
  keyOf,
  partsOf,
  type RegistrationData,
  readState,
  SERVICES,
  stateEntryOf,
  stateOf,
} from '../registry/entry.ts'
import type { Instance } from '../registry/match.ts'
import type { FaceCaller } from './face.ts'
import { startWholeTerm } from './whole-term.ts'

/** An instance that is registered. */
export interface FoundInstance {
  readonly instance: Instance
  /** It declared this itself; `instance.status` is what others see. */
  readonly declared: InstanceState
  readonly revision: number
}

export class Registrations {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  async find(names: Pick<RegistrationData, 'service' | 'instance'>): Promise<FoundInstance | undefined> {
    const { lessor, signal } = this.#caller
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: keyOf(names) }, { consistent: true, signal })
    const directory = new Directory()
    directory.load(value, revision)
    const instance = directory.get(names.service, names.instance)
    if (instance === undefined) return undefined
    const state = value.find(({ key, lease }) => key === keyOf(names, 'state') && lease === instance.lease)
    return { instance, revision, declared: state === undefined ? stateOf({}) : readState(state.value) }
  }

  /** The services that have an instance of this name. Looked up by its name: the other instances are not read. */
  async servicesWith(instance: string): Promise<readonly string[]> {
    const { lessor, signal } = this.#caller
    const query = { kind: 'entries', prefix: SERVICES, named: instance } as const
    const { value } = await lessor.read<'entries'>(query, { consistent: true, signal })
    return value.flatMap(({ key }) => {
      const parts = partsOf(key)
      return parts?.part === '' && parts.instance === instance ? [parts.service] : []
    })
  }

  /** All instances, or those of one service. */
  async list(
    service?: string,
    { atLeast = 0 }: { readonly atLeast?: number } = {},
  ): Promise<{ readonly all: readonly Instance[]; readonly revision: number }> {
    const { lessor, signal } = this.#caller
    const prefix = service === undefined ? SERVICES : `${SERVICES}/${service}`
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix }, { consistent: true, atLeast, signal })
    const all: Instance[] = []
    for (let from = 0, to = 0; from < value.length; from = to) {
      if (from > 0) await this.#caller.nextTurn?.()
      to = endOfSlice(value, from)
      const directory = new Directory()
      directory.load(value.slice(from, to), revision)
      for (const instance of directory.list()) all.push(instance)
    }
    return { all, revision }
  }

  /** Registers an instance, with a new lease. A former registration of the same name ends in the same revision. */
  async register(
    registration: RegistrationData,
    state: InstanceState,
    { ttl, grace }: { readonly ttl: number; readonly grace: number },
  ): Promise<void> {
    const { lessor } = this.#caller
    const outcome = await propose(lessor, {
      kind: 'acquire',
      holder: `${registration.service}/${registration.instance}`,
      ttl,
      grace,
      wants: [],
      entries: [entryOf(registration), stateEntryOf(registration, state)],
    })
    if (outcome.kind !== 'granted') throw refusal(outcome)
    if (await startWholeTerm(lessor, ttl, outcome.lease)) return
    const { service, instance } = registration
    throw new LeaseError('GONE', `the registration of ${service}/${instance} was ended at once: register it again`)
  }

  /** Renews an instance, and writes what changed. False: it is not registered any more. */
  async keep({ instance, declared }: FoundInstance, status = declared.status, changed: readonly Attachment[] = []): Promise<boolean> {
    const { lease } = instance
    const entries = [...changed, ...(status === declared.status ? [] : [stateEntryOf(instance, { ...declared, status })])]
    // All are awaited together: if the lessor fails, all of them reject, and none of the rejections may stay unhandled.
    const ask = async (command: Command) => propose(this.#caller.lessor, command)
    const [renewed, ...puts] = await Promise.all([
      ask({ kind: 'renew', leases: [lease] }),
      ...entries.map(entry => ask({ kind: 'put', lease, ...entry })),
    ])
    for (const outcome of puts) {
      if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
      if (outcome.kind !== 'done') throw refusal(outcome)
    }
    if (renewed!.kind !== 'renewed') throw refusal(renewed!)
    return renewed!.ttls[0] !== GONE
  }

  /** Ends the registration. Its lease ends, unless it carries more than this instance. */
  async remove({ instance }: FoundInstance): Promise<void> {
    const { lessor, signal } = this.#caller
    const own = keyOf(instance)
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: instance.lease }, { signal })
    if (lease === undefined) return
    const isPart = (key: string) => key === own || key.startsWith(`${own}/`)
    if (lease.grants.length === 0 && lease.entries.every(({ key }) => isPart(key)))
      return this.#end({ kind: 'release', lease: lease.lease })
    for (const { key } of lease.entries) if (isPart(key)) await this.#end({ kind: 'delete', key, lease: lease.lease })
  }

  async #end(command: Command): Promise<void> {
    const outcome = await propose(this.#caller.lessor, command)
    const isOver = outcome.kind === 'refused' && (outcome.code === 'GONE' || outcome.code === 'NOT_FOUND' || outcome.code === 'STALE')
    if (outcome.kind !== 'done' && !isOver) throw refusal(outcome)
  }
}

/** Entries that are parsed in one slice, and about how many characters they have together. */
const PARSED = 200
const CHARACTERS = 64 << 10

/** Where a slice ends that begins at `from`. The entries of an instance, which follow each other, are in one slice. */
function endOfSlice(entries: readonly EntryView[], from: number): number {
  let to = from
  for (let characters = 0; to < entries.length; to++) {
    if ((to - from >= PARSED || characters > CHARACTERS) && partsOf(entries[to]!.key)?.part === '') break
    characters += entries[to]!.value.length
  }
  return to
}

function refusal(outcome: Outcome): LeaseError {
  if (outcome.kind === 'refused') return refusedError(outcome)
  return new LeaseError('UNAVAILABLE', `nothing was done (the outcome was ${outcome.kind}): retry the request`)
}
