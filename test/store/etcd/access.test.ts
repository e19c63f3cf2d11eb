import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect as connectPlain, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, type SecureContextOptions } from 'node:tls'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import { etcdOptions } from '../../../src/store/etcd/url.ts'
import { type Position, START } from '../../../src/store.ts'
import { describeEngine, describePrograms, engine, programs } from '../../support/engine.ts'
import { asked } from '../../support/etcd.ts'
import { eventually } from '../../support/eventually.ts'

const describeTls = (name: string, define: () => void) => describePrograms('etcd', [programs.openssl], name, define)

describe('an etcd URL', () => {
  test('names hosts, a log, a user and certificates', () => {
    expect(etcdOptions('etcd://127.0.0.1:2379')).toEqual({ endpoints: ['127.0.0.1:2379'] })
    expect(etcdOptions('etcd://a,b:1,[::1]:2/?name=team/locks')).toEqual({ endpoints: ['a:2379', 'b:1', '[::1]:2'], name: 'team/locks' })
    expect(etcdOptions('etcd://ann:p%40ss:word@a')).toEqual({ endpoints: ['a:2379'], user: { name: 'ann', password: 'p@ss:word' } })
    expect(etcdOptions('etcds://a')).toEqual({ endpoints: ['a:2379'], tls: {} })
    expect(etcdOptions('etcd://a?tls=true')).toEqual({ endpoints: ['a:2379'], tls: {} })
    expect(etcdOptions('etcd://a?tls=false')).toEqual({ endpoints: ['a:2379'] })
    expect(etcdOptions('etcd://a?ca=/ca.pem&cert=/c.pem&key=/k.pem').tls).toEqual({ ca: '/ca.pem', cert: '/c.pem', key: '/k.pem' })
  })

  test('that cannot be parsed is INVALID, and the error does not contain its password', async () => {
    for (const url of [
      ...[
        'etcd:',
        'etcd://',
        'etcd://:pass-word@',
        'etcd://a:b',
        'etcd://a:99:1',
        'etcd://a?nmae=x',
        'etcd://a?cert=/c.pem',
        'etcd://a/path',
      ],
      ...['etcd://u:%zz-pass-word@a', 'etcd://u:pass-word@a?what=1', 'etcd://u:pass-word@a?name=a:b', 'etcd://a?name='],
    ]) {
      const error = await rejected(connect(url))
      expect(error.code, url).toBe('INVALID')
      expect(error.message).not.toContain('pass-word')
    }
  })
})

/** Switches authentication on, with the user `root`. */
async function requireUsers(port: number): Promise<void> {
  await asked(port, '/auth/user/add', { name: 'root', password: 'root' })
  await asked(port, '/auth/role/add', { name: 'root' })
  await asked(port, '/auth/user/grant', { user: 'root', role: 'root' })
  await asked(port, '/auth/enable')
}

async function requireNoUsers(port: number): Promise<void> {
  const { token } = await asked<{ token: string }>(port, '/auth/authenticate', { name: 'root', password: 'root' })
  const headers = { authorization: token }
  const { status } = await fetch(`http://127.0.0.1:${port}/v3/auth/disable`, { method: 'POST', headers, body: '{}' })
  expect(status).toBe(200)
}

describeEngine('etcd', 'an etcd with users', () => {
  test('a store opened with a user keeps working when authentication is switched on, and when it is switched off again', async () => {
    await using etcd = await engine('etcd')
    await using store = await opened(`etcd://root:root@127.0.0.1:${etcd.port}/`)
    let after = await append(store, START)
    const waiting = store.read(after, { wait: new AbortController().signal })
    await requireUsers(etcd.port)
    after = await append(store, after)
    expect(await waiting).toMatchObject({ kind: 'records', records: [{ position: after }] })
    await requireNoUsers(etcd.port)
    after = await append(store, after)
    await asked(etcd.port, '/auth/enable')
    after = await append(store, after)
    expect(after.index).toBe(4)
  })

  test('leases live on while access is refused for a while, and every replica continues afterwards', async () => {
    await using etcd = await engine('etcd')
    await using leases = await connect(etcd.url, { holder: 'one' })
    await using lease = await leases.acquire('x', { ttl: '10m' })
    await requireUsers(etcd.port)
    // It has no user, and is refused.
    await expect(leases.acquire('y', { ttl: '10s', wait: '1s' })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'user',
      message: expect.stringContaining('it requires a user'),
    })
    await requireNoUsers(etcd.port)
    await using _again = await leases.acquire('y', { ttl: '10s' })
    expect(lease.held).toBe(true)
  })

  test('checks user, password and permissions, and the store replaces a token that is no longer valid', async () => {
    await using etcd = await engine('etcd')
    const at = (user: string, rest = '') => `etcd://${user}127.0.0.1:${etcd.port}/${rest}`
    // A user is accepted where none is needed.
    await (await opened(at('ann:secret@')))[Symbol.asyncDispose]()
    for (const [path, body] of [
      ['/auth/user/add', { name: 'root', password: 'root' }],
      ['/auth/user/grant', { user: 'root', role: 'root' }],
      ['/auth/user/add', { name: 'ann', password: 'secret' }],
      ['/auth/role/add', { name: 'leases' }],
      ['/auth/role/grant', { name: 'leases', perm: { permType: 'READWRITE', key: base64('leasehold:'), range_end: base64('leasehold;') } }],
      ['/auth/user/grant', { user: 'ann', role: 'leases' }],
      ['/auth/enable', {}],
    ] as const) {
      if (path === '/auth/user/grant' && body.role === 'root') await asked(etcd.port, '/auth/role/add', { name: 'root' })
      await asked(etcd.port, path, body)
    }
    expect(await rejected(opened(at('')))).toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'user',
      message: expect.stringContaining('USER:PASSWORD@'),
    })
    expect(await rejected(opened(at('ann:wrong@')))).toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'password',
      message: expect.stringContaining('password'),
    })
    expect(await rejected(opened(at('ann:secret@', '?name=other')))).toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'permission',
      message: expect.stringContaining('grant-permission'),
    })
    await using store = await opened(at('ann:secret@'))
    let after = await append(store, START)
    await etcd.restart() // it has lost its tokens
    after = await append(store, after)
    await asked(etcd.port, '/auth/authenticate', { name: 'root', password: 'root' }).then(async answer => {
      const { token } = answer as { token: string }
      // Any change of users invalidates the tokens given out before.
      const response = await fetch(`http://127.0.0.1:${etcd.port}/v3/auth/user/add`, {
        method: 'POST',
        headers: { authorization: token },
        body: JSON.stringify({ name: 'bob', password: 'b' }),
      })
      expect(response.status).toBe(200)
    })
    after = await append(store, after)
    expect(after.index).toBe(3)
  })
})

describeTls('an etcd behind TLS', () => {
  test('is trusted only with a certificate of the given authority, and receives the certificate of the client', async () => {
    await using folder = await temporary()
    const { path } = folder
    await authority(path, 'ours')
    await authority(path, 'theirs')
    for (const who of ['server', 'client']) await certificate(path, 'ours', who)
    await certificate(path, 'theirs', 'stranger')
    await using etcd = await engine('etcd')
    await using proxy = await tlsProxy(etcd.port, await context(path, 'ours', 'server'))
    const { port } = proxy
    const at = (ca: string, who: string) =>
      `etcds://127.0.0.1:${port}/?ca=${join(path, `${ca}.pem`)}&cert=${join(path, `${who}.pem`)}&key=${join(path, `${who}.key`)}`
    for (const [ca, who] of [
      ['theirs', 'client'],
      ['ours', 'stranger'],
    ] as const)
      expect((await rejected(opened(at(ca, who), { timeout: 500 }))).code, `${ca} ${who}`).toBe('UNAVAILABLE')
    expect((await rejected(opened(`etcd://127.0.0.1:${port}`, { timeout: 500 }))).code).toBe('UNAVAILABLE')
    expect(await rejected(opened(at('nowhere', 'client')))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('nowhere.pem'),
    })
    await using store = await opened(at('ours', 'client'))
    await using reader = await opened(at('ours', 'client'))
    const waiting = reader.read(START, { wait: new AbortController().signal })
    const { index } = await append(store, START)
    expect(await waiting).toMatchObject({ kind: 'records', records: [{ position: { index } }] })
  })

  test('a store reads replaced certificates again: it continues after a rotation, and after the certificate of etcd had expired', async () => {
    await using folder = await temporary()
    const { path } = folder
    await authority(path, 'old')
    await authority(path, 'new')
    for (const who of ['server', 'client']) await certificate(path, 'old', who)
    await using etcd = await engine('etcd')
    await using proxy = await tlsProxy(etcd.port, await context(path, 'old', 'server'))
    await copyFile(join(path, 'old.pem'), join(path, 'ca.pem'))
    const files = `ca=${join(path, 'ca.pem')}&cert=${join(path, 'client.pem')}&key=${join(path, 'client.key')}`
    await using leases = await connect(`etcds://127.0.0.1:${proxy.port}/?${files}`, { holder: 'one' })
    await using lease = await leases.acquire('kept', { ttl: '10m' })
    await using store = await opened(`etcds://127.0.0.1:${proxy.port}/?${files}`)
    const refused = (message: RegExp) =>
      eventually(async () =>
        expect(await store.read(START).then(String, error => error)).toMatchObject({
          ...{ code: 'UNAVAILABLE', reason: 'unreachable' },
          message: expect.stringMatching(message),
        }),
      )
    const works = async () => (await leases.acquire('y', { ttl: '10m', wait: '2m' })).release()

    await certificate(path, 'old', 'expired', -1)
    proxy.use(await context(path, 'old', 'expired'))
    await refused(/expired/)
    proxy.use(await context(path, 'old', 'server'))
    await works()

    // Another authority, and other certificates on both sides.
    for (const who of ['server', 'client']) await certificate(path, 'new', who)
    proxy.use(await context(path, 'new', 'server'))
    await refused(/certificate/)
    await copyFile(join(path, 'new.pem'), join(path, 'ca.pem'))
    await works()
    expect(lease.held).toBe(true)
  })
})

async function opened(url: string, options: { readonly timeout?: number } = {}): Promise<EtcdStore> {
  const store = new EtcdStore({ ...etcdOptions(url), ...options })
  await store.open()
  return store
}

async function append(store: EtcdStore, after: Position): Promise<Position> {
  const answer = await store.append(Uint8Array.of(1), after)
  assert.ok(answer.kind === 'appended', answer.kind)
  return answer.position
}

async function rejected(call: Promise<unknown>): Promise<LeaseError> {
  const found = await call.then(
    () => undefined,
    (error: unknown) => error,
  )
  assert.ok(found instanceof LeaseError, String(found))
  return found
}

/** TLS in front of etcd. A client needs a certificate of the authority. */
async function tlsProxy(target: number, first: SecureContextOptions) {
  const sockets = new Set<Socket>()
  const server = createServer({ ...first, requestCert: true, rejectUnauthorized: true }, near => {
    const far = connectPlain({ host: '127.0.0.1', port: target })
    for (const socket of [near, far]) socket.on('error', () => {})
    near.pipe(far).pipe(near)
    near.on('close', () => far.destroy())
  }).on('tlsClientError', () => {})
  server.on('connection', (socket: Socket) => sockets.add(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const disconnect = () => {
    for (const socket of sockets) socket.destroy()
    sockets.clear()
  }
  return {
    port: (server.address() as AddressInfo).port,
    /** New certificates, and every client has to connect again. */
    use(next: SecureContextOptions) {
      server.setSecureContext(next)
      disconnect()
    },
    async [Symbol.asyncDispose]() {
      disconnect()
      server.close()
    },
  }
}

async function context(folder: string, ca: string, who: string): Promise<SecureContextOptions> {
  const [authority, cert, key] = await Promise.all([`${ca}.pem`, `${who}.pem`, `${who}.key`].map(name => readFile(join(folder, name))))
  return { ca: authority!, cert: cert!, key: key! }
}

async function temporary(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'leasehold-tls-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) }
}

const openssl = (folder: string, ...args: string[]) => promisify(execFile)('openssl', args, { cwd: folder })
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

async function authority(folder: string, name: string): Promise<void> {
  await openssl(folder, 'req', '-x509', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.pem`, '-subj', `/CN=${name}`, '-days', '2')
}

async function certificate(folder: string, by: string, name: string, days = 2): Promise<void> {
  await writeFile(join(folder, `${name}.cnf`), 'subjectAltName=IP:127.0.0.1\n')
  await openssl(folder, 'req', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`)
  const signed = ['-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', String(days), '-extfile', `${name}.cnf`]
  await openssl(folder, 'x509', '-req', '-in', `${name}.csr`, '-out', `${name}.pem`, ...signed)
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
