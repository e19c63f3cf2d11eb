/** Writes the last message to a connection that the port refuses or closes, in the protocol that its client speaks. */
import type { Socket } from 'node:net'
import type { CloseReason } from './connections.ts'
import type { Wire } from './request-counters.ts'

const HEADERS = 'X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n'

const CERTIFICATE_REQUIRED =
  'this server requires a client certificate of its authority: add ?cert=FILE&key=FILE with your certificate to the address'

function httpError(statusLine: string, error: object): string {
  const body = JSON.stringify({ error })
  return `HTTP/1.1 ${statusLine}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nContent-Type: application/json\r\n${HEADERS}${body}`
}

/** More connections are open than `limit` allows. */
export function refuseOverLimit(socket: Socket, wire: Wire, limit: number): void {
  const message = `${limit} connections are open, the limit: close some, or raise the limit connections`
  socket.end(
    wire === 'http' ? httpError('429 Too Many Requests\r\nRetry-After: 1', { code: 'LIMIT', message, limit }) : `-LIMIT ${message}\r\n`,
  )
  socket.resume()
}

/** A RESP client has no client certificate. (HTTP clients get this from the HTTP listener, which still answers health probes.) */
export function refuseWithoutCertificate(socket: Socket): void {
  socket.end(`-UNAVAILABLE ${CERTIFICATE_REQUIRED}\r\n`)
}

/** An HTTP client reached a server that speaks only RESP. */
export function refuseHttp(socket: Socket): void {
  socket.end(`HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\n${HEADERS}This server speaks only RESP.\n`)
}

/** A client without TLS reached a TLS port. The message is written beneath the failed handshake, in clear text. Calls `then` when it is sent. */
export function refuseWithoutTls(socket: Socket, wire: Wire, then: () => void): void {
  const [secure, plain] = wire === 'http' ? ['https', 'http'] : ['leaseholds', 'leasehold']
  const message = `this port requires TLS: use ${secure}:// instead of ${plain}://`
  const rest = { reason: 'tls-required', meant: secure }
  const text =
    wire === 'http'
      ? httpError('400 Bad Request', { code: 'UNAVAILABLE', message, ...rest })
      : `-UNAVAILABLE ${message}\t${JSON.stringify(rest)}\r\n`
  socket.write(text, () => {
    socket.destroySoon()
    then()
  })
}

/** Closes a connection that the server no longer wants. RESP clients get the reason. HTTP has no message outside of a response. */
export function closeConnection(socket: Socket, wire: Wire, { code, message }: CloseReason): void {
  if (wire === 'http' || socket.writableLength > 0) return void socket.destroy()
  socket.write(`-${code} ${message}\r\n`)
  socket.destroySoon()
}
