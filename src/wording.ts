/**
 * The sentences for people: one for each reason why a command is refused. Every wire, the command line and the Python client make them from this table, so
 * a sentence can be improved without a change of the log.
 *
 * `{fact}` is replaced by the fact. `[…]` is shown only if every fact in it is given and neither 0, false nor empty; `{fact?}` in it tests without printing.
 * Formatters: `{names|list}` joins with commas, `{cycle|path}` with arrows, `{count|members}` counts members.
 */
import { badName, badPrefix } from './kernel/name.ts'
import type { Refused } from './kernel/outcome.ts'
import { type Facts, type Flaw, REASON_ROWS, type Reason } from './kernel/reason.ts'

export const SENTENCES: Readonly<Record<Reason, string>> = {
  malformed: 'the request is malformed[: look at {field}]',
  'unknown-command': 'there is no command {given}',
  missing: '{field} is missing',
  'unknown-field': '{field} is not known here[: there are {known|list}]',
  'not-object': '{field} must be an object, not {given}',
  'not-text': '{field} must be text, not {given}',
  'not-whole': '{field} must be a whole number of at most 2^53 - 1, not {given}',
  'not-flag': '{field} must be true or false, not {given}',
  'not-list': '{field} must be a list, not {given}',
  'not-pair': '{field} must be a pair of texts, not {given}',
  'not-one-of': '{field} must be one of {choices|list}, not {given}',
  'not-decimal': '{field} must be one plain decimal number, such as 40 or 80.5, not {given}',
  'too-long': '{field} is longer than {limit} bytes of UTF-8, or not Unicode text',
  'too-many': '{field} has too many items: at most {limit} are allowed',
  'too-large': '{field} has {bytes} bytes of keys and values, and at most {limit} are allowed',
  empty: '{field} is empty[{optional?}: leave it out instead]',
  zero: '{field} must be above 0: leave it out instead',
  'out-of-range': '{field} must be a whole number from {low} to {high}, not {given}',
  'control-character': '{field} contains a control character',
  'leading-slash': '{field} begins with a slash',
  'empty-segment': '{field} has an empty segment',
  'dot-segment': '{field} has a segment "." or ".."',
  'only-slash': '{field} is only a slash: leave it empty to mean everything',
  'not-together': '{field} cannot be given together with {other}',
  needs: '{field} needs {other}',
  'needs-one-of': '{field} must name one of {choices|list}',
  'named-twice': '{name} is named twice in {field}',
  'has-password': '{field} has a password in it, which others would read: leave it out',
  'shared-units': 'a shared grant of {resource} takes no units: leave {field} out',
  'not-a-hash': '{field} must be 64 hexadecimal digits (SHA-256)',
  above: '{field} ({value}) is above {other} ({limit})',
  'never-given': '{field} {given} was never given out by this log',
  'not-a-lease': '{given} is not the number of a lease',
  'unknown-rule': 'there is no rule {rule}',
  'internal-command': '{command} is written by replicas only',

  'ttl-outside': 'ttl {ttl|time} is outside {low|time} to {high|time}[, which is allowed for {name}]',
  'nothing-to-wait-for': 'there is nothing to wait for: name a resource',
  'beyond-capacity': '{resource} has {capacity} units in all, {units} can never be granted',
  'parent-missing': 'parent lease {lease} does not exist',
  'parent-waits': 'parent lease {lease} still waits: a lease can have it as its parent once it is granted',
  'waits-for-itself':
    '{resource} is held by a lease of the same client, which would wait for itself for ever: use that lease, or release it first',
  'steals-from-parent':
    'lease {lease} holds what is to be stolen, and is a parent of the new lease: the new lease would end with its parent',
  'waits-for-all': 'lease {lease} waits for all that it wants: make another request for more',
  'holds-nothing': 'lease {lease} holds nothing that could be transferred',
  'holds-no-members': 'lease {lease} holds no members of a pool: only those are extended',
  'no-max-life': 'lease {lease} has no maxLife that could be extended: it lasts as long as it is renewed',
  'window-too-late': 'a window must begin within {limit|time}, the ttlMax of {pool}',
  'op-reused': 'this operation id was used for another command: use a new one, and repeat one only with the same command',
  'last-admin':
    "{name} is the last key that administers everything: create another one first, or revoke it with the operator's right, on the store itself",
  'wrong-rules': 'the rules are at version {rules}: the next one is {next}, not {given}',
  'unknown-rules': 'this process knows the rules up to version {rules}, not {given}: upgrade every process first, then raise the rules',
  'leased-only': 'the entry {key} says that its holder is alive: put it on a lease',
  'no-free-entries': 'no transaction may change {key}: a policy must allow free entries there (freeEntries)',
  'expiry-past': 'the time of expiry is {ago|time} in the past, or now',
  rotating:
    'the former secret of {name} is valid for another {left|time}: wait until it has ended, or rotate without an overlap, which ends it now',

  'covers-pool': '{resource} is a pool, a member of one, or has some below it: a claim that covers it is not possible',
  'covered-member': '{key} cannot be offered as a member: a claim that covers {resource} is held or waited for',

  moved: 'the leases of this log have moved to {moved}: ask there',
  moving: 'the leases of this log are being moved to another log: ask again in a moment',
  arriving: 'leases are being moved into this log: ask again in a moment',
  'moved-for-good': 'the leases of this log have moved to {moved}: send commands about them there',
  'moving-already': 'the leases of this log are already being moved to another log',
  'move-called-off': 'the move was called off',
  'not-moving': 'no move of this log is under way',
  'not-arriving': 'no leases are being moved into this log',
  'move-is-arriving': 'leases are being moved into this log: only the process that moves them can end that',
  'target-arriving': 'leases are already being moved into this log: if that was interrupted, name another log, as with ?name=NEW',
  'target-moved': 'the leases of this log have left it: name another log, as with ?name=NEW',
  'target-not-empty':
    'the log to move into is not empty ({leases} leases, {policies} policies, {keys} keys, {entries} entries without a lease): name an empty one',

  held: '[fewer than {any} of {of} are free; ]{resource} is held by {holder}[ through {claim}][{frozen?}, which may still use it][; at most {limit} can be in use at once]',
  reserved: '[fewer than {any} of {of} are free; ]{resource} is reserved for earlier waiters',
  'entry-held': 'the entry {key} belongs to {holder}',
  'entry-without-lease': 'the entry {key} is attached to no lease: change it by a transaction, or delete it first',
  claimed: 'lease {lease} was already taken by a process of {holder}, which may still use it',
  'pool-held':
    'the pool {pool} cannot give [{count|members}][{total} units][ with {each} units each][ with the same {near}] now: {free} that match are free[, and {queue} wait]',
  'pool-reserved': 'the pool {pool} is reserved at that time by {holders|list}: ask for fewer members, or for another time',
  'pool-quota-used':
    '{account} holds {held} of its {quota} units of {pool}[ of the kind {kind}], and this could take {units}: wait[, leave out {kind} by a condition], or give some back',
  'pool-week-used':
    '{account} has used its {quota|time} of units of {pool} in a week: wait {again|time} at least, or let an operator raise quotaWeek of {policy}',
  'needed-by-waiter': '{holder} waits for members of {pool} that lease {lease} holds: it is not extended',
  'needed-by-reservation': '{holder} has reserved members of {pool} for that time: lease {lease} is not extended',
  quiet: 'the log lost records: nothing is granted until the longest ttl ({quiet|time}) has passed; ask again later',
  deadlock: 'waiting would close a cycle[: {cycle|path} → what the client holds]; release what is held first',
  'pool-deadlock':
    'lease {lease} keeps members of the pool {pool}, and waiting for more of them could last for ever: release it first, or take all in one request',
  'waits-for-transferred':
    '{resource} was transferred to this process as lease {lease}: adopt or release that lease instead of waiting for it',

  gone: 'lease {lease} has ended, or never existed: acquire a new one',
  'not-held': 'lease {lease} does not hold {resource}',
  'older-generation': 'the entry {key} belongs to generation {generation}[ of {holder}]: only a newer generation replaces it',
  'older-incarnation': 'the entry {key} belongs to a newer incarnation of {holder}: this process has been replaced',
  'older-token': 'token {token} is older than {highest}, which {resource} has already seen',
  'taken-over': 'the entry {key} was taken over[ by lease {lease}]',
  'not-as-compared': 'the entry {key} is not as the request says: its {field} is another. Read it again',
  'answer-forgotten': 'operation {seq} of {session} was answered long ago: its answer is not kept any more',
  'no-policy': 'there is no policy[ for {prefix}]',
  'no-key': 'there is no key {id}',
  'no-entry': 'there is no entry {key}',
  'no-holder': '{resource} is not held',
  'no-group': 'no key is in the group {group}',
  'no-match': 'no lease matches what was to be revoked',

  forbidden: 'this key may not {action} {name}: ask an administrator for the scope {verb}',
  'forbidden-lease': 'this key may not open a lease: ask an administrator for the scope {verb}',
  'forbidden-admin': 'this key may not send the command {action}: ask an administrator for the scope {verb} over everything',
  'forbidden-whole': 'this key may not {action} all that would end with lease {lease}: ask an administrator for the scope',
  'forbidden-reach': 'this key may not {verb} {name}, which would end with lease {lease}: ask an administrator for the scope',
  'forbidden-hidden': 'this key may not {verb} something else that lease {lease} holds: ask an administrator for the scope',
  'forbidden-entry': 'this key may not change {name}, which belongs to another key: ask an administrator for the scope',
  'forbidden-move':
    'only the operator may move leases to another store: run leasehold migrate where the store itself can be opened, or name the store in the configuration of the server ("serve": {"moveTo": ["…"]})',

  'forbidden-holder': 'this key may not act as the holder {holder}: it may use {holders|list}',
  'forbidden-account': 'this key may not use the account {account}: it may use {accounts|list}',
  'forbidden-priority': 'this key may not ask with priority {priority}: it may use {low} to {high}',
  'forbidden-member': 'this key may not name {name}: ask the pool {pool} for members instead',

  'counters-exhausted': 'this log has no numbers left for leases, tokens, keys or revisions: begin a new log, as with ?name=NEW',
  'too-many-leases': 'there are {limit} leases, as many as are allowed in all',
  'too-many-key-leases': 'this key has {limit} leases, as many as one key is allowed',
  quota: '{holder} has {leases} leases[ under {prefix}], as many as its policy allows',
  'too-many-waiters': '{limit} already wait for {resource}, as many as are allowed',
  'too-many-pool-waiters': '{limit} already wait for the pool {pool}, as many as are allowed',
  'too-many-reservations': 'the pool {pool} has {limit} reservations, as many as are allowed',
  'pool-impossible':
    'the pool {pool} can never give [{count|members}][{total} units][ with {each} units each][ with the same {near}]: {matching} of its {members|members} match, with {units} units in all[{apart?}, and too few of them have the same {near}]',
  'pool-quota':
    '{account} may hold {quota} units of {pool} in all[ of the kind {kind}], and asks for {units}: ask for less, [leave out {kind} by a condition, ]or let an operator raise quotaUnits of {policy}',
  'pool-week':
    '{account} may use {quota|time} of units of {pool} in a week, and would use {reserved|time} by reservations[, beside {used|time} used]: reserve less, or let an operator raise quotaWeek of {policy}',
  'too-long-life': 'lease {lease} would live for {life|time} in all, and its policy allows {limit|time}',
  'too-many-descendants':
    'the family of lease {lease} has {limit} leases, as many as may end together: take a parent without so many children',
  'too-many-entries': 'lease {lease} takes at most {limit} entries: put the rest on another lease',
  'too-many-entry-bytes': 'lease {lease} has {bytes} bytes of entries, and takes at most {limit}: put the rest on another lease',
  'too-many-free-entries': 'there may be {limit} entries without a lease[ under {prefix}]: delete some, or allow more by a policy',
  'too-many-free-bytes': 'there may be {limit} bytes of entries without a lease[ under {prefix}]: delete some, or allow more by a policy',
  'too-many-breaks':
    '{resource} has as many announced breaks as one holder takes ({limit}), all of them longer: break it at once, or wait for one of them',
  'too-many-policies': 'there are {limit} policies, as many as are allowed: delete some, or set one for a shorter prefix',
  'too-many-keys': 'there are {limit} keys, as many as are allowed',
  'too-many-fences': '{limit} resources are fenced, as many as are allowed: keep the highest token with the resource itself',
  'too-many-key-fences':
    'this key has fenced {limit} resources, as many as one key is allowed: keep the highest token with the resource itself',
  'too-many-renewals': 'at most {limit} renewals in one command',
  'key-limit': 'this key has {used} {what}, and its limit is {limit}: give some back, or ask an administrator for more',
  'group-limit':
    'the keys of the group {group} together have {used} {what}, and their limit is {limit}: give some back, or ask an administrator for more',
}

const FORMATS: Readonly<Record<string, (fact: unknown) => string>> = {
  list: fact => [...new Set(fact as readonly unknown[])].join(', '),
  path: fact => (fact as readonly unknown[]).join(' → '),
  members: fact => (fact === 1 ? '1 member' : `${fact} members`),
  time: fact => exactTime(fact as number),
}

const TIME_UNITS = [
  [172_800_000, 86_400_000, 'd'],
  [3_600_000, 3_600_000, 'h'],
  [60_000, 60_000, 'min'],
  [1_000, 1_000, 's'],
] as const

/** A duration without rounding: `24 h`, `90 s`, `1500 ms`. */
function exactTime(ms: number): string {
  const [, unit, name] = TIME_UNITS.find(([least, each]) => ms >= least && ms % each === 0) ?? [0, 1, 'ms']
  return `${ms / unit} ${name}`
}

/** Formatters of lists; the others format numbers. */
const LISTS: ReadonlySet<string> = new Set(['list', 'path'])

/** A placeholder, with its formatter or its `?`. */
const PLACEHOLDER = /\{(\w+)(?:\|(\w+)|(\?))?\}/g
const OPTIONAL = /\[([^[\]]*\{\w+(?:\|\w+|\?)?\}[^[\]]*)\]/g

function isGiven(fact: unknown): boolean {
  return fact !== undefined && fact !== 0 && fact !== false && fact !== '' && !(Array.isArray(fact) && fact.length === 0)
}

/** The sentence for a reason. One for a reason that is not known here, as of a newer server, or with a fact missing, names all that is known. */
export function sentence(reason: string, facts: Facts): string {
  return knownSentence(reason, facts) ?? plain(reason, facts)
}

/** Undefined for a reason that is not known here, or if a fact that the sentence needs is missing or of another type. */
export function knownSentence(reason: string, facts: Facts): string | undefined {
  const template = Object.hasOwn(SENTENCES, reason) ? SENTENCES[reason as Reason] : undefined
  if (template === undefined) return undefined
  let isComplete = true
  const fill = (text: string) =>
    text.replace(PLACEHOLDER, (_, name: string, format: string | undefined, test: string | undefined) => {
      if (test !== undefined) return ''
      const fact = Object.hasOwn(facts, name) ? facts[name] : undefined
      if (fact === undefined || (format !== undefined && (LISTS.has(format) ? !Array.isArray(fact) : typeof fact !== 'number')))
        isComplete = false
      else return format === undefined ? String(fact) : FORMATS[format]!(fact)
      return ''
    })
  const chosen = template.replace(OPTIONAL, (_, part: string) =>
    [...part.matchAll(PLACEHOLDER)].every(([, name]) => isGiven(facts[name!])) ? part : '',
  )
  const text = fill(chosen)
  return isComplete ? text : undefined
}

function plain(
  reason: string,
  facts: Facts,
  code: string | undefined = Object.hasOwn(REASON_ROWS, reason) ? REASON_ROWS[reason]!.code : undefined,
): string {
  const why = code === undefined ? reason : `${code}, ${reason}`
  const known = Object.entries(facts).map(([name, fact]) => `${name} ${Array.isArray(fact) ? fact.join(', ') : String(fact)}`)
  return `refused (${why})${known.length === 0 ? '' : `: ${known.join('; ')}`}`
}

/** A refusal, or one that came from a server: with the server's own sentence, for a reason that is not known here, and without a reason from an earlier version. */
type Told = Pick<Refused, 'facts'> & { readonly code?: string; readonly reason?: string | undefined; readonly message?: string }

export function sentenceOf({ code, reason = '', facts, message }: Told): string {
  return knownSentence(reason, facts) ?? message ?? plain(reason, facts, code)
}

/** Returns what is wrong with a value, as the end of a sentence that begins with what it is called. */
function endOfSentence(flaw: Flaw | undefined): string | undefined {
  return flaw === undefined ? undefined : sentence(flaw.reason, { ...(flaw.facts as Facts), field: '' }).trim()
}

/** Why a name is refused, as the end of a sentence: `is empty`. Undefined: it is not. */
export function whyBadName(name: unknown): string | undefined {
  return endOfSentence(badName(name))
}

export function whyBadPrefix(prefix: unknown): string | undefined {
  return endOfSentence(badPrefix(prefix))
}
