/**
 * The lock and election services. The lock NAME is our resource `etcd/NAME`, or the one that a map names for it, so it excludes every other holder of that name, whatever client it uses. It is held
 * by a child of the client's lease: it ends with that lease, and keepalive renews both. The key that etcd's clients get for it, `NAME/LEASE`, is an entry
 * on the child, so it is there as long as the lock is held.
 */

import { propose } from '../../lessor/propose.ts'
import type { EntryView, LeaseView } from '../../lessor.ts'
import type { FaceCaller } from '../face.ts'
import { watchAny } from '../watch-any.ts'
import { EtcdFailure, failureOf, failureOfError } from './failure.ts'
import { keyJson, recordOf } from './key-view.ts'
import type { RevisedBody } from './keys.ts'
import { findLease, newLease } from './leases.ts'
import { Message } from './message.ts'
import { base64, nameOf, textOf } from './names.ts'

/** Seconds of the lease of a lock that was asked for without one. */
const OWN_LEASE = 60
/** A waiter is renewed this often in its ttl. */
const RENEWALS = 3

export async function lock(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { key, revision } = await hold(caller, message.bytes('name'), message.int('lease'), '')
  return { revision, body: { key: base64(key) } }
}

export async function unlock(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  return { revision: await giveBack(caller, message.bytes('key'), () => true), body: {} }
}

export async function campaign(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const name = message.bytes('name')
  const { key, revision, lease } = await hold(caller, name, message.int('lease'), message.bytes('value'))
  const { entry } = await entryOf(caller, key)
  if (entry === undefined) throw noLease()
  return { revision, body: { leader: { name: base64(name), key: base64(key), rev: String(entry.created), lease: String(lease) } } }
}

export async function proclaim(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { key, rev } = leaderOf(message)
  const { entry } = await entryOf(caller, key)
  const notLeader = () => new EtcdFailure('UNKNOWN', 'election: not leader')
  if (entry === undefined || entry.created !== rev) throw notLeader()
  const outcome = await propose(caller.lessor, {
    kind: 'transaction',
    compare: [{ key: entry.key, field: 'created', is: 'equal', number: rev }],
    success: [{ key: entry.key, value: textOf(message.bytes('value')), lease: entry.lease }],
  })
  if (outcome.kind !== 'transacted') throw failureOf(outcome)
  if (!outcome.succeeded) throw notLeader()
  return { revision: outcome.revision, body: {} }
}

export async function resign(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { key, rev } = leaderOf(message)
  return { revision: await giveBack(caller, key, ({ created }) => created === rev), body: {} }
}

export async function leader(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { revision, entry } = await electedEntry(caller, message.bytes('name'))
  if (entry === undefined) throw new EtcdFailure('UNKNOWN', 'election: no leader')
  return { revision, body: { kv: keyJson(recordOf(entry)!, revision) } }
}

/** Each leader, and each value that a leader proclaims, as lines of JSON. */
export async function* observeLines(
  message: Message,
  caller: FaceCaller,
  headerOf: (revision: number) => object,
): AsyncGenerator<string, void, void> {
  const name = message.bytes('name')
  let shown = 0
  const line = ({ revision, entry }: Awaited<ReturnType<typeof electedEntry>>) => {
    if (entry === undefined || entry.revision === shown) return ''
    shown = entry.revision
    return `${JSON.stringify({ result: { header: headerOf(revision), kv: keyJson(recordOf(entry)!, revision) } })}\n`
  }
  try {
    const first = await electedEntry(caller, name)
    yield line(first)
    const watched = [nameOf(name), resourceOf(caller, name)]
    for await (const _ of watchAny(caller.lessor, watched, { after: first.revision, signal: caller.signal }))
      yield line(await electedEntry(caller, name))
  } catch (error) {
    if (!caller.signal.aborted) yield `${JSON.stringify(failureOfError(error).item)}\n`
  }
}

function leaderOf(message: Message): { readonly key: string; readonly rev: number } {
  const named = message.message('leader') ?? new Message({})
  return { key: named.bytes('key'), rev: named.int('rev') }
}

function resourceOf({ names }: FaceCaller, name: string): string {
  return names.resource(nameOf(name))
}

function noLease(): EtcdFailure {
  return new EtcdFailure('UNKNOWN', 'etcdserver: requested lease not found')
}

async function entryOf(
  { lessor, signal }: FaceCaller,
  key: string,
): Promise<{ readonly revision: number; readonly entry: EntryView | undefined }> {
  const name = nameOf(key)
  const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: name }, { consistent: true, signal })
  return { revision, entry: value.find(({ key: found }) => found === name) }
}

/** The key of the lease that holds the resource. A holder that did not come through this face has none. */
async function electedEntry(
  caller: FaceCaller,
  name: string,
): Promise<{ readonly revision: number; readonly entry: EntryView | undefined }> {
  const { lessor, signal } = caller
  const { revision, value: entries } = await lessor.read<'entries'>({ kind: 'entries', prefix: nameOf(name) }, { consistent: true, signal })
  const query = { kind: 'resource', resource: resourceOf(caller, name), waiters: 0 } as const
  const { value: held } = await lessor.read<'resource'>(query, { atLeast: revision, signal })
  return { revision, entry: entries.find(({ lease }) => held.grants.some(grant => grant.lease === lease)) }
}

interface HeldName {
  readonly key: string
  readonly revision: number
  /** The lease of the client, not the child that holds the name. */
  readonly lease: number
}

/** Waits until the name is held for this lease. */
async function hold(caller: FaceCaller, name: string, given: number, value: string): Promise<HeldName> {
  const { lessor, holder } = caller
  const lease = given === 0 ? (await newLease(caller, OWN_LEASE)).lease : given
  const parent = await findLease(caller, lease)
  if (parent === undefined) throw noLease()
  const resource = resourceOf(caller, name)
  const key = `${name}/${lease.toString(16)}`
  const known = await childHolding(caller, parent, resource)
  if (known !== undefined) return { key, lease, revision: (await entryOf(caller, key)).revision }
  const outcome = await propose(lessor, {
    kind: 'acquire',
    holder,
    ttl: parent.ttl,
    wants: [{ resource }],
    wait: true,
    parent: lease,
    entries: [{ key: nameOf(key), value: textOf(value) }],
  })
  if (outcome.kind === 'refused' && outcome.code === 'GONE') throw noLease()
  if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw failureOf(outcome)
  const child = outcome.lease
  try {
    if (outcome.kind === 'queued') await whenGranted(caller, resource, outcome)
    caller.signal.throwIfAborted()
    // The grant is relied on from here on: this confirms it, and starts the whole term.
    const renewed = await propose(lessor, { kind: 'renew', leases: [child] })
    if (renewed.kind !== 'renewed' || renewed.ttls[0]! <= 0) throw noLease()
    return { key, lease, revision: Math.max(outcome.revision, renewed.revision) }
  } catch (error) {
    await propose(lessor, { kind: 'release', lease: child }).catch(() => {})
    throw error
  }
}

async function childHolding({ lessor, signal }: FaceCaller, { children }: LeaseView, resource: string): Promise<LeaseView | undefined> {
  for (const lease of children) {
    const { value } = await lessor.read<'lease'>({ kind: 'lease', lease }, { signal })
    if (value?.status !== 'frozen' && value?.grants.some(grant => grant.resource === resource)) return value
  }
  return undefined
}

/** Keeps the place in the queue until its turn comes. Throws if the place is lost, or the client has gone. */
async function whenGranted(
  { lessor, clock, signal }: FaceCaller,
  resource: string,
  { lease, ttl, revision }: { readonly lease: number; readonly ttl: number; readonly revision: number },
): Promise<void> {
  const stop = new AbortController()
  const leave = () => stop.abort()
  signal.addEventListener('abort', leave)
  let cancel = () => {}
  const renew = () => {
    cancel = clock.after(ttl / RENEWALS, () => {
      // A failed renewal is repeated by the next one. If the place is lost, an event says so.
      propose(lessor, { kind: 'renew', leases: [lease], waiting: true }).catch(() => {})
      renew()
    })
  }
  renew()
  try {
    for await (const [event] of lessor.watch(resource, { after: revision, signal: stop.signal })) {
      const { value } = await lessor.read<'lease'>({ kind: 'lease', lease }, { atLeast: event!.revision, signal })
      if (value === undefined) throw noLease()
      if (value.status !== 'waiting') return
    }
    signal.throwIfAborted()
    throw noLease()
  } finally {
    cancel()
    signal.removeEventListener('abort', leave)
    stop.abort()
  }
}

/** Releases the lock that a key stands for. A key that is not one of a lock is deleted. */
async function giveBack(caller: FaceCaller, key: string, isMeant: (entry: EntryView) => boolean): Promise<number> {
  const { lessor } = caller
  const { revision, entry } = await entryOf(caller, key)
  if (entry === undefined || !isMeant(entry)) return revision
  const resource = resourceOf(caller, key.slice(0, Math.max(0, key.lastIndexOf('/'))))
  const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: entry.lease }, { atLeast: revision, signal: caller.signal })
  const isLock = lease?.grants.some(grant => grant.resource === resource) === true
  const outcome = await propose(
    lessor,
    isLock ? { kind: 'release', lease: entry.lease } : { kind: 'delete', key: entry.key, ...(entry.lease !== 0 && { lease: entry.lease }) },
  )
  if (outcome.kind === 'done') return outcome.revision
  if (outcome.kind === 'refused' && (outcome.code === 'GONE' || outcome.code === 'NOT_FOUND' || outcome.code === 'STALE'))
    return outcome.revision
  throw failureOf(outcome)
}
