/**
 * One look at one target: http(s), tcp or gRPC health. Nothing of what it answers is kept or shown but whether it is well.
 *
 * The address is resolved once, every answer is checked, and the connection goes to what was checked: a name cannot change its mind in between.
 */
import { lookup } from 'node:dns/promises'
import { request as httpRequest } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { request as httpsRequest } from 'node:https'
import { connect, isIP } from 'node:net'
import { afterReading, type Clock, systemClock } from '../../clock.ts'
import type { CheckResult } from '../../recipe/registry/entry.ts'
import type { ProbeRules } from './probe-rule.ts'

export interface ProbeOptions {
  readonly rules: ProbeRules
  /** Addresses and ports of this very server: never probed. */
  readonly own?: (address: string, port: number) => boolean
  readonly timeout: number
  readonly clock?: Clock
  readonly resolve?: (host: string) => Promise<readonly string[]>
}

const MOST_READ = 4_096
const AGENT = 'leasehold-check'
const PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443, 'tcp:': 0, 'grpc:': 50_051 }

interface Place {
  readonly scheme: string
  readonly host: string
  readonly address: string
  readonly port: number
  readonly path: string
}

const resolveAll = async (host: string) => (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address)

export async function probe(url: string, options: ProbeOptions): Promise<CheckResult> {
  const { clock = systemClock, timeout } = options
  const over = new AbortController()
  const cancel = afterReading(clock, timeout, () => over.abort(new Error(`no answer within ${timeout} ms`)), { ref: true })
  try {
    const place = await Promise.race([placeOf(url, options), aborted(over.signal)])
    if (typeof place === 'string') return { status: 'critical', reason: place }
    const look = place.scheme === 'tcp:' ? tcp : place.scheme === 'grpc:' ? grpc : http
    const result = await look(place, over.signal)
    over.signal.throwIfAborted()
    return result
  } catch (error) {
    if (over.signal.aborted) return { status: 'critical', reason: `no answer within ${timeout} ms` }
    // What the system says about a connection; never a word of what the target sent.
    const { code, message } = error as NodeJS.ErrnoException
    return { status: 'critical', reason: (code ?? message).slice(0, 128) }
  } finally {
    cancel()
    over.abort()
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }))
}

/** Where exactly it goes, or why it does not. */
async function placeOf(url: string, { rules, own = () => false, resolve = resolveAll }: ProbeOptions): Promise<Place | string> {
  const scheme = /^([a-z]+:)\/\//i.exec(url)?.[1]?.toLowerCase() ?? ''
  if (PORTS[scheme] === undefined) return 'it is no http, https, tcp or grpc address'
  let parsed: URL
  try {
    // As http for every scheme: then 2130706433, 0x7f.1 and their like become the address that they are.
    parsed = new URL(url.replace(/^[a-z]+:/i, scheme === 'https:' ? scheme : 'http:'))
  } catch {
    return 'its address cannot be read'
  }
  const host = parsed.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  const port = Number(parsed.port) || PORTS[scheme]!
  if (host === '' || port === 0 || parsed.username !== '' || parsed.password !== '') return 'its address names no host and port'
  const addresses = isIP(host) !== 0 ? [host] : await resolve(host)
  if (addresses.length === 0) return `${host} has no address`
  for (const address of addresses) {
    const refused = own(address, port) ? 'it is this server itself' : rules.refusal(host, address, port)
    // One bad answer is enough: which of them would be taken is not ours to hope for.
    if (refused !== undefined) return `not probed: ${refused}`
  }
  return { scheme, host, address: addresses[0]!, port, path: parsed.pathname + parsed.search }
}

function tcp({ address, port }: Place, signal: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port })
    signal.addEventListener('abort', () => socket.destroy(), { once: true })
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('it hung up')))
    socket.once('connect', () => {
      resolve({ status: 'passing' })
      socket.destroy()
    })
  })
}

function http({ scheme, host, address, port, path }: Place, signal: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const request = (scheme === 'https:' ? httpsRequest : httpRequest)({
      host: address,
      port,
      path,
      method: 'GET',
      agent: false,
      signal,
      maxHeaderSize: MOST_READ,
      headers: { Host: `${host.includes(':') ? `[${host}]` : host}:${port}`, 'User-Agent': AGENT, Connection: 'close' },
      ...(isIP(host) === 0 && { servername: host }),
    })
    request.once('error', reject)
    request.once('response', response => {
      const { statusCode = 0 } = response
      let read = 0
      response.on('error', () => {})
      response.on('data', (chunk: Buffer) => {
        read += chunk.length
        if (read > MOST_READ) request.destroy()
      })
      response.once('close', () => resolve(judged(statusCode)))
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
function grpc({ host, address, port, path }: Place, signal: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const session = connectHttp2(`http://${host.includes(':') ? `[${host}]` : host}:${port}`, {
      createConnection: () => connect({ host: address, port }),
    })
    const end = () => session.destroy()
    signal.addEventListener('abort', end, { once: true })
    session.once('error', reject)
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
    let code: string | undefined
    const note = (headers: Readonly<Record<string, unknown>>) => {
      if (headers['grpc-status'] !== undefined) code = String(headers['grpc-status'])
    }
    stream.once('error', reject)
    stream.on('response', note)
    stream.on('trailers', note)
    stream.on('data', (chunk: Buffer) => {
      read += chunk.length
      if (read > MOST_READ) end()
      else chunks.push(chunk)
    })
    stream.once('end', () => {
      resolve(healthOf(Buffer.concat(chunks), code))
      end()
    })
    stream.end(framedRequest(decodeURIComponent(path.slice(1))))
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
  if (code !== undefined && code !== '0') return { status: 'critical', reason: `gRPC status ${/^\d{1,2}$/.test(code) ? code : 'unknown'}` }
  const status = bytes.length >= 7 && bytes[0] === 0 && bytes[5] === 0x08 ? bytes[6] : 0
  return status === SERVING ? { status: 'passing' } : { status: 'critical', reason: 'gRPC health: not serving' }
}
