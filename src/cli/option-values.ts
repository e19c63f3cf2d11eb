/** Parsers for the values of command-line options. */
import { usageError } from './exit.ts'

export function parseInteger(text: string, option: string): number {
  if (!/^-?\d{1,15}$/.test(text))
    throw usageError(`${option} takes a whole number, not ${text}`, 'Correct the value, or run: leasehold help')
  return Number(text)
}

/** For options that may be repeated: collects their values in a list. */
export function collect(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value]
}
