import { once } from 'node:events'
import { createServer as createHttp, type Server } from 'node:http'
import { createServer as createHttp2 } from 'node:http2'
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { type ProbeOptions, probe } from '../../../src/server/registry/probe.ts'
import { ProbeRules } from '../../../src/server/registry/probe-rules.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'

const LOCAL = new ProbeRules(['127.0.0.1:*'])

async function listening(server: { listen(port: number, host: string): unknown; address(): unknown }): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server as Server, 'listening')
  return (server.address() as AddressInfo).port
}

const probeLocal = (url: string, options: Partial<ProbeOptions> = {}) => probe(url, { rules: LOCAL, timeout: EVENT_TIMEOUT, ...options })

describe('a probe', () => {
  test('of HTTP passes for 2xx, does not follow redirects, and shows nothing of the body', async () => {
    const asked: string[] = []
    await using http = createHttp((request, response) => {
      asked.push(`${request.url} ${Object.keys(request.headers).sort().join(' ')}`)
      if (request.url === '/redirect') response.writeHead(302, { Location: 'http://169.254.169.254/latest/meta-data' })
      else if (request.url === '/busy') response.writeHead(429)
      else if (request.url === '/ill') response.writeHead(500, 'secret')
      response.end('secret '.repeat(100_000))
    })
    const port = await listening(http)
    const at = (path: string) => probeLocal(`http://127.0.0.1:${port}${path}`)
    expect(await at('/well')).toEqual({ status: 'passing' })
    expect(await at('/redirect')).toEqual({ status: 'critical', reason: 'HTTP 302: redirects are not followed' })
    expect(await at('/busy')).toMatchObject({ status: 'warning' })
    expect(await at('/ill')).toEqual({ status: 'critical', reason: 'HTTP 500' })
    expect(asked).toEqual(['/well', '/redirect', '/busy', '/ill'].map(path => `${path} connection host user-agent`))
  })

  test('works with TCP and gRPC', async () => {
    await using tcp = createServer(socket => socket.end())
    const port = await listening(tcp)
    expect(await probeLocal(`tcp://127.0.0.1:${port}`)).toEqual({ status: 'passing' })
    let status = 1
    const asked: string[] = []
    const grpc = createHttp2()
    grpc.on('stream', (stream, headers) => {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        asked.push(`${headers[':path']} ${Buffer.concat(chunks).subarray(7).toString()}`)
        stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
        stream.end(Buffer.from([0, 0, 0, 0, 2, 8, status]))
      })
    })
    const secure = await listening(grpc)
    try {
      expect(await probeLocal(`grpc://127.0.0.1:${secure}/my.Service`)).toEqual({ status: 'passing' })
      expect(asked).toEqual(['/grpc.health.v1.Health/Check my.Service'])
      status = 2
      expect(await probeLocal(`grpc://127.0.0.1:${secure}`)).toMatchObject({ status: 'critical' })
    } finally {
      grpc.close()
    }
    expect(await probeLocal('tcp://127.0.0.1:1')).toEqual({ status: 'critical', reason: 'ECONNREFUSED' })
  })

  test('of a silent target ends after its timeout', async () => {
    await using silent = createServer(socket => socket.on('error', () => {}).resume())
    const port = await listening(silent)
    for (const scheme of ['http', 'grpc'])
      expect(await probeLocal(`${scheme}://127.0.0.1:${port}`, { timeout: 50 })).toEqual({
        status: 'critical',
        reason: 'no answer within 50 ms',
      })
  })

  test('connects to the address that was checked, and to none if one of several is not allowed', async () => {
    await using tcp = createServer(socket => socket.end())
    const port = await listening(tcp)
    let asked = 0
    const changing = async () => (++asked === 1 ? ['127.0.0.1'] : ['10.0.0.1'])
    expect(await probeLocal(`tcp://here.test:${port}`, { resolve: changing })).toEqual({ status: 'passing' })
    expect(asked).toBe(1)
    const two = async () => ['127.0.0.1', '169.254.169.254']
    expect(await probeLocal(`tcp://here.test:${port}`, { resolve: two })).toMatchObject({
      reason: expect.stringMatching(/not a public address/),
    })
  })

  test.each(['http://2130706433', 'tcp://0x7f000001', 'http://0177.0.0.1', 'tcp://[::ffff:127.0.0.1]', 'http://127.1', 'http://localhost'])(
    '%s is checked as the address that it means, and not allowed by a rule for hosts',
    async url => {
      const rules = new ProbeRules(['localhost:*', '2130706433:*', '0x7f000001:*'])
      expect(await probeLocal(`${url}:9/`, { rules })).toMatchObject({ status: 'critical', reason: expect.stringMatching(/not probed/) })
    },
  )

  test.each([
    ['tcp://127.0.0.1:80', 80],
    ['tcp://[::1]:80', 80],
    ['tcp://127.0.0.1:443', 443],
    ['tcp://127.0.0.1:21', 21],
    ['tcp://127.0.0.1:080', 80],
    ['grpc://127.0.0.1:80', 80],
    ['grpc://127.0.0.1:80/my.Service', 80],
    ['grpc://127.0.0.1', 50_051],
    ['http://127.0.0.1:80', 80],
    ['http://127.0.0.1:443/', 443],
    ['http://127.0.0.1', 80],
    ['https://127.0.0.1:443', 443],
    ['https://127.0.0.1:80/?q', 80],
    ['https://127.0.0.1', 443],
  ])('%s goes to port %i', async (url, port) => {
    const ports: number[] = []
    const own = (_: string, at: number) => ports.push(at) > 0
    expect(await probeLocal(url, { own })).toMatchObject({ reason: 'not probed: it is this server itself' })
    expect(ports).toEqual([port])
  })

  test('of the server itself is not made', async () => {
    const own = (address: string, port: number) => address === '127.0.0.1' && port === 7420
    expect(await probeLocal('http://127.0.0.1:7420/v1/revoke', { own })).toMatchObject({ reason: 'not probed: it is this server itself' })
  })

  test.each(['file:///etc/passwd', 'gopher://127.0.0.1:1', 'http://user:pass@127.0.0.1:1', 'tcp://127.0.0.1', 'http://'])(
    '%s is refused',
    async url => {
      expect(await probeLocal(url)).toMatchObject({ status: 'critical', reason: expect.stringMatching(/address/) })
    },
  )
})

test('an answer that came while the server itself was stalled is read before the probe times out', async () => {
  const clock = new ManualClock()
  await using target = createHttp((_, response) => {
    response.end('well')
    clock.stall(6_000)
  })
  expect(await probeLocal(`http://127.0.0.1:${await listening(target)}/`, { clock })).toEqual({ status: 'passing' })
})
