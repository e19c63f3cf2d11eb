/** Tells HTTP from RESP by the first bytes of a connection, so that both can share one port. */
import type { Wire } from './request-counters.ts'

/** Bytes of the first line that may be needed for a decision. A longer first line is RESP. */
const MAX_FIRST_LINE = 4 << 10

/**
 * Returns undefined while more bytes are needed. A RESP command starts with `*`, or is a line of words. A first line that looks like an HTTP request is HTTP,
 * whatever its method: a web page can choose the method and everything after it. Our names never start with a slash.
 */
export function detectWire(first: Uint8Array): Wire | undefined {
  const known = Buffer.from(first.buffer, first.byteOffset, Math.min(first.length, MAX_FIRST_LINE)).toString('latin1')
  const [line] = known.split('\n', 1) as [string]
  if (known === '') return undefined
  // An HTTP method is a token. RESP starts with `*` or `$`, which are left out of the first character.
  if (!/^[!#%&'+.^`|~\w-][!#$%&'*+.^`|~\w-]*( |$)/.test(line)) return 'resp'
  if (/^\S+ (\/|https?:\/\/)/i.test(line)) return 'http'
  if (line.length === known.length && line.length < MAX_FIRST_LINE) return undefined
  return / HTTP\/\d\.\d\r?$/.test(line) ? 'http' : 'resp'
}
