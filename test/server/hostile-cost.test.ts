/**
 * The cost of requests with only wrong parts, or too many parts: the longest turn of the event loop, over every route and every command, with the largest
 * bodies that the limits allow. During one turn, no other client can renew.
 *
 * CallerTurns are measured in CPU time of this process and compared with a reference loop that is measured beside them, so a busy machine makes both longer. The
 * bound is wide: it finds work that grows with the bad parts of a body, which takes seconds, and not a slow line. To print figures: HOSTILE=1 npx vitest run …
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { systemClock, turn } from '../../src/clock.ts'
import { Writer } from '../../src/kernel/codec/bytes.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { GuardedLessor } from '../../src/server/guarded-lessor.ts'
import { parseBody } from '../../src/server/http/body.ts'
import { HttpFailure } from '../../src/server/http/failure.ts'
import { HttpHandler } from '../../src/server/http/handler.ts'
import { parseJson } from '../../src/server/http/parse.ts'
import type { HttpRequest, HttpResponse, Route } from '../../src/server/http/route.ts'
import { ROUTES } from '../../src/server/http/routes.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import type { ListenerContext } from '../../src/server/listener.ts'
import { COMMANDS } from '../../src/server/resp/commands.ts'
import { RespListener } from '../../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { type ClientMessage, MESSAGES_VERSION, writeClientMessage } from '../../src/wire/messages.ts'
import { command } from '../support/resp-place.ts'

const REPORT = process.env.HOSTILE !== undefined
const limits = DEFAULT_LIMITS
/** Registrations and leases in the state. */
const THERE = 2_000
const POOR = 'poor-key'
const RICH = 'rich-key'

let context: ListenerContext
let handler: HttpHandler
let lessor: Replica

beforeAll(async () => {
  lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock: systemClock }), clock: systemClock }), { clock: systemClock })
  const guarded = await GuardedLessor.open({ lessor, clock: systemClock })
  await propose(lessor, { kind: 'key', name: 'rich', hash: hashSecret(RICH), allow: [{ verb: 'admin', prefix: '' }] })
  await propose(lessor, { kind: 'key', name: 'poor', hash: hashSecret(POOR), allow: [{ verb: 'acquire', prefix: 'nothing' }] })
  await guarded.access.reloadKeys()
  const each = Array.from({ length: THERE }, (_, i) => i)
  const entries = (i: number) => [{ key: `services/s/i${i}`, value: JSON.stringify({ addresses: ['http://10.0.0.7:8080'] }) }]
  for (const i of each) {
    await propose(lessor, { kind: 'acquire', holder: 'h', ttl: 3_600_000, wants: [{ resource: `there/${i}` }] })
    await propose(lessor, { kind: 'acquire', holder: `s/i${i}`, ttl: 3_600_000, wants: [], entries: entries(i) })
  }
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const closing = new AbortController().signal
  context = { guarded, clock: systemClock, limits, log, figures: () => ({}), closing, connections: () => 1 }
  handler = new HttpHandler(context)
})

afterAll(async () => {
  await context.guarded[Symbol.asyncDispose]()
  await lessor[Symbol.asyncDispose]()
})

/** The longest turn during `work`, in ms of CPU time. */
async function longestTurn(work: () => Promise<void>): Promise<number> {
  let longest = 0
  let over = false
  let last = process.cpuUsage()
  const measure = () => {
    const { user, system } = process.cpuUsage(last)
    longest = Math.max(longest, (user + system) / 1_000)
    last = process.cpuUsage()
  }
  const watching = (async () => {
    while (!over) {
      await turn()
      measure()
    }
  })()
  await turn()
  last = process.cpuUsage()
  await work()
  over = true
  await watching
  return longest
}

/** The time of the reference loop on this machine, about 4 ms when idle: the median of several runs, in ms of CPU time. */
function unit(): number {
  const text = JSON.stringify(Array.from({ length: 20_000 }, (_, i) => ({ a: i, b: `name ${i}` })))
  const took = Array.from({ length: 9 }, () => {
    const before = process.cpuUsage()
    JSON.parse(text)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1_000
  })
  return Math.max(2, took.sort((a, b) => a - b)[4]!)
}

/** Maximum units of one turn: about 200 ms on an idle machine. Before the bounds, turns took 600 units and more. */
const MAX_UNITS = 50

class Judge {
  readonly #unit = unit()
  readonly #found: { readonly what: string; readonly ms: number }[] = []

  async measure(what: string, work: () => Promise<void>): Promise<void> {
    // Repeated if it looks slow: a garbage collection falls into some turn.
    let ms = await longestTurn(work)
    for (let again = 0; again < 2 && ms > this.#unit * MAX_UNITS; again++) ms = Math.min(ms, await longestTurn(work))
    this.#found.push({ what, ms })
  }

  verdict(): void {
    const worst = this.#found.sort((a, b) => b.ms - a.ms).slice(0, 12)
    if (REPORT)
      console.log(
        `unit ${this.#unit.toFixed(1)} ms of ${this.#found.length}\n${worst.map(({ what, ms }) => `${ms.toFixed(0)} ms ${what}`).join('\n')}`,
      )
    expect(worst.filter(({ ms }) => ms > this.#unit * MAX_UNITS)).toEqual([])
  }
}

// HTTP

function ask(route: Route, body: string | undefined, key: string): HttpRequest {
  const headers: Record<string, string> = {
    host: 'localhost',
    authorization: `Bearer ${key}`,
    ...(body !== undefined && { 'content-type': 'application/json' }),
  }
  return {
    method: route.method,
    target: route.path.replace('{id}', '1').replace(/\{\w+\}/, 's/i1'),
    header: name => headers[name],
    hasBody: body !== undefined,
    body: most => (Buffer.byteLength(body!) > most ? Promise.reject(new HttpFailure('TOO_LARGE', 'too large')) : Promise.resolve(body!)),
    gone: () => new AbortController().signal,
    connection: {},
  }
}

/** Repeats a text, separated by commas, up to the size. */
function filled(room: number, item: string): string {
  return `${`${item},`.repeat(Math.max(0, Math.floor((room - item.length) / (item.length + 1))))}${item}`
}

/** As `filled`, but each repetition differs. */
function counted(room: number, item: (i: number) => string): string {
  const items: string[] = []
  for (let i = 0, length = 0; length < room; i++) {
    items.push(item(i))
    length += items[i]!.length + 1
  }
  return items.slice(0, -1).join(',')
}

/** Values that are bad in many ways, of about this many characters. */
function hostile(room: number): readonly (readonly [string, string])[] {
  return [
    ['numbers', `[${filled(room - 2, '11')}]`],
    ['nothings', `[${filled(room - 2, 'null')}]`],
    ['lists', `[${filled(room - 2, '[]')}]`],
    ['nests', `[${filled(room - 2, '[[[[[[[[[[1]]]]]]]]]]')}]`],
    ['objects', `[${filled(room - 2, '{}')}]`],
    ['small objects', `[${filled(room - 2, '{"a":1,"b":{}}')}]`],
    ['texts', `[${filled(room - 2, '""')}]`],
    ['names', `[${counted(room - 2, i => `"n${i}"`)}]`],
    ['bad names', `[${filled(room - 2, '"/a//b"')}]`],
    ['instances', `[${counted(room - 2, i => `{"service":"s","instance":"i${i}","load":${i + 1}}`)}]`],
    ['ten thousand instances', `[${counted(Math.min(room - 2, 600_000), i => `{"service":"s","instance":"i${i}","load":${i + 1}}`)}]`],
    ['bad instances', `[${filled(room - 2, '{"service":"/","instance":"/"}')}]`],
    ['fields', `{${counted(room - 2, i => `"f${i}":1`)}}`],
    ['fields of objects', `{${counted(room - 2, i => `"f${i}":{}`)}}`],
    ['one text', `"${'x'.repeat(room - 2)}"`],
    ['escapes', `"${'\\"'.repeat((room - 2) / 2)}"`],
    ['backslashes', `"${'\\\\'.repeat((room - 2) / 2)}"`],
    ['proposals', `[${filled(room - 2, '{"command":{"kind":"release","lease":1}}')}]`],
    [
      'a thousand proposals',
      `[${Array.from(
        { length: 1_000 },
        (_, i) =>
          `{"command":{"kind":"acquire","holder":"h","ttl":5000,"wants":[${filled(Math.max(20, room / 1_100 - 80), `{"resource":"r${i}"}`)}]}}`,
      )
        .join(',')
        .slice(0, room)}]`,
    ],
    ['a renewal of everything', `[{"command":{"kind":"renew","leases":[${filled(room - 60, '7')}]}}]`],
    ['broken off', `[${filled(room - 2, '[{"a":')}`],
  ]
}

/** For each field of the route's schema, bodies with every hostile value in it. Also each value alone. */
function* bodies(route: Route): Generator<readonly [string, string]> {
  const room = (route.maxBodyBytes?.(context) ?? limits.body) - 256
  const { properties = {}, required = [] } = route.body as { properties?: Record<string, object>; required?: string[] }
  const values = hostile(room)
  for (const [name, value] of values) yield [name, value]
  for (const field of Object.keys(properties)) {
    const others = required
      .filter(other => other !== field)
      .map(other => `"${other}":${other === 'lease' || other === 'token' ? 1 : '"x"'},`)
    // If all bodies are small, an error costs the same in every field.
    const some = room > 1 << 17 ? values : values.filter(([name]) => FEW.includes(name))
    for (const [name, value] of some) yield [`${field}: ${name}`, `{${others.join('')}"${field}":${value}}`]
  }
}

const FEW = ['numbers', 'nests', 'names', 'fields', 'escapes']

describe('no turn of the event loop grows with the bad parts of', () => {
  test('a body, on any route', { timeout: 600_000 }, async () => {
    const judge = new Judge()
    for (const route of ROUTES) {
      if (route.body === undefined) continue
      for (const [name, body] of bodies(route))
        for (const key of route.maxBodyBytes === undefined ? [RICH] : [POOR, RICH])
          await judge.measure(`${route.method} ${route.path} ${name} (${key})`, async () => {
            await drained((await handler.handle(ask(route, body, key))).body)
          })
    }
    judge.verdict()
  })

  test('a query string, on any route', { timeout: 600_000 }, async () => {
    const judge = new Judge()
    const words = [
      'a,'.repeat(6_000),
      'a&'.repeat(6_000),
      '%'.repeat(12_000),
      'x=1&'.repeat(3_000),
      '/'.repeat(12_000),
      `${'%41'.repeat(4_000)}`,
    ]
    for (const route of ROUTES) {
      if (route.path === '/v1/watch' || route.path === '/v1/backup') continue
      const names = Object.keys((route.query as { properties?: object } | undefined)?.properties ?? {})
      for (const word of words)
        for (const name of ['x', ...names]) {
          const asked = { ...ask(route, undefined, RICH) }
          const target = `${asked.target}?${name}=${word}`
          await judge.measure(`${route.method} ${route.path}?${name}=${word.slice(0, 4)}…`, async () => {
            await drained((await handler.handle({ ...asked, target })).body)
          })
        }
    }
    judge.verdict()
  })

  test('a RESP command, of any kind', { timeout: 600_000 }, async () => {
    const judge = new Judge()
    for (const { name, arity, example } of COMMANDS.values()) {
      if (name === 'LEASE.BATCH') continue
      for (const [kind, bytes] of hostileCommands(name, arity, example))
        await judge.measure(`${name} ${kind}`, () => sendAndWait(RICH, bytes))
    }
    judge.verdict()
  })

  test('a batch of our own client', { timeout: 600_000 }, async () => {
    const judge = new Judge()
    const big = JSON.stringify({ kind: 'leases', within: Array.from({ length: 7_000 }, (_, i) => `p${i}`) })
    const questions: Readonly<Record<string, ClientMessage>> = {
      beat: { kind: 'beat', id: 1 },
      stop: { kind: 'stop', id: 1 },
      release: { kind: 'propose', id: 1, proposal: { command: { kind: 'release', lease: 1 } } },
      renew: { kind: 'propose', id: 1, proposal: { command: { kind: 'renew', leases: [1, 2, 3] } } },
      acquire: { kind: 'propose', id: 1, proposal: { command: { kind: 'acquire', holder: 'h', ttl: 1, wants: [{ resource: '//' }] } } },
      read: { kind: 'read', id: 1, consistent: false, atLeast: 0, query: { kind: 'lease', lease: 1 } },
      'bad read': { kind: 'read', id: 1, consistent: false, atLeast: 0, query: { kind: 'x' } },
      'large read': { kind: 'read', id: 1, consistent: false, atLeast: 0, query: JSON.parse(big) },
      'huge read': {
        kind: 'read',
        id: 1,
        consistent: false,
        atLeast: 0,
        query: { kind: 'leases', within: Array.from({ length: 600_000 }, () => 'a') },
      },
      watch: { kind: 'watch', id: 1, prefix: 'nothing' },
      'watch of many types': {
        kind: 'watch',
        id: 1,
        prefix: 'nothing',
        types: Array.from({ length: 1_000_000 }, () => 'granted' as const),
      },
      backup: { kind: 'backup', id: 1, follow: false },
    }
    for (const [kind, question] of Object.entries(questions)) {
      const one = new Writer()
      writeClientMessage(one, question)
      const bytes = Buffer.from(one.view())
      // A part of the limit, over many turns: the cost grows with the number of turns, not with their length.
      const times = Math.max(1, Math.floor(limits.command / 8 / bytes.length))
      const batch = Buffer.alloc(bytes.length * times, bytes)
      for (const key of [POOR, RICH])
        await judge.measure(`${times} × ${kind} (${key})`, () =>
          sendAndWait(key, Buffer.concat([command('HELLO', 3, 'MESSAGES', MESSAGES_VERSION), command('LEASE.BATCH', batch)])),
        )
    }
    judge.verdict()
  })
})

async function drained(body: HttpResponse['body']): Promise<void> {
  if (typeof body === 'object' && !(body instanceof Uint8Array)) for await (const _ of body);
}

/** Commands with the maximum number of arguments: `word` repeated after the start of a valid command. */
function* hostileCommands(name: string, arity: number, example: readonly string[]): Generator<readonly [string, Buffer]> {
  const most = arity >= 0 ? arity - 1 : 65_535
  const begun = (lead: readonly string[], word: string, count = most - lead.length) =>
    Buffer.from(
      `*${1 + lead.length + count}\r\n${[name, ...lead].map(bulk).join('')}${count > 0 ? bulk(word).repeat(count) : ''}`.slice(
        0,
        limits.command,
      ),
    )
  for (const word of new Set([...example.slice(-1), 'OP', 'LABEL', 'granted', 'acquire', '7', '//']))
    for (const lead of new Set([0, example.length]))
      yield [`${example.slice(0, lead).join(' ')} ${most} × ${word}`, begun(example.slice(0, lead), word)]
  const room = Math.floor((limits.command - 4_096) / Math.max(1, Math.min(most, 8)))
  if (most > 0) yield ['large words', begun([], 'x'.repeat(room), Math.min(most, 8))]
  if (name === 'LEASE.KEY') yield ['many verbs', begun(['CREATE', 'k', 'ALLOW'], 'acquire,'.repeat(500_000), 1)]
  if (name === 'LEASE.KEY') yield ['many scopes', begun(['CREATE', 'k', 'ALLOW'], 'acquire')]
  if (name === 'COMMAND') yield ['documented', begun(['DOCS'], 'LEASE.ACQUIRE')]
  if (name === 'COMMAND') yield ['described', begun(['INFO'], 'LEASE.ACQUIRE')]
  if (name === 'LEASE.WATCH') yield ['many types', begun(['nothing', 'TYPES'], 'granted')]
  if (name === 'LEASE.POLICY') yield ['many rules', begun(['SET', 'p'], 'capacity')]
}

function bulk(word: string): string {
  return `$${Buffer.byteLength(word)}\r\n${word}\r\n`
}

/** Sends the bytes over a connection that reads everything, and waits for the reply. */
async function sendAndWait(key: string, bytes: Buffer): Promise<void> {
  const listener = new RespListener(context)
  let kept = 0
  const session = listener.open('1.2.3.4:5', end => ({
    write: written => {
      kept += written.length
    },
    backlog: 0,
    pause() {},
    resume() {},
    end: () => end.closed(),
    destroy: () => end.closed(),
  }))
  session.data(command('AUTH', key))
  for (let at = 0; at < bytes.length; at += 65_536) {
    session.data(bytes.subarray(at, at + 65_536))
    await turn()
  }
  for (let quiet = 0; quiet < 3; quiet++) {
    const before = kept
    await turn()
    if (kept !== before || session.hasPendingReplies) quiet = -1
  }
  session.destroy()
}

test('a body that is parsed in several turns has the same value, or is refused for the same reason', async () => {
  const pad = ' '.repeat(70_000)
  const right = [
    '{"a":[1,2,3],"b":"x"}',
    '{"a":[ ]}',
    '{"a":[{"b":[1,{"c":"\\"],["}]},"]",[]],"d":[null],"e":{"f":[1]}}',
    '{"a":"[1,2","b":["\\\\"]}',
  ]
  for (const text of right) expect(await parseBody(text + pad, { depth: 16, items: 9 })).toEqual(parseJson(text, 16))
  const wrong = [
    '{"a":[1,]}',
    '{"a":[,1]}',
    '{"a":[1 2]}',
    '{"a":[1,2}',
    '{"a":[1,2]',
    '{"a":[1],"a":[2]}',
    '{"a":[{"b":1,"b":2}]}',
    '{"a":["x]}',
    '{"__proto__":[1]}',
    '{"a":[{"constructor":1}]}',
    '[[1],[2]]',
  ]
  for (const text of wrong) await expect(parseBody(text + pad, { depth: 16, items: 9 }), text).rejects.toMatchObject({ code: 'INVALID' })
  await expect(parseBody(`{"a":[1,2,3]}${pad}`, { depth: 16, items: 2 })).rejects.toMatchObject({ code: 'LIMIT', facts: { limit: 2 } })
  await expect(parseBody(`{"a":[[[[1]]]]}${pad}`, { depth: 4, items: 2 })).rejects.toMatchObject({ code: 'TOO_LARGE' })
})
