import { setMaxListeners } from 'node:events'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { GuardedLessor } from '../../../src/server/guarded-lessor.ts'
import { HttpFailure } from '../../../src/server/http/failure.ts'
import { HttpHandler } from '../../../src/server/http/handler.ts'
import type { HttpRequest, HttpResponse } from '../../../src/server/http/route.ts'
import { ROUTES } from '../../../src/server/http/routes.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import type { ListenerContext } from '../../../src/server/listener.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { world } from '../../support/http-world.ts'
import { runs, searchSeed } from '../../support/runs.ts'

Error.stackTraceLimit = 1 // a sixth of the time would go into stacks of errors that are expected

const INPUTS = runs(300_000)
const OPERATOR = 'the-operators-own-secret'
const BATCH = 1_000

interface Input {
  method: string
  target: string
  headers: Record<string, string>
  body: string | undefined
}

const json = { 'content-type': 'application/json', host: 'localhost', authorization: `Bearer ${OPERATOR}` }
const CORPUS: readonly Input[] = [
  ...[
    ['POST', '/v1/leases', '{"resources":["a/b"],"holder":"ann","ttl":"30s","labels":{"x":"y"},"op":"1"}'],
    ['POST', '/v1/leases', '{"resources":["a","b"],"holder":"bob","ttl":5000,"wait":"1s","units":1,"mode":"shared","priority":3,"any":1}'],
    ['POST', '/v1/leases', '{"resources":[],"holder":"eve","entries":[{"key":"services/x/y","value":"{}"}],"maxLife":"1h","grace":10}'],
    ['POST', '/v1/leases/renew', '{"leases":[1,2,3]}'],
    ['POST', '/v1/leases/12/renew', undefined],
    ['DELETE', '/v1/leases/12?resource=a&op=x', undefined],
    ['GET', '/v1/leases?holder=ann&prefix=a&limit=10&consistent=true', undefined],
    ['GET', '/v1/resources/a%2Fb/c?consistent=false', undefined],
    ['GET', '/v1/history/a', undefined],
    ['POST', '/v1/break', '{"resource":"a","after":"10s","by":"ops"}'],
    ['POST', '/v1/revoke', '{"holder":"ann","force":true}'],
    ['POST', '/v1/transfer', '{"lease":1,"to":"bob","stopped":true}'],
    ['POST', '/v1/fence', '{"resource":"a","token":170000000000001}'],
    ['PUT', '/v1/policies/a', '{"ttlMax":"1h","capacity":3,"queue":"fit","quota":5}'],
    ['PUT', '/v1/entries/services/a', '{"lease":170000000000001,"value":"x"}'],
    ['DELETE', '/v1/entries/services/a?lease=4', undefined],
    ['POST', '/v1/keys', '{"name":"ci","allow":[{"verb":"read","prefix":"a"}]}'],
    ['DELETE', '/v1/keys/3', undefined],
    ['GET', '/v1/watch?prefix=a&after=5&types=granted,released', undefined],
    [
      'POST',
      '/v1/propose',
      '{"proposals":[{"command":{"kind":"acquire","holder":"x","ttl":1000,"wants":[{"resource":"q"}]},"op":{"session":"s","seq":1,"acked":0}}]}',
    ],
    ['POST', '/v1/propose', `{"proposals":[${'['.repeat(15)}1${']'.repeat(15)}]}`],
    ['POST', '/v1/read', '{"query":{"kind":"resources","prefix":"a"},"consistent":true,"atLeast":3}'],
    ['GET', '/healthz', undefined],
    ['GET', '/', undefined],
    ['OPTIONS', '*', undefined],
    ['GET', 'http://localhost/v1/leases', undefined],
  ].map(([method, target, body]) => ({ method: method!, target: target!, headers: { ...json }, body })),
]

const WORDS = [
  ...['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'null', 'true', '[]', '{}', '""', '-1', '1e400', '-0', '0.1'],
  ...[
    '9007199254740993',
    '1e21',
    'NaN',
    '\\u0000',
    '\\ud800',
    '\u0000',
    '\ud800',
    '\u202e',
    '%',
    '%00',
    '%ff',
    '%2e%2e',
    '%252f',
    '../',
    '//',
    '?',
    '#',
  ],
  ...[
    '&',
    '=',
    ';',
    ',',
    ':',
    '"',
    "'",
    '\\',
    '/',
    '\n',
    '\r\n',
    '\r\n\r\n',
    'x'.repeat(600),
    'é'.repeat(300),
    '['.repeat(40),
    '{"a":'.repeat(20),
  ],
  ...[
    '30s',
    '1d1d1d',
    '99999999999999999999d',
    'Infinity',
    '0x10',
    '{"kind":"generation"}',
    '{"kind":"due"}',
    'data: x\n\n',
    ']]>',
    '<script>',
  ],
  ...ROUTES.map(({ path }) => path),
]
const HEADERS = [
  'content-type',
  'content-length',
  'host',
  'origin',
  'authorization',
  'last-event-id',
  'leasehold-revision',
  'sec-fetch-site',
  'accept',
]

/** A small, fast random generator with a seed. */
function chance(seed: number): (below: number) => number {
  let state = seed >>> 0 || 1
  return below => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}

function mutated(text: string, dice: (below: number) => number): string {
  for (let times = 1 + dice(3); times > 0; times--) {
    const at = dice(text.length + 1)
    const to = Math.min(text.length, at + dice(12))
    switch (dice(6)) {
      case 0:
        text = text.slice(0, at) + WORDS[dice(WORDS.length)] + text.slice(at)
        break
      case 1:
        text = text.slice(0, at) + text.slice(to)
        break
      case 2:
        text = text.slice(0, at) + WORDS[dice(WORDS.length)] + text.slice(to)
        break
      case 3:
        text = text.slice(0, at) + String.fromCharCode(dice(8) === 0 ? dice(0x10000) : dice(256)) + text.slice(at + 1)
        break
      case 4:
        text = text.slice(0, at) + text.slice(dice(at + 1), at) + text.slice(at)
        break
      default:
        text = text.slice(0, at)
    }
  }
  return text.slice(0, 4_000)
}

function mutate(dice: (below: number) => number): Input {
  const seed = CORPUS[dice(CORPUS.length)]!
  const input: Input = { ...seed, headers: { ...seed.headers } }
  const what = dice(10)
  if (what < 5 && input.body !== undefined) input.body = mutated(input.body, dice)
  else if (what < 8) input.target = mutated(input.target, dice)
  else if (what === 8) {
    const name = HEADERS[dice(HEADERS.length)]!
    input.headers[name] = mutated(input.headers[name] ?? '', dice)
  } else {
    input.method = ['GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'PATCH', 'TRACE', 'X'][dice(8)]!
    input.body = dice(2) === 0 ? undefined : mutated(CORPUS[dice(CORPUS.length)]!.body ?? '{}', dice)
  }
  return input
}

test(`${INPUTS} mutated requests get coded answers, cause no internal error, and reach no JavaScript objects`, async () => {
  const before = Object.getOwnPropertyNames(Object.prototype).sort()
  const clock = new ManualClock()
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const guarded = await GuardedLessor.open({ lessor, clock, operator: OPERATOR })
  const mistakes: string[] = []
  const log = { debug() {}, info() {}, warn() {}, error: (facts: object) => mistakes.push(JSON.stringify(facts)) }
  const closing = new AbortController()
  setMaxListeners(0, closing.signal)
  const context: ListenerContext = {
    guarded,
    clock,
    limits: DEFAULT_LIMITS,
    log,
    figures: () => ({}),
    closing: closing.signal,
    connections: () => 1,
  }
  const handler = new HttpHandler(context)
  const dice = chance(searchSeed(20_261_115))
  const statuses = new Map<number, number>()
  for (let done = 0; done < INPUTS; done += BATCH) {
    const left = new AbortController()
    setMaxListeners(0, left.signal)
    const connection = {}
    const asked: Promise<void>[] = []
    for (let i = 0; i < BATCH; i++) {
      const input = mutate(dice)
      asked.push(
        handler.handle(asking(input, left.signal, connection)).then(answer => {
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
          judge(input, answer)
        }),
      )
    }
    await turn()
    await turn()
    left.abort(new HttpFailure('UNAVAILABLE', 'the client has disconnected'))
    await Promise.all(asked)
    // Time passes, so that leases lapse and do not pile up.
    if (done % (BATCH * 10) === 0) await clock.advance(3_600_000)
  }
  expect(mistakes).toEqual([])
  expect(Object.getOwnPropertyNames(Object.prototype).sort()).toEqual(before)
  // Not everything was refused by the first check: every kind of answer has been seen.
  for (const status of [200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 415, 421])
    expect([status, statuses.get(status) ?? 0]).toEqual([status, expect.toSatisfy((count: number) => count > 0)])
  await guarded[Symbol.asyncDispose]()
  await lessor[Symbol.asyncDispose]()
})

function asking({ method, target, headers, body }: Input, gone: AbortSignal, connection: object): HttpRequest {
  return {
    method,
    target,
    header: name => headers[name],
    hasBody: body !== undefined && body !== '',
    body: async most => {
      if (Buffer.byteLength(body!) > most) throw new HttpFailure('TOO_LARGE', 'too large')
      return body!
    },
    gone: () => gone,
    connection,
  }
}

function judge(input: Input, { status, code, headers = {}, body }: HttpResponse): void {
  const described = () => JSON.stringify({ input, status, code, body: String(body).slice(0, 200) })
  if (status === 500) throw new Error(`an internal error: ${described()}`)
  if (status >= 400) {
    const { error } = JSON.parse(body as string)
    if (error.code !== code || typeof error.message !== 'string' || error.message === '') throw new Error(`no coded answer: ${described()}`)
  }
  for (const value of Object.values(headers)) if (/[\r\n\0]/.test(value)) throw new Error(`a header that could be two: ${described()}`)
  if (typeof body === 'object' && !(body instanceof Uint8Array)) void body[Symbol.asyncIterator]().return?.()
}

test('mutated bytes on real connections get an answer or a closed connection, and the next connection is served', async () => {
  await using here = await world()
  const dice = chance(7)
  const texts = CORPUS.map(({ method, target, headers, body = '' }) => {
    const lines = Object.entries({ ...headers, 'content-length': String(body.length) }).map(([name, value]) => `${name}: ${value}\r\n`)
    return `${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
  })
  const one = () =>
    new Promise<void>(resolve => {
      const socket = connect(here.port, '127.0.0.1')
      socket.on('error', () => {})
      socket.on('data', () => {})
      socket.on('close', () => resolve())
      socket.write(Buffer.from(mutated(texts[dice(texts.length)]!, dice), 'latin1'))
      // Half of the clients hang up, half are cut off in the middle.
      if (dice(2) === 0) socket.end()
      else setImmediate(() => setImmediate(() => socket.destroy()))
    })
  for (let i = 0; i < 60; i++) await Promise.all(Array.from({ length: 25 }, one))
  const { status } = await here.ask('GET', '/healthz')
  expect(status).toBe(200)
})
