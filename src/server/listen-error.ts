/** Why a port could not be opened, and what to do about it. */
import { LeaseError } from '../errors.ts'

export function listenError(cause: unknown, address: string): unknown {
  const { code } = cause as { code?: string }
  if (code === 'EADDRINUSE')
    return new LeaseError('UNAVAILABLE', `${address} is in use by another process: stop it, or listen on another address`, {
      cause,
      facts: { inUse: address },
    })
  if (code === 'EACCES')
    return new LeaseError('FORBIDDEN', `this user may not listen on ${address}: use a port above 1023, or another path`, { cause })
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return new LeaseError('INVALID', `${address} is not an address of this machine: listen on another address`, { cause })
  return cause
}
