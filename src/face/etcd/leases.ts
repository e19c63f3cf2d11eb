/**
 * The lease service on our leases. The keys of a lease are entries on it. A lock that was taken with a lease is a child of it (locks.ts): it ends with it, and is
 * renewed with it.
 */
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { LeaseView } from '../../lessor.ts'
import type { FaceCaller } from '../face.ts'
import { mapInSlices } from '../slices.ts'
import { startWholeTerm } from '../whole-term.ts'
import { EtcdFailure, failureOf, leaseNotFound } from './failure.ts'
import { keysOn } from './key-view.ts'
import type { RevisedBody } from './keys.ts'
import type { Message } from './message.ts'
import { base64 } from './names.ts'

const SECOND = 1_000
/** As in etcd: a shorter ttl is made this long. */
const MIN_TTL = 2
/** The longest ttl of etcd. It is refused above; what is above our own longest ttl gets that, and the answer says so. */
const MAX_TTL = 9_000_000_000
const LONGEST = 86_400
/** Marks the leases of this face. */
const LABEL = ['face', 'etcd'] as const

export async function grant(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const asked = message.int('TTL')
  if (message.int('ID') !== 0)
    throw new EtcdFailure('UNIMPLEMENTED', 'the server chooses the ID of a lease: leave ID out, and use the one in the answer')
  if (asked > MAX_TTL) throw new EtcdFailure('OUT_OF_RANGE', 'etcdserver: too large lease TTL')
  const { lease, revision, seconds } = await newLease(caller, asked)
  return { revision, body: { ID: String(lease), TTL: String(seconds) } }
}

export async function newLease(
  { lessor, holder }: FaceCaller,
  asked: number,
): Promise<{ readonly lease: number; readonly revision: number; readonly seconds: number }> {
  const seconds = Math.min(LONGEST, Math.max(MIN_TTL, asked))
  const ttl = seconds * SECOND
  const outcome = await propose(lessor, { kind: 'acquire', holder, ttl, wants: [], labels: [LABEL] })
  if (outcome.kind !== 'granted') throw failureOf(outcome)
  const { lease, revision } = outcome
  if (!(await startWholeTerm(lessor, ttl, lease))) throw leaseNotFound()
  return { lease, revision, seconds }
}

export async function revoke(message: Message, { lessor }: FaceCaller): Promise<RevisedBody> {
  const lease = message.int('ID')
  const view = await findLease({ lessor }, lease)
  if (view === undefined) throw leaseNotFound()
  const outcome = await propose(lessor, { kind: 'release', lease, ...(view.children.length > 0 && { stopped: view.children }) })
  if (outcome.kind !== 'done') throw failureOf(outcome)
  return { revision: outcome.revision, body: {} }
}

export async function findLease({ lessor }: Pick<FaceCaller, 'lessor'>, lease: number): Promise<LeaseView | undefined> {
  if (lease <= 0) return undefined
  const { value } = await lessor.read<'lease'>({ kind: 'lease', lease }, { consistent: true })
  return value?.status === 'frozen' ? undefined : value
}

/** Renews a lease and its locks, and ends locks whose name was released: their keys would say that it is held. The answer has no TTL if the lease has ended. */
export async function keepAlive(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { lessor } = caller
  const lease = message.int('ID')
  const there = await findLease(caller, lease)
  const { revision, ttl } = there === undefined ? await noTerm(caller) : await renewed(caller, there)
  return { revision, body: { ID: String(lease), ...(ttl !== undefined && { TTL: String(Math.floor(ttl / SECOND)) }) } }

  async function noTerm({ signal }: FaceCaller) {
    const { revision: now } = await lessor.read<'summary'>({ kind: 'summary' }, { signal })
    return { revision: now, ttl: undefined }
  }
}

async function renewed(
  { lessor, signal }: FaceCaller,
  { lease, children }: LeaseView,
): Promise<{ readonly revision: number; readonly ttl: number | undefined }> {
  const outcome = await propose(lessor, { kind: 'renew', leases: [lease, ...children] })
  if (outcome.kind !== 'renewed') throw failureOf(outcome)
  const { revision } = outcome
  for (const child of children) {
    const { value } = await lessor.read<'lease'>({ kind: 'lease', lease: child }, { atLeast: revision, signal })
    if (value?.status !== 'live' || value.grants.length > 0) continue
    const released = await propose(lessor, { kind: 'release', lease: child })
    if (released.kind !== 'done' && !(released.kind === 'refused' && released.code === 'GONE')) throw failureOf(released)
  }
  const [ttl] = outcome.ttls
  return { revision, ttl: ttl === GONE ? undefined : ttl }
}

export async function timeToLive(message: Message, { lessor, signal }: FaceCaller): Promise<RevisedBody> {
  const lease = message.int('ID')
  if (lease === 0) throw leaseNotFound()
  const { revision, value } = await lessor.read<'lease'>({ kind: 'lease', lease: Math.max(0, lease) }, { consistent: true, signal })
  if (value === undefined || value.status === 'frozen') return { revision, body: { ID: String(lease), TTL: '-1' } }
  const keys = message.flag('keys') ? keysOn(value) : []
  return {
    revision,
    body: {
      ID: String(lease),
      ...(value.remaining >= SECOND && { TTL: String(Math.floor(value.remaining / SECOND)) }),
      grantedTTL: String(Math.floor(value.ttl / SECOND)),
      ...(keys.length > 0 && { keys: keys.map(base64) }),
    },
  }
}

/** The leases that were granted through this face. */
export async function leases(caller: FaceCaller): Promise<RevisedBody> {
  const { lessor, signal } = caller
  const { revision, value } = await lessor.read<'leases'>({ kind: 'leases' }, { consistent: true, signal })
  const isOurs = await mapInSlices(
    caller,
    value,
    ({ labels, status }) => status !== 'frozen' && labels.some(([name, text]) => name === LABEL[0] && text === LABEL[1]),
  )
  const ours = value.filter((_, i) => isOurs[i])
  return { revision, body: ours.length === 0 ? {} : { leases: ours.map(({ lease }) => ({ ID: String(lease) })) } }
}
