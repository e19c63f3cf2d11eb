/** `LEASE.ACQUIRE resource [resource …] TTL ms […]`: the RESP command with the most options, and the only one that may wait. */

import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Acquire, Attachment, Want } from '../../kernel/command.ts'
import type { Outcome, Queued } from '../../kernel/outcome.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import type { Caller } from '../access-control.ts'
import { duration, invalid, opText, readOptions, text, whole } from './command.ts'
import { optionWords } from './kernel-command.ts'
import { writeGrant, writeValue } from './replies.ts'
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
  const given = options(session, at + 2)
  const wants = names.map(resource => ({ resource, ...given.want }))
  const command: Acquire = { kind: 'acquire', holder: given.holder ?? session.holder, ttl, wants, ...given.rest }
  const { wait, queue, named } = given
  // Without the connection's own holder name: a client may ask again over another connection.
  const op = named === undefined ? undefined : operationNamed(named, { ...command, holder: given.holder ?? '' })
  const { guarded } = session.host.context
  if (wait > 0)
    return session.replyBlocking(guarded.acquire(session.caller, command, { wait, ...(op && { op }), signal: session.signal }), writeGrant)
  if (!queue) return session.propose(command, writeGrant, op && { op })
  // The grant must be pushed after the answer that names the lease, so writing the answer starts the wait for it. By then another caller may
  // have authenticated on the connection.
  const place = { caller: session.caller, signal: session.queue }
  session.propose({ ...command, wait: true }, (to, outcome) => answer(session, place, to, outcome), op && { op })
}

interface Options {
  readonly holder: string | undefined
  readonly want: Pick<Want, 'units' | 'shared'>
  readonly rest: Partial<Acquire>
  readonly named: string | undefined
  readonly wait: number
  readonly queue: boolean
}

function options(session: RespSession, from: number): Options {
  const { caller, host } = session
  let holder: string | undefined
  let named: string | undefined
  let wait = 0
  let queue = false
  const want: { units?: number; shared?: boolean } = {}
  const rest: { -readonly [K in keyof Acquire]?: Acquire[K] } & Record<string, unknown> = {}
  const labels: (readonly [string, string])[] = []
  const entries: Attachment[] = []
  readOptions(session, from, {
    ...optionWords(session, 'acquire', ['priority', 'parent', 'any', 'incarnation', 'grace', 'maxLife', 'recall'], rest),
    HOLDER: at => {
      holder = text(session, at, 'HOLDER')
      return 1
    },
    WAIT: at => {
      wait = duration(session, at, 'WAIT')
      if (wait < 0) throw invalid('WAIT must not be negative; 0 means not to wait')
      return 1
    },
    QUEUE: () => {
      queue = true
      return 0
    },
    UNITS: at => {
      want.units = whole(session, at, 'UNITS')
      return 1
    },
    SHARED: () => {
      want.shared = true
      return 0
    },
    LABEL: at => {
      labels.push([text(session, at, 'LABEL'), text(session, at + 1, 'the value of LABEL')])
      return 2
    },
    ENTRY: at => {
      entries.push({ key: text(session, at, 'ENTRY'), value: text(session, at + 1, 'the value of ENTRY') })
      return 2
    },
    STEAL: () => {
      rest.steal = 'after'
      return 0
    },
    FORCE: () => {
      rest.steal = 'force'
      return 0
    },
    OP: at => {
      named = opText(session, at)
      return 1
    },
  })
  if (wait > 0 && queue) throw invalid('WAIT and QUEUE exclude each other: one answers when it is granted, the other at once')
  if (labels.length > 0) rest.labels = labels
  if (entries.length > 0) rest.entries = entries
  if (queue || wait > 0) host.context.guarded.access.admit(caller)
  return { holder, want, rest, named, wait, queue }
}

interface Place {
  readonly caller: Caller
  readonly signal: AbortSignal
}

/** Answers, and follows a queued lease: its grant comes by push, and so does its end. */
function answer(session: RespSession, place: Place, to: RespWriter, outcome: Outcome): void {
  writeGrant(to, outcome)
  if (outcome.kind === 'queued') follow(session, place, outcome)
}

function follow(session: RespSession, { caller, signal }: Place, queued: Queued): void {
  const { lease } = queued
  session.host.context.guarded.follow(caller, queued, signal).then(
    ({ tokens, resources, ttl, revision }) =>
      session.push(to => {
        to.push(3)
        to.raw('$13\r\nlease.granted\r\n')
        to.integer(lease)
        const all = Object.fromEntries(resources.map((name, i) => [name, tokens[i]!]))
        writeValue(to, { lease, token: tokens[0] ?? 0, ttl, revision, tokens: all, waited: 1 })
      }),
    (error: { readonly code?: string; readonly message: string }) => {
      if (session.queue !== signal) return // the connection was reset, and no client waits for it any more
      session.push(to => {
        to.push(3)
        to.raw('$15\r\nlease.withdrawn\r\n')
        to.integer(lease)
        writeValue(to, { lease, code: error.code ?? 'UNKNOWN', message: error.message })
      })
    },
  )
}
