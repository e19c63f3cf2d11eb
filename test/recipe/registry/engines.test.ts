import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { serve } from '../../../src/server/serve.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { address, scenes } from '../../support/registry-scenes.ts'
import { place } from '../../support/resp-place.ts'

let logs = 0

for (const kind of ['redis', 'postgres'] as const)
  describeEngine(kind, `a registry in ${kind}`, () => {
    let running: Engine
    beforeAll(async () => {
      running = await engine(kind)
    })
    afterAll(async () => {
      await running?.[Symbol.asyncDispose]()
    })

    test.each(Object.entries(scenes))('%s', async (_, scene) => {
      const url = new URL(running.url)
      url.searchParams.set('name', `registry${logs++}`)
      await scene({ open: holder => connect(url.href, { holder }) })
    })
  })

describe.each(['leasehold', 'http'])('a registry over %s://', scheme => {
  test.each(Object.entries(scenes))('%s', async (_, scene) => {
    await using here = await place({ http: httpListener({}) })
    await scene({ open: holder => connect(`${scheme}://127.0.0.1:${here.port}`, { holder }) })
  })

  test('keeps its list while the server is down, and catches up when it is back', async () => {
    await using here = await place({ http: httpListener({}) })
    await using agent = await connect(`${scheme}://127.0.0.1:${here.port}`, { holder: 'agent' })
    await using client = await connect(`${scheme}://127.0.0.1:${here.port}`, { holder: 'client' })
    await agent.registry.register({ service: 's', instance: '1', address, ttl: '20s' })
    const found = await client.registry.discover({ service: 's' }).ready()
    expect(await found.pick()).toMatchObject({ instance: '1' })
    await here.server.close()
    expect(await found.pick()).toMatchObject({ instance: '1' })
    expect(found.listNow()).toHaveLength(1)
    const again = await serve({ lessor: here.lessor, listen: `127.0.0.1:${here.port}`, http: httpListener({}) })
    try {
      const changes = found.changes()
      await changes.next()
      await agent.registry.register({ service: 's', instance: '2', address })
      expect((await changes.next()).value).toMatchObject({ type: 'added', instance: { instance: '2' } })
      await changes.return()
    } finally {
      await again.close()
    }
  })
})
