/**
 * `LEASE.ACQUIRE resource [resource …] TTL ms […]`: the RESP command with the most options, and the only one that may wait. And `LEASE.GRANT TTL ms […]`, a
 * lease on nothing: for sessions, registrations and whatever else carries entries or other leases.
 */

import { operationNamed } from '../../kernel/codec/digest.ts'
import { name, optional } from '../../kernel/codec/field.ts'
import type { Acquire, Want } from '../../kernel/command.ts'
import type { Queued } from '../../kernel/outcome.ts'
import { ACQUIRE_FIELDS } from '../../wire/acquire-fields.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import type { Caller } from '../access-control.ts'
import { checkedTtlRange, ownLease, withFittingTtl } from '../adjusted-acquire.ts'
import { duration, invalid, notUtf8, readOptions } from './command.ts'
import { fieldOptions, type Given } from './field-options.ts'
import { type AcquireOutcome, writeGrant, writeGrantOfAny, writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

// A connection has a holder name of its own.
const FIELDS = { ...ACQUIRE_FIELDS, holder: optional(name) }
/** The options of every lease, and those of leases on resources. */
const OF_LEASES = ['ttlMin', 'ttlMax', 'holder', 'parent', 'labels', 'entries', 'grace', 'maxLife', 'incarnation'] as const
const OF_RESOURCES = ['units', 'unitsOf', 'shared', 'priority', 'any', 'holding', 'reuse', 'recall', 'steal', 'permits', 'covers'] as const
const WAITING = ['wait', 'queue'] as const

const GRANT_OPTIONS = fieldOptions(FIELDS, OF_LEASES)
const ACQUIRE_OPTIONS = fieldOptions(FIELDS, [...OF_LEASES, ...OF_RESOURCES])
const ACQUIRE_WORDS = { ...ACQUIRE_OPTIONS.words, ...fieldOptions(FIELDS, WAITING).words }
export const GRANT_USAGE = `TTL ms ${GRANT_OPTIONS.usage}`
export const ACQUIRE_USAGE = `resource [resource …] TTL ms [WAIT ms | QUEUE] ${ACQUIRE_OPTIONS.usage}`

type NewLeaseOptions = Given<typeof FIELDS, (typeof OF_LEASES | typeof OF_RESOURCES | typeof WAITING)[number]>

/** A request asks for this. `range` is set when the ttl is a preference. */
type Request = ReturnType<typeof requestOf>

export function acquire(session: RespSession): void {
  const { args } = session
  // The first argument is a resource, even if it is TTL: a forgotten resource must not become a lease on nothing.
  let at = 2
  while (at < args.count && !args.is(at, 'TTL')) at++
  if (at === args.count) throw invalid(`${args.is(1, 'TTL') ? 'a resource' : 'TTL'} is missing, as in LEASE.ACQUIRE jobs/nightly TTL 30000`)
  let names: string[] = []
  for (let i = 1; i < at; i++) {
    const name = args.text(i)
    if (name === undefined) throw notUtf8('a resource')
    names.push(name)
  }
  if (names.length > 1) names = [...new Set(names)]
  const ttl = args.number(at + 1) ?? duration(session, at + 1, 'TTL')
  if (at + 2 === args.count) {
    const wants: Want[] = []
    for (const resource of names) wants.push({ resource })
    return session.propose({ kind: 'acquire', holder: session.holder, ttl, wants }, writeGrant)
  }
  const request = requestOf(session, ttl, names, readOptions(session, at + 2, ACQUIRE_WORDS, {}))
  const { command, op, wait, queue } = request
  const { guarded } = session.host.context
  if (queue || wait > 0) guarded.access.admit(session.caller)
  if (request.range !== undefined || request.reuse) return acquireAdjusted(session, request)
  // With ANY, the answer must say which.
  const write = command.any === undefined ? writeGrant : writeGrantOfAny
  if (wait > 0)
    return session.replyBlocking(guarded.acquire(session.caller, command, { wait, ...(op && { op }), signal: session.signal }), write)
  if (!queue) return session.propose(command, write, op && { op })
  // The grant must be pushed after the answer that names the lease, so writing the answer starts the wait for it. By then another caller may
  // have authenticated on the connection.
  const place = { caller: session.caller, signal: session.queue, command }
  session.propose({ ...command, wait: true }, (to, outcome) => answer(session, place, to, outcome), op && { op })
}

export function grant(session: RespSession): void {
  if (!session.args.is(1, 'TTL')) throw invalid('TTL is missing, as in LEASE.GRANT TTL 30000. For a lease on resources use LEASE.ACQUIRE')
  const ttl = duration(session, 2, 'TTL')
  const request = requestOf(session, ttl, [], readOptions(session, 3, GRANT_OPTIONS.words, {}))
  if (request.range !== undefined) return acquireAdjusted(session, request)
  session.propose(request.command, writeGrant, request.op && { op: request.op })
}

/**
 * With `TTLMIN`, `TTLMAX` or `REUSE`, which read the state first. `op` was made from the words of the request and not from the adjusted ttl: a request that
 * is repeated after a change of policies is still recognised.
 */
function acquireAdjusted(session: RespSession, { command: asked, op, range, reuse, wait, queue }: Request): void {
  const { guarded } = session.host.context
  const { caller, signal } = session
  const place = { caller, signal: session.queue, command: asked }
  const result = async () => {
    const command = range === undefined ? asked : await withFittingTtl(guarded, asked, range)
    const own = reuse ? await ownLease(guarded, caller, command) : undefined
    if (own !== undefined) return { ...own, reused: true }
    if (wait > 0) return guarded.acquire(caller, command, { wait, ...(op && { op }), signal })
    return guarded.propose(caller, queue ? { ...command, wait: true } : command, op && { op })
  }
  session.replyBlocking(result(), (to, outcome) => answer(session, place, to, outcome))
}

/** The command that words ask for, and what else they say about it. */
function requestOf(session: RespSession, ttl: number, names: readonly string[], given: NewLeaseOptions) {
  const { op: named, wait = 0, queue = false, reuse = false, ttlMin, ttlMax, units, unitsOf, shared, holder, ...fields } = given
  if (wait < 0) throw invalid('WAIT must not be negative; 0 means not to wait')
  if (wait > 0 && queue) throw invalid('WAIT and QUEUE exclude each other: one answers when it is granted, the other at once')
  const wants = wantsOf(names, given)
  const command: Acquire = { kind: 'acquire', holder: holder ?? session.holder, ttl, wants, ...fields }
  return {
    ...{ command, wait, queue, reuse },
    // Without the connection's own holder name: a client may ask again over another connection.
    op: named === undefined ? undefined : operationNamed(named, { ...command, holder: holder ?? '' }),
    range: ttlMin === undefined && ttlMax === undefined ? undefined : checkedTtlRange(ttl, ttlMin, ttlMax),
  }
}

function wantsOf(names: readonly string[], { units, shared, unitsOf = [] }: NewLeaseOptions): Want[] {
  const each = { ...(units !== undefined && { units }), ...(shared !== undefined && { shared }) }
  if (unitsOf.length === 0) return names.map(resource => ({ resource, ...each }))
  const asked = new Set(names)
  for (const { resource } of unitsOf) if (!asked.has(resource)) throw invalid(`UNITSOF names ${resource}, which was not asked for`)
  const own = new Map(unitsOf.map(want => [want.resource, want]))
  return names.map(resource => ({ resource, ...each, ...own.get(resource) }))
}

interface Place {
  readonly caller: Caller
  readonly command: Acquire
  readonly signal: AbortSignal
}

/** Answers, and follows a queued lease: its grant comes by push, and so does its end. */
function answer(session: RespSession, place: Place, to: RespWriter, outcome: AcquireOutcome): void {
  if (place.command.any === undefined) writeGrant(to, outcome)
  else writeGrantOfAny(to, outcome)
  if (outcome.kind === 'queued') follow(session, place, outcome)
}

function follow(session: RespSession, { caller, signal }: Place, queued: Queued): void {
  const { lease } = queued
  session.host.context.guarded.follow(caller, queued, signal).then(
    ({ tokens, resources, ttl, revision }) =>
      session.push(to => {
        to.push(3)
        to.integer(lease, '$13\r\nlease.granted\r\n:')
        const all = Object.fromEntries(resources.map((name, i) => [name, tokens[i]!]))
        writeValue(to, { lease, token: tokens[0] ?? 0, ttl, revision, tokens: all, waited: 1 })
      }),
    (error: { readonly code?: string; readonly reason?: string; readonly message: string; readonly facts?: object }) => {
      if (session.queue !== signal) return // the connection was reset, and no client waits for it any more
      session.push(to => {
        to.push(3)
        to.integer(lease, '$15\r\nlease.withdrawn\r\n:')
        const { code = 'UNKNOWN', reason, message, facts } = error
        writeValue(to, { lease, ...facts, code, reason, message })
      })
    },
  )
}
