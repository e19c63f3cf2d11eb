/** `?clock=trusted`: ages of records by the clock of the engine, see docs/assumptions.md. */
import { LeaseError } from '../errors.ts'

/** The note in the profile of a store that trusts the clock of its engine. The name of the engine follows. */
export const TRUSTED_CLOCK =
  'clock=trusted: the age of a record is the difference of two readings of the clock of its server. If that clock is set forward, a lease may end while its holder still believes in it. Server:'

/** Returns whether the clock of the engine is trusted, by the URL or by the option of the store. */
export function trustedClock(settings: URLSearchParams | undefined, option: boolean | undefined): boolean {
  const setting = settings?.get('clock') ?? undefined
  if (setting !== undefined && setting !== 'trusted')
    throw new LeaseError('INVALID', `?clock= must be trusted, or be left out; it is ${JSON.stringify(setting)}`)
  return option ?? setting === 'trusted'
}
