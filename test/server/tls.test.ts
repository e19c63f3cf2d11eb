/** TLS for operators and clients: probes without a certificate, and addresses that name the wrong protocol. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { open } from '../../src/connect/connect.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../src/wire/resp/dial.ts'
import { describeWith, programs } from '../support/engine.ts'
import { place } from '../support/resp-place.ts'

const folder = mkdtempSync(join(tmpdir(), 'leasehold-tls-'))
const file = (name: string) => join(folder, name)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** Created once, if openssl is installed. */
function makeCertificates(): void {
  if (existsSync(file('ext'))) return
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' })
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  writeFileSync(file('ext'), 'subjectAltName=IP:127.0.0.1')
  for (const ca of ['ca', 'stranger'])
    openssl('req', '-x509', ...made, '-keyout', file(`${ca}.key`), '-out', file(`${ca}.pem`), '-subj', `/CN=${ca}`, '-days', '2')
  for (const [name, ca] of [
    ['server', 'ca'],
    ['client', 'ca'],
    ['other', 'stranger'],
  ] as const) {
    openssl('req', ...made, '-keyout', file(`${name}.key`), '-out', file(`${name}.csr`), '-subj', `/CN=${name}`)
    const signed = ['-CA', file(`${ca}.pem`), '-CAkey', file(`${ca}.key`), '-CAcreateserial', '-days', '2', '-extfile', file('ext')]
    openssl('x509', '-req', '-in', file(`${name}.csr`), ...signed, '-out', file(`${name}.pem`))
  }
}

const tls = (ca?: string) => ({ cert: file('server.pem'), key: file('server.key'), ...(ca !== undefined && { ca }) })
const mutual = () => place({ http: httpListener({}), tls: tls(file('ca.pem')) })
const shown = (name: string) => ({ cert: readFileSync(file(`${name}.pem`)), key: readFileSync(file(`${name}.key`)) })

/** Status and text of a response over TLS. */
function ask(port: number, path: string, options: object = {}): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port, path, ca: readFileSync(file('ca.pem')), ...options }, answer => {
      let text = ''
      answer.setEncoding('utf8')
      answer.on('data', chunk => (text += chunk))
      answer.on('end', () => resolve({ status: answer.statusCode!, text }))
    })
    sent.on('error', reject)
    sent.end()
  })
}

describeWith([programs.openssl], 'a server that requires client certificates', () => {
  beforeAll(makeCertificates)

  test('answers health probes without one, and nothing else', async () => {
    await using here = await mutual()
    for (const path of ['/healthz', '/readyz']) expect((await ask(here.port, path)).status, path).toBe(200)
    for (const path of ['/', '/openapi.json', '/metrics', '/v1/about', '/v1/leases', '/healthz/../v1/about', '//healthz', '/healthzz']) {
      const { status, text } = await ask(here.port, path)
      expect([path, status]).toEqual([path, 401])
      expect(text).toMatch(/UNAUTHENTICATED.*client certificate/)
    }
  })

  test('shows how many days its certificates are valid', async () => {
    await using here = await mutual()
    const { text } = await ask(here.port, '/metrics', shown('client'))
    for (const name of ['certificate', 'authority']) {
      const days = Number(new RegExp(`^leasehold_certificate_days_left\\{file="${name}"\\} (\\S+)$`, 'm').exec(text)?.[1])
      expect([name, days > 1.9 && days <= 2]).toEqual([name, true])
    }
  })

  test('refuses a certificate of another authority', async () => {
    await using here = await mutual()
    expect((await ask(here.port, '/v1/about', shown('other'))).status).toBe(401)
    expect((await ask(here.port, '/v1/about', shown('client'))).status).toBe(200)
  })

  test.each(['TLSv1.2', 'TLSv1.3'] as const)('refuses a resumed session without a certificate: %s', async maxVersion => {
    await using here = await mutual()
    const ca = readFileSync(file('ca.pem'))
    const talk = async (session?: Buffer) => {
      const socket: TLSSocket = connectTls({ host: '127.0.0.1', port: here.port, ca, maxVersion, ...(session && { session }) })
      let ticket: Buffer | undefined
      socket.on('session', given => (ticket = given))
      await once(socket, 'secureConnect')
      const reused = socket.isSessionReused()
      socket.write('GET /v1/about HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n')
      let received = ''
      for await (const chunk of socket) received += String(chunk)
      return { received, ticket, reused }
    }
    const first = await talk()
    const second = await talk(first.ticket)
    expect([first.reused, second.reused]).toEqual([false, true])
    for (const { received } of [first, second]) expect(received).toMatch(/^HTTP\/1\.1 401 /)
  })

  test('admits a client whose session is resumed with its certificate', async () => {
    await using here = await mutual()
    const agent = new Agent({ maxCachedSessions: 8 })
    for (let i = 0; i < 3; i++) expect((await ask(here.port, '/v1/about', { ...shown('client'), agent })).status).toBe(200)
    agent.destroy()
  })

  test('tells a RESP client that a certificate is missing', async () => {
    await using here = await mutual()
    const url = `leaseholds://127.0.0.1:${here.port}?ca=${file('ca.pem')}`
    for (const more of ['', `&cert=${file('other.pem')}&key=${file('other.key')}`])
      await expect(RemoteLessor.open({ ...serverAddressOf(url + more), connectWithin: 500 })).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringMatching(/client certificate.*\?cert=FILE&key=FILE/),
      })
    await using lessor = await RemoteLessor.open(serverAddressOf(`${url}&cert=${file('client.pem')}&key=${file('client.key')}`))
    expect((await lessor.read({ kind: 'summary' })).value.leases).toBe(0)
  })
})

describeWith([programs.openssl], 'the error names the right protocol for', () => {
  beforeAll(makeCertificates)

  const soon = (url: string) => RemoteLessor.open({ ...serverAddressOf(url), connectWithin: 500 })

  test('leasehold:// to a port with TLS', async () => {
    for (const ca of [undefined, file('ca.pem')]) {
      await using here = await place({ http: httpListener({}), tls: tls(ca) })
      await expect(soon(`leasehold://127.0.0.1:${here.port}`)).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringMatching(/requires TLS.*leaseholds:\/\//),
      })
    }
  })

  test('leaseholds:// to a port without TLS', async () => {
    await using here = await place({ http: httpListener({}) })
    await expect(soon(`leaseholds://127.0.0.1:${here.port}`)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/does not speak TLS.*leasehold:\/\//),
    })
  })

  test('https:// to a port without TLS', async () => {
    await using here = await place({ http: httpListener({}) })
    await expect(open(`https://127.0.0.1:${here.port}`)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/does not speak TLS.*http:\/\//),
    })
  })

  test('http:// to a port with TLS', async () => {
    for (const ca of [undefined, file('ca.pem')]) {
      await using here = await place({ http: httpListener({}), tls: tls(ca) })
      await expect(open(`http://127.0.0.1:${here.port}`)).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringMatching(/TLS.*https:\/\//),
      })
    }
  })

  test('https:// with settings that it does not have', async () => {
    for (const url of [
      'https://127.0.0.1:7420?ca=ca.pem',
      'https://127.0.0.1:7420/?cert=a&key=b',
      'http://127.0.0.1:7420?ca=x',
      'http://a#b',
    ])
      await expect(open(url)).rejects.toMatchObject({
        code: 'INVALID',
        message: expect.stringMatching(/NODE_EXTRA_CA_CERTS=FILE.*leaseholds:\/\//),
      })
  })

  test('https:// whose certificate is not trusted', async () => {
    await using here = await place({ http: httpListener({}), tls: tls() })
    await expect(open(`https://127.0.0.1:${here.port}`)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/certificate.*NODE_EXTRA_CA_CERTS=FILE/),
    })
  })
})
