/**
 * `LEASE.ACQUIRE resource [resource …] TTL ms […]`: the RESP command with the most options, and the only one that may wait. And `LEASE.GRANT TTL ms […]`, a
 * lease on nothing: for sessions, registrations and whatever else carries entries or other leases.
 */

import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Acquire, Operation, Want, Widen } from '../../kernel/command.ts'
import type { Queued } from '../../kernel/outcome.ts'
import type { TtlRange } from '../../lessor/ttl-range.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import type { Caller } from '../access-control.ts'
import { checkedTtlRange, ownLease, withFittingTtl } from '../adjusted-acquire.ts'
import { duration, invalid, opText, readOptions, text, type Words, whole } from './command.ts'
import { optionWords } from './kernel-command.ts'
import { type AcquireOutcome, writeDone, writeGrant, writeGrantOfAny, writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

export function acquire(session: RespSession): void {
  const { args } = session
  // The first argument is a resource, even if it is TTL: a forgotten resource must not become a lease on nothing.
  let at = 2
  while (at < args.count && !args.is(at, 'TTL')) at++
  if (at === args.count) throw invalid(`${args.is(1, 'TTL') ? 'a resource' : 'TTL'} is missing, as in LEASE.ACQUIRE jobs/nightly TTL 30000`)
  const names: string[] = []
  for (let i = 1; i < at; i++) names.push(text(session, i, 'a resource'))
  const ttl = duration(session, at + 1, 'TTL')
  if (at + 2 === args.count)
    return session.propose({ kind: 'acquire', holder: session.holder, ttl, wants: names.map(resource => ({ resource })) }, writeGrant)
  const given = new AcquireWords(session)
  readOptions(session, at + 2, given.forAcquire())
  const { wait, queue } = given
  if (wait > 0 && queue) throw invalid('WAIT and QUEUE exclude each other: one answers when it is granted, the other at once')
  const { guarded } = session.host.context
  if (queue || wait > 0) guarded.access.admit(session.caller)
  const command = given.command(ttl, given.wants(names))
  const op = given.operation(command)
  // With ANY, the answer must say which.
  const write = command.any === undefined ? writeGrant : writeGrantOfAny
  if (given.range !== undefined || given.reuse) return acquireAdjusted(session, given, command, op)
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
  const given = new AcquireWords(session)
  const ttl = duration(session, 2, 'TTL')
  readOptions(session, 3, given.forGrant())
  const command = given.command(ttl, [])
  const op = given.operation(command)
  if (given.range !== undefined) return acquireAdjusted(session, given, command, op)
  session.propose(command, writeGrant, op && { op })
}

/**
 * With `TTLMIN`, `TTLMAX` or `REUSE`, which read the state first. `op` was made from the words of the request and not from the adjusted ttl: a request that
 * is repeated after a change of policies is still recognised.
 */
function acquireAdjusted(
  session: RespSession,
  { range, reuse, wait, queue }: AcquireWords,
  asked: Acquire,
  op: Operation | undefined,
): void {
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

/** The options of a new lease, as they are read. */
class AcquireWords {
  readonly #session: RespSession
  readonly #rest: { -readonly [K in keyof Acquire]?: Acquire[K] } & Record<string, unknown> = {}
  readonly #want: { units?: number; shared?: boolean } = {}
  readonly #unitsOf = new Map<string, number>()
  readonly #labels: (readonly [string, string])[] = []
  readonly #entries: { key: string; value: string; generation?: number }[] = []
  readonly #holding: number[] = []
  #holder: string | undefined
  #named: string | undefined
  #ttlMin: number | undefined
  #ttlMax: number | undefined
  /** Set when the ttl is a preference. */
  range: TtlRange | undefined
  reuse = false
  wait = 0
  queue = false

  constructor(session: RespSession) {
    this.#session = session
  }

  forGrant(): Words {
    const session = this.#session
    return {
      ...optionWords(session, 'acquire', ['parent', 'incarnation', 'grace', 'maxLife'], this.#rest),
      HOLDER: at => {
        this.#holder = text(session, at, 'HOLDER')
        return 1
      },
      LABEL: at => {
        this.#labels.push([text(session, at, 'LABEL'), text(session, at + 1, 'the value of LABEL')])
        return 2
      },
      ENTRY: at => {
        this.#entries.push({ key: text(session, at, 'ENTRY'), value: text(session, at + 1, 'the value of ENTRY') })
        return 2
      },
      GENERATION: at => {
        const entry = this.#entries.at(-1)
        if (entry === undefined) throw invalid('GENERATION follows the ENTRY that it belongs to')
        entry.generation = whole(session, at, 'GENERATION')
        return 1
      },
      TTLMIN: at => {
        this.#ttlMin = duration(session, at, 'TTLMIN')
        return 1
      },
      TTLMAX: at => {
        this.#ttlMax = duration(session, at, 'TTLMAX')
        return 1
      },
      OP: at => {
        this.#named = opText(session, at)
        return 1
      },
    }
  }

  forAcquire(): Words {
    const session = this.#session
    return {
      ...this.forGrant(),
      ...optionWords(session, 'acquire', ['priority', 'any', 'recall'], this.#rest),
      WAIT: at => {
        this.wait = duration(session, at, 'WAIT')
        if (this.wait < 0) throw invalid('WAIT must not be negative; 0 means not to wait')
        return 1
      },
      QUEUE: () => {
        this.queue = true
        return 0
      },
      REUSE: () => {
        this.reuse = true
        return 0
      },
      UNITS: at => {
        this.#want.units = whole(session, at, 'UNITS')
        return 1
      },
      UNITSOF: at => {
        this.#unitsOf.set(text(session, at, 'the resource of UNITSOF'), whole(session, at + 1, 'UNITSOF'))
        return 2
      },
      SHARED: () => {
        this.#want.shared = true
        return 0
      },
      HOLDING: at => {
        const { args } = session
        let end = at
        for (; end < args.count && args.number(end) !== undefined; end++) this.#holding.push(args.number(end)!)
        if (end === at) throw invalid('HOLDING names the leases that the client keeps while it waits')
        return end - at
      },
      STEAL: () => {
        this.#rest.steal = 'after'
        return 0
      },
      FORCE: () => {
        this.#rest.steal = 'force'
        return 0
      },
    }
  }

  wants(names: readonly string[]): Want[] {
    if (this.#unitsOf.size === 0) return names.map(resource => ({ resource, ...this.#want }))
    const asked = new Set(names)
    for (const name of this.#unitsOf.keys()) if (!asked.has(name)) throw invalid(`UNITSOF names ${name}, which was not asked for`)
    return names.map(resource => {
      const units = this.#unitsOf.get(resource)
      return { resource, ...this.#want, ...(units !== undefined && { units }) }
    })
  }

  command(ttl: number, wants: readonly Want[]): Acquire {
    if (this.#labels.length > 0) this.#rest.labels = this.#labels
    if (this.#entries.length > 0) this.#rest.entries = this.#entries
    if (this.#holding.length > 0) this.#rest.holding = this.#holding
    if (this.#ttlMin !== undefined || this.#ttlMax !== undefined)
      this.range = checkedTtlRange({ preferred: ttl, min: this.#ttlMin ?? 0, max: this.#ttlMax ?? Number.POSITIVE_INFINITY })
    return { kind: 'acquire', holder: this.#holder ?? this.#session.holder, ttl, wants, ...this.#rest }
  }

  /** Without the connection's own holder name: a client may ask again over another connection. */
  operation(command: Acquire): Operation | undefined {
    return this.#named === undefined ? undefined : operationNamed(this.#named, { ...command, holder: this.#holder ?? '' })
  }
}

/** `LEASE.WIDEN id RESOURCE name […]`: a waiter for any of several resources names more of them, and keeps its place. */
export function widen(session: RespSession): void {
  const wants: { resource: string; units?: number; shared?: boolean }[] = []
  let named: string | undefined
  const last = (word: string) => {
    const want = wants.at(-1)
    if (want === undefined) throw invalid(`${word} follows the RESOURCE that it belongs to`)
    return want
  }
  readOptions(session, 2, {
    RESOURCE: at => {
      wants.push({ resource: text(session, at, 'RESOURCE') })
      return 1
    },
    UNITS: at => {
      last('UNITS').units = whole(session, at, 'UNITS')
      return 1
    },
    SHARED: () => {
      last('SHARED').shared = true
      return 0
    },
    OP: at => {
      named = opText(session, at)
      return 1
    },
  })
  if (wants.length === 0) throw invalid('RESOURCE is missing, as in LEASE.WIDEN 7 RESOURCE gpu/2')
  const command: Widen = { kind: 'widen', lease: whole(session, 1, 'a lease'), wants }
  session.propose(command, writeDone, named === undefined ? undefined : { op: operationNamed(named, command) })
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

function follow(session: RespSession, { caller, signal, command }: Place, queued: Queued): void {
  const { lease } = queued
  const { holder, wants } = command
  const recipient = { holder, resources: wants.map(({ resource }) => resource) }
  session.host.context.guarded.follow(caller, queued, signal, { recipient }).then(
    ({ lease: granted, tokens, resources, ttl, revision }) =>
      session.push(to => {
        to.push(3)
        to.raw('$13\r\nlease.granted\r\n')
        to.integer(lease)
        const all = Object.fromEntries(resources.map((name, i) => [name, tokens[i]!]))
        // Another lease than the one that waits, if it came by transfer.
        writeValue(to, { lease: granted, token: tokens[0] ?? 0, ttl, revision, tokens: all, waited: 1 })
      }),
    (error: { readonly code?: string; readonly reason?: string; readonly message: string; readonly facts?: object }) => {
      if (session.queue !== signal) return // the connection was reset, and no client waits for it any more
      session.push(to => {
        to.push(3)
        to.raw('$15\r\nlease.withdrawn\r\n')
        to.integer(lease)
        const { code = 'UNKNOWN', reason, message, facts } = error
        writeValue(to, { ...facts, lease, code, reason, message })
      })
    },
  )
}
