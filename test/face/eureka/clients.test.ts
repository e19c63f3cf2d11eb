/** Real clients of Eureka, unmodified, on the real wire. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { describe, expect, test } from 'vitest'
import { eurekaFace } from '../../../src/face/eureka/face.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { eurekaJava, eurekaNode } from '../../support/client-sets.ts'
import { orSkip } from '../../support/foreign-clients.ts'
import { recordedFace } from '../../support/recorded-face.ts'
import { place } from '../../support/resp-place.ts'

const LONG = { timeout: 900_000 }
/** One that is missing fails the compilation before. */
const JAVA_PROGRAM = 'java'

const RECORDED = new URL('recorded.jsonl', import.meta.url)

const world = () => place({ faces: [recordedFace(eurekaFace(), RECORDED)], http: httpListener() })
type Here = Awaited<ReturnType<typeof world>>

/** Registers an instance as our own library does. */
async function register(here: Here, instance: string) {
  const entries = [
    { key: `services/ours/${instance}`, value: JSON.stringify({ addresses: ['http://10.0.0.9:90'], metadata: { color: 'red' } }) },
  ]
  const outcome = await propose(here.lessor, { kind: 'acquire', holder: `ours/${instance}`, ttl: 20_000, wants: [], entries })
  if (outcome.kind !== 'granted') throw new Error(JSON.stringify(outcome))
  return outcome.lease
}

describe('the Java client', () => {
  test('registers, renews, sees others come and go by deltas with an equal hash, and leaves', LONG, async context => {
    const run = await orSkip('eureka-client for Java', eurekaJava(), context)
    await using here = await world()
    const child = spawn(JAVA_PROGRAM, [...run, 'Clients', `http://127.0.0.1:${here.port}/eureka/`], { stdio: ['pipe', 'pipe', 'pipe'] })
    let errors = ''
    child.stderr.on('data', chunk => (errors += chunk))
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    const next = async () => {
      const { value, done } = await lines.next()
      if (done) throw new Error(`the program ended: ${errors.slice(0, 2_000)}`)
      return value
    }
    const ask = (line: string) => {
      child.stdin.write(`${line}\n`)
      return next()
    }
    try {
      expect(await next()).toBe('started')
      expect(await ask('JAVA-APP 1')).toMatch(/^JAVA-APP 1 java-1 \S+:8123 java-vip blue & green true$/)
      const { value } = await here.lessor.read({ kind: 'entries', prefix: 'services' })
      expect(value.map(({ key }) => key)).toEqual(['services/java-app/java-1', 'services/java-app/java-1/state'])
      expect(await ask('requests')).toBe('404 204 200 200 OUT_OF_SERVICE 200 java-2 2 2 1 2 2 200 404')
      const lease = await register(here, 'a')
      expect(await ask('OURS 1')).toBe('OURS 1 a 10.0.0.9:90 ours red true')
      await propose(here.lessor, { kind: 'release', lease })
      expect(await ask('OURS 0')).toBe('OURS 0 - true')
      child.stdin.end()
      expect(await next()).toBe('stopped')
      expect((await here.lessor.read({ kind: 'entries', prefix: 'services' })).value).toEqual([])
    } finally {
      child.kill('SIGKILL')
    }
  })
})

interface EurekaJs {
  start(callback: (error?: Error) => void): void
  stop(callback: (error?: Error) => void): void
  fetchRegistry(callback: (error?: Error) => void): void
  renew(): void
  once(event: string, listener: () => void): void
  getInstancesByAppId(app: string): readonly { readonly instanceId: string; readonly status: string }[]
  getInstancesByVipAddress(vip: string): readonly unknown[]
}

test('eureka-js-client registers, renews, registers again after it was forgotten, sees others, and leaves', LONG, async context => {
  const require = await orSkip('eureka-js-client', eurekaNode(), context)
  const { Eureka } = require('eureka-js-client')
  await using here = await world()
  const silent = { info() {}, warn() {}, error() {}, debug() {}, level() {} }
  const client: EurekaJs = new Eureka({
    logger: silent,
    instance: {
      ...{ app: 'node-app', instanceId: 'node-1', hostName: 'node-host', ipAddr: '10.0.0.5', vipAddress: 'node-vip', status: 'UP' },
      port: { $: 8080, '@enabled': true },
      dataCenterInfo: { '@class': 'com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo', name: 'MyOwn' },
    },
    eureka: {
      host: '127.0.0.1',
      port: here.port,
      servicePath: '/eureka/v2/apps/',
      maxRetries: 1,
      heartbeatInterval: 600_000,
      registryFetchInterval: 600_000,
    },
    shouldUseDelta: true,
  })
  const done = (step: (callback: (error?: Error) => void) => void) =>
    new Promise<void>((resolve, reject) => step(error => (error ? reject(error) : resolve())))
  const event = (name: string) => new Promise<void>(resolve => client.once(name, resolve))
  await done(callback => client.start(callback))
  expect(client.getInstancesByAppId('node-app')).toMatchObject([{ instanceId: 'node-1', status: 'UP' }])
  expect(client.getInstancesByVipAddress('node-vip')).toHaveLength(1)
  const beaten = event('heartbeat')
  client.renew()
  await beaten
  await propose(here.lessor, { kind: 'revoke', target: { prefix: 'services/node-app' } })
  const again = event('registered')
  client.renew()
  await again
  await register(here, 'a')
  await done(callback => client.fetchRegistry(callback))
  expect(client.getInstancesByAppId('OURS')).toMatchObject([{ instanceId: 'a', status: 'UP' }])
  await done(callback => client.stop(callback))
  expect((await here.lessor.read({ kind: 'entries', prefix: 'services/node-app' })).value).toEqual([])
})
