/**
 * The etcd face: the JSON gateway of etcd 3.4 (`/v3/…`), as etcd3gw, Patroni and other HTTP clients speak it. gRPC itself is not answered.
 */
import type { Face, FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { joined } from '../slices.ts'
import { EtcdFailure, refusedRequest } from './failure.ts'
import { TrackedBytes } from './key-tracker.ts'
import type { RevisedBody } from './keys.ts'
import * as keys from './keys.ts'
import * as leases from './leases.ts'
import * as locks from './locks.ts'
import { type Message, messageOf, messagesOf } from './message.ts'
import { PREFIX } from './names.ts'
import { watchLines } from './watch.ts'

/** The version that clients see: they choose the paths by it. */
const VERSION = { etcdserver: '3.4.23', etcdcluster: '3.4.0' }
/** Some clients check that these stay the same. They mean nothing here. */
const IDS = { cluster_id: '7813587324171092331', member_id: '1' } as const
const RAFT_TERM = { raft_term: '1' } as const
const ROOTS = ['/v3/', '/v3beta/', '/v3alpha/'] as const
const AUTHENTICATE = 'auth/authenticate'
const WATCH = 'watch'
const OBSERVE = 'election/observe'

type GatewayMethod = (message: Message, caller: FaceCaller, request: HttpFaceRequest) => Promise<RevisedBody>

const METHODS: Readonly<Record<string, GatewayMethod>> = {
  'kv/range': keys.range,
  'kv/put': keys.put,
  'kv/deleterange': keys.deleteRange,
  'kv/txn': keys.txn,
  'kv/compaction': keys.compact,
  'lease/grant': leases.grant,
  'lease/revoke': leases.revoke,
  'kv/lease/revoke': leases.revoke,
  'lease/timetolive': leases.timeToLive,
  'kv/lease/timetolive': leases.timeToLive,
  'lease/leases': (_, caller) => leases.leases(caller),
  'kv/lease/leases': (_, caller) => leases.leases(caller),
  // The server has checked the password as a key before this is called.
  [AUTHENTICATE]: async (message, caller) => ({ revision: await revisionNow(caller), body: { token: message.text('password') } }),
  'lock/lock': locks.lock,
  'lock/unlock': locks.unlock,
  'election/campaign': locks.campaign,
  'election/proclaim': locks.proclaim,
  'election/leader': locks.leader,
  'election/resign': locks.resign,
  'maintenance/status': async (_, caller) => {
    const revision = await revisionNow(caller)
    const index = String(revision)
    const leader = IDS.member_id
    return {
      revision,
      body: { version: VERSION.etcdserver, leader, raftIndex: index, raftTerm: RAFT_TERM.raft_term, raftAppliedIndex: index },
    }
  },
  'cluster/member/list': async (_, caller, request) => {
    const url = `${request.secure ? 'https' : 'http'}://${request.header('host') ?? 'localhost'}`
    const member = { ID: IDS.member_id, name: 'leasehold', peerURLs: [url], clientURLs: [url] }
    return { revision: await revisionNow(caller), body: { members: [member] } }
  },
}

/** Methods whose answer is a stream. Each message of the request is answered by one item. */
const STREAMS: Readonly<Record<string, GatewayMethod>> = { 'lease/keepalive': leases.keepAlive }

const CALLS: readonly string[] = [...Object.keys(METHODS), ...Object.keys(STREAMS), WATCH, OBSERVE]

export function etcdFace(): Face {
  const tracked = new TrackedBytes()
  return {
    name: PREFIX,
    rules: { freeEntries: 65_536, freeBytes: 64 << 20 },
    http: {
      paths: [...ROOTS, '/version', '/health'],
      operations: ['GET /version', 'GET /health', ...CALLS.map(name => `POST ${ROOTS[0]}${name}`)],
      answer: async (request, caller) => {
        try {
          return await answer(request, caller, tracked)
        } catch (error) {
          if (error instanceof EtcdFailure) return error.response
          throw error
        }
      },
      secret,
      failure: (failure, request) =>
        refusedRequest(failure, isAuthenticate(request), request.header('authorization') !== undefined).response,
    },
  }
}

function isAuthenticate({ method, path }: Pick<HttpFaceRequest, 'method' | 'path'>): boolean {
  return method === 'POST' && ROOTS.some(root => path === root + AUTHENTICATE)
}

/** A key is the password of any user, and the token that a client gets for it. */
function secret(request: HttpFaceRequest): string | undefined | Promise<string | undefined> {
  return isAuthenticate(request) ? password(request) : request.header('authorization')?.replace(/^Bearer +/i, '')
}

async function password(request: HttpFaceRequest): Promise<string | undefined> {
  try {
    return messageOf(await request.body()).text('password')
  } catch (error) {
    if (error instanceof EtcdFailure) return ''
    throw error
  }
}

async function answer(request: HttpFaceRequest, caller: FaceCaller, tracked: TrackedBytes): Promise<HttpFaceResponse> {
  const { method, path } = request
  if (path === '/version' || path === '/health') {
    if (method !== 'GET' && method !== 'HEAD') return plain(405, 'Method Not Allowed')
    return { status: 200, body: JSON.stringify(path === '/version' ? VERSION : { health: 'true' }) }
  }
  const root = ROOTS.find(known => path.startsWith(known))!
  const name = path.slice(root.length)
  const call = Object.hasOwn(METHODS, name) ? METHODS[name]! : undefined
  const stream = Object.hasOwn(STREAMS, name) ? STREAMS[name]! : undefined
  if (!CALLS.includes(name)) return plain(404, 'Not Found')
  if (method !== 'POST') return plain(405, 'Method Not Allowed')
  if (call !== undefined) {
    const { revision, body, kvs = [] } = await call(messageOf(await request.body()), caller, request)
    if (kvs.length > 0) {
      const rest = JSON.stringify(body).slice(1)
      return {
        status: 200,
        body: joined(kvs, `{"header":${JSON.stringify(headerOf(revision))},"kvs":[`, `]${rest === '}' ? '' : ','}${rest}`),
      }
    }
    return { status: 200, body: JSON.stringify({ header: headerOf(revision), ...body }) }
  }
  if (name === WATCH) {
    const messages = messagesOf(await request.body())
    return { status: 200, body: watchLines(messages, caller, headerOf, tracked) }
  }
  if (name === OBSERVE) return { status: 200, body: locks.observeLines(messageOf(await request.body()), caller, headerOf) }
  const items: string[] = []
  for (const message of messagesOf(await request.body())) {
    const { revision, body } = await stream!(message, caller, request)
    items.push(`${JSON.stringify({ result: { header: headerOf(revision), ...body } })}\n`)
  }
  return { status: 200, body: items.join('') }
}

function headerOf(revision: number): object {
  const { cluster_id, member_id } = IDS
  const { raft_term } = RAFT_TERM
  return revision > 0 ? { cluster_id, member_id, revision: String(revision), raft_term } : { cluster_id, member_id, raft_term }
}

function plain(status: number, text: string): HttpFaceResponse {
  return { status, type: 'text/plain; charset=utf-8', body: `${text}\n` }
}

async function revisionNow({ lessor, signal }: FaceCaller): Promise<number> {
  return (await lessor.read<'summary'>({ kind: 'summary' }, { signal })).revision
}
