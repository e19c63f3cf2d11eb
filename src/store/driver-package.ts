/** The npm package of an engine's driver, and the error for a user who has not installed it. */
import { LeaseError } from '../errors.ts'

export interface DriverPackage {
  readonly package: string
  /** The command that installs it. */
  readonly install: string
  /** The URLs that need it, for messages. */
  readonly url: string
}

export function driverMissing({ package: name, install, url }: DriverPackage, cause: unknown): LeaseError {
  return new LeaseError(
    'UNSUPPORTED',
    `${url} needs the npm package ${name}, which is not installed: ${install}, or hand a client of your own to the store`,
    { cause, facts: { package: name } },
  )
}
