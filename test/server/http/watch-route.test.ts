import { get, type IncomingMessage } from 'node:http'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import type { Acquire } from '../../../src/kernel/command.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { HttpLessor } from '../../../src/wire/http/client.ts'
import { type World, world } from '../../support/http-world.ts'

const acquire = (holder: string, names: readonly string[], more: Partial<Acquire> = {}): Acquire => ({
  kind: 'acquire',
  holder,
  ttl: 600_000,
  wants: names.map(resource => ({ resource })),
  ...more,
})

interface Block {
  readonly id?: string
  readonly event?: string
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  readonly data?: any
}

/** Parses the bytes as a browser does: blocks with their fields, without comments. */
class Stream {
  readonly reply: IncomingMessage
  readonly blocks: Block[] = []
  text = ''
  ended = false
  #rest = ''

  constructor(reply: IncomingMessage) {
    this.reply = reply
    reply.setEncoding('utf8')
    reply.on('data', (text: string) => this.#take(text))
    reply.on('close', () => (this.ended = true))
    reply.on('error', () => {})
  }

  static async open(here: World, query: string, headers: Record<string, string> = {}): Promise<Stream> {
    const reply = await new Promise<IncomingMessage>((resolve, reject) =>
      get({ port: here.port, path: `/v1/watch?${query}`, headers, agent: false }, resolve).on('error', reject),
    )
    return new Stream(reply)
  }

  #take(text: string): void {
    this.text += text
    this.#rest += text
    for (let end = this.#rest.indexOf('\n\n'); end >= 0; end = this.#rest.indexOf('\n\n')) {
      const block: Record<string, string> = {}
      for (const line of this.#rest.slice(0, end).split(/\r\n|\n|\r/)) {
        const colon = line.indexOf(':')
        if (colon > 0) block[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '')
      }
      this.#rest = this.#rest.slice(end + 2)
      if (block.data !== undefined) this.blocks.push({ ...block, data: JSON.parse(block.data) })
    }
  }

  async until(is: (stream: Stream) => boolean): Promise<this> {
    while (!is(this)) await turn()
    return this
  }

  [Symbol.dispose](): void {
    this.reply.destroy()
  }
}

test('a watch reports each change with its revision, its type and its resource', async () => {
  await using here = await world()
  using stream = await Stream.open(here, 'prefix=jobs')
  expect(stream.reply.headers['content-type']).toBe('text/event-stream; charset=utf-8')
  await propose(here.lessor, acquire('eve', ['other']))
  const granted = await propose(here.lessor, acquire('ann', ['jobs/a']))
  await stream.until(({ blocks }) => blocks.length === 1)
  expect(stream.blocks[0]).toEqual({
    id: String(granted.revision),
    event: 'granted',
    data: {
      revision: granted.revision,
      type: 'granted',
      lease: (granted as { lease: number }).lease,
      holder: 'ann',
      resource: 'jobs/a',
      token: (granted as { tokens: readonly number[] }).tokens[0],
      at: expect.any(Number),
    },
  })
})

test('a watch resumes from Last-Event-ID without a gap, and repeats a revision as a whole that was seen in part', async () => {
  await using here = await world()
  const { revision } = await propose(here.lessor, acquire('x', ['x']))
  const first = (await propose(here.lessor, acquire('ann', ['a', 'b', 'c']))) as { lease: number; revision: number }
  await propose(here.lessor, { kind: 'release', lease: first.lease })
  using all = await Stream.open(here, `after=${revision}`)
  await all.until(({ blocks }) => blocks.length === 6)
  expect(all.blocks.map(({ id }) => id)).toEqual(
    [revision, revision, first.revision, first.revision, first.revision, first.revision + 1].map(String),
  )
  for (const [seen, { id }] of all.blocks.entries()) {
    using resumed = await Stream.open(here, `after=${revision}`, { 'last-event-id': id! })
    const whole = seen + 1 - ((seen + 1) % 3)
    await resumed.until(({ blocks }) => blocks.length >= 6 - whole)
    expect(resumed.blocks).toEqual(all.blocks.slice(whole))
  }
  // The ids of older versions.
  using old = await Stream.open(here, '', { 'last-event-id': `${first.revision + 1}:1` })
  await old.until(({ blocks }) => blocks.length >= 3)
  expect(old.blocks).toEqual(all.blocks.slice(3))
  expect((await here.ask('GET', '/v1/watch', undefined, { 'last-event-id': '1;2' })).status).toBe(400)
  expect((await here.ask('GET', '/v1/watch?types=granted,flown')).status).toBe(400)
})

test('a client that was cut off before the first event knows where to resume', async () => {
  await using here = await world()
  const { revision } = await propose(here.lessor, acquire('x', ['x']))
  using stream = await Stream.open(here, '')
  await stream.until(({ text }) => text.includes('\n\n'))
  expect(stream.text).toContain(`id: ${revision}\n`)
  expect(stream.blocks).toEqual([])
})

test('a watch gets a resync where events are no longer kept, and continues from there', async () => {
  await using here = await world({ events: 20 })
  const { revision } = await propose(here.lessor, acquire('x', ['x']))
  for (let i = 0; i < 40; i++) await propose(here.lessor, acquire('x', [`x/${i}`]))
  using stream = await Stream.open(here, `after=${revision}`)
  await stream.until(({ blocks }) => blocks.length === 1)
  expect(stream.blocks[0]).toMatchObject({ event: 'resync', id: String(revision + 40) })
  await propose(here.lessor, acquire('x', ['y']))
  await stream.until(({ blocks }) => blocks.length === 2)
  expect(stream.blocks[1]).toMatchObject({ event: 'granted', id: String(revision + 41) })
})

test('no name or value of a client can forge an event', async () => {
  await using here = await world()
  using stream = await Stream.open(here, '')
  const evil = [
    'a\n\nevent: forged\ndata: {}\n\n',
    'a\r\rdata: x\r\r',
    'a\u2028\u2029data: {}',
    '\nid: 0',
    ': x',
    'data: {"type":"forged"}',
  ]
  const { lease, revision } = (await propose(here.lessor, acquire('ann', []))) as { lease: number; revision: number }
  for (const value of evil) await propose(here.lessor, { kind: 'put', lease, key: 'k', value })
  await stream.until(({ blocks }) => blocks.length === evil.length + 1)
  expect(stream.blocks.slice(1).map(({ event, data }) => [event, data.value])).toEqual(evil.map(value => ['put', value]))
  expect(stream.blocks.map(({ id }) => Number(id))).toEqual(evil.concat('').map((_, i) => revision + i))
})

test('a watch without events sends comments', async () => {
  await using here = await world()
  using stream = await Stream.open(here, '')
  await stream.until(({ text }) => text.includes('from revision'))
  await turn()
  await here.clock.advance(15_000)
  await stream.until(({ text }) => text.includes(': still here\n\n'))
})

test('clients that do not read use little memory, get a resync, and are disconnected in the end', async () => {
  await using here = await world({ events: 1_000, limits: { ...DEFAULT_LIMITS, drainTime: 1_000 } })
  const readers = await Promise.all(Array.from({ length: 10 }, () => Stream.open(here, '')))
  for (const { reply } of readers) reply.pause()
  const { lease } = (await propose(here.lessor, acquire('ann', []))) as { lease: number }
  const pour = async (count: number) => {
    for (let i = 0; i < count; i += 100)
      await Promise.all(Array.from({ length: 100 }, () => propose(here.lessor, { kind: 'put', lease, key: 'k', value: 'x'.repeat(8_000) })))
  }
  await pour(1_500)
  const before = process.memoryUsage().rss
  await pour(3_500)
  // 3,500 events of 8 kB for 10 clients: 280 MB if they were buffered. The log itself takes 28 MB.
  expect(process.memoryUsage().rss - before).toBeLessThan(120 << 20)
  expect(here.server.guarded.watches).toBe(10)
  const [patient, ...stalled] = readers as [Stream, ...Stream[]]
  patient.reply.resume()
  await patient.until(({ blocks }) => blocks.at(-1)?.event === 'resync')
  await here.clock.advance(1_001)
  while (here.server.guarded.watches > 1) await turn()
  expect(patient.ended).toBe(false)
  for (const stream of [patient, ...stalled]) stream[Symbol.dispose]()
})

test('a HEAD request for a watch gets the header, and leaves no watch open', async () => {
  await using here = await world()
  expect(await here.ask('HEAD', '/v1/watch')).toMatchObject({ status: 200, text: '' })
  expect((await here.ask('GET', '/healthz')).status).toBe(200)
  while (here.server.guarded.watches > 0) await turn()
})

test('watches are limited per connection and end when the server stops', async () => {
  await using here = await world({ limits: { ...DEFAULT_LIMITS, watches: 1 } })
  const key = await here.key('ci', [{ verb: 'watch', prefix: '' }])
  const bearer = { authorization: `Bearer ${key}` }
  using one = await Stream.open(here, '', bearer)
  using two = await Stream.open(here, '', bearer)
  expect([one.reply.statusCode, two.reply.statusCode]).toEqual([200, 429])
  expect(two.reply.headers['retry-after']).toBe('1')
  await here.server.close()
  await one.until(({ ended }) => ended)
})

test('a watch ends when its key is revoked, and a new request gets UNAUTHENTICATED', async () => {
  await using here = await world()
  await here.key('root', [{ verb: 'admin', prefix: '' }])
  const key = await here.key('ci', [{ verb: 'watch', prefix: 'jobs' }])
  using stream = await Stream.open(here, '', { authorization: `Bearer ${key}` })
  await propose(here.lessor, acquire('ann', ['secret/a']))
  await propose(here.lessor, acquire('ann', ['jobs/a']))
  await stream.until(({ blocks }) => blocks.length === 1)
  expect(stream.blocks[0]?.data.resource).toBe('jobs/a')
  await propose(here.lessor, { kind: 'unkey', id: 2 })
  await propose(here.lessor, acquire('ann', ['jobs/b']))
  await stream.until(({ ended }) => ended)
  expect(stream.text).not.toMatch(/secret|jobs\/b/)
  expect((await here.ask('GET', '/v1/watch', undefined, { authorization: `Bearer ${key}` })).status).toBe(401)
})

test('a client whose stream breaks resumes without a gap', async () => {
  await using here = await world()
  let cut = () => {}
  await using lessor = await HttpLessor.open(here.url, {
    fetch: async (url, init) => {
      const breaking = new AbortController()
      cut = () => breaking.abort(new TypeError('cut'))
      init!.signal!.addEventListener('abort', () => breaking.abort(init!.signal!.reason))
      return fetch(url, { ...init, signal: breaking.signal })
    },
  })
  const { revision } = await propose(here.lessor, acquire('x', ['x']))
  const stop = new AbortController()
  const seen: number[] = []
  await propose(here.lessor, acquire('x', ['first']))
  for await (const events of lessor.watch('', { after: revision, signal: stop.signal })) {
    seen.push(events[0]!.revision)
    if (seen.length % 10 === 0) cut()
    if (seen.length === 50) stop.abort()
    else void propose(here.lessor, acquire('x', [`x/${seen.length}`]))
  }
  expect(seen).toEqual(seen.map((_, i) => revision + 1 + i))
  expect(seen).toHaveLength(50)
})

test('a watch and a backup end with their signal or their lessor, even if fetch has lost its abort signal', async () => {
  await using here = await world()
  const deaf = { fetch: ((url, init) => fetch(url, { ...init, signal: null })) as typeof fetch }
  const lessor = await HttpLessor.open(here.url, deaf)
  const stop = new AbortController()
  const watching = lessor.watch('', { signal: stop.signal }).next()
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  stop.abort()
  expect(await watching).toEqual({ done: true, value: undefined })
  const backup = lessor.backup({ signal: AbortSignal.abort(new Error('enough')) })
  await expect(backup.next()).rejects.toThrow('enough')
  const broken = new AbortController()
  const begun = lessor.backup({ signal: broken.signal })
  await begun.next()
  broken.abort(new Error('enough'))
  await expect(
    (async () => {
      for await (const _ of begun);
    })(),
  ).rejects.toThrow('enough')
  const other = expect(lessor.watch('', { signal: new AbortController().signal }).next()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  await lessor[Symbol.asyncDispose]()
  await other
  await expect.poll(() => here.server.guarded.watches).toBe(0)
})
