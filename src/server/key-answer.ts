/** Keys as every wire and the command line show them, without secrets, and the times of expiry that they take. */
import { inUtc, timeOfText } from '../clock.ts'
import { parseDuration } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { KeyBounds, KeyLimits, KeyUse, Scope } from '../kernel/command.ts'
import type { ApiKeyView } from '../lessor/key-view.ts'

export interface KeyAnswer extends KeyBounds {
  readonly id: number
  readonly name: string
  readonly allow: readonly Scope[]
  readonly group?: string
  readonly limits?: KeyLimits
  readonly use: KeyUse
  readonly groupLimits?: KeyLimits
  readonly groupUse?: KeyUse
  readonly expires?: string
  /** Until then the secret before the last rotation is valid too. */
  readonly formerUntil?: string
}

export function keyAnswer({ hash: _, former, expires, ...rest }: ApiKeyView): KeyAnswer {
  return {
    ...rest,
    ...(expires !== undefined && { expires: inUtc(expires) }),
    ...(former !== undefined && { formerUntil: inUtc(former.until) }),
  }
}

const TIME = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})?)?$/

/** When a key expires: a duration from now, or a time. Throws `INVALID`. */
export function expiryIn(text: string, now: number, what = 'expires'): number {
  const at = TIME.test(text) ? timeOfText(text.replace(' ', 'T')) : Math.floor(now) + durationIn(text, what)
  if (Number.isNaN(at)) throw badExpiry(text, what)
  if (at <= now) throw new LeaseError('INVALID', `${what} is ${inUtc(at)}, which is over: name a time that has not come yet`)
  return at
}

function durationIn(text: string, what: string): number {
  try {
    return parseDuration(text, what)
  } catch {
    throw badExpiry(text, what)
  }
}

function badExpiry(text: string, what: string): LeaseError {
  return new LeaseError('INVALID', `${what} takes a duration such as 90d, or a time such as 2027-01-31T00:00:00Z, not ${text.slice(0, 64)}`)
}
