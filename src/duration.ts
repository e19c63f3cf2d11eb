/** Durations: the type that options take, and the one parser of durations written as text. */
import { LeaseError } from './errors.ts'

type Unit = 'ms' | 's' | 'm' | 'h' | 'd'

/**
 * Whole milliseconds, or a text with a unit: `'250ms'`, `'30s'`, `'5m'`, `'1h30m'`, `'7d'`. The compiler refuses `'30sec'`. A text that is
 * read at run time, from a configuration or the environment, goes through `parseDuration`.
 */
export type Duration = number | `${number}${Unit}` | `${number}${Unit}${number}${Unit}`

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Whole milliseconds. `what` names the option in the error. */
export function milliseconds(duration: Duration, what: string): number {
  return parseDuration(duration, what)
}

/**
 * Whole milliseconds from a text or number that the compiler has not seen. Throws `INVALID` for anything but a duration.
 *
 * @example
 * const ttl = parseDuration(process.env.JOB_TTL ?? '30s', 'JOB_TTL')
 */
export function parseDuration(given: string | number, what = 'the duration'): number {
  const ms = typeof given === 'number' ? given : parse(given)
  if (Number.isSafeInteger(ms) && ms >= 0) return ms
  if (typeof given === 'string' && /^\d+$/.test(given))
    throw new LeaseError('INVALID', `${what} '${given}' has no unit: write '${given}s' for seconds or '${given}ms' for milliseconds`)
  throw new LeaseError('INVALID', `${what} must be whole milliseconds or a text such as '30s', '5m' or '1h30m', not ${show(given)}`)
}

function parse(text: unknown): number {
  if (typeof text !== 'string' || !/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return Number.NaN
  let ms = 0
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) ms += Number(amount) * UNITS[unit!]!
  return Math.round(ms)
}

function show(value: unknown): string {
  return typeof value === 'string' ? `'${value.slice(0, 32)}'` : String(value)
}

/** For messages: `4.2 s`, `350 ms`, `3 min`. */
export function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 120_000) return `${Math.round(ms / 100) / 10} s`
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 360_000) / 10} h`
}
