/** Metrics of the library, recorded with the real prom-client, and with OpenTelemetry's own types. */
import type { Meter } from '@opentelemetry/api'
import * as client from 'prom-client'
import { expect, test } from 'vitest'
import type { MetricMeter } from '../src/metrics.ts'
import { measureWithOpenTelemetry, measureWithPromClient } from '../src/metrics.ts'
import { silentLessor } from '../src/testing/in-memory.ts'

/** Plays a grant, a refusal, an abort, a release and a loss, with work of 5 s and 30 s. */
async function play({ clock, leases, lessor }: ReturnType<typeof silentLessor>): Promise<void> {
  await leases.request('a', { ttl: '10s' }, async () => {
    await clock.advance(5_000)
    expect(await leases.tryAcquire('a')).toBeUndefined()
  })
  await expect(leases.acquire('b', { signal: AbortSignal.abort(new Error('not now')) })).rejects.toThrow('not now')
  const lost = await leases.acquire('c', { ttl: '10s' })
  lessor.stopAnswering()
  await clock.advance(30_000)
  expect(lost.held).toBe(false)
}

test('prom-client counts outcomes, durations and losses, and what is held returns to 0', async () => {
  const scene = silentLessor()
  const registry = new client.Registry()
  const stop = measureWithPromClient(client, { registry, clock: scene.clock })
  await play(scene)
  const text = await registry.metrics()
  const lines = text.split('\n').filter(line => !line.startsWith('#') && !line.includes('_bucket'))
  expect(lines).toEqual(
    expect.arrayContaining([
      'leasehold_client_acquire_duration_seconds_count{outcome="granted"} 2',
      'leasehold_client_acquire_duration_seconds_count{outcome="HELD"} 1',
      'leasehold_client_pending 0',
      'leasehold_client_held 0',
      'leasehold_client_hold_duration_seconds_sum{end="released"} 5',
      'leasehold_client_hold_duration_seconds_count{end="lost"} 1',
      'leasehold_client_losses_total{cause="unreachable"} 1',
    ]),
  )
  const value = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
  expect(value('leasehold_client_jeopardies_total')).toBe(1)
  expect(value('leasehold_client_renewal_duration_seconds_count')).toBeGreaterThan(0)
  expect(text).not.toMatch(/"(a|b|c)"/)

  stop()
  const after = silentLessor()
  await after.leases.request('a', () => {})
  await after.leases[Symbol.asyncDispose]()
  expect(await registry.metrics()).toBe(text)
})

test('OpenTelemetry gets the same, with its names and units', async () => {
  const sums = new Map<string, number>()
  const units: Record<string, string | undefined> = {}
  const add = (name: string) => (value: number, attributes?: Readonly<Record<string, string>>) => {
    const key = [name, ...Object.values(attributes ?? {})].join(' ')
    sums.set(key, (sums.get(key) ?? 0) + value)
  }
  const meter: MetricMeter = {
    createHistogram: (name, { unit }) => {
      units[name] = unit
      return { record: add(name) }
    },
    createCounter: name => ({ add: add(name) }),
    createUpDownCounter: name => ({ add: add(name) }),
  }
  const scene = silentLessor()
  const stop = measureWithOpenTelemetry(meter, { clock: scene.clock })
  await play(scene)
  stop()
  expect(Object.fromEntries(sums)).toMatchObject({
    'leasehold.client.pending': 0,
    'leasehold.client.held': 0,
    'leasehold.client.hold.duration released': 5,
    'leasehold.client.losses unreachable': 1,
    'leasehold.client.jeopardies': 1,
  })
  expect(units).toEqual({
    'leasehold.client.acquire.duration': 's',
    'leasehold.client.hold.duration': 's',
    'leasehold.client.renewal.duration': 's',
  })
})

test('a Meter of OpenTelemetry is taken as it is', () => {
  const isTaken = (meter: Meter): MetricMeter => meter
  expect(isTaken).toBeTypeOf('function')
})
