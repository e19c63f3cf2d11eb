/**
 * Checks the form of a command from outside: texts where texts belong, whole numbers where numbers belong. Only a well-formed command can
 * be written to a log and read back the same. Whether it makes sense is decided when it is applied.
 */
import type { Command, Operation } from '../command.ts'
import { COMMAND_TABLE, type CommandRow } from '../command-table.ts'
import { fits, NAME_BYTES } from '../name.ts'
import { checkFields } from './field.ts'
import type { Check, Fields } from './field-type.ts'

const CHECKS = Object.fromEntries(
  Object.entries(COMMAND_TABLE).map(([kind, row]) => {
    const { fields, together } = row as CommandRow<Command>
    const check = checkFields(fields as Fields, ['kind'])
    return [kind, together === undefined ? check : (value: unknown) => check(value) ?? together(value as Command)]
  }),
) as Readonly<Record<Command['kind'], Check>>

/** What is wrong with the command's form, or undefined. */
export function malformed(command: Command): string | undefined {
  if (typeof command !== 'object' || command === null || !Object.hasOwn(CHECKS, String(command.kind))) return 'there is no such command'
  const wrong = CHECKS[command.kind](command)
  return wrong === undefined ? undefined : `${command.kind}: ${wrong}`
}

/** As `malformed`, for a key and an operation. One that cannot be encoded would spoil the record for every proposal in it. */
export function malformedAsker(key: number, op: Operation | undefined): string | undefined {
  const number = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  if (!number(key)) return `${String(key)} is not the number of a key`
  if (op === undefined) return undefined
  const { session, seq, acked, asked = 0 } = op
  if (typeof session !== 'string' || !fits(session, NAME_BYTES)) return `a session's name is text of at most ${NAME_BYTES} bytes`
  if (!number(asked)) return `what an operation asks is said by a whole number, not ${String(asked)}`
  return number(seq) && number(acked) ? undefined : `an operation is numbered by whole numbers, not ${String(seq)} after ${String(acked)}`
}
