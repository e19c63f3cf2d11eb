import { expect, test } from 'vitest'
import { serve } from '../../../src/server/serve.ts'
import { Line, Rig } from '../../support/replica/rig.ts'
import { Raw } from '../../support/resp-place.ts'

test('an outcome that comes after its request was answered UNKNOWN is not taken for the answer to another request', async () => {
  const rig = new Rig()
  const line = new Line()
  await using lessor = await rig.open({ line, timeout: 5_000 })
  const server = await serve({ lessor, listen: '127.0.0.1:0', clock: rig.clock })
  try {
    using client = new Raw(Number(server.addresses[0]!.split(':').at(-1)))
    line.ways.append.push(8_000)
    client.send('LEASE.ACQUIRE first TTL 30000\r\n')
    await expect.poll(() => line.sent.length).toBe(1)
    await rig.clock.advance(5_000)
    expect(String(await client.next())).toMatch(/UNKNOWN/)
    // As many as there are reply slots, so that the next request uses the slot of the first.
    for (let i = 0; i < 3; i++) {
      client.send('PING\r\n')
      expect(await client.next()).toBe('PONG')
    }
    client.send('LEASE.ACQUIRE second TTL 30000\r\nPING\r\n')
    await rig.clock.settle()
    await rig.clock.advance(3_000)
    const lease = (await client.next()) as readonly unknown[]
    const { value } = await lessor.read({ kind: 'resource', resource: 'second' }, { consistent: true })
    expect(lease[lease.indexOf('lease') + 1]).toBe(value.grants[0]!.lease)
    expect(await client.next()).toBe('PONG')
  } finally {
    await server.close()
  }
})
