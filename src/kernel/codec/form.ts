/**
 * Checks the form of a command from outside: texts where texts belong, whole numbers where numbers belong. Only a well-formed command can
 * be written to a log and read back the same. Whether it makes sense is decided when it is applied.
 */
import type { Command, Operation } from '../command.ts'
import { COMMAND_TABLE, type CommandRow } from '../command-table.ts'
import { badText, NAME_BYTES } from '../name.ts'
import { type Flaw, shown, within } from '../reason.ts'
import { checkFields, count, type Together } from './field.ts'
import type { Check, Fields } from './field-type.ts'

const CHECKS = Object.fromEntries(
  Object.entries(COMMAND_TABLE).map(([kind, row]) => {
    const { fields, together } = row as CommandRow<Command>
    const check = checkFields(fields as Fields, { also: ['kind'], together: together as Together })
    return [kind, check]
  }),
) as Readonly<Record<Command['kind'], Check>>

/** Returns what is wrong with the form of a command, or of the key and the operation that it comes with; undefined if nothing is. */
export function malformed(command: Command, key = 0, op?: Operation): Flaw | undefined {
  if (typeof command !== 'object' || command === null) return { reason: 'unknown-command', facts: { given: shown(command) } }
  if (!Object.hasOwn(CHECKS, String(command.kind))) return { reason: 'unknown-command', facts: { given: shown(command.kind) } }
  const wrong = CHECKS[command.kind](command)
  if (wrong !== undefined) return within(command.kind, wrong)
  return op === undefined && key === 0 ? undefined : malformedAsker(key, op)
}

/** A key or an operation that cannot be encoded would spoil the record for every proposal in it. */
export function malformedAsker(key: number, op: Operation | undefined): Flaw | undefined {
  const ofKey = count.check(key)
  if (ofKey !== undefined) return within('key', ofKey)
  if (op === undefined) return undefined
  const { session, seq, acked, asked = 0 } = op
  const ofSession = badText(session, NAME_BYTES)
  if (ofSession !== undefined) return within('op.session', ofSession)
  const ofAsked = count.check(asked)
  if (ofAsked !== undefined) return within('op.asked', ofAsked)
  const ofSeq = count.check(seq)
  if (ofSeq !== undefined) return within('op.seq', ofSeq)
  const ofAcked = count.check(acked)
  return ofAcked && within('op.acked', ofAcked)
}
