/** Authenticates a connection: as the key that it presents, or as the operator if it found this server in its store. A connection with too many failures is closed. */
import { LeaseError } from '../../errors.ts'
import { operatorCaller } from '../access-control.ts'
import type { RespSession } from './session.ts'

/** Throws `UNAUTHENTICATED`. */
export function identify(session: RespSession, secret: string): void {
  try {
    session.become(session.host.context.guarded.access.identify(secret))
  } catch (error) {
    session.authFailed()
    throw error
  }
}

/** Authenticates a client that found this server in its store, and returns the server's own proof. Rejects with `UNAUTHENTICATED`. */
export async function identifyBeside(session: RespSession, name: string, proof: string): Promise<string> {
  const { beside } = session.host.context
  try {
    if (beside === undefined) throw new LeaseError('UNAUTHENTICATED', 'this server has not announced itself in its store')
    const answer = await beside(name, proof)
    session.become(operatorCaller())
    return answer
  } catch (error) {
    session.authFailed()
    throw error
  }
}
