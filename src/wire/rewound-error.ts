/** The error of a client whose server's log does not contain what the client saw. */
import { LeaseError } from '../errors.ts'

export function rewoundError(server: string): LeaseError {
  return new LeaseError(
    'DIVERGED',
    `the log of ${server} went back: it does not contain what this process has seen, as after a data directory was restored from a copy`,
    { facts: { server, rewound: true } },
  )
}
