/** A process that cannot read a log reports who must do what. Nothing was changed by reading. */
import { LeaseError } from '../errors.ts'
import { NewerFormatError, OlderFormatError } from '../kernel/codec/bytes.ts'

/** `what` names the record or snapshot. */
export function unreadable(error: unknown, what: string): LeaseError {
  if (error instanceof LeaseError) return error
  const { message } = error as Error
  if (error instanceof NewerFormatError)
    return new LeaseError('UNSUPPORTED', `${what} was written by a newer version of leasehold (${message}): upgrade this process`, {
      cause: error,
    })
  if (error instanceof OlderFormatError)
    return new LeaseError(
      'UNSUPPORTED',
      `${what} was written by an earlier build (${message}): finish with that build, or begin a new log with ?name=NEW. Nothing was changed`,
      { cause: error },
    )
  return new LeaseError('DIVERGED', `${what} is damaged (${message}): restore the log from a backup; nothing was changed`, { cause: error })
}
