/**
 * One look at one target: http(s), tcp or gRPC health. Nothing of what it answers is kept or shown but whether it is well.
 *
 * The address is resolved once, every answer is checked, and the connection goes to what was checked: a name cannot change its mind in between.
 */
import { request as httpRequest } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { request as httpsRequest } from 'node:https'
import { connect, isIP } from 'node:net'
import { afterReading, type Clock, systemClock, unlessAborted } from '../../clock.ts'
import type { CheckResult } from '../../registry/entry.ts'
import type { ProbeRules } from './probe-rule.ts'
import { type Resolve, resolver } from './resolve.ts'

export interface ProbeOptions {
  readonly rules: ProbeRules
  /** Addresses and ports of this very server: never probed. */
  readonly own?: (address: string, port: number) => boolean
  readonly timeout: number
  readonly clock?: Clock
  readonly resolve?: Resolve
  /** Ends it at once: the server stops. */
  readonly signal?: AbortSignal
}

const MAX_READ = 4_096
/** Informational answers (1xx) before the real one. Some servers send one or two; more are no answer. */
const MAX_INTERIM = 8
const AGENT = 'leasehold-check'
const PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443, 'tcp:': 0, 'grpc:': 50_051 }
const resolveAll = resolver()

interface Place {
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
    // The wait ends here, whatever becomes of the lookup or the connection: a library may forget to tell that a peer left (Node's HTTP client does, after 101).
    return await unlessAborted(look(url, options, over.signal), over.signal)
  } catch (error) {
    if (signal?.aborted) return { status: 'critical', reason: 'the server that checks it is stopping' }
    if (over.signal.aborted) return { status: 'critical', reason: `no answer within ${timeout} ms` }
    // What the system says about a connection; never a word of what the target sent.
    const { code, message } = error as NodeJS.ErrnoException
    return { status: 'critical', reason: (code ?? message).slice(0, 128) }
  } finally {
    cancel()
    signal?.removeEventListener('abort', stop)
    // Closes what is still open.
    over.abort()
  }
}

async function look(url: string, options: ProbeOptions, over: AbortSignal): Promise<CheckResult> {
  over.throwIfAborted()
  const place = await placeOf(url, options, over)
  if (typeof place === 'string') return { status: 'critical', reason: place }
  over.throwIfAborted()
  const ask = place.scheme === 'tcp:' ? tcp : place.scheme === 'grpc:' ? grpc : http
  return ask(place, over)
}

/** Where exactly it goes, or why it does not. */
async function placeOf(url: string, options: ProbeOptions, over: AbortSignal): Promise<Place | string> {
  const { rules, own = () => false, resolve = resolveAll } = options
  const scheme = /^([a-z]+:)\/\//i.exec(url)?.[1]?.toLowerCase() ?? ''
  if (PORTS[scheme] === undefined) return 'it is no http, https, tcp or grpc address'
  // Read as http for every scheme: then 2130706433, 0x7f.1 and their like become the address that they are.
  const parsed = readAs('http:', url)
  if (parsed === undefined) return 'its address cannot be read'
  const host = parsed.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  // The parser drops the port that its scheme has by default. Read as ftp, whose port is another, it keeps an explicit 80.
  const port = Number(parsed.port || readAs('ftp:', url)?.port) || PORTS[scheme]!
  if (host === '' || port === 0 || parsed.username !== '' || parsed.password !== '') return 'its address names no host and port'
  const literal = isIP(host) !== 0
  const hopeless = literal ? undefined : rules.refusalOfName(host, port)
  if (hopeless !== undefined) return `not probed: ${hopeless}`
  const addresses = literal ? [host] : await resolve(host, over)
  if (addresses.length === 0) return `${host} has no address`
  for (const address of addresses) {
    const refused = own(address, port) ? 'it is this server itself' : rules.refusal(host, address, port)
    // One bad answer is enough: which of them would be taken is not ours to hope for.
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

// Errors are listened to with `on`, not `once`: a second one without a listener would end the server.

function tcp({ address, port }: Place, over: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port })
    over.addEventListener('abort', () => socket.destroy(), { once: true })
    socket.on('error', reject)
    socket.once('close', () => reject(new Error('it hung up')))
    socket.once('connect', () => {
      resolve({ status: 'passing' })
      socket.destroy()
    })
  })
}

function http({ scheme, host, address, port, path }: Place, over: AbortSignal): Promise<CheckResult> {
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
    // With an answer, its own end decides: what came before the peer left is read after this.
    request.once('close', () => answered || reject(new Error('it hung up')))
    request.on('information', () => {
      if (++interim > MAX_INTERIM) fail('only informational answers')
    })
    // Not asked for, and without a listener Node closes the connection and tells nobody.
    request.once('upgrade', ({ statusCode }, socket) => {
      socket.on('error', () => {})
      socket.destroy()
      fail(`HTTP ${statusCode}: it switched protocols, unasked`)
    })
    request.once('response', response => {
      const { statusCode = 0 } = response
      answered = true
      let read = 0
      response.on('error', () => {})
      response.on('data', (chunk: Buffer) => {
        read += chunk.length
        if (read <= MAX_READ) return
        resolve(judged(statusCode))
        request.destroy()
      })
      response.once('close', () => (response.complete ? resolve(judged(statusCode)) : fail('it hung up')))
    })
    request.end()
  })
}

function judged(status: number): CheckResult {
  if (status >= 200 && status < 300) return { status: 'passing' }
  if (status >= 300 && status < 400) return { status: 'critical', reason: `HTTP ${status}: redirects are not followed` }
  return { status: status === 429 ? 'warning' : 'critical', reason: `HTTP ${status}` }
}

const SERVING = 1

/** grpc.health.v1.Health/Check over cleartext HTTP/2; the path, if there is one, is the service that is asked for. */
function grpc({ host, address, port, path }: Place, over: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const asked = framedRequest(decodeURIComponent(path.slice(1)))
    const session = connectHttp2(`http://${host.includes(':') ? `[${host}]` : host}:${port}`, {
      createConnection: () => connect({ host: address, port }),
      settings: { enablePush: false },
    })
    const end = () => session.destroy()
    over.addEventListener('abort', end, { once: true })
    session.on('error', reject)
    session.once('close', () => reject(new Error('it hung up')))
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
    // After trailers, if there are any.
    stream.once('close', () => {
      resolve(
        status === 200 ? healthOf(Buffer.concat(chunks), code) : { status: 'critical', reason: `HTTP ${status ?? 'without an answer'}` },
      )
      end()
    })
    stream.end(asked)
  })
}

/** HealthCheckRequest { string service = 1 } in a frame of gRPC. */
function framedRequest(service: string): Buffer {
  const name = Buffer.from(service).subarray(0, 127)
  const message = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a, name.length]), name])
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** HealthCheckResponse { ServingStatus status = 1 }. */
function healthOf(bytes: Buffer, code: string | undefined): CheckResult {
  // A call without a status did not end as gRPC says that calls end.
  if (code !== '0') return { status: 'critical', reason: `gRPC status ${/^\d{1,2}$/.test(code ?? '') ? code : 'unknown'}` }
  const status = bytes.length >= 7 && bytes[0] === 0 && bytes[5] === 0x08 ? bytes[6] : 0
  return status === SERVING ? { status: 'passing' } : { status: 'critical', reason: 'gRPC health: not serving' }
}
