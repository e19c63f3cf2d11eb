/** Writes results as RESP. The reason and the facts of an error follow its message after a tab, as one JSON object: names and messages contain no tab. */
import { LeaseError } from '../../errors.ts'
import type { Granted, Outcome, Queued } from '../../kernel/outcome.ts'
import { withReason } from '../../wire/received-error.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { sentenceOf } from '../../wording.ts'

/** CallerTurns an internal error into `UNKNOWN`. Its message may contain private data, so the client does not get it. */
export function asLeaseError(error: unknown): LeaseError {
  if (error instanceof LeaseError) return error
  return new LeaseError('UNKNOWN', 'internal error: the request may or may not have been applied. See the log of the server', {
    cause: error,
  })
}

export function writeError(to: RespWriter, thrown: unknown): void {
  const error = asLeaseError(thrown)
  writeCoded(to, error.code, error.message, withReason(error))
}

function writeCoded(to: RespWriter, code: string, message: string, rest: object): void {
  const known = Object.keys(rest).length > 0
  to.error(code, known ? `${message.replaceAll('\t', ' ')}\t${JSON.stringify(rest)}` : message)
}

/** Writes an outcome of another kind than expected: a refusal, or an internal error. */
function writeUnexpected(to: RespWriter, outcome: Outcome): void {
  if (outcome.kind === 'refused') writeCoded(to, outcome.code, sentenceOf(outcome), withReason(outcome))
  else if (outcome.kind === 'void' || outcome.kind === 'nothing') to.error('UNAVAILABLE', 'nothing was done: retry the command')
  else to.error('UNKNOWN', `internal error: the outcome was ${outcome.kind}`)
}

/** `reused`: the lease that the holder had already. */
export type AcquireOutcome = Outcome | (Granted & { readonly waited?: boolean; readonly reused?: boolean })

/** The client asked for any of several resources: the tokens are named even if there is only one. */
export function writeGrantOfAny(to: RespWriter, outcome: AcquireOutcome): void {
  writeGrant(to, outcome, true)
}

/** The tokens are named if there are several. */
export function writeGrant(to: RespWriter, outcome: AcquireOutcome, isOfAny = false): void {
  if (outcome.kind === 'queued') return writeQueued(to, outcome)
  if (outcome.kind !== 'granted') return writeUnexpected(to, outcome)
  const named = isOfAny || outcome.tokens.length > 1
  const waited = 'waited' in outcome && outcome.waited
  const reused = 'reused' in outcome && outcome.reused
  const { tokens, resources } = outcome
  to.map(4 + (named ? 1 : 0) + (waited || reused ? 1 : 0))
  to.integer(outcome.lease, '$5\r\nlease\r\n:')
  to.integer(tokens[0] ?? 0, '$5\r\ntoken\r\n:')
  to.integer(outcome.ttl, '$3\r\nttl\r\n:')
  to.integer(outcome.revision, '$8\r\nrevision\r\n:')
  if (named) {
    to.raw('$6\r\ntokens\r\n')
    to.map(tokens.length)
    for (const [i, name] of resources.entries()) {
      to.text(name)
      to.integer(tokens[i]!)
    }
  }
  if (reused) {
    to.integer(1, '$6\r\nreused\r\n:')
  }
  // The client must renew once before it trusts the grant: it does not know when it was granted.
  if (!waited) return
  to.integer(1, '$6\r\nwaited\r\n:')
}

function writeQueued(to: RespWriter, { lease, position, ttl, revision }: Queued): void {
  to.map(4)
  to.integer(lease, '$5\r\nlease\r\n:')
  to.integer(position, '$8\r\nposition\r\n:')
  to.integer(ttl, '$3\r\nttl\r\n:')
  to.integer(revision, '$8\r\nrevision\r\n:')
}

export function writeRenewed(to: RespWriter, outcome: Outcome): void {
  if (outcome.kind === 'renewed') writeTerms(to, outcome.ttls)
  else writeUnexpected(to, outcome)
}

export function writeTerms(to: RespWriter, ttls: readonly number[]): void {
  to.array(ttls.length)
  for (let i = 0; i < ttls.length; i++) to.integer(ttls[i]!)
}

export function writeDone(to: RespWriter, outcome: Outcome): void {
  if (outcome.kind === 'done') to.raw('+OK\r\n')
  else writeUnexpected(to, outcome)
}

/** The id of what was created. */
export function writeId(to: RespWriter, outcome: Outcome): void {
  if (outcome.kind === 'done') to.integer(outcome.id ?? 0)
  else writeUnexpected(to, outcome)
}

export function writeFenced(to: RespWriter, outcome: Outcome): void {
  if (outcome.kind === 'fenced') to.integer(outcome.highest)
  else writeUnexpected(to, outcome)
}

/** Writes a text, number, boolean, list or object. Undefined fields are left out. */
export function writeValue(to: RespWriter, value: unknown): void {
  if (typeof value === 'string') to.text(value)
  else if (typeof value === 'number') to.integer(Math.floor(value))
  else if (typeof value === 'boolean') to.protocol === 3 ? to.raw(value ? '#t\r\n' : '#f\r\n') : to.integer(value ? 1 : 0)
  else if (Array.isArray(value)) {
    to.array(value.length)
    for (const item of value) writeValue(to, item)
  } else if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value).filter(([, field]) => field !== undefined)
    to.map(fields.length)
    for (const [name, field] of fields) {
      to.text(name)
      writeValue(to, field)
    }
  } else to.null()
}
