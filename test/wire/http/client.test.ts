import { createServer, type Server, type Socket } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { connect, open } from '../../../src/connect/connect.ts'
import type { Acquire } from '../../../src/kernel/command.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { HttpLessor } from '../../../src/wire/http/client.ts'
import { world } from '../../support/http-world.ts'

const acquire = (holder: string, resource: string): Acquire => ({ kind: 'acquire', holder, ttl: 30_000, wants: [{ resource }] })

/** A proxy to a server that can drop the answers. */
async function answerDroppingProxy(port: number) {
  const sockets = new Set<Socket>()
  let answers = true
  let answered = () => {}
  const { connect: dial } = await import('node:net')
  const server: Server = createServer(near => {
    const far = dial(port, '127.0.0.1')
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
    }
    near.on('data', data => far.write(data))
    far.on('data', data => {
      // The server has executed the request. Its answer never arrives.
      if (answers) near.write(data)
      else near.destroy()
      answered()
    })
    near.on('close', () => far.destroy())
    far.on('close', () => near.destroy())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    loseAnswers: () => (answers = false),
    answer: () => (answers = true),
    onAnswer: (then: () => void) => (answered = then),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

test.each(['http', 'leasehold'])(
  'over %s an answer that came while this process was stalled is read before the request times out',
  async scheme => {
    const clock = new ManualClock()
    await using here = await world()
    await using proxy = await answerDroppingProxy(here.port)
    await using lessor = await open(proxy.url.replace('http', scheme), { clock })
    let stalled = false
    proxy.onAnswer(() => {
      if (stalled) return
      stalled = true
      clock.stall(40_000)
    })
    expect(await propose(lessor, acquire('ann', 'a'))).toMatchObject({ kind: 'granted' })
  },
)

test('a request without an answer is UNKNOWN, and repeating it under its operation id returns its outcome', async () => {
  await using here = await world()
  await using proxy = await answerDroppingProxy(here.port)
  await using lessor = await HttpLessor.open(proxy.url)
  proxy.loseAnswers()
  const op = { session: 's', seq: 1, acked: 0 }
  await expect(propose(lessor, acquire('ann', 'a'), { op })).rejects.toMatchObject({ code: 'UNKNOWN' })
  await expect(lessor.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect((await here.lessor.read({ kind: 'resource', resource: 'a' })).value.grants).toHaveLength(1)
  proxy.answer()
  const { value } = await here.lessor.read({ kind: 'resource', resource: 'a' })
  expect(await propose(lessor, acquire('ann', 'a'), { op: { ...op, again: true } })).toMatchObject({
    kind: 'granted',
    lease: value.grants[0]!.lease,
  })
})

test('a request to a server that cannot be reached is UNAVAILABLE', async () => {
  const here = await world()
  const lessor = await HttpLessor.open(here.url)
  await here[Symbol.asyncDispose]()
  // The first request may still go out on a kept-alive connection, and be UNKNOWN.
  await propose(lessor, acquire('ann', 'a')).catch(() => {})
  await expect(propose(lessor, acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await expect(HttpLessor.open(here.url)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await lessor[Symbol.asyncDispose]()
})

test('a request without an answer delays others by a second at most, and is UNKNOWN in the end', async () => {
  await using here = await world()
  const clock = new ManualClock()
  let silent = false
  await using lessor = await HttpLessor.open(here.url, {
    clock,
    fetch: async (url, init) => {
      if (!silent) return fetch(url, init)
      return new Promise((_, reject) => init!.signal!.addEventListener('abort', () => reject(init!.signal!.reason)))
    },
  })
  silent = true
  const lost = propose(lessor, acquire('ann', 'a'))
  const failed = expect(lost).rejects.toMatchObject({ code: 'UNKNOWN' })
  await turn()
  silent = false
  const next = propose(lessor, acquire('bob', 'b'))
  await clock.advance(1_001)
  expect(await next).toMatchObject({ kind: 'granted' })
  await clock.advance(35_000)
  await failed
})

test('after an answer that no Leasehold server gives, a proposal is UNKNOWN', async () => {
  await using here = await world()
  let strange = false
  await using lessor = await HttpLessor.open(here.url, {
    fetch: async (url, init) => (strange ? new Response('<h1>Bad Gateway</h1>', { status: 502 }) : fetch(url, init)),
  })
  strange = true
  await expect(propose(lessor, acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNKNOWN' })
  await expect(lessor.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a key is sent in a header, never follows a redirect, and is refused in a URL', async () => {
  await using here = await world()
  const key = await here.key('root', [{ verb: 'admin', prefix: '' }])
  await expect(HttpLessor.open(here.url)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  await expect(HttpLessor.open(here.url.replace('//', `//:${key}@`))).rejects.toMatchObject({ code: 'INVALID' })
  const urls: string[] = []
  await using lessor = await HttpLessor.open(here.url, {
    key,
    fetch: async (url, init) => {
      urls.push(String(url))
      expect(init?.redirect).toBe('error')
      return fetch(url, init)
    },
  })
  expect((await propose(lessor, acquire('ann', 'a'))).kind).toBe('granted')
  expect(urls.join()).not.toContain(key)
})

test('a backup over HTTP is complete, and needs a key that administers everything', async () => {
  await using here = await world()
  const root = await here.key('root', [{ verb: 'admin', prefix: '' }])
  const some = await here.key('some', [{ verb: 'admin', prefix: 'a' }])
  await propose(here.lessor, acquire('ann', 'a'))
  const bytesOf = async (from: AsyncIterable<Uint8Array>) => {
    const chunks: Uint8Array[] = []
    for await (const chunk of from) chunks.push(chunk)
    return Buffer.concat(chunks)
  }
  await using lessor = await HttpLessor.open(here.url, { key: root })
  const far = await bytesOf(lessor.backup())
  const near = await bytesOf(here.lessor.backup!())
  expect(far.length).toBe(near.length)
  expect(far.length).toBeGreaterThan(50)
  await using other = await HttpLessor.open(here.url, { key: some })
  await expect(bytesOf(other.backup())).rejects.toMatchObject({ code: 'FORBIDDEN' })
})

test('leases are acquired, queued and released over http://', async () => {
  await using here = await world()
  await using ann = await connect(here.url, { holder: 'ann' })
  await using bob = await connect(here.url, { holder: 'bob' })
  const lease = await ann.acquire('jobs/nightly', { ttl: '10s' })
  expect(await bob.tryAcquire('jobs/nightly')).toBeUndefined()
  const waiting = bob.acquire('jobs/nightly', { wait: '1m' })
  while ((await here.lessor.read({ kind: 'resource', resource: 'jobs/nightly' })).value.queue.length === 0) await turn()
  await lease.release()
  await using next = await waiting
  expect(next.token).toBeGreaterThan(lease.token)
  await using lessor = await open(here.url)
  expect((await lessor.read({ kind: 'resource', resource: 'jobs/nightly' })).value.grants[0]?.holder).toBe('bob')
})

test('a lessor that was closed is UNAVAILABLE, and its signal fires', async () => {
  await using here = await world()
  const lessor = await HttpLessor.open(here.url)
  await lessor.close()
  expect(lessor.signal.aborted).toBe(true)
  await expect(lessor.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a watch ends with its signal and with its lessor, even after a garbage collection', async () => {
  await using here = await world()
  await using lessor = await HttpLessor.open(here.url)
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const stop = new AbortController()
  const [one, two] = [stop.signal, new AbortController().signal].map(async signal => {
    for await (const _ of lessor.watch('', { signal }));
  })
  await expect.poll(() => here.server.guarded.watches).toBe(2)
  for (let i = 0; i < 3; i++) {
    collect()
    await turn()
  }
  stop.abort()
  await one
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  await lessor[Symbol.asyncDispose]()
  await expect(two).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await expect.poll(() => here.server.guarded.watches).toBe(0)
})
