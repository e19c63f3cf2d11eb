/** Parsers for the values of command-line options. */
import { usageError } from './exit.ts'

/** Rejects what is not a whole number, and what is outside of the bounds if there are any. */
export function parseInteger(text: string, option: string, least = Number.NEGATIVE_INFINITY, most = Number.POSITIVE_INFINITY): number {
  const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  const bounds =
    most < Number.POSITIVE_INFINITY ? ` from ${least} to ${most}` : least > Number.NEGATIVE_INFINITY ? ` of at least ${least}` : ''
  throw usageError(`${option} takes a whole number${bounds}, not ${text}`, `Write, for example: ${option} ${Math.max(1, least)}`)
}

/** For options that may be repeated: collects their values in a list. */
export function collect(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value]
}
