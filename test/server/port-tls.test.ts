/** TLS on the port: both wires, client certificates, reloads, and handshakes that are never finished. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../src/wire/resp/dial.ts'
import { describeWith, programs } from '../support/engine.ts'
import { place } from '../support/resp-place.ts'

const folder = mkdtempSync(join(tmpdir(), 'leasehold-port-tls-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const closed = (socket: Socket) => new Promise<void>(resolve => (socket.destroyed ? resolve() : socket.once('close', () => resolve())))

describeWith([programs.openssl], 'TLS', () => {
  const file = (name: string) => join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' })
  const issue = (name: string) => {
    openssl('req', '-newkey', 'rsa:2048', '-nodes', '-keyout', file(`${name}.key`), '-out', file(`${name}.csr`), '-subj', `/CN=${name}`)
    writeFileSync(file(`${name}.ext`), 'subjectAltName=DNS:localhost,IP:127.0.0.1')
    openssl(
      'x509',
      '-req',
      '-in',
      file(`${name}.csr`),
      '-CA',
      file('ca.pem'),
      '-CAkey',
      file('ca.key'),
      '-CAcreateserial',
      '-days',
      '2',
      '-extfile',
      file(`${name}.ext`),
      '-out',
      file(`${name}.pem`),
    )
  }
  const served = (options: { readonly ca?: string } = {}) =>
    place({ tls: { cert: file('server.pem'), key: file('server.key'), ...options } })

  beforeAll(() => {
    openssl(
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      file('ca.key'),
      '-out',
      file('ca.pem'),
      '-subj',
      '/CN=ca',
      '-days',
      '2',
    )
    for (const name of ['server', 'client']) issue(name)
  })

  test('carries both wires, and our own client that trusts the authority', async () => {
    await using here = await served()
    await using lessor = await RemoteLessor.open(serverAddressOf(`leaseholds://127.0.0.1:${here.port}?ca=${file('ca.pem')}`))
    expect((await lessor.read({ kind: 'summary' })).value.leases).toBe(0)
    await expect(
      RemoteLessor.open({ ...serverAddressOf(`leaseholds://127.0.0.1:${here.port}`), connectWithin: 300 }),
    ).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })
    await expect(RemoteLessor.open({ ...serverAddressOf(`leasehold://127.0.0.1:${here.port}`), connectWithin: 300 })).rejects.toMatchObject(
      {
        code: 'UNAVAILABLE',
      },
    )
  })

  test('admits only clients with a certificate of the configured authority', async () => {
    await using here = await served({ ca: file('ca.pem') })
    const url = `leaseholds://127.0.0.1:${here.port}?ca=${file('ca.pem')}`
    await expect(RemoteLessor.open({ ...serverAddressOf(url), connectWithin: 300 })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await using lessor = await RemoteLessor.open(serverAddressOf(`${url}&cert=${file('client.pem')}&key=${file('client.key')}`))
    expect((await lessor.read({ kind: 'summary' })).value.leases).toBe(0)
  })

  test('uses new certificates after a reload, keeps open connections, and refuses unusable certificates', async () => {
    await using here = await served()
    const serial = async () => {
      const socket = connectTls({ port: here.port, host: '127.0.0.1', rejectUnauthorized: false })
      await once(socket, 'secureConnect')
      const { serialNumber } = socket.getPeerCertificate()
      socket.destroy()
      return serialNumber
    }
    await using lessor = await RemoteLessor.open(serverAddressOf(`leaseholds://127.0.0.1:${here.port}?ca=${file('ca.pem')}`))
    const before = await serial()
    issue('server')
    expect(await serial()).toBe(before)
    await here.server.reload()
    const after = await serial()
    expect(after).not.toBe(before)
    writeFileSync(file('server.pem'), 'damaged')
    await expect(here.server.reload()).rejects.toThrow()
    expect(await serial()).toBe(after)
    expect((await lessor.read({ kind: 'summary' })).value.leases).toBe(0)
    issue('server')
  })

  test('a client that never finishes its handshake is disconnected', async () => {
    await using here = await place({
      tls: { cert: file('server.pem'), key: file('server.key') },
      limits: { ...DEFAULT_LIMITS, headerTime: 200 },
    })
    const socket = connect({ port: here.port, host: '127.0.0.1' })
    socket.on('error', () => {})
    socket.resume()
    await closed(socket)
  })
})

describe('unfinished handshakes', () => {
  test('do not keep other clients from connecting', async () => {
    const file = (name: string) => join(folder, name)
    await using here = await place({
      tls: { cert: file('server.pem'), key: file('server.key') },
      limits: { ...DEFAULT_LIMITS, connections: 5, reserved: 2, headerTime: 50_000 },
    })
    const silent = Array.from({ length: 200 }, () => {
      const socket = connect({ port: here.port, host: '127.0.0.1' })
      socket.on('error', () => {})
      socket.resume()
      return socket
    })
    await Promise.all(silent.map(socket => Promise.race([once(socket, 'connect'), closed(socket)])))
    const caller = connectTls({ port: here.port, host: '127.0.0.1', rejectUnauthorized: false })
    await once(caller, 'secureConnect')
    caller.write('PING\r\n')
    const [received] = await once(caller, 'data')
    expect(String(received)).toBe('+PONG\r\n')
    for (const socket of [...silent, caller]) socket.destroy()
  })
})
