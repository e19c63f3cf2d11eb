/** Connections over TLS that showed no certificate of the authority that the server names: only probes are answered on them. */
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'

export const uncertified = new WeakSet<Socket>()

/**
 * Whether the peer showed a certificate of the authority. `authorized` alone is not enough: Node sets it for a TLS 1.3 session that is resumed, also
 * when neither that connection nor the first had a certificate.
 */
export function isCertified(socket: TLSSocket): boolean {
  return socket.authorized && socket.getPeerX509Certificate() !== undefined
}
