/** The diagnostics channels and the metrics of the library are those that docs/operate/metrics.md documents, with the same fields. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import * as client from 'prom-client'
import { expect, test } from 'vitest'
import { measureWithOpenTelemetry, measureWithPromClient } from '../../src/metrics.ts'
import { ManualClock, MemoryLog, silentLessor } from '../../src/testing/index.ts'

const page = readFileSync(new URL('../../docs/operate/metrics.md', import.meta.url), 'utf8')
/** The documented fields of each channel. */
const documented = new Map(
  [...page.matchAll(/^\| `(leasehold:\w+)` \| [^|]+ \| ([^|]+) \|$/gm)].map(([, name, fields]) => [
    name!,
    [...fields!.matchAll(/`(\w+)`/g)].map(([, field]) => field!).sort(),
  ]),
)

test('every channel is documented with exactly the fields of its messages', async () => {
  expect(documented.size).toBe(9)
  const seen = new Map<string, Set<string>>()
  const ends = [...documented.keys()].map(name => {
    const receive = (message: unknown) => {
      const fields = seen.get(name) ?? new Set()
      for (const field of Object.keys(message as object)) fields.add(field)
      seen.set(name, fields)
    }
    subscribe(name, receive)
    return () => unsubscribe(name, receive)
  })
  try {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const one = silentLessor({ clock, log, holder: 'one' })
    const two = silentLessor({ clock, log, holder: 'two' })
    const first = await one.leases.acquire('a', { ttl: '10s' })
    expect(await two.leases.tryAcquire('a')).toBeUndefined()
    const second = two.leases.acquire('a', { ttl: '10s' })
    await clock.advance(6_000) // renewed, and the place in the queue is known
    await first.release()
    await clock.advance(6_000)
    await (await second).transfer('one')
    await one.leases.registry.register({ service: 's', address: 'tcp://a:1', check: 'tcp://a:1', onEvent: () => {} })
    const registration = await one.leases.registry.register({ service: 't', address: 'tcp://a:1' })
    await registration.deregister()
    await two.leases.acquire('b', { ttl: '10s' })
    two.lessor.stopAnswering()
    await clock.advance(30_000)
    await one.leases[Symbol.asyncDispose]()
  } finally {
    for (const end of ends) end()
  }
  expect(Object.fromEntries([...seen].map(([name, fields]) => [name, [...fields].sort()]))).toEqual(Object.fromEntries(documented))
})

test('the table of metrics has the metrics of both libraries, and no others', async () => {
  const registry = new client.Registry()
  measureWithPromClient(client, { registry })()
  const names: string[] = []
  const add = (name: string) => {
    names.push(name)
    return { add: () => {}, record: () => {} }
  }
  measureWithOpenTelemetry({ createHistogram: add, createCounter: add, createUpDownCounter: add })()
  const rows = [...page.matchAll(/^\| `(leasehold_client_\w+)(?:\{\w+\})?` \| `([\w.]+)` \|/gm)]
  expect(rows.map(([, prom]) => prom)).toEqual((await registry.getMetricsAsJSON()).map(({ name }) => name))
  expect(rows.map(([, , otel]) => otel)).toEqual(names)
})
