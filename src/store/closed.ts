/** The errors of a store that cannot be used any more, or not yet. */
import { type ErrorCode, LeaseError } from '../errors.ts'

export function storeClosed(code: ErrorCode = 'UNAVAILABLE'): LeaseError {
  return new LeaseError(code, 'the store was closed')
}

export function storeNotOpened(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the store was not opened')
}
