/** Clients and servers of different versions: they talk over HTTP and the `LEASE.*` commands, and say plainly where they cannot. */
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTcpServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { Reader, Writer } from '../../src/kernel/codec/bytes.ts'
import { propose } from '../../src/lessor/propose.ts'
import { refusedError } from '../../src/refused-error.ts'
import { HttpLessor } from '../../src/wire/http/client.ts'
import { MESSAGES_VERSION, readServerMessage, type ServerMessage, writeClientMessage, writeServerMessage } from '../../src/wire/messages.ts'
import { parseRespError } from '../../src/wire/received-error.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../src/wire/resp/dial.ts'
import type { ReplyError } from '../../src/wire/resp/reply-parser.ts'
import { command, place, Raw } from '../support/resp-place.ts'

const PROFILE = JSON.stringify({ store: 'x', durable: true, failover: false, push: true, shared: false, ages: true, notes: [] })
const acquire = { kind: 'acquire', holder: 'me', ttl: 5_000, wants: [{ resource: 'k' }] } as const

function greeting(messages: number): string {
  return `%3\r\n$8\r\nmessages\r\n:${messages}\r\n$8\r\nrevision\r\n:5\r\n$7\r\nprofile\r\n$${PROFILE.length}\r\n${PROFILE}\r\n`
}

/** A server that answers each chunk with the next of `answers`. */
async function respServer(...answers: readonly string[]) {
  const sockets = new Set<Socket>()
  const received: string[] = []
  const server = createTcpServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('data', chunk => {
      received.push(chunk.toString('latin1'))
      socket.write(answers[Math.min(received.length, answers.length) - 1]!)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    received,
    address: serverAddressOf(`leasehold://127.0.0.1:${(server.address() as { port: number }).port}`),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

async function httpServer(answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** An HTTP server of another version, which answers every proposal with `answer`. */
function proposalServer(answer: object) {
  return httpServer((request, response) => {
    response.setHeader('content-type', 'application/json')
    response.end(request.url === '/v1/about' ? JSON.stringify({ profile: JSON.parse(PROFILE) }) : JSON.stringify({ answers: [answer] }))
  })
}

test('a batch of a client of version 1, which names no version, is UNSUPPORTED and names both', async () => {
  await using here = await place()
  using raw = new Raw(here.port)
  await raw.ask('HELLO', 3)
  const writer = new Writer()
  writeClientMessage(writer, { kind: 'propose', id: 1, proposal: { command: acquire } })
  raw.send(command('LEASE.BATCH', writer.view()))
  const { code, message, rest } = parseRespError(((await raw.next()) as ReplyError).message)
  expect([code, rest]).toEqual(['UNSUPPORTED', { client: 1, server: MESSAGES_VERSION, reason: 'messages' }])
  expect(message).toMatch(new RegExp(`version 1 .*version ${MESSAGES_VERSION}`))
  expect((await here.lessor.read({ kind: 'leases' })).value).toEqual([])
})

test('a client of a later version is refused in the greeting, and the connection can still be used without batches', async () => {
  await using here = await place()
  using raw = new Raw(here.port)
  const refused = (await raw.ask('HELLO', 3, 'MESSAGES', 7)) as ReplyError
  expect(parseRespError(refused.message)).toMatchObject({ code: 'UNSUPPORTED', rest: { client: 7, server: MESSAGES_VERSION } })
  expect(await raw.ask('PING')).toBe('PONG')
})

test('a server of another version is UNSUPPORTED at once, and the error names both versions', async () => {
  for (const version of [1, MESSAGES_VERSION + 1]) {
    await using server = await respServer(greeting(version))
    const error: unknown = await RemoteLessor.open(server.address).catch(thrown => thrown)
    expect(error).toMatchObject({ code: 'UNSUPPORTED', reason: 'messages', facts: { client: MESSAGES_VERSION, server: version } })
    expect((error as LeaseError).message).toContain(`version ${version}`)
  }
})

test('a server that does not know the words of the greeting is greeted without them', async () => {
  await using server = await respServer('-ERR syntax error in HELLO\r\n', greeting(1))
  await expect(RemoteLessor.open(server.address)).rejects.toMatchObject({ code: 'UNSUPPORTED', facts: { server: 1 } })
  expect(server.received.map(text => text.includes('MESSAGES'))).toEqual([true, false])
})

test('a later server refuses with a reason that this client does not know: it is kept, with the sentence that came', async () => {
  const refused = { kind: 'refused', revision: 9, code: 'HELD', reason: 'low-tide', facts: { depth: 3 }, message: 'k waits for the tide' }
  await using server = await proposalServer({ outcome: refused })
  await using lessor = await HttpLessor.open(server.url)
  const outcome = await propose(lessor, acquire)
  expect(outcome).toMatchObject({ kind: 'refused', revision: 9, code: 'HELD', reason: 'low-tide', facts: { depth: 3 } })
  if (outcome.kind !== 'refused') throw outcome
  expect(refusedError(outcome)).toMatchObject({ code: 'HELD', reason: 'low-tide', message: 'k waits for the tide', facts: { depth: 3 } })
})

test('an unknown reason without a sentence gives one of code, reason and facts', async () => {
  await using server = await proposalServer({
    outcome: { kind: 'refused', revision: 9, code: 'HELD', reason: 'low-tide', facts: { depth: 3 } },
  })
  await using lessor = await HttpLessor.open(server.url)
  const outcome = await propose(lessor, acquire)
  if (outcome.kind !== 'refused') throw outcome
  const { message } = refusedError(outcome)
  for (const known of ['HELD', 'low-tide', 'depth', '3']) expect(message).toContain(known)
})

test('an earlier server sends a sentence and no reason: the error has the sentence', async () => {
  await using server = await proposalServer({
    outcome: { kind: 'refused', revision: 9, code: 'GONE', message: 'lease 7 has ended', facts: { lease: 7 } },
  })
  await using lessor = await HttpLessor.open(server.url)
  const outcome = await propose(lessor, acquire)
  if (outcome.kind !== 'refused') throw outcome
  const error = refusedError(outcome)
  expect([error.code, error.reason, error.message, error.facts]).toEqual(['GONE', undefined, 'lease 7 has ended', { lease: 7 }])
})

test('facts that are too large or of another type, and a code that is not known, do not throw', async () => {
  const facts = { lease: 7, long: 'x'.repeat(5_000), list: [1, 'a'], object: {} }
  await using odd = await proposalServer({ outcome: { kind: 'refused', revision: 'x', code: 'HELD', reason: 5, facts } })
  await using lessor = await HttpLessor.open(odd.url)
  expect(await propose(lessor, acquire)).toMatchObject({ kind: 'refused', revision: 0, facts: { lease: 7 } })
  await using other = await proposalServer({ outcome: { kind: 'refused', revision: 1, code: 'TIDE', reason: 'low', facts: {} } })
  await using second = await HttpLessor.open(other.url)
  await expect(propose(second, acquire)).rejects.toMatchObject({ code: 'UNKNOWN', reason: 'low' })
})

test('an error of a later server over HTTP keeps its reason, facts and message', async () => {
  await using server = await httpServer((request, response) => {
    if (request.url === '/v1/about') return response.end(JSON.stringify({ profile: JSON.parse(PROFILE) }))
    response.statusCode = 429
    response.end(JSON.stringify({ error: { code: 'LIMIT', reason: 'low-tide', message: 'too much', depth: 3, deep: {} } }))
  })
  await using lessor = await HttpLessor.open(server.url)
  const error: unknown = await lessor.read({ kind: 'summary' }).catch(thrown => thrown)
  expect(error).toBeInstanceOf(LeaseError)
  expect(error).toMatchObject({ code: 'LIMIT', reason: 'low-tide', message: 'too much' })
  expect((error as LeaseError).facts).toEqual({ depth: 3 })
})

test('RESP and HTTP send the reason and the facts of a refusal beside its sentence', async () => {
  await using here = await place()
  using raw = new Raw(here.port)
  await raw.ask('LEASE.ACQUIRE', 'k', 'TTL', 5_000, 'HOLDER', 'ann')
  const refused = parseRespError(((await raw.ask('LEASE.ACQUIRE', 'k', 'TTL', 5_000, 'HOLDER', 'bob')) as ReplyError).message)
  expect(refused).toMatchObject({ code: 'HELD', rest: { reason: 'held', resource: 'k', holder: 'ann' } })
  expect(refused.message).toMatch(/k is held by ann/)
})

test('a batch carries no sentence of a refusal, and a reason that this client does not know ends no connection', () => {
  const passed = (message: ServerMessage): { readonly bytes: string; readonly read: ServerMessage } => {
    const writer = new Writer()
    writeServerMessage(writer, message)
    const read = readServerMessage(new Reader(Uint8Array.from(writer.view())))
    return { bytes: Buffer.from(writer.view()).toString('utf8'), read }
  }
  const gone = { kind: 'refused', revision: 9, code: 'GONE', reason: 'gone', facts: { lease: 7 } } as const
  const known = passed({ kind: 'outcome', id: 1, outcome: gone })
  expect(known.read).toEqual({ kind: 'outcome', id: 1, outcome: gone })
  expect(known.bytes).not.toContain('has ended')
  const failed = passed({ kind: 'failed', id: 2, error: refusedError(gone) })
  expect(failed.bytes).not.toContain('has ended')
  expect(failed.read).toMatchObject({ error: { code: 'GONE', reason: 'gone', message: refusedError(gone).message } })
  const later = passed({ kind: 'outcome', id: 3, outcome: { ...gone, reason: 'low-tide' as never, facts: { depth: 3 } } })
  if (later.read.kind !== 'outcome' || later.read.outcome.kind !== 'refused') throw new Error('not a refusal')
  expect(refusedError(later.read.outcome)).toMatchObject({ code: 'GONE', reason: 'low-tide', message: 'refused (GONE, low-tide): depth 3' })
  const odd = passed({ kind: 'outcome', id: 4, outcome: { ...gone, code: 'TIDE' as never } })
  expect(odd.read).toMatchObject({ kind: 'failed', id: 4, error: { code: 'UNKNOWN', reason: 'gone' } })
})
