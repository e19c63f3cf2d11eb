/** What a client says when its server's log does not contain what the client saw. */
import { LeaseError } from '../errors.ts'

export function wentBack(server: string): LeaseError {
  return new LeaseError(
    'DIVERGED',
    `the log of ${server} went back: it does not contain what this process was told, as after a data directory was put back from a copy`,
    { facts: { server, rewound: true } },
  )
}
