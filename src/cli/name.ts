/**
 * Checks names and prefixes before a command reads them. An impossible name must be an error: "it is free" would be true and misleading.
 */
import { whyBadName, whyBadPrefix } from '../wording.ts'
import { usageError } from './exit.ts'

const NEXT = 'A name consists of segments separated by /, for example jobs/nightly.'

export function requireValidName(name: string): void {
  const bad = whyBadName(name)
  if (bad !== undefined) throw usageError(`${JSON.stringify(name)} cannot be the name of a resource: it ${bad}`, NEXT)
}

export function requireValidPrefix(prefix: string): void {
  const bad = whyBadPrefix(prefix)
  if (bad !== undefined) throw usageError(`${JSON.stringify(prefix)} cannot be a prefix: it ${bad}`, NEXT)
}
