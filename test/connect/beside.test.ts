/** `via: 'server'`: clients that find a server in their store, and what else they may find there. */
import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { CHALLENGES, clientProof, parseAnnouncement, SERVERS, thisMachine } from '../../src/connect/beside-protocol.ts'
import { connect, openInPlace } from '../../src/connect/connect.ts'
import type { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { announceable } from '../../src/connect/server-announcement.ts'
import { storeOf } from '../../src/connect/store-of.ts'
import type { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Lessor, Query } from '../../src/lessor.ts'
import { storeModule } from '../../src/store/modules.ts'
import { START } from '../../src/store.ts'
import { besideServer, Relay } from '../support/beside-server.ts'
import { describeEngine, describeWith, engine, programs } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'

const via = 'server' as const
const boardOf = (url: string) => storeModule(url.slice(0, url.indexOf(':')))!.announcements!(url, systemClock)
/** The server that the leases use at present; undefined: the store itself. */
const serverOf = ({ lessor }: Leases): string | undefined =>
  ((lessor as RelocatingLessor).here as Lessor & { readonly server?: string }).server

/** `url` and `other` name two logs on one engine. */
async function keepsItsPromises(url: string, other: string): Promise<void> {
  await usesAServerAndGoesOnWithout(url)
  await refusesForeignAddresses(url, other)
}

async function usesAServerAndGoesOnWithout(url: string): Promise<void> {
  const [one, two] = [await besideServer(url), await besideServer(url)]
  await using leases = await connect(url, { via, holder: 'via' })
  await using direct = await connect(url, { holder: 'direct' })
  expect([`127.0.0.1:${one.port}`, `127.0.0.1:${two.port}`]).toContain(serverOf(leases))
  expect(serverOf(direct)).toBeUndefined()
  const lease = await leases.acquire('a', { ttl: '6s' })
  const { token } = lease
  expect(await direct.tryAcquire('a')).toBeUndefined()
  const waiting = direct.acquire('a', { ttl: '6s', wait: '1m' })
  // The other server takes over from the first one that is killed, and the store itself from the second.
  const [used, left] = serverOf(leases) === `127.0.0.1:${one.port}` ? [one, two] : [two, one]
  await used.kill()
  await eventually(() => expect(serverOf(leases)).toBe(`127.0.0.1:${left.port}`))
  await lease.renew()
  await left.kill()
  await eventually(() => expect((leases.lessor as RelocatingLessor).here).not.toHaveProperty('server'))
  await lease.renew()
  lease.assertHeld()
  expect((await leases.query('a')).held).toMatchObject([{ token, status: 'live' }])
  await using more = await leases.acquire('b')
  expect(more.token).toBeGreaterThan(token)
  await lease.release()
  await using next = await waiting
  expect(next.token).toBeGreaterThan(more.token)
  // The announcements of the killed servers are still there, and cost an attempt.
  await using board = await boardOf(url)
  expect((await board.list(SERVERS)).size).toBe(2)
  await using again = await connect(url, { via })
  expect(serverOf(again)).toBeUndefined()
  for (const name of (await board.list(SERVERS)).keys()) await board.take(name)
}

async function refusesForeignAddresses(url: string, other: string): Promise<void> {
  const on = thisMachine(systemClock)
  const received: Buffer[] = []
  const stranger = createServer(socket => socket.on('data', bytes => received.push(bytes)).on('error', () => {})).listen(0, '127.0.0.1')
  await new Promise(resolve => stranger.once('listening', resolve))
  const { port: strangerPort } = stranger.address() as { readonly port: number }
  try {
    await using foreign = await besideServer(other)
    await using board = await boardOf(url)
    await using otherBoard = await boardOf(other)
    // A copy of a store contains the announcement of its server: the server cannot see what a client writes into the copy.
    const [[name, copied]] = [...(await otherBoard.list(SERVERS))] as [[string, string]]
    await board.put(name, copied, 60_000)
    await using client = await connect(url, { via, holder: 'client' })
    expect(serverOf(client)).toBeUndefined()
    await board.take(name)
    // A server of another store that has no announcement here, and a program that is no server.
    const { secret } = parseAnnouncement(copied)!
    for (const address of [`127.0.0.1:${foreign.port}`, `127.0.0.1:${strangerPort}`, '127.0.0.1:1']) {
      await board.put(`${SERVERS}wrong`, JSON.stringify({ secret: secret.replace(/.$/, '!'), addresses: [{ address, on }] }), 60_000)
      await using here = await connect(url, { via, holder: 'here' })
      expect(serverOf(here)).toBeUndefined()
    }
    await board.put(`${SERVERS}wrong`, '{"secret":"short","addresses":[{"address":"-x"}]}', 60_000)
    await using here = await connect(url, { via, holder: 'here' })
    expect(serverOf(here)).toBeUndefined()
    await board.take(`${SERVERS}wrong`)
    const sent = Buffer.concat(received).toString('latin1')
    expect(sent).toContain('BESIDE')
    expect(sent).not.toContain(secret.slice(0, -1))
  } finally {
    stranger.close()
  }
}

describeEngine('postgres', "via: 'server'", () => {
  test('uses a server, another one, and the store itself; foreign addresses are not used', async () => {
    await using server = await engine('postgres')
    await keepsItsPromises(`${server.url}?name=one`, `${server.url}?name=two`)
  })
})

describeEngine('redis', "via: 'server'", () => {
  test('uses a server, another one, and the store itself; foreign addresses are not used', async () => {
    await using server = await engine('redis')
    await keepsItsPromises(`${server.url}?name=one`, `${server.url}?name=two`)
  })
})

describeEngine('etcd', "via: 'server'", () => {
  test('uses a server, another one, and the store itself; foreign addresses are not used', async () => {
    await using server = await engine('etcd')
    await keepsItsPromises(`${server.url}?name=one`, `${server.url}?name=two`)
  })
})

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-beside-'))
  return {
    path,
    url: `file:${join(path, 'one.db')}`,
    other: `file:${join(path, 'two.db')}`,
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  }
}

describe("via: 'server' on a shared file", () => {
  test('uses a server, another one, and the store itself; foreign addresses are not used', async () => {
    using here = folder()
    await keepsItsPromises(here.url, here.other)
  })

  test('an operation whose answer was lost with the server is carried out once, and answered by the store', async () => {
    using here = folder()
    let relayed = 0
    const on = thisMachine(systemClock)
    await using server = await besideServer(here.url, { announced: [] })
    await using relay = new Relay(server.port)
    relayed = await relay.listen()
    // The server is announced at the address of the relay.
    await server.announce([{ address: `127.0.0.1:${relayed}`, on }])
    await using leases = await connect(here.url, { via, holder: 'ann' })
    expect(serverOf(leases)).toBe(`127.0.0.1:${relayed}`)
    await using _short = await leases.acquire('short', { ttl: '3s' })
    const answered = relay.dropAnswers()
    const acquiring = leases.acquire('a', { ttl: '20s' })
    await answered
    await relay[Symbol.asyncDispose]()
    const lease = await acquiring
    await eventually(() => expect((leases.lessor as RelocatingLessor).here).not.toHaveProperty('server'))
    const { value } = await leases.lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    expect(value.grants).toMatchObject([{ token: lease.token, holder: 'ann' }])
    expect((await leases.lessor.read({ kind: 'history', resource: 'a' })).value).toEqual([])
    await lease.release()
  })

  test('with keys, clients of the store need none, and their leases are renewed on both ways', async () => {
    using here = folder()
    await using server = await besideServer(here.url)
    await using direct = await connect(here.url, { holder: 'direct' })
    const { lessor } = direct
    await propose(lessor, { kind: 'key', name: 'admin', hash: 'a'.repeat(64), allow: [{ verb: 'admin', prefix: '' }] })
    await eventually(async () =>
      expect(await openInPlace(`leasehold://127.0.0.1:${server.port}`).then(String, error => error)).toMatchObject({
        code: 'UNAUTHENTICATED',
      }),
    )
    await using leases = await connect(here.url, { via, holder: 'via' })
    expect(serverOf(leases)).toBeDefined()
    await using lease = await leases.acquire('a', { ttl: '20s' })
    await using kept = await direct.acquire('b', { ttl: '20s' })
    const idOf = async (resource: string) =>
      (await lessor.read({ kind: 'resource', resource }, { consistent: true })).value.grants[0]!.lease
    for (const way of [lessor, leases.lessor])
      expect(await propose(way, { kind: 'renew', leases: [await idOf('a'), await idOf('b')] })).toMatchObject({
        kind: 'renewed',
        ttls: [20_000, 20_000],
      })
    expect((await lessor.read({ kind: 'leases' })).value.map(({ key }) => key)).toEqual([0, 0])
    for (const each of [lease, kept]) each.assertHeld()
  })

  test('a proof counts once, and only from a client that may write to the store', async () => {
    using here = folder()
    await using server = await besideServer(here.url)
    await using board = await boardOf(here.url)
    const [text] = [...(await board.list(SERVERS)).values()]
    const { secret } = parseAnnouncement(text!)!
    const hello = async (name: string, proof: string): Promise<string> => {
      const { createConnection } = await import('node:net')
      const socket = createConnection(server.port, '127.0.0.1')
      try {
        socket.write(`HELLO 3 BESIDE ${name} ${proof}\r\n`)
        return await new Promise((resolve, reject) => {
          socket.once('data', bytes => resolve(bytes.toString()))
          socket.once('error', reject)
        })
      } finally {
        socket.destroy()
      }
    }
    // It has read the secret, and has not written anything.
    expect(await hello('n1', clientProof(secret, 'n1'))).toMatch(/^-UNAUTHENTICATED/)
    await board.put(`${CHALLENGES}n2`, 'challenge', 60_000)
    expect(await hello('n2', clientProof(secret, 'n1'))).toMatch(/^-UNAUTHENTICATED/)
    expect(await hello('n2', clientProof(secret, 'n2'))).toContain('beside')
    expect(await hello('n2', clientProof(secret, 'n2'))).toMatch(/^-UNAUTHENTICATED/)
  })

  test('no read, list, watch, backup or record shows the secret or the address', async () => {
    using here = folder()
    await using server = await besideServer(here.url)
    await using board = await boardOf(here.url)
    const { secret } = parseAnnouncement([...(await board.list(SERVERS)).values()][0]!)!
    await using leases = await connect(here.url, { via, holder: 'via' })
    await using _lease = await leases.acquire('a', { ttl: '20s' })
    const shown: string[] = []
    const queries: { readonly [K in Query['kind']]: Extract<Query, { readonly kind: K }> } = {
      summary: { kind: 'summary' },
      lease: { kind: 'lease', lease: 1 },
      leases: { kind: 'leases' },
      resource: { kind: 'resource', resource: 'a' },
      resources: { kind: 'resources', prefix: '' },
      entries: { kind: 'entries', prefix: '' },
      services: { kind: 'services' },
      pool: { kind: 'pool', pool: 'a' },
      pools: { kind: 'pools' },
      history: { kind: 'history', resource: 'a' },
      durations: { kind: 'durations', class: 'a' },
      policies: { kind: 'policies' },
      keys: { kind: 'keys' },
    }
    await using direct = await connect(here.url)
    for (const { lessor } of [leases, direct]) {
      for (const query of Object.values(queries))
        shown.push(JSON.stringify(await lessor.read(query as { kind: 'summary' }, { consistent: true })))
      for await (const bytes of lessor.backup!()) shown.push(Buffer.from(bytes).toString('latin1'))
    }
    const stop = new AbortController()
    for await (const events of direct.lessor.watch('', { after: 0, signal: stop.signal })) {
      shown.push(JSON.stringify(events))
      if (events.some(({ resource }) => resource === 'a')) stop.abort()
    }
    // A face, and the figures, show what the lessor shows; the log is all that a lessor has.
    await using store = await storeOf(here.url)
    await store.open()
    const read = await store.read(START)
    if (read.kind !== 'records') throw new Error(read.kind)
    shown.push(...read.records.map(({ bytes }) => Buffer.from(bytes).toString('latin1')))
    const all = shown.join('\n')
    expect(all).toContain('"a"')
    expect(all).not.toContain(secret)
    expect(all).not.toContain(`127.0.0.1:${server.port}`)
  })

  test('an announcement ends with its server', async () => {
    using here = folder()
    await using board = await boardOf(here.url)
    {
      await using _server = await besideServer(here.url)
      expect((await board.list(SERVERS)).size).toBe(1)
    }
    expect((await board.list(SERVERS)).size).toBe(0)
  })
})

describeWith([programs.openssl], "via: 'server' over TLS", () => {
  test('trusts the certificate that the store names, and no other', async () => {
    using here = folder()
    const certificate = (name: string) => {
      const [cert, key] = [join(here.path, `${name}.pem`), join(here.path, `${name}.key`)]
      const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=elsewhere.example']
      execFileSync('openssl', [...request, '-keyout', key, '-out', cert], { stdio: 'pipe' })
      return { cert, key }
    }
    await using server = await besideServer(here.url, { tls: certificate('own') })
    {
      await using leases = await connect(here.url, { via, holder: 'ann' })
      expect(serverOf(leases)).toBe(`127.0.0.1:${server.port}`)
    }
    const [wrong, on] = [new X509Certificate(readFileSync(certificate('other').cert)).fingerprint256, thisMachine(systemClock)]
    await server.announce([{ address: `127.0.0.1:${server.port}`, fingerprint: wrong, on }])
    await using leases = await connect(here.url, { via, holder: 'ann' })
    expect(serverOf(leases)).toBeUndefined()
  })
})

test('a server announces loopback and sockets for this machine, and other addresses only with a certificate', () => {
  const on = thisMachine(systemClock)
  const listening = ['127.0.0.1:7420', '[::1]:7420', '10.0.0.7:7420', '/run/leasehold.sock']
  const options = { clock: systemClock, clientCertificates: false }
  const local = [
    { address: '127.0.0.1:7420', on },
    { address: '[::1]:7420', on },
  ]
  const socket = { address: '/run/leasehold.sock', on }
  expect(announceable(listening, options)).toEqual([...local, socket])
  const fingerprint = 'AB:CD'
  expect(announceable(listening, { ...options, fingerprint })).toEqual([
    ...local.map(each => ({ ...each, fingerprint })),
    { address: '10.0.0.7:7420', fingerprint },
    socket,
  ])
  expect(announceable(listening, { ...options, fingerprint, clientCertificates: true })).toEqual([socket])
  const everywhere = announceable(['0.0.0.0:7420'], { ...options, fingerprint })
  expect(everywhere).toContainEqual({ address: '127.0.0.1:7420', fingerprint, on })
  expect(everywhere.some(({ address }) => address.startsWith('0.0.0.0'))).toBe(false)
})

test('via is refused where there is no store to look in, and for other values', async () => {
  const refused = (url: string, option?: 'server') => expect(connect(url, { via: option })).rejects
  await refused('memory:', 'server').toMatchObject({ code: 'INVALID', message: expect.stringContaining('postgres://') })
  await refused('leasehold://127.0.0.1:1', 'server').toMatchObject({ code: 'INVALID', message: expect.stringContaining('names a server') })
  await refused('postgres://127.0.0.1:1/x?via=proxy').toMatchObject({ code: 'INVALID', message: expect.stringContaining('via=server') })
  const store = await storeOf('memory:via')
  await expect(connect(store, { via })).rejects.toMatchObject({ code: 'INVALID', message: expect.stringContaining('URL') })
})
