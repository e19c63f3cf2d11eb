/** The port for probes: what it answers without keys and certificates, and that it answers nothing else. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import type { Lessor } from '../../src/lessor.ts'
import { serve } from '../../src/server/serve.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { eventually } from '../support/eventually.ts'
import { world } from '../support/http-world.ts'

const probed = async () => {
  const place = await world({ probe: '127.0.0.1:0' })
  const url = `http://${place.server.probeAddress}`
  const ask = async (path: string, init?: RequestInit) => {
    const response = await fetch(url + path, init)
    return { status: response.status, text: await response.text() }
  }
  return { place, ask, port: Number(url.split(':').at(-1)), [Symbol.asyncDispose]: () => place[Symbol.asyncDispose]() }
}

test('a probe needs no key, although the server has keys', async () => {
  await using server = await probed()
  await server.place.key('admin', [{ verb: 'admin', prefix: '' }])
  expect(await server.place.ask('GET', '/v1/leases')).toMatchObject({ status: 401 })
  expect(await server.ask('/healthz')).toEqual({ status: 200, text: '{"ok":true}\n' })
  expect(await server.ask('/readyz?verbose')).toEqual({ status: 200, text: '{"ok":true}\n' })
  expect(await server.ask('/healthz', { method: 'HEAD' })).toEqual({ status: 200, text: '' })
})

test.each(['/', '/metrics', '/openapi.json', '/v1/leases', '/v1/watch', '/healthz/', '//healthz', '/readyz/..', '/mcp'])(
  '%s is not answered on the port for probes',
  async path => {
    await using server = await probed()
    expect((await server.ask(path)).status).toBe(404)
  },
)

test('a probe changes nothing: other methods are refused, and a body is not read into memory', async () => {
  await using server = await probed()
  for (const method of ['POST', 'PUT', 'DELETE'])
    expect((await server.ask('/healthz', { method, ...(method !== 'DELETE' && { body: 'x'.repeat(1 << 20) }) })).status).toBe(404)
})

test('a RESP command on the port for probes is refused', async () => {
  await using server = await probed()
  const socket = connect(server.port, '127.0.0.1')
  socket.write('*1\r\n$4\r\nPING\r\n')
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(answer.toString()).toMatch(/^HTTP\/1\.1 400 /)
  socket.destroy()
})

test.each(['GET /readyz HTTP/1.0', 'GET /readyz HTTP/1.1', 'GET /healthz HTTP/1.1'])(
  '%s without the header Host is answered',
  async line => {
    await using server = await probed()
    const socket = connect(server.port, '127.0.0.1')
    socket.write(`${line}\r\n\r\n`)
    let received = ''
    for await (const chunk of socket) received += String(chunk)
    expect(received).toMatch(/^HTTP\/1\.1 200 /)
  },
)

test('a header of more than 8 KiB is refused', async () => {
  await using server = await probed()
  expect((await server.ask('/healthz', { headers: { 'x-long': 'x'.repeat(9_000) } })).status).toBe(431)
})

test('probes that ask at the same time share one read of the store, and a store that fails makes the server alive and not ready', async () => {
  const clock = new ManualClock()
  await using place = await world()
  let reads = 0
  let counting = false
  let failing = false
  let answer = () => {}
  const mayAnswer = new Promise<void>(resolve => (answer = resolve))
  const lessor = new Proxy(place.lessor, {
    get: (target, name) => {
      if (name !== 'read') return Reflect.get(target, name, target)
      return async (...args: Parameters<Lessor['read']>) => {
        if (args[1]?.consistent !== true || !counting) return target.read(...args)
        reads++
        await mayAnswer
        if (failing) throw new LeaseError('UNAVAILABLE', 'password of the database: secret')
        return target.read(...args)
      }
    },
  })
  await using server = await serve({ lessor, clock, listen: '127.0.0.1:0', probe: '127.0.0.1:0' })
  const url = `http://${server.probeAddress}`
  const ask = async (path: string) => (await fetch(url + path)).status
  counting = true
  const first = ask('/readyz')
  await eventually(() => expect(reads).toBe(1))
  const others = [ask('/readyz'), ask('/readyz'), ask('/readyz')]
  for (let i = 0; i < 4; i++) expect(await ask('/healthz')).toBe(200) // sent later than the others
  expect(reads).toBe(1)
  answer()
  expect(await Promise.all([first, ...others])).toEqual([200, 200, 200, 200])
  failing = true
  const response = await fetch(`${url}/readyz`)
  expect([response.status, await response.json()]).toEqual([503, { error: { code: 'UNAVAILABLE', message: 'the store does not answer' } }])
  expect((await fetch(`${url}/healthz`)).status).toBe(200)
})

test('a server whose port for probes is in use does not start, and says so', async () => {
  await using first = await probed()
  await expect(world({ probe: `127.0.0.1:${first.port}` })).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringMatching(/^--probe: 127\.0\.0\.1:\d+ is in use by another process/),
    facts: {},
  })
})

test('the port for probes ends with the server', async () => {
  let port = 0
  {
    await using server = await probed()
    port = server.port
  }
  const socket = connect(port, '127.0.0.1')
  await expect(once(socket, 'connect')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
})
