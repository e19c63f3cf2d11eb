/** Webhooks are real: an HTTP listener that hangs, fails or refuses. The time of attempts and pauses is virtual. */
import { createHmac } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { MOST_PENDING, NoticeQueue, PAUSES } from '../../../../src/cli/command/pool/notice-queue.ts'
import { ATTEMPT_TIMEOUT, type Deliver, noticeCommand, secretIn, webhook } from '../../../../src/cli/command/pool/webhook.ts'
import { BoundedProgram } from '../../../../src/devices/bounded-program.ts'
import type { PoolNotice } from '../../../../src/pool/notices.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { Place } from '../../../support/cli.ts'

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`

interface Request {
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

/** A receiver of webhooks; `answer` decides by the number of the request from 1 on. Leaves it unanswered when it returns without an answer. */
async function receiver(answer: (request: Request, response: ServerResponse, count: number) => void) {
  const requests: Request[] = []
  const server = createServer(async (incoming, response) => {
    const pieces: Buffer[] = []
    for await (const piece of incoming) pieces.push(piece as Buffer)
    const request = { url: incoming.url!, headers: incoming.headers, body: Buffer.concat(pieces).toString() }
    requests.push(request)
    answer(request, response, requests.length)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    requests,
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/notices`),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

function noticeOf(lease: number): PoolNotice {
  const text = `ann: your time with g0 of gpus ends in 10 min (lease ${lease})`
  return { id: `gpus:${lease}:ending:1`, kind: 'ending', pool: 'gpus', lease, account: 'ann', holder: 'ann@a:1', members: ['g0'], text }
}

function queueTo(deliver: (clock: ManualClock) => Deliver) {
  const clock = new ManualClock()
  const reports: string[] = []
  const queue = new NoticeQueue({ clock, name: 'the chat', deliver: deliver(clock), report: sentence => void reports.push(sentence) })
  return { clock, reports, queue, [Symbol.dispose]: () => queue.close() }
}

describe('a webhook', () => {
  test('gets the notice as JSON, signed over its id, the time of the attempt and the body', async () => {
    await using there = await receiver((_, response) => response.writeHead(204).end())
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(`${SECRET}\n`), clock }))
    here.queue.add(noticeOf(1))
    await expect.poll(() => here.queue.pending).toBe(0)
    const [{ headers, body }] = there.requests as [Request]
    expect(JSON.parse(body)).toEqual({ ...noticeOf(1), at: new Date(here.clock.wall()).toISOString() })
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'webhook-id': 'gpus:1:ending:1' })
    // Written out as a receiver does it, from the documentation.
    const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64')
    const signed = createHmac('sha256', key).update(`${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`).digest('base64')
    expect(headers['webhook-signature']).toBe(`v1,${signed}`)
    expect(Number(headers['webhook-timestamp'])).toBe(Math.floor(here.clock.wall() / 1_000))
    expect(here.reports).toEqual([])
  })

  test('that answers 500 is tried again with pauses, the same id and a new timestamp, and is given up after the last attempt', async () => {
    await using there = await receiver((_, response) => response.writeHead(500).end('broken'))
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(SECRET), clock }))
    here.queue.add(noticeOf(1))
    for (const [i, ms] of PAUSES.entries()) {
      await expect.poll(() => here.reports.length).toBe(i + 1)
      expect(there.requests).toHaveLength(i + 1)
      await here.clock.advance(ms - 1)
      expect(there.requests).toHaveLength(i + 1)
      await here.clock.advance(1)
    }
    await expect.poll(() => here.queue.pending).toBe(0)
    await here.clock.advance(3_600_000)
    expect(there.requests).toHaveLength(PAUSES.length + 1)
    expect(new Set(there.requests.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
    expect(new Set(there.requests.map(({ headers }) => headers['webhook-timestamp'])).size).toBe(PAUSES.length + 1)
    expect(here.reports[0]).toBe('the chat answered 500; it gets the notice again in 1 s')
    expect(here.reports.at(-1)).toMatch(/^gave up a notice for the chat, because it answered 500: ann: your time/)
  })

  test('that recovers gets the notice in the next attempt', async () => {
    await using there = await receiver((_, response, count) => response.writeHead(count === 1 ? 503 : 200).end())
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(SECRET), clock }))
    here.queue.add(noticeOf(1))
    await expect.poll(() => here.reports.length).toBe(1)
    await here.clock.advance(1_000)
    await expect.poll(() => here.queue.pending).toBe(0)
    expect(there.requests).toHaveLength(2)
  })

  test('that refuses a notice, or redirects it, is not asked again', async () => {
    await using there = await receiver((_, response, count) => response.writeHead(count === 1 ? 400 : 302, { location: '/other' }).end())
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(SECRET), clock }))
    here.queue.add(noticeOf(1))
    await expect.poll(() => here.queue.pending).toBe(0)
    here.queue.add(noticeOf(2))
    await expect.poll(() => here.queue.pending).toBe(0)
    await here.clock.advance(3_600_000)
    expect(there.requests.map(({ url }) => url)).toEqual(['/notices', '/notices'])
    expect(here.reports).toEqual([expect.stringMatching(/it answered 400/), expect.stringMatching(/it answered 302/)])
  })

  test('that hangs is left after the time of an attempt, and delays no notice of another receiver and no later one of its own', async () => {
    await using hanging = await receiver(() => {})
    await using other = await receiver((_, response) => response.writeHead(200).end())
    using slow = queueTo(clock => webhook({ url: hanging.url, secret: secretIn(SECRET), clock }))
    using fast = queueTo(clock => webhook({ url: other.url, secret: secretIn(SECRET), clock }))
    for (const { queue } of [slow, fast]) for (let lease = 0; lease < 12; lease++) queue.add(noticeOf(lease))
    await expect.poll(() => fast.queue.pending).toBe(0)
    await expect.poll(() => hanging.requests.length).toBe(8)
    expect(slow.reports).toEqual([])
    await slow.clock.advance(ATTEMPT_TIMEOUT)
    await expect.poll(() => hanging.requests.length).toBe(12)
    expect(slow.reports[0]).toBe('the chat did not answer within 10 s; it gets the notice again in 1 s')
    expect(slow.queue.pending).toBe(12)
  })

  test('that answers with a body without end does not keep the attempt open', async () => {
    await using there = await receiver((_, response) => void response.writeHead(200).write('x'.repeat(65_536)))
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(SECRET), clock }))
    here.queue.add(noticeOf(1))
    await expect.poll(() => here.queue.pending).toBe(0)
    expect(here.reports).toEqual([])
  })

  test('that is not there is tried again, and its messages show no path of its URL', async () => {
    const there = await receiver(() => {})
    await there[Symbol.asyncDispose]()
    using here = queueTo(clock => webhook({ url: there.url, secret: secretIn(SECRET), clock }))
    here.queue.add(noticeOf(1))
    await expect.poll(() => here.reports.length).toBe(1)
    expect(here.reports[0]).toMatch(/cannot be reached: .*ECONNREFUSED/)
    expect(here.reports[0]).not.toMatch(/notices/)
  })
})

test('of too many pending notices the oldest are given up, and each is reported', async () => {
  using here = queueTo(() => () => new Promise(() => {}))
  for (let lease = 0; lease < MOST_PENDING + 3; lease++) here.queue.add(noticeOf(lease))
  expect(here.queue.pending).toBe(MOST_PENDING)
  expect(here.reports).toHaveLength(3)
  expect(here.reports[0]).toMatch(/because 1000 newer ones wait: .*\(lease 0\)$/)
})

test('a secret is whsec_ and at least 24 bytes in base64', () => {
  expect(secretIn(SECRET)).toEqual(Buffer.alloc(32, 7))
  for (const wrong of ['', 'secret', 'whsec_', `whsec_${Buffer.alloc(8).toString('base64')}`, `whsec_${'*'.repeat(44)}`])
    expect(() => secretIn(wrong), wrong).toThrow(/whsec_/)
})

describe('a command', () => {
  test('finds the notice in its environment, whatever the names contain, and is run again when it fails', async () => {
    await using here = new Place()
    const evil = { ...noticeOf(1), account: '$(touch pwned); `id`', text: 'ends "soon"; $HOME' }
    const script = `printf '%s\\n' "$LEASEHOLD_NOTICE" >> "${here.file('seen')}"; printf '%s|%s' "$LEASEHOLD_NOTICE_TEXT" "$LEASEHOLD_ACCOUNT" > "${here.file('text')}"; test "$(wc -l < "${here.file('seen')}")" -gt 1`
    using queued = queueTo(clock => noticeCommand([new BoundedProgram({ clock })], script))
    queued.queue.add(evil)
    await expect.poll(() => queued.reports.length).toBe(1)
    expect(queued.reports[0]).toMatch(/ended with code 1; it gets the notice again in 1 s/)
    await queued.clock.advance(1_000)
    await expect.poll(() => queued.queue.pending).toBe(0)
    expect(readFileSync(here.file('text'), 'utf8')).toBe(`${evil.text}|${evil.account}`)
    expect(
      readFileSync(here.file('seen'), 'utf8')
        .trim()
        .split('\n')
        .map(line => JSON.parse(line)),
    ).toEqual([evil, evil])
    expect(existsSync(here.file('pwned'))).toBe(false)
  })
})
