/**
 * Probes one target: http(s), tcp or gRPC health. Only the verdict is kept; nothing that the target sent is stored or shown.
 *
 * The host is resolved once, every address is checked against the rules, and the connection goes to a checked address: the name cannot resolve to
 * another one in between.
 */
import { request as httpRequest } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { request as httpsRequest } from 'node:https'
import { connect, isIP } from 'node:net'
import { afterReading, type Clock, systemClock, unlessAborted } from '../../clock.ts'
import type { CheckResult } from '../../registry/entry.ts'
import { createResolver, type Resolve } from './host-resolver.ts'
import type { ProbeRules } from './probe-rules.ts'

export interface ProbeOptions {
  readonly rules: ProbeRules
  /** Returns whether an address and port are this server's own: never probed. */
  readonly own?: (address: string, port: number) => boolean
  readonly timeout: number
  readonly clock?: Clock
  readonly resolve?: Resolve
  /** Ends the probe at once: the server stops. */
  readonly signal?: AbortSignal
}

const MAX_READ = 4_096
/** Informational responses (1xx) before the final one. Some servers send one or two; a target that sends more fails. */
const MAX_INTERIM = 8
const AGENT = 'leasehold-check'
const PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443, 'tcp:': 0, 'grpc:': 50_051 }
const resolveAll = createResolver()

interface ProbeTarget {
  readonly scheme: string
  readonly host: string
  readonly address: string
  readonly port: number
  readonly path: string
}

export async function probe(url: string, options: ProbeOptions): Promise<CheckResult> {
  const { clock = systemClock, timeout, signal } = options
  const over = new AbortController()
  const stop = () => over.abort()
  const cancel = afterReading(clock, timeout, stop, { ref: true })
  signal?.addEventListener('abort', stop, { once: true })
  try {
    if (signal?.aborted) stop()
    // Do not rely on the lookup or the connection to end: Node's HTTP client does not report a peer that left after a 101.
    return await unlessAborted(probeTarget(url, options, over.signal), over.signal)
  } catch (error) {
    if (signal?.aborted) return { status: 'critical', reason: 'the server that checks it is stopping' }
    if (over.signal.aborted) return { status: 'critical', reason: `no answer within ${timeout} ms` }
    // The system's error. Never text from the target.
    const { code, message } = error as NodeJS.ErrnoException
    return { status: 'critical', reason: (code ?? message).slice(0, 128) }
  } finally {
    cancel()
    signal?.removeEventListener('abort', stop)
    // Closes connections that are still open.
    over.abort()
  }
}

async function probeTarget(url: string, options: ProbeOptions, over: AbortSignal): Promise<CheckResult> {
  over.throwIfAborted()
  const target = await targetOf(url, options, over)
  if (typeof target === 'string') return { status: 'critical', reason: target }
  over.throwIfAborted()
  const probeBy = target.scheme === 'tcp:' ? tcp : target.scheme === 'grpc:' ? grpc : http
  return probeBy(target, over)
}

/** The checked target, or why it is not probed. */
async function targetOf(url: string, options: ProbeOptions, over: AbortSignal): Promise<ProbeTarget | string> {
  const { rules, own = () => false, resolve = resolveAll } = options
  const scheme = /^([a-z]+:)\/\//i.exec(url)?.[1]?.toLowerCase() ?? ''
  if (PORTS[scheme] === undefined) return 'its address is not http, https, tcp or grpc'
  // Parse every scheme as http, which turns 2130706433, 0x7f.1 and similar forms into the address that they mean.
  const parsed = readAs('http:', url)
  if (parsed === undefined) return 'its address cannot be parsed'
  const host = parsed.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  // The parser drops a port that is the default of its scheme. Parsed as ftp it keeps an explicit 80.
  const port = Number(parsed.port || readAs('ftp:', url)?.port) || PORTS[scheme]!
  if (host === '' || port === 0 || parsed.username !== '' || parsed.password !== '') return 'its address names no host and port'
  const literal = isIP(host) !== 0
  const refusedName = literal ? undefined : rules.refusalOfName(host, port)
  if (refusedName !== undefined) return `not probed: ${refusedName}`
  const addresses = literal ? [host] : await resolve(host, over)
  if (addresses.length === 0) return `${host} has no address`
  for (const address of addresses) {
    const refused = own(address, port) ? 'it is this server itself' : rules.refusal(host, address, port)
    // One refused address is enough: a name with mixed addresses is not trusted.
    if (refused !== undefined) return `not probed: ${refused}`
  }
  return { scheme, host, address: addresses[0]!, port, path: parsed.pathname + parsed.search }
}

function readAs(scheme: 'http:' | 'ftp:', url: string): URL | undefined {
  try {
    return new URL(url.replace(/^[a-z]+:/i, scheme))
  } catch {
    return undefined
  }
}

// Listen for errors with `on`, not `once`: a second error without a listener would end the server.

function tcp({ address, port }: ProbeTarget, over: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port })
    over.addEventListener('abort', () => socket.destroy(), { once: true })
    socket.on('error', reject)
    socket.once('close', () => reject(new Error('it closed the connection')))
    socket.once('connect', () => {
      resolve({ status: 'passing' })
      socket.destroy()
    })
  })
}

function http({ scheme, host, address, port, path }: ProbeTarget, over: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const request = (scheme === 'https:' ? httpsRequest : httpRequest)({
      host: address,
      port,
      path,
      method: 'GET',
      agent: false,
      signal: over,
      maxHeaderSize: MAX_READ,
      headers: { Host: `${host.includes(':') ? `[${host}]` : host}:${port}`, 'User-Agent': AGENT, Connection: 'close' },
      ...(isIP(host) === 0 && { servername: host }),
    })
    const fail = (why: string) => {
      reject(new Error(why))
      request.destroy()
    }
    let interim = 0
    let answered = false
    request.on('error', reject)
    // After a response, the end of the response decides: its data may be read after this event.
    request.once('close', () => answered || reject(new Error('it closed the connection')))
    request.on('information', () => {
      if (++interim > MAX_INTERIM) fail('too many informational responses')
    })
    // Without this listener Node closes the connection and reports nothing.
    request.once('upgrade', ({ statusCode }, socket) => {
      socket.on('error', () => {})
      socket.destroy()
      fail(`HTTP ${statusCode}: it switched protocols without a request`)
    })
    request.once('response', response => {
      const { statusCode = 0 } = response
      answered = true
      let read = 0
      response.on('error', () => {})
      response.on('data', (chunk: Buffer) => {
        read += chunk.length
        if (read <= MAX_READ) return
        resolve(verdict(statusCode))
        request.destroy()
      })
      response.once('close', () => (response.complete ? resolve(verdict(statusCode)) : fail('it closed the connection')))
    })
    request.end()
  })
}

function verdict(status: number): CheckResult {
  if (status >= 200 && status < 300) return { status: 'passing' }
  if (status >= 300 && status < 400) return { status: 'critical', reason: `HTTP ${status}: redirects are not followed` }
  return { status: status === 429 ? 'warning' : 'critical', reason: `HTTP ${status}` }
}

const SERVING = 1

/** grpc.health.v1.Health/Check over cleartext HTTP/2. The path, if there is one, names the service. */
function grpc({ host, address, port, path }: ProbeTarget, over: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const message = framedRequest(decodeURIComponent(path.slice(1)))
    const session = connectHttp2(`http://${host.includes(':') ? `[${host}]` : host}:${port}`, {
      createConnection: () => connect({ host: address, port }),
      settings: { enablePush: false },
    })
    const end = () => session.destroy()
    over.addEventListener('abort', end, { once: true })
    session.on('error', reject)
    session.once('close', () => reject(new Error('it closed the connection')))
    const stream = session.request({
      ':method': 'POST',
      ':path': '/grpc.health.v1.Health/Check',
      'content-type': 'application/grpc',
      'user-agent': AGENT,
      te: 'trailers',
    })
    const chunks: Buffer[] = []
    let read = 0
    let interim = 0
    let status: number | undefined
    let code: string | undefined
    const note = (headers: Readonly<Record<string, unknown>>) => {
      status ??= headers[':status'] as number | undefined
      if (headers['grpc-status'] !== undefined) code = String(headers['grpc-status'])
    }
    stream.on('error', reject)
    stream.on('headers', () => {
      if (++interim > MAX_INTERIM) end()
    })
    stream.on('response', note)
    stream.on('trailers', note)
    stream.on('data', (chunk: Buffer) => {
      read += chunk.length
      if (read > MAX_READ) end()
      else chunks.push(chunk)
    })
    // `close` comes after the trailers, if there are any.
    stream.once('close', () => {
      resolve(
        status === 200 ? healthOf(Buffer.concat(chunks), code) : { status: 'critical', reason: `HTTP ${status ?? 'without a response'}` },
      )
      end()
    })
    stream.end(message)
  })
}

/** HealthCheckRequest { string service = 1 } in a gRPC frame. */
function framedRequest(service: string): Buffer {
  const name = Buffer.from(service).subarray(0, 127)
  const message = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a, name.length]), name])
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** HealthCheckResponse { ServingStatus status = 1 }. */
function healthOf(bytes: Buffer, code: string | undefined): CheckResult {
  // A call without a status did not end properly.
  if (code !== '0') return { status: 'critical', reason: `gRPC status ${/^\d{1,2}$/.test(code ?? '') ? code : 'unknown'}` }
  const status = bytes.length >= 7 && bytes[0] === 0 && bytes[5] === 0x08 ? bytes[6] : 0
  return status === SERVING ? { status: 'passing' } : { status: 'critical', reason: 'gRPC health: not serving' }
}
