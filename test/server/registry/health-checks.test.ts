import { describe, expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { Leases } from '../../../src/leases.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { Lessor } from '../../../src/lessor.ts'
import type { RegistrationEvent } from '../../../src/recipe/registry/registration.ts'
import type { CheckResult } from '../../../src/registry/entry.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { Catalog } from '../../../src/server/registry/catalog.ts'
import { HealthChecks, type HealthChecksOptions } from '../../../src/server/registry/health-checks.ts'
import { ProbeRules } from '../../../src/server/registry/probe-rules.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { type World, world } from '../../support/http-world.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }
const OPTIONS = { rules: new ProbeRules([]), own: () => false, log: SILENT }

function checksOf(here: { lessor: Lessor; clock: ManualClock }, more: Partial<HealthChecksOptions>): Promise<HealthChecks> {
  const { lessor, clock } = here
  return HealthChecks.open({ ...OPTIONS, lessor, clock, catalog: Catalog.of({ lessor, clock, closing: lessor.signal }), ...more })
}

/** Advances the clock in steps, and lets promises settle between them. */
async function pass(here: { clock: ManualClock }, ms: number, step = 500): Promise<void> {
  for (let passed = 0; passed < ms; passed += step) {
    await here.clock.advance(step)
    for (let i = 0; i < 5; i++) await turn()
  }
}

/** Registers and renews an instance: the first term of a lease is short, later ones have the whole ttl. */
async function put(here: World, instance: string, check: object): Promise<void> {
  const body = { address: 'http://10.0.0.7:80', ttl: '1h', check: { url: 'http://10.0.0.7:80/', ...check } }
  await here.ask('PUT', `/v1/services/worker/${instance}`, body)
  await here.ask('POST', `/v1/services/worker/${instance}/heartbeat`)
}

async function status(here: World, instance = 'a'): Promise<unknown> {
  const { json } = await here.ask('GET', `/v1/services/worker/${instance}?consistent=true`)
  return json.status === undefined ? json.error.code : json.reason === '' ? json.status : `${json.status}: ${json.reason}`
}

/** Advances the clock until `count` more probes were made and their results written. */
async function probesMade(here: { clock: ManualClock }, checks: HealthChecks, count: number): Promise<void> {
  const { probes } = checks.stats
  for (let i = 0; checks.stats.probes < probes + count && i < 1_000; i++) await pass(here, 500)
  expect(checks.stats.probes).toBe(probes + count)
  for (let i = 0; i < 20; i++) await turn()
}

test('an instance becomes critical after `fall` failures in a row, and passing again after `rise` successes', async () => {
  await using here = await world()
  let result: CheckResult = { status: 'passing' }
  await using checks = await checksOf(here, { probe: async () => result })
  await put(here, 'a', { interval: 10_000, fall: 3, rise: 2 })
  await probesMade(here, checks, 2)
  expect(await status(here)).toBe('passing')
  const { written } = checks.stats
  result = { status: 'critical', reason: 'HTTP 500' }
  await probesMade(here, checks, 2)
  expect(await status(here), 'two are not enough').toBe('passing')
  await probesMade(here, checks, 1)
  expect(await status(here)).toBe('critical: HTTP 500')
  result = { status: 'passing' }
  await probesMade(here, checks, 1)
  expect(await status(here), 'one is not enough').toBe('critical: HTTP 500')
  await probesMade(here, checks, 1)
  expect(await status(here)).toBe('passing')
  await probesMade(here, checks, 10)
  expect(checks.stats.written - written, 'only changes are written').toBe(2)
})

describe('an instance that asks for a check', () => {
  test('is unknown, and not picked, until its first result', async () => {
    await using here = await world()
    await put(here, 'a', { interval: 10_000 })
    expect(await status(here), 'no server makes checks').toBe('unknown: not checked yet')
    await pass(here, 60_000)
    expect(await status(here), 'and it stays so').toBe('unknown: not checked yet')
    const { lessor, clock } = here
    await using leases = new Leases(lessor, { clock, holder: 'h' })
    const workers = leases.registry.discover({ service: 'worker' })
    expect(await workers.pick()).toBeUndefined()
    await using checks = await checksOf(here, { probe: async () => ({ status: 'passing' }) })
    await probesMade(here, checks, 1)
    expect(await status(here)).toBe('passing')
    expect((await workers.pick())?.instance).toBe('a')
  })

  test('and never worked is critical after the first probe, within about a second', async () => {
    await using here = await world()
    await using checks = await checksOf(here, { probe: async () => ({ status: 'critical', reason: 'ECONNREFUSED' }) })
    await pass(here, 5_000)
    await put(here, 'a', { interval: 3_600_000, fall: 3 })
    await pass(here, 1_500)
    expect(checks.stats.probes).toBe(1)
    expect(await status(here)).toBe('critical: ECONNREFUSED')
  })

  test('and starts slowly is passing after one success, and is not ended before it failed `fall` times', async () => {
    await using here = await world()
    let result: CheckResult = { status: 'critical', reason: 'ECONNREFUSED' }
    await using checks = await checksOf(here, { probe: async () => result })
    await put(here, 'a', { interval: 1_000, fall: 3, rise: 2, endAfter: 0 })
    await probesMade(here, checks, 2)
    expect(await status(here)).toBe('critical: ECONNREFUSED')
    result = { status: 'passing' }
    await probesMade(here, checks, 1)
    expect(await status(here)).toBe('passing')
    result = { status: 'critical', reason: 'ECONNREFUSED' }
    await probesMade(here, checks, 3)
    expect(await status(here)).toBe('NOT_FOUND')
  })

  test('and passed keeps its status after one failure on the next server', async () => {
    await using here = await world()
    await put(here, 'a', { interval: 1_000, fall: 3 })
    {
      await using first = await checksOf(here, { probe: async () => ({ status: 'passing' }) })
      await probesMade(here, first, 1)
    }
    await using second = await checksOf(here, { probe: async () => ({ status: 'critical', reason: 'HTTP 500' }) })
    await probesMade(here, second, 1)
    expect(await status(here)).toBe('passing')
    await probesMade(here, second, 2)
    expect(await status(here)).toBe('critical: HTTP 500')
  })

  test('and whose result was deleted, or written by another server, is judged by the entry in the log', async () => {
    await using here = await world()
    await using checks = await checksOf(here, { probe: async () => ({ status: 'passing' }) })
    await put(here, 'a', { interval: 1_000 })
    await probesMade(here, checks, 1)
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'services/worker/a/check' })
    await propose(here.lessor, { kind: 'delete', key: 'services/worker/a/check', lease: value[0]!.lease })
    expect(await status(here)).toBe('unknown: not checked yet')
    await probesMade(here, checks, 1)
    expect(await status(here)).toBe('passing')
    const critical = JSON.stringify({ status: 'critical', reason: 'HTTP 500' })
    await propose(here.lessor, { kind: 'put', key: 'services/worker/a/check', lease: value[0]!.lease, value: critical })
    expect(await status(here)).toBe('critical: HTTP 500')
    await probesMade(here, checks, 2)
    expect(await status(here)).toBe('passing')
  })

  test('learns how many servers make checks', async () => {
    await using here = await world()
    const body = { address: 'http://10.0.0.7:80', ttl: '1h', check: 'http://10.0.0.7:80/' }
    expect((await here.ask('PUT', '/v1/services/worker/a', body)).json.checkers).toBe(0)
    expect((await here.ask('PUT', '/v1/services/worker/b', { ...body, check: undefined })).json.checkers).toBeUndefined()
    const { lessor, clock } = here
    await using leases = new Leases(lessor, { clock, holder: 'h' })
    const events: string[] = []
    const onEvent = ({ type, reason }: RegistrationEvent) => events.push(`${type}: ${reason?.message}`)
    await using _ = await leases.registry.register({ service: 'worker', instance: 'c', address: 'a:1', check: 'tcp://a:1', onEvent })
    for (let i = 0; i < 20; i++) await turn()
    expect(events).toEqual([expect.stringMatching(/^unchecked: .*no server makes health checks/)])
    await using checks = await checksOf(here, { probe: async () => ({ status: 'passing' }) })
    await pass(here, 1_000)
    expect(await leases.registry.checkers()).toHaveLength(1)
    expect((await here.ask('PUT', '/v1/services/worker/a', body)).json.checkers).toBe(1)
    await using __ = await leases.registry.register({ service: 'worker', instance: 'd', address: 'a:1', check: 'tcp://a:1', onEvent })
    for (let i = 0; i < 20; i++) await turn()
    expect(events).toHaveLength(1)
    expect(checks.size).toBe(3)
  })

  test('can read the list of these servers with any key that may register', async () => {
    await using here = await world()
    await using checks = await checksOf(here, { probe: async () => ({ status: 'passing' }) })
    await pass(here, 1_000)
    const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
    const guarded = here.server.guarded
    const caller = guarded.access.identify(secret)
    const { value } = await guarded.read(caller, { kind: 'entries', prefix: 'leasehold/checks/servers' })
    expect(value).toHaveLength(1)
    await expect(guarded.read(caller, { kind: 'entries', prefix: 'leasehold/checks' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
    await expect(guarded.read(caller, { kind: 'entries', prefix: 'leasehold' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
    expect(checks.size).toBe(0)
  })
})

test('an instance that a configured command checks is critical until the command succeeds', async () => {
  await using here = await world()
  const { lessor, clock } = here
  const catalog = Catalog.of({ lessor, clock, closing: lessor.signal })
  const seen: string[] = []
  catalog.directory.listen((_, __, after) => seen.push(`${after?.status}: ${after?.reason}`))
  await using checks = await checksOf(here, { commands: { worker: ['/bin/sh', '-c', 'exit 7'] } })
  await here.ask('PUT', '/v1/services/worker/a', { address: 'http://10.0.0.7:80', ttl: '1h' })
  for (let i = 0; checks.stats.written === 0 && i < 200; i++) await pass(here, 100, 100)
  expect(seen).toEqual(['passing: ', 'critical: not checked yet', 'critical: the command ended with 7'])
})

test('the lease of an instance that stays critical for endAfter is ended', async () => {
  await using here = await world()
  await using checks = await checksOf(here, { probe: async () => ({ status: 'critical', reason: 'ECONNREFUSED' }) })
  await put(here, 'a', { interval: 1_000, fall: 1, endAfter: 20_000 })
  await put(here, 'b', { interval: 1_000, fall: 1 })
  await pass(here, 15_000)
  expect(await status(here)).toBe('critical: ECONNREFUSED')
  await pass(here, 12_000)
  expect(await status(here)).toBe('NOT_FOUND')
  expect(await status(here, 'b'), 'only marked').toBe('critical: ECONNREFUSED')
  expect(checks.stats.ended).toBe(1)
})

test('an instance without a check, or that was deregistered, is not probed', async () => {
  await using here = await world()
  const probed: string[] = []
  await using checks = await checksOf(here, {
    probe: async url => {
      probed.push(url)
      return { status: 'passing' }
    },
  })
  await here.ask('PUT', '/v1/services/worker/a', { address: 'http://10.0.0.7:80', ttl: '1h' })
  await put(here, 'b', { url: 'http://10.0.0.8:80/', interval: 1_000 })
  await pass(here, 5_000)
  expect(new Set(probed)).toEqual(new Set(['http://10.0.0.8:80/']))
  await here.ask('DELETE', '/v1/services/worker/b')
  await pass(here, 1_000)
  probed.length = 0
  await pass(here, 5_000)
  expect(probed).toEqual([])
  expect(checks.size).toBe(0)
})

test('a service with more dead targets than there are slots does not delay the checks of another', async () => {
  await using here = await world()
  const pending: (() => void)[] = []
  const probed: string[] = []
  const probe = (url: string) => {
    probed.push(url)
    return new Promise<CheckResult>(resolve => pending.push(() => resolve({ status: 'critical', reason: 'no answer' })))
  }
  await using checks = await checksOf(here, { probe })
  const entries = (service: string, i: number) => [
    { key: `services/${service}/${i}`, value: JSON.stringify({ addresses: [], check: { url: `tcp://${service}:${i}`, interval: 100 } }) },
  ]
  const put = (service: string, i: number) =>
    propose(here.lessor, { kind: 'acquire', holder: `${service}${i}`, ttl: 3_600_000, wants: [], entries: entries(service, i) })
  for (let i = 1; i <= 400; i++) await put('dead', i)
  await pass(here, 8_000)
  expect([probed.length, checks.inFlight]).toEqual([320, 320])
  await put('other', 1)
  await pass(here, 2_000)
  for (let i = 0; i < 2; i++) {
    pending.shift()!()
    for (let n = 0; n < 10; n++) await turn()
  }
  expect(probed.slice(320), 'at the latest with the second slot that comes free').toContain('tcp://other:1')
  expect(checks.inFlight).toBe(320)
})

test('the first probe of a newcomer does not wait behind services whose targets do not answer', async () => {
  await using here = await world()
  const probed: string[] = []
  const probe = (url: string) => {
    probed.push(url)
    return new Promise<CheckResult>(resolve => here.clock.after(5_000, () => resolve({ status: 'critical', reason: 'no answer' })))
  }
  await using checks = await checksOf(here, { probe })
  const put = (service: string) => {
    const value = JSON.stringify({ addresses: [], check: { url: `tcp://${service}:1` } })
    return propose(here.lessor, {
      kind: 'acquire',
      holder: service,
      ttl: 3_600_000,
      wants: [],
      entries: [{ key: `services/${service}/1`, value }],
    })
  }
  for (let i = 1; i <= 300; i++) await put(`hung${i}`)
  await pass(here, 17_000)
  expect(checks.inFlight).toBeGreaterThan(100)
  await put('fresh')
  await pass(here, 1_100)
  expect(probed).toContain('tcp://fresh:1')
})

test('of 10,000 instances each that answers is probed in every interval, although 300 never do', async () => {
  await using here = await world()
  const probes = new Map<string, number>()
  const probe = (url: string): Promise<CheckResult> => {
    probes.set(url, (probes.get(url) ?? 0) + 1)
    if (!url.startsWith('tcp://hung')) return Promise.resolve({ status: 'passing' })
    return new Promise(resolve => here.clock.after(5_000, () => resolve({ status: 'critical', reason: 'no answer' })))
  }
  await using checks = await checksOf(here, { probe })
  const put = async (service: string, count: number) => {
    const register = (i: number) => {
      const entries = [
        { key: `services/${service}/${i}`, value: JSON.stringify({ addresses: [], check: { url: `tcp://${service}:${i}` } }) },
      ]
      return propose(here.lessor, { kind: 'acquire', holder: `${service}/${i}`, ttl: 3_600_000, wants: [], entries })
    }
    const leases = await Promise.all(Array.from({ length: count }, (_, i) => register(i + 1)))
    await propose(here.lessor, { kind: 'renew', leases: leases.map(outcome => (outcome.kind === 'granted' ? outcome.lease : 0)) })
  }
  const healthy = () => [...probes].filter(([url]) => url.startsWith('tcp://well'))
  for (let n = 0; n < 97; n++) await put(`well${n}`, 100)
  for (let i = 0; healthy().length < 9_700 && i < 100; i++) await pass(here, 500)
  // More than 64 in a second would delay others.
  for (let n = 0; n < 6; n++) {
    await put(`hung${n}`, 50)
    await pass(here, 2_000)
  }
  for (let i = 0; checks.size < 10_000 && i < 100; i++) await pass(here, 500)
  expect(checks.size).toBe(10_000)
  probes.clear()
  await pass(here, 12_000, 250)
  expect(healthy()).toHaveLength(9_700)
  expect(Math.max(...healthy().map(([, count]) => count))).toBeLessThanOrEqual(2)
})

test('a server that stops does not wait for a store that does not answer', async () => {
  const clock = new ManualClock()
  const replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  let silent = false
  const lessor = new Proxy(replica as Lessor, {
    get(target, name) {
      if (silent && name === 'submit') return () => {}
      const value = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const checks = await checksOf({ lessor, clock }, { probe: async () => ({ status: 'passing' }) })
  await pass({ clock }, 2_000)
  silent = true
  let closed = false
  const closing = checks[Symbol.asyncDispose]().then(() => (closed = true))
  await pass({ clock }, 1_500)
  expect(closed).toBe(true)
  await closing
  await replica[Symbol.asyncDispose]()
})

test('a configured command runs without a shell and without the server’s environment', async () => {
  await using here = await world()
  process.env.LEASEHOLD_CANARY = 'x'
  const sees = ['/bin/sh', '-c', 'test -z "$LEASEHOLD_CANARY" && test "$0" = "a b; exit 2"', 'a b; exit 2']
  await using checks = await checksOf(here, { commands: { worker: sees } })
  await here.ask('PUT', '/v1/services/worker/a', { address: 'http://10.0.0.7:80', ttl: '1h', status: 'warning' })
  for (let i = 0; checks.stats.written === 0 && i < 200; i++) await pass(here, 1_000)
  expect((await here.ask('GET', '/v1/entries?prefix=services/worker/a/check')).json.entries[0].value).toBe('{"status":"passing"}')
  delete process.env.LEASEHOLD_CANARY
})

test('of several servers on one store one makes each check, the checks are shared fairly, and taken over when a server dies', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const replica = () => Replica.open(new MemoryStore({ log, clock }), { clock })
  const lessors = [await replica(), await replica()]
  const seen: Map<string, number>[] = [new Map(), new Map()]
  for (let i = 0; i < 40; i++)
    await propose(lessors[0]!, {
      kind: 'acquire',
      holder: `h${i}`,
      ttl: 3_600_000,
      wants: [],
      entries: [
        {
          key: `services/worker/${i}`,
          value: JSON.stringify({ addresses: [], check: { url: `http://10.0.0.${i}:80/`, interval: 1_000 } }),
        },
      ],
    })
  const { value: leases } = await lessors[0]!.read({ kind: 'leases' })
  await propose(lessors[0]!, { kind: 'renew', leases: leases.map(({ lease }) => lease) })
  const checks: HealthChecks[] = []
  for (const [i, lessor] of lessors.entries()) {
    const count = async (url: string) => {
      seen[i]!.set(url, (seen[i]!.get(url) ?? 0) + 1)
      return { status: 'passing' } as const
    }
    checks.push(await checksOf({ lessor, clock }, { probe: count }))
  }
  await pass({ clock }, 20_000, 250)
  for (const each of seen) each.clear()
  await pass({ clock }, 10_000, 250)
  const [one, other] = seen.map(each => new Set(each.keys()))
  expect(
    [...one!].filter(url => other!.has(url)),
    'by both',
  ).toEqual([])
  expect(one!.size + other!.size).toBe(40)
  expect(Math.min(one!.size, other!.size)).toBeGreaterThan(8)
  // The first server vanishes: its parts lapse, and the other takes them.
  await lessors[0]![Symbol.asyncDispose]()
  await pass({ clock }, 40_000, 250)
  seen[0]!.clear()
  seen[1]!.clear()
  await pass({ clock }, 5_000, 250)
  expect(seen[0]!.size).toBe(0)
  expect(seen[1]!.size).toBe(40)
  for (const each of checks) await each[Symbol.asyncDispose]()
  await lessors[1]![Symbol.asyncDispose]()
})
