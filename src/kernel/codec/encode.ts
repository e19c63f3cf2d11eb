/** Proposals and outcomes as bytes. The bytes of a command follow from its row in the command table. */

import type { Acquire, Command, Proposal } from '../command.ts'
import { COMMAND_TABLE, type CommandRow } from '../command-table.ts'
import type { Outcome } from '../outcome.ts'
import { NewerFormatError, type Reader, type Writer } from './bytes.ts'
import { readIds, writeIds } from './field.ts'
import type { Fields } from './field-type.ts'
import { acquireLayout, releaseLayout, renewLayout } from './hot-layout.ts'
import { inOrder, type Layout, type MaskedLayout, masked } from './layout.ts'
import { readRefusal, writeRefusal } from './refusal.ts'

/** Bits beside the number of the command. */
const NUMBER_BITS = 31
const WITH_KEY = 32
const WITH_OPERATION = 64
/** The operation says what it asks for. */
const WITH_ASKED = 128

interface Encoding {
  readonly number: number
  readonly layout: Layout<Command>
  readonly variants: readonly (Omit<Encoding, 'variants'> & { applies(command: Command): boolean })[]
}

/** The bytes as they follow from a command's row. */
export function tableEncoding(kind: Command['kind']): Encoding {
  const { number, fields, bits, layout, form, variants = [] } = COMMAND_TABLE[kind] as CommandRow<Command>
  const ordered = (names: readonly string[] = Object.keys(fields)) =>
    inOrder<Command>(kind, Object.fromEntries(names.map(name => [name, (fields as Fields)[name]!])))
  return {
    number,
    layout: layout ?? (bits === undefined ? ordered(form) : masked<Command>(kind, fields as Fields, bits)),
    variants: variants.map(variant => ({
      number: variant.number,
      applies: command => variant.applies(command),
      layout: ordered(variant.form),
    })),
  }
}

function encodingOf(kind: Command['kind']): Encoding {
  const encoding = tableEncoding(kind)
  if (kind === 'acquire') return { ...encoding, layout: acquireLayout(encoding.layout as MaskedLayout<Acquire>) as Layout<Command> }
  if (kind === 'renew') return { ...encoding, layout: renewLayout as Layout<Command> }
  if (kind === 'release') return { ...encoding, layout: releaseLayout as Layout<Command> }
  return encoding
}

const BY_KIND = new Map<Command['kind'], Encoding>()
const BY_NUMBER: (Layout<Command> | undefined)[] = []
for (const kind of Object.keys(COMMAND_TABLE) as Command['kind'][]) {
  const encoding = encodingOf(kind)
  BY_KIND.set(kind, encoding)
  for (const { number, layout } of [encoding, ...encoding.variants]) BY_NUMBER[number] = layout
}

/** Under which number and with which fields a command is written. */
export function formOf(encoding: Encoding, command: Command): Pick<Encoding, 'number' | 'layout'> {
  for (const variant of encoding.variants) if (variant.applies(command)) return variant
  return encoding
}

export function writeProposal(to: Writer, { command, key = 0, op }: Proposal): void {
  const asked = op?.asked ?? 0
  const encoding = BY_KIND.get(command.kind)!
  const { number, layout } = encoding.variants.length === 0 ? encoding : formOf(encoding, command)
  to.byte(number | (key === 0 ? 0 : WITH_KEY) | (op === undefined ? 0 : WITH_OPERATION) | (asked === 0 ? 0 : WITH_ASKED))
  if (key !== 0) to.uint(key)
  if (op !== undefined) {
    to.text(op.session)
    to.uint(op.seq)
    to.uint(op.acked)
    if (asked !== 0) to.uint(asked)
  }
  layout.write(to, command)
}

export function readProposal(from: Reader): Proposal {
  const head = from.byte()
  const layout = BY_NUMBER[head & NUMBER_BITS]
  if (layout === undefined) throw new NewerFormatError(`a command of kind ${head & NUMBER_BITS}`)
  if ((head & (WITH_OPERATION | WITH_ASKED)) === WITH_ASKED) throw new NewerFormatError('a command that is marked in a way not known here')
  const key = (head & WITH_KEY) === 0 ? 0 : from.uint()
  if ((head & WITH_OPERATION) === 0) return { command: layout.read(from), key }
  const plain = { session: from.text(), seq: from.uint(), acked: from.uint() }
  const op = (head & WITH_ASKED) === 0 ? plain : { ...plain, asked: from.uint() }
  return { command: layout.read(from), key, op }
}

export const OUTCOMES = [
  'granted',
  'queued',
  'renewed',
  'done',
  'fenced',
  'nothing',
  'void',
  'refused',
  'transacted',
] as const satisfies readonly Outcome['kind'][]
export function writeOutcome(to: Writer, outcome: Outcome): void {
  to.byte(OUTCOMES.indexOf(outcome.kind))
  to.uint(outcome.revision)
  switch (outcome.kind) {
    case 'granted':
      to.uint(outcome.lease)
      to.uint(outcome.incarnation)
      to.uint(outcome.ttl)
      to.uint(outcome.resources.length)
      for (const name of outcome.resources) to.text(name)
      return writeIds(to, outcome.tokens)
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
    case 'transacted':
      return to.bool(outcome.succeeded)
    case 'nothing':
    case 'void':
      return
    case 'refused':
      return writeRefusal(to, outcome)
  }
}

export function readOutcome(from: Reader): Outcome {
  const kind = OUTCOMES[from.byte()]
  if (kind === undefined) throw new NewerFormatError('an outcome of another kind')
  const revision = from.uint()
  switch (kind) {
    case 'granted': {
      const [lease, incarnation, ttl] = [from.uint(), from.uint(), from.uint()]
      const resources: string[] = []
      for (let left = from.length(); left > 0; left--) resources.push(from.text())
      return { kind, revision, lease, incarnation, ttl, resources, tokens: readIds(from) }
    }
    case 'queued':
      return { kind, revision, lease: from.uint(), incarnation: from.uint(), ttl: from.uint(), position: from.uint() }
    case 'renewed':
      return { kind, revision, ttls: from.list(() => from.int()) }
    case 'done': {
      const id = from.uint()
      return id === 0 ? { kind, revision } : { kind, revision, id }
    }
    case 'fenced':
      return { kind, revision, highest: from.uint() }
    case 'transacted':
      return { kind, revision, succeeded: from.bool() }
    case 'nothing':
    case 'void':
      return { kind, revision }
    case 'refused':
      return { kind, revision, ...readRefusal(from) }
  }
}
