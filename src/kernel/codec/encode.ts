/** Commands and outcomes as bytes. What is left out of a command takes no room: a mask says which of the optional fields follow. */

import { type Acquire, type Command, type PolicyRules, type Proposal, type Release, type Revoke, VERBS, type Want } from '../command.ts'
import type { Outcome, RefusalCode, Refused } from '../outcome.ts'
import { Damaged, FromTheFuture, type Reader, type Writer } from './bytes.ts'

/** The place in this list is the number in the log: append only. */
const KINDS = [
  'acquire',
  'renew',
  'release',
  'due',
  'aged',
  'aged-together',
  'run',
  'put',
  'delete',
  'revoke',
  'transfer',
  'break',
  'recall',
  'policy',
  'key',
  'unkey',
  'fence',
  'tick',
  'upgrade',
  'generation',
  'move',
  'widen',
  'claim',
] as const satisfies readonly Command['kind'][]
/** A release that names others beside its lease. Only where the rules are of version 2 or later: older builds do not read it. */
const RELEASE_OF_SEVERAL = KINDS.length
const KIND_NUMBER = new Map<Command['kind'], number>(KINDS.map((kind, i) => [kind, i]))
const MOVES = ['go', 'stay', 'begin', 'end'] as const
/** Bits of a run. The first alone is how older builds wrote it. */
const OWNED = 1
const NONCE = 2
const WITH_KEY = 32
const WITH_OPERATION = 64
/** And it says what is asked. */
const WITH_ASKED = 128
const KIND_BITS = 31

const RULE_NAMES = [
  'ttlMin',
  'ttlMax',
  'capacity',
  'lockDelay',
  'grace',
  'maxLife',
  'maxHold',
  'quota',
  'waiters',
  'aging',
  'leases',
  'leasesPerKey',
  'flapPenalty',
  'flapHalfLife',
  'flapSuppress',
  'flapReuse',
  'preserveShare',
  'preserveLeast',
  'preserveMost',
  'sweepShare',
] as const satisfies readonly (keyof PolicyRules)[]

export function writeProposal(to: Writer, { command, key = 0, op }: Proposal): void {
  const asked = op?.asked ?? 0
  const kind = command.kind === 'release' && isOfSeveral(command) ? RELEASE_OF_SEVERAL : KIND_NUMBER.get(command.kind)!
  to.byte(kind | (key === 0 ? 0 : WITH_KEY) | (op === undefined ? 0 : WITH_OPERATION) | (asked === 0 ? 0 : WITH_ASKED))
  if (key !== 0) to.uint(key)
  if (op !== undefined) {
    to.text(op.session)
    to.uint(op.seq)
    to.uint(op.acked)
    if (asked !== 0) to.uint(asked)
  }
  writeCommand(to, command)
}

export function readProposal(from: Reader): Proposal {
  const head = from.byte()
  const number = head & KIND_BITS
  const kind = number === RELEASE_OF_SEVERAL ? 'release of several' : KINDS[number]
  if (kind === undefined) throw new FromTheFuture(`a command of kind ${head & KIND_BITS}`)
  if ((head & (WITH_OPERATION | WITH_ASKED)) === WITH_ASKED) throw new FromTheFuture('a command that is marked in a way not known here')
  const key = (head & WITH_KEY) === 0 ? 0 : from.uint()
  if ((head & WITH_OPERATION) === 0) return { command: readCommand(from, kind), key }
  const plain = { session: from.text(), seq: from.uint(), acked: from.uint() }
  const op = (head & WITH_ASKED) === 0 ? plain : { ...plain, asked: from.uint() }
  return { command: readCommand(from, kind), key, op }
}

function isOfSeveral({ stopped }: Release): boolean {
  return stopped !== undefined && stopped.length > 0
}

function writeCommand(to: Writer, command: Command): void {
  switch (command.kind) {
    case 'acquire':
      return writeAcquire(to, command)
    case 'renew':
      to.bool(command.waiting ?? false)
      return writeNumbers(to, command.leases)
    case 'release':
      to.uint(command.lease)
      return isOfSeveral(command) ? writeNumbers(to, command.stopped!) : to.text(command.resource ?? '')
    case 'due':
      to.uint(command.timer)
      return to.uint(command.epoch)
    case 'aged':
      return to.list(command.marks, mark => {
        to.uint(mark.timer)
        to.uint(mark.epoch)
        to.uint(mark.ms)
      })
    case 'aged-together':
      to.uint(command.run)
      return to.uint(command.ms)
    case 'run':
      to.byte((command.owned ? OWNED : 0) | (command.nonce === undefined ? 0 : NONCE))
      if (command.nonce === undefined) return
      to.uint(command.nonce)
      return to.text(command.secret ?? '')
    case 'put':
      to.uint(command.lease)
      to.text(command.key)
      to.text(command.value)
      return to.uint(command.generation ?? 0)
    case 'delete':
      to.text(command.key)
      return to.uint(command.lease ?? 0)
    case 'revoke':
      return writeRevoke(to, command)
    case 'transfer':
      to.uint(command.lease)
      to.text(command.to)
      to.bool(command.stopped ?? false)
      return to.uint(command.incarnation ?? 0)
    case 'break':
      to.text(command.resource)
      to.uint(command.after ?? 0)
      return to.text(command.by ?? '')
    case 'claim':
      to.uint(command.lease)
      return to.uint(command.incarnation ?? 0)
    case 'widen':
      to.uint(command.lease)
      return writeWants(to, command.wants)
    case 'recall':
      to.text(command.resource)
      return to.text(command.by ?? '')
    case 'policy':
      to.text(command.prefix)
      to.bool(command.rules !== undefined)
      return command.rules === undefined ? undefined : writeRules(to, command.rules)
    case 'key':
      to.text(command.name)
      to.text(command.hash)
      return to.list(command.allow, scope => {
        to.byte(VERBS.indexOf(scope.verb))
        to.text(scope.prefix)
      })
    case 'unkey':
      return to.uint(command.id)
    case 'fence':
      to.text(command.resource)
      return to.uint(command.token)
    case 'tick':
      to.uint(command.n)
      return to.uint(command.elapsed)
    case 'upgrade':
      return to.uint(command.rules)
    case 'move':
      to.text(command.to ?? '')
      to.uint(command.since ?? 0)
      return to.byte(MOVES.indexOf(command.stay === true ? 'stay' : (command.into ?? 'go')))
    case 'generation':
      to.uint(command.lease)
      to.uint(command.token)
      to.uint(command.revision)
      to.uint(command.quiet)
      return to.uint(command.key ?? 0)
  }
}

function readCommand(from: Reader, kind: Command['kind'] | 'release of several'): Command {
  switch (kind) {
    case 'release of several':
      return { kind: 'release', lease: from.uint(), stopped: readNumbers(from) }
    case 'acquire':
      return readAcquire(from)
    case 'renew':
      return from.bool() ? { kind, leases: readNumbers(from), waiting: true } : { kind, leases: readNumbers(from) }
    case 'release':
      return withText({ kind, lease: from.uint() }, 'resource', from.text())
    case 'due':
      return { kind, timer: from.uint(), epoch: from.uint() }
    case 'aged':
      return { kind, marks: from.list(() => ({ timer: from.uint(), epoch: from.uint(), ms: from.uint() })) }
    case 'aged-together':
      return { kind, run: from.uint(), ms: from.uint() }
    case 'run': {
      const flags = from.byte()
      if (flags > (OWNED | NONCE)) throw new FromTheFuture('a run with fields not known here')
      const owned = (flags & OWNED) !== 0
      return (flags & NONCE) === 0 ? { kind, owned } : withText({ kind, owned, nonce: from.uint() }, 'secret', from.text())
    }
    case 'put':
      return withNumber({ kind, lease: from.uint(), key: from.text(), value: from.text() }, 'generation', from.uint())
    case 'delete':
      return withNumber({ kind, key: from.text() }, 'lease', from.uint())
    case 'revoke':
      return readRevoke(from)
    case 'transfer':
      return withNumber({ kind, lease: from.uint(), to: from.text(), ...(from.bool() && { stopped: true }) }, 'incarnation', from.uint())
    case 'break':
      return withText(withNumber({ kind, resource: from.text() }, 'after', from.uint()), 'by', from.text())
    case 'claim':
      return withNumber({ kind, lease: from.uint() }, 'incarnation', from.uint())
    case 'widen':
      return { kind, lease: from.uint(), wants: readWants(from) }
    case 'recall':
      return withText({ kind, resource: from.text() }, 'by', from.text())
    case 'policy': {
      const prefix = from.text()
      return from.bool() ? { kind, prefix, rules: readRules(from) } : { kind, prefix }
    }
    case 'key':
      return {
        kind,
        name: from.text(),
        hash: from.text(),
        allow: from.list(() => ({ verb: oneOf(VERBS, from.byte()), prefix: from.text() })),
      }
    case 'unkey':
      return { kind, id: from.uint() }
    case 'fence':
      return { kind, resource: from.text(), token: from.uint() }
    case 'tick':
      return { kind, n: from.uint(), elapsed: from.uint() }
    case 'upgrade':
      return { kind, rules: from.uint() }
    case 'move': {
      const place = from.text()
      const since = from.uint()
      const step = oneOf(MOVES, from.byte())
      const how = step === 'go' ? {} : step === 'stay' ? { stay: true } : { into: step }
      return { kind, ...(place !== '' && { to: place }), ...(since !== 0 && { since }), ...how }
    }
    case 'generation':
      return withNumber({ kind, lease: from.uint(), token: from.uint(), revision: from.uint(), quiet: from.uint() }, 'key', from.uint())
  }
}

function oneOf<T>(list: readonly T[], i: number): T {
  const item = list[i]
  if (item === undefined) throw new FromTheFuture(`choice ${i} of ${list.length}`)
  return item
}

/** Empty stands for left out: no rule tells the two apart. */
function withText<T extends object, K extends string>(rest: T, name: K, text: string): T & { readonly [N in K]?: string } {
  return text === '' ? rest : { ...rest, [name]: text }
}

function withNumber<T extends object, K extends string>(rest: T, name: K, n: number): T & { readonly [N in K]?: number } {
  return n === 0 ? rest : { ...rest, [name]: n }
}

/** Ids of one process lie close together: each is written as its distance from the one before. */
function writeNumbers(to: Writer, numbers: readonly number[]): void {
  to.uint(numbers.length)
  let last = 0
  for (const n of numbers) {
    to.int(n - last)
    last = n
  }
}

function readNumbers(from: Reader): number[] {
  let last = 0
  return from.list(() => {
    last += from.int()
    if (last < 0 || last > Number.MAX_SAFE_INTEGER) throw new Damaged('a number is out of range')
    return last
  })
}

const ANY = 1
const WAIT = 2
const PRIORITY = 4
const ENTRIES = 8
const PARENT = 16
const LABELS = 32
const HOLDING = 64
const GRACE = 128
const MAX_LIFE = 256
const STEAL_AFTER = 512
const STEAL_FORCE = 1_024
const RECALL = 2_048
const INCARNATION = 4_096
const ALL_BITS = 8_191

function acquireMask(command: Acquire): number {
  return (
    (command.any ? ANY : 0) |
    (command.wait ? WAIT : 0) |
    (command.priority ? PRIORITY : 0) |
    (command.entries?.length ? ENTRIES : 0) |
    (command.parent ? PARENT : 0) |
    (command.labels?.length ? LABELS : 0) |
    (command.holding?.length ? HOLDING : 0) |
    (command.grace ? GRACE : 0) |
    (command.maxLife ? MAX_LIFE : 0) |
    (command.steal === 'after' ? STEAL_AFTER : 0) |
    (command.steal === 'force' ? STEAL_FORCE : 0) |
    (command.recall ? RECALL : 0) |
    (command.incarnation ? INCARNATION : 0)
  )
}

function writeWants(to: Writer, wants: readonly Want[]): void {
  to.uint(wants.length)
  for (const { resource, units = 1, shared = false } of wants) {
    to.text(resource)
    to.uint(shared ? 0 : units)
  }
}

function readWants(from: Reader): readonly Want[] {
  return from.list(() => {
    const resource = from.text()
    const units = from.uint()
    return units === 0 ? { resource, units: 1, shared: true } : { resource, units, shared: false }
  })
}

function writeAcquire(to: Writer, command: Acquire): void {
  const mask = acquireMask(command)
  to.uint(mask)
  to.text(command.holder)
  to.uint(command.ttl)
  writeWants(to, command.wants)
  if (mask & INCARNATION) to.uint(command.incarnation!)
  if (mask & ANY) to.uint(command.any!)
  if (mask & PRIORITY) to.int(command.priority!)
  if (mask & ENTRIES)
    to.list(command.entries!, ({ key, value, generation = 0 }) => {
      to.text(key)
      to.text(value)
      to.uint(generation)
    })
  if (mask & PARENT) to.uint(command.parent!)
  if (mask & LABELS) writePairs(to, command.labels!)
  if (mask & HOLDING) writeNumbers(to, command.holding!)
  if (mask & GRACE) to.uint(command.grace!)
  if (mask & MAX_LIFE) to.uint(command.maxLife!)
}

function readAcquire(from: Reader): Acquire {
  const mask = from.uint()
  if (mask > ALL_BITS) throw new FromTheFuture('an acquisition with fields not known here')
  const holder = from.text()
  const ttl = from.uint()
  const wants = readWants(from)
  // Which fields there are depends on the mask, and few have any: the plain ones get a shape of their own.
  if (mask === 0) return { kind: 'acquire', holder, ttl, wants }
  return {
    kind: 'acquire',
    holder,
    ttl,
    wants,
    ...(mask & INCARNATION && { incarnation: from.uint() }),
    ...(mask & WAIT && { wait: true }),
    ...(mask & ANY && { any: from.uint() }),
    ...(mask & PRIORITY && { priority: from.int() }),
    ...(mask & ENTRIES && {
      entries: from.list(() => withNumber({ key: from.text(), value: from.text() }, 'generation', from.uint())),
    }),
    ...(mask & PARENT && { parent: from.uint() }),
    ...(mask & LABELS && { labels: readPairs(from) }),
    ...(mask & HOLDING && { holding: readNumbers(from) }),
    ...(mask & GRACE && { grace: from.uint() }),
    ...(mask & MAX_LIFE && { maxLife: from.uint() }),
    ...(mask & STEAL_AFTER && { steal: 'after' as const }),
    ...(mask & STEAL_FORCE && { steal: 'force' as const }),
    ...(mask & RECALL && { recall: true }),
  }
}

function writePairs(to: Writer, pairs: readonly (readonly [string, string])[]): void {
  to.list(pairs, ([a, b]) => {
    to.text(a)
    to.text(b)
  })
}

function readPairs(from: Reader): (readonly [string, string])[] {
  return from.list(() => [from.text(), from.text()] as const)
}

function writeRevoke(to: Writer, { target, force = false, by = '' }: Revoke): void {
  to.byte('lease' in target ? 0 : 'holder' in target ? 1 : 2)
  if ('lease' in target) to.uint(target.lease)
  else to.text('holder' in target ? target.holder : target.prefix)
  to.bool(force)
  to.text(by)
}

function readRevoke(from: Reader): Revoke {
  const which = from.byte()
  if (which > 2) throw new FromTheFuture(`a revocation of kind ${which}`)
  const target = which === 0 ? { lease: from.uint() } : which === 1 ? { holder: from.text() } : { prefix: from.text() }
  const force = from.bool()
  return withText({ kind: 'revoke' as const, target, ...(force && { force }) }, 'by', from.text())
}

export function writeRules(to: Writer, rules: PolicyRules): void {
  const present = RULE_NAMES.filter(name => rules[name] !== undefined)
  to.byte(rules.queue === undefined ? 0 : rules.queue === 'fifo' ? 1 : 2)
  to.list(present, name => {
    to.byte(RULE_NAMES.indexOf(name))
    to.uint(rules[name]!)
  })
}

export function readRules(from: Reader): PolicyRules {
  const queue = oneOf(['', 'fifo', 'fit'] as const, from.byte())
  const pairs = from.list(() => [oneOf(RULE_NAMES, from.byte()), from.uint()] as const)
  return { ...(queue !== '' && { queue }), ...Object.fromEntries(pairs) }
}

const OUTCOMES = [
  'granted',
  'queued',
  'renewed',
  'done',
  'fenced',
  'nothing',
  'void',
  'refused',
] as const satisfies readonly Outcome['kind'][]
const CODES = [
  'HELD',
  'GONE',
  'STALE',
  'DEADLOCK',
  'INVALID',
  'FORBIDDEN',
  'LIMIT',
  'UNAVAILABLE',
  'NOT_FOUND',
] as const satisfies readonly RefusalCode[]

export function writeOutcome(to: Writer, outcome: Outcome): void {
  to.byte(OUTCOMES.indexOf(outcome.kind))
  to.uint(outcome.revision)
  switch (outcome.kind) {
    case 'granted':
      to.uint(outcome.lease)
      to.uint(outcome.incarnation)
      to.uint(outcome.ttl)
      to.list(outcome.resources, name => to.text(name))
      return writeNumbers(to, outcome.tokens)
    case 'queued':
      to.uint(outcome.lease)
      to.uint(outcome.incarnation)
      to.uint(outcome.ttl)
      return to.uint(outcome.position)
    case 'renewed':
      return to.list(outcome.ttls, ttl => to.int(ttl))
    case 'done':
      return to.uint(outcome.id ?? 0)
    case 'fenced':
      return to.uint(outcome.highest)
    case 'nothing':
    case 'void':
      return
    case 'refused':
      to.byte(CODES.indexOf(outcome.code))
      to.text(outcome.message)
      return writeFacts(to, outcome.facts)
  }
}

export function readOutcome(from: Reader): Outcome {
  const kind = oneOf(OUTCOMES, from.byte())
  const revision = from.uint()
  switch (kind) {
    case 'granted':
      return {
        kind,
        revision,
        lease: from.uint(),
        incarnation: from.uint(),
        ttl: from.uint(),
        resources: from.list(() => from.text()),
        tokens: readNumbers(from),
      }
    case 'queued':
      return { kind, revision, lease: from.uint(), incarnation: from.uint(), ttl: from.uint(), position: from.uint() }
    case 'renewed':
      return { kind, revision, ttls: from.list(() => from.int()) }
    case 'done':
      return withNumber({ kind, revision }, 'id', from.uint())
    case 'fenced':
      return { kind, revision, highest: from.uint() }
    case 'nothing':
    case 'void':
      return { kind, revision }
    case 'refused':
      return { kind, revision, code: oneOf(CODES, from.byte()), message: from.text(), facts: readFacts(from) }
  }
}

type Fact = Refused['facts'][string]

function writeFacts(to: Writer, facts: Refused['facts']): void {
  to.list(Object.entries(facts), ([name, fact]) => {
    to.text(name)
    if (typeof fact === 'string') {
      to.byte(0)
      to.text(fact)
    } else if (typeof fact === 'number') {
      to.byte(1)
      to.int(fact)
    } else if (typeof fact === 'boolean') {
      to.byte(2)
      to.bool(fact)
    } else if (fact.every(item => typeof item === 'string')) {
      to.byte(3)
      to.list(fact as readonly string[], item => to.text(item))
    } else {
      to.byte(4)
      to.list(fact as readonly number[], item => to.int(item))
    }
  })
}

function readFacts(from: Reader): Refused['facts'] {
  const pairs = from.list(() => [from.text(), readFact(from)] as const)
  return Object.fromEntries(pairs)
}

function readFact(from: Reader): Fact {
  switch (from.byte()) {
    case 0:
      return from.text()
    case 1:
      return from.int()
    case 2:
      return from.bool()
    case 3:
      return from.list(() => from.text())
    case 4:
      return from.list(() => from.int())
    default:
      throw new FromTheFuture('a fact of another kind')
  }
}
