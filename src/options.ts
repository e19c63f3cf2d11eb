/** Checks the arguments of public calls: an unknown option or a misplaced argument is refused, never ignored. */
import { LeaseError } from './errors.ts'

/** Throws `INVALID` unless `options` is an object with only options that `call` knows. */
export function checkOptionNames(call: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new LeaseError('INVALID', `the options of ${call} must be an object, not ${kindOf(options)}`)
  for (const name in options) if (!known.includes(name)) throw noOption(call, name, known)
}

/** As `checkOptionNames`, for an object of the caller's own that may have more members: refuses only names that look misspelt. */
export function checkSpelling(call: string, options: object, known: readonly string[]): void {
  for (const name in options) if (!known.includes(name) && nearest(name, known) !== undefined) throw noOption(call, name, known)
}

export function noOption(call: string, name: string, known: readonly string[]): LeaseError {
  const meant = nearest(name, known)
  const hint = meant === undefined ? '' : `. Did you mean ${meant}?`
  return new LeaseError('INVALID', `${call} has no option ${name}${hint || '.'} It has ${known.join(', ')}`, { facts: { option: name } })
}

/** The error of a call with too many arguments. `form` shows how it is called. */
export function tooManyArguments(form: string): LeaseError {
  return new LeaseError('INVALID', `too many arguments: write ${form}`)
}

function nearest(name: string, known: readonly string[]): string | undefined {
  return known.find(option => isNear(name.toLowerCase(), option.toLowerCase()))
}

/** Returns whether they differ by one inserted, missing or different letter, or by two swapped letters. */
function isNear(a: string, b: string): boolean {
  if (Math.abs(a.length - b.length) > 1) return false
  let start = 0
  while (start < a.length && a[start] === b[start]) start++
  const [x, y] = [a.slice(start), b.slice(start)]
  return x.slice(1) === y.slice(1) || x.slice(1) === y || x === y.slice(1) || (x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2))
}

/** Describes a value of the wrong kind, for messages. */
export function kindOf(value: unknown): string {
  if (typeof value === 'string') return `'${value.slice(0, 64)}'`
  if (typeof value === 'function') return 'a function'
  return Array.isArray(value) ? 'an array' : value !== null && typeof value === 'object' ? 'an object of another kind' : String(value)
}
