/** LEASE.KEY: keys, their limits and their secrets. */
import { parseDuration } from '../../duration.ts'
import type { CreateKey, KeyLimits } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { expiryIn, keyAnswer } from '../key-answer.ts'
import { MAX_SCOPES, scopesIn } from '../key-scopes.ts'
import { hashSecret, newSecret } from '../key-secret.ts'
import { invalid, text, whole } from './command.ts'
import { writeDone, writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

export const KEY_USAGE =
  'CREATE name [ACCOUNTS a,b] [HOLDERS a,b] [PRIORITY low high] [NOMEMBERS] [GROUP name] [LIMIT what n …] [EXPIRES time] ALLOW verb[,verb…][:prefix][,verb…] … | LIST | LIMIT id|GROUP name [what n …] | ROTATE id [OVERLAP duration] [EXPIRES time] | REVOKE id'
/** Words of options. More are a mistake, and are not looked at. */
const MAX_WORDS = 64

export function key(session: RespSession): void {
  const { args } = session
  const word = args.word(1)
  if (word === 'LIST' && args.count === 2) return list(session)
  if (word === 'REVOKE' && args.count === 3) return session.propose({ kind: 'unkey', id: whole(session, 2, 'a key') }, writeDone)
  if (word === 'CREATE' && args.count >= 5) return create(session)
  if (word === 'LIMIT' && args.count >= 3 && args.count <= MAX_WORDS) return limit(session)
  if (word === 'ROTATE' && args.count >= 3 && args.count <= MAX_WORDS) return rotate(session)
  throw usage()
}

function usage() {
  return invalid(`LEASE.KEY ${KEY_USAGE}`)
}

function list(session: RespSession): void {
  session.replyLater(session.host.context.guarded.read(session.caller, { kind: 'keys' }), (to, { value }) =>
    writeValue(
      to,
      value.map(keyAnswer).map(({ allow, ...rest }) => ({
        ...rest,
        allow: allow.map(({ verb, prefix }) => (prefix === '' ? verb : `${verb}:${prefix}`)),
      })),
    ),
  )
}

/** Reads the limits that begin at a word, and where they end: at a word that names none. */
function limitsAt(session: RespSession, first: number): { readonly limits: KeyLimits; readonly next: number } {
  const limits = new Map<string, number>()
  let at = first
  for (; at + 1 < session.args.count && session.args.number(at + 1) !== undefined; at += 2)
    limits.set(text(session, at, 'a limit').toLowerCase(), whole(session, at + 1, 'a limit'))
  // The kernel knows the limits.
  return { limits: Object.fromEntries(limits) as KeyLimits, next: at }
}

function create(session: RespSession): void {
  const { args } = session
  const options: { -readonly [K in keyof CreateKey]?: CreateKey[K] } = {}
  let at = 3
  for (; at < args.count && !args.is(at, 'ALLOW'); ) {
    if (at > MAX_WORDS) throw usage()
    const word = args.word(at)
    if (word === 'ACCOUNTS' || word === 'HOLDERS')
      options[word === 'ACCOUNTS' ? 'accounts' : 'holders'] = text(session, at + 1, 'names').split(',', MAX_WORDS + 1)
    else if (word === 'GROUP') options.group = text(session, at + 1, 'a group')
    else if (word === 'EXPIRES') options.expires = expiryIn(text(session, at + 1, 'a time'), session.host.context.clock.wall(), 'EXPIRES')
    else if (word === 'PRIORITY') options.priority = { low: priorityAt(session, at + 1), high: priorityAt(session, at + 2) }
    else if (word === 'NOMEMBERS') options.noMembers = true
    else if (word !== 'LIMIT') throw usage()
    if (word === 'LIMIT') {
      const { limits, next } = limitsAt(session, at + 1)
      options.limits = limits
      at = next
    } else at += word === 'NOMEMBERS' ? 1 : word === 'PRIORITY' ? 3 : 2
  }
  const first = at + 1
  if (first >= args.count) throw usage()
  if (args.count - first > MAX_SCOPES) throw invalid(`a key has at most ${MAX_SCOPES} scopes`)
  const allow = Array.from({ length: args.count - first }, (_, i) => scopesIn(text(session, i + first, 'a scope'))).flat()
  proposeWithSecret(session, hash => ({ kind: 'key', name: text(session, 2, 'a name'), hash, allow, ...options }))
}

function priorityAt(session: RespSession, at: number): number {
  const word = text(session, at, 'a priority')
  if (!/^-?\d{1,9}$/.test(word)) throw invalid('PRIORITY takes two whole numbers')
  return Number(word)
}

function rotate(session: RespSession): void {
  const { args } = session
  const options: { overlap?: number; expires?: number } = {}
  for (let at = 3; at < args.count; at += 2) {
    const word = args.word(at)
    if (word !== 'OVERLAP' && word !== 'EXPIRES') throw usage()
    const value = text(session, at + 1, 'a time')
    if (word === 'OVERLAP') options.overlap = args.number(at + 1) ?? parseDuration(value, 'OVERLAP')
    else options.expires = expiryIn(value, session.host.context.clock.wall(), 'EXPIRES')
  }
  proposeWithSecret(session, hash => ({ kind: 'rotate', id: whole(session, 2, 'a key'), hash, ...options }))
}

function limit(session: RespSession): void {
  const isGroup = session.args.is(2, 'GROUP')
  const { limits, next } = limitsAt(session, isGroup ? 4 : 3)
  if (next < session.args.count) throw usage()
  const target = isGroup ? { group: text(session, 3, 'a group') } : { id: whole(session, 2, 'a key') }
  session.propose({ kind: 'limit', ...target, ...(Object.keys(limits).length > 0 && { limits }) }, writeDone)
}

function proposeWithSecret(session: RespSession, commandFor: (hash: string) => Parameters<RespSession['propose']>[0]): void {
  const secret = newSecret(session.host.context.clock)
  session.propose(commandFor(hashSecret(secret)), (to: RespWriter, outcome: Outcome) => {
    if (outcome.kind === 'done') writeValue(to, { id: outcome.id ?? 0, secret })
    else writeDone(to, outcome)
  })
}
