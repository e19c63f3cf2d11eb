/** TLS connections without a client certificate, on a server that requires one. Only health probes are answered on them. */
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'

export const socketsWithoutCertificate = new WeakSet<Socket>()

/**
 * Returns whether the peer presented a certificate signed by the required authority. `authorized` alone is not enough: Node sets it on a resumed TLS 1.3 session even if
 * neither that connection nor the original one had a certificate.
 */
export function hasClientCertificate(socket: TLSSocket): boolean {
  return socket.authorized && socket.getPeerX509Certificate() !== undefined
}
