import { describe, expect, test } from 'vitest'
import { holderLabels } from '../../src/devices/attribution.ts'
import type { Device, DeviceListing } from '../../src/devices/device.ts'
import { DeviceOffer, type DeviceOfferEvent, type DeviceOfferOptions } from '../../src/devices/device-offer.ts'
import { type DrainTarget, drainKey, formatDrain } from '../../src/devices/drain.ts'
import type { HostProcess } from '../../src/devices/host-processes.ts'
import { parseReport } from '../../src/devices/report.ts'
import { LeaseError } from '../../src/errors.ts'
import type { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A host whose devices a test changes by hand. */
class FakeHost {
  devices: Device[]
  problems: string[] = []
  failure: Error | undefined
  processes: HostProcess[] = []
  readonly events: DeviceOfferEvent[] = []

  constructor(...ids: string[]) {
    this.devices = ids.map(id => ({ id, labels: { model: 'a100', index: '0' }, utilisation: 50, processes: [] }))
  }

  options(more: Partial<DeviceOfferOptions> = {}): DeviceOfferOptions {
    return {
      host: 'a',
      discover: async (): Promise<DeviceListing> => {
        if (this.failure !== undefined) throw this.failure
        return { devices: this.devices, problems: this.problems }
      },
      onEvent: event => void this.events.push(event),
      processes: {
        find: pid => this.processes.find(process => process.pid === pid),
        variable: () => undefined,
        userName: uid => ['root', 'ann', 'ben'][uid]!,
      },
      ...more,
    }
  }

  set(id: string, change: Partial<Device>): void {
    this.devices = this.devices.map(device => (device.id === id ? { ...device, ...change } : device))
  }

  types(): string[] {
    return this.events.map(({ type }) => type)
  }
}

async function members(leases: Leases): Promise<string[]> {
  const { value } = await leases.read({ kind: 'entries', prefix: 'pool/gpus' })
  return value.map(({ key }) => key.slice('pool/gpus/'.length)).sort()
}

async function report(leases: Leases, member: string) {
  const { value } = await leases.read({ kind: 'entries', prefix: `devices/gpus/${member}` })
  return value[0] === undefined ? undefined : parseReport(value[0].value)
}

describe('an offer', () => {
  test('has one lease with all devices of its host, which leave in one revision when it ends', async () => {
    const { leases } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0', 'g1')
    const offer = await DeviceOffer.start(leases, 'gpus', host.options())
    expect(offer.members).toEqual(['g0', 'g1'])
    const { value } = await leases.read({ kind: 'entries', prefix: 'pool/gpus' })
    expect(new Set(value.map(({ lease }) => lease)).size).toBe(1)
    expect(JSON.parse(value[0]!.value)).toEqual({ labels: { model: 'a100', index: '0' }, units: 1 })
    const deletions: string[][] = []
    const stop = new AbortController()
    const watching = (async () => {
      for await (const events of leases.watch('pool/gpus', { signal: stop.signal, types: ['deleted'] }))
        deletions.push(events.map(({ key }) => key!))
    })()
    await offer[Symbol.asyncDispose]()
    await expect.poll(() => deletions.length).toBe(1)
    expect(deletions[0]!.sort()).toEqual(['pool/gpus/g0', 'pool/gpus/g1'])
    stop.abort()
    await watching
  })

  test('lists a device that appears, relabels one that changes its index, and withdraws one that two runs do not list', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    await using offer = await DeviceOffer.start(leases, 'gpus', host.options())
    host.devices.push({ id: 'g1', labels: {} })
    host.set('g0', { labels: { model: 'a100', index: '7' } })
    await clock.advance(10_000)
    expect(await members(leases)).toEqual(['g0', 'g1'])
    const { value } = await leases.read({ kind: 'entries', prefix: 'pool/gpus/g0' })
    expect(JSON.parse(value[0]!.value).labels.index).toBe('7')
    host.devices.shift()
    await clock.advance(10_000)
    expect(await members(leases)).toEqual(['g0', 'g1'])
    await clock.advance(10_000)
    expect(await members(leases)).toEqual(['g1'])
    expect(await report(leases, 'g0')).toBeUndefined()
    expect(offer.members).toEqual(['g1'])
    expect(host.types()).toEqual(['offered', 'offered', 'withdrawn'])
  })

  test('keeps devices while the discovery hangs, for its patience, and reports the problem once', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options({ patience: '1m' }))
    host.failure = new LeaseError('UNAVAILABLE', 'nvidia-smi did not answer within 10 s')
    await clock.advance(50_000)
    expect(await members(leases)).toEqual(['g0'])
    expect(await report(leases, 'g0')).toMatchObject({ problem: 'nvidia-smi did not answer within 10 s' })
    expect((await report(leases, 'g0'))?.utilisation).toBeUndefined()
    await clock.advance(20_000)
    expect(await members(leases)).toEqual([])
    host.failure = undefined
    await clock.advance(10_000)
    expect(await members(leases)).toEqual(['g0'])
    expect(host.types()).toEqual(['offered', 'problem', 'withdrawn', 'recovered', 'offered'])
  })

  test('is refused if its first discovery fails, and leaves nothing behind', async () => {
    const { leases } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost()
    host.failure = new LeaseError('UNAVAILABLE', 'nvidia-smi was not found')
    await expect(DeviceOffer.start(leases, 'gpus', host.options())).rejects.toThrow(/not found/)
    expect((await leases.read({ kind: 'leases' })).value).toEqual([])
  })

  test('does not get a device that another host offers, says so once, and gets it when that host is gone, whatever the clocks show', async () => {
    const clock = new ManualClock()
    const first = silentLessor({ holder: 'a', clock })
    const second = silentLessor({ holder: 'b', clock, log: first.log })
    await using _a = first.leases
    await using _b = second.leases
    const [a, b] = [new FakeHost('g0'), new FakeHost('g0', 'g1')]
    const offer = await DeviceOffer.start(first.leases, 'gpus', a.options())
    clock.stepWall(86_400_000)
    await using other = await DeviceOffer.start(second.leases, 'gpus', b.options({ host: 'b' }))
    await clock.advance(40_000)
    clock.stepWall(-2 * 86_400_000)
    await clock.advance(40_000)
    expect(other.members).toEqual(['g1'])
    expect(b.events.filter(({ type }) => type === 'refused')).toEqual([
      { type: 'refused', member: 'g0', message: expect.stringMatching(/g0 is refused: a offers a device with the same id already/) },
    ])
    expect(a.types()).toEqual(['offered'])
    await offer[Symbol.asyncDispose]()
    await clock.advance(10_000)
    expect(other.members).toEqual(['g0', 'g1'])
  })

  test('that is started again on its host takes the devices over, and the older process ends', async () => {
    const clock = new ManualClock()
    const first = silentLessor({ holder: 'a', clock })
    const second = silentLessor({ holder: 'a', clock, log: first.log })
    await using _a = first.leases
    await using _b = second.leases
    const before = await DeviceOffer.start(first.leases, 'gpus', new FakeHost('g0').options())
    const host = new FakeHost('g0')
    await using after = await DeviceOffer.start(second.leases, 'gpus', host.options())
    expect(after.members).toEqual(['g0'])
    await clock.advance(10_000)
    const { value } = await second.leases.read({ kind: 'entries', prefix: 'pool/gpus' })
    expect(value).toHaveLength(1)
    expect(host.types()).toEqual(['offered'])
    expect(await before.ended).toMatchObject({ code: 'STALE' })
  })

  test('is made again with all its devices after the lessor could not be reached for longer than its ttl', async () => {
    const { leases, clock, lessor } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options({ ttl: '10s', grace: '5s' }))
    lessor.stopAnswering()
    await clock.advance(60_000)
    lessor.answer()
    await clock.advance(20_000)
    expect(await members(leases)).toEqual(['g0'])
    expect(await report(leases, 'g0')).toBeDefined()
    expect(host.types()).toContain('lost')
  })
})

describe('use', () => {
  test('is reported when it matters, and not with every look', async () => {
    const { leases, clock, lessor } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options())
    expect(await report(leases, 'g0')).toMatchObject({ host: 'a', utilisation: 50, unleased: 0 })
    const written = () => lessor.proposals.filter(({ kind }) => kind === 'put').length
    const before = written()
    for (let i = 0; i < 25; i++) {
      host.set('g0', { utilisation: 45 + (i % 10) })
      await clock.advance(10_000)
    }
    expect(written()).toBe(before)
    host.set('g0', { utilisation: 95 })
    await clock.advance(10_000)
    expect(written()).toBe(before + 1)
    expect((await report(leases, 'g0'))?.utilisation).toBe(95)
  })

  test('without a lease is seen and shown, and use by the holder of the device is not', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    host.processes = [
      { pid: 10, parent: 1, started: 3, uid: 1 },
      { pid: 11, parent: 10, started: 4, uid: 1 },
      { pid: 20, parent: 1, started: 5, uid: 2 },
    ]
    host.set('g0', { processes: [{ pid: 11 }, { pid: 20 }] })
    await using lease = await leases.acquire('gpus/g0', { labels: holderLabels({ user: 'ann', host: 'a', pid: 10, started: 3 }) })
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options())
    expect(await report(leases, 'g0')).toMatchObject({
      unleased: 1,
      processes: [
        { pid: 20, user: 'ben', lease: 0 },
        { pid: 11, user: 'ann', lease: lease.id },
      ],
    })
    expect(host.events.filter(({ type }) => type === 'unleased')).toEqual([
      { type: 'unleased', member: 'g0', message: 'g0 is used without a lease: process 20 of ben' },
    ])
    await clock.advance(60_000)
    expect(host.types().filter(type => type === 'unleased')).toHaveLength(1)
    await lease.release()
    await clock.advance(10_000)
    expect(await report(leases, 'g0')).toMatchObject({ unleased: 2 })
  })
})

describe('idle holders', () => {
  const idle = { below: 5, warn: 60_000, recall: 90_000, end: 120_000 }

  test('are warned, then asked to release, then ended, each at its time', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    host.set('g0', { utilisation: 0 })
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options({ idle }))
    await using lease = await leases.acquire('gpus/g0', { labels: { user: 'ann' } })
    const { recalled } = lease
    await clock.advance(65_000) // seen first after 10 s
    expect(await report(leases, 'g0')).toMatchObject({ stage: 'none' })
    await clock.advance(10_000)
    expect([(await report(leases, 'g0'))?.stage, recalled.aborted]).toEqual(['warn', false])
    await clock.advance(30_000)
    expect([recalled.aborted, lease.held]).toEqual([true, true])
    await clock.advance(30_000)
    expect(lease.held).toBe(false)
    expect(lease.signal.reason).toMatchObject({ code: 'LOST', facts: { cause: 'revoked', by: 'a: idle for 2 min' } })
    expect(host.events.filter(({ type }) => type === 'idle').map(({ stage }) => stage)).toEqual(['warn', 'recall', 'end'])
  })

  test('that use the device once in a while keep it', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options({ idle }))
    await using lease = await leases.acquire('gpus/g0')
    for (let i = 0; i < 40; i++) {
      host.set('g0', { utilisation: i % 5 === 0 ? 80 : 0 })
      await clock.advance(10_000)
    }
    expect(lease.held).toBe(true)
    expect(host.types()).not.toContain('idle')
  })

  test('keep all members of a lease while one of them is busy, even if it is on another host', async () => {
    const clock = new ManualClock()
    const first = silentLessor({ holder: 'a', clock })
    const second = silentLessor({ holder: 'b', clock, log: first.log })
    await using _a = first.leases
    await using _b = second.leases
    const [a, b] = [new FakeHost('g0'), new FakeHost('g1')]
    a.set('g0', { utilisation: 0 })
    await using _one = await DeviceOffer.start(first.leases, 'gpus', a.options({ idle }))
    await using _two = await DeviceOffer.start(second.leases, 'gpus', b.options({ host: 'b', idle }))
    await using lease = await first.leases.acquire(['gpus/g0', 'gpus/g1'])
    await clock.advance(300_000)
    expect(lease.held).toBe(true)
    expect(a.types()).not.toContain('idle')
    b.set('g1', { utilisation: 0 })
    await clock.advance(200_000)
    expect(lease.held).toBe(false)
  })

  test('keep the device while it does not tell its utilisation', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0')
    host.devices = [{ id: 'g0', labels: {} }]
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options({ idle }))
    await using lease = await leases.acquire('gpus/g0')
    await clock.advance(600_000)
    expect(lease.held).toBe(true)
  })

  test('need rules that make sense', async () => {
    const { leases } = silentLessor()
    await using _ = leases
    const host = new FakeHost('g0')
    for (const wrong of [{ below: 5 }, { below: 0, warn: 1 }, { below: 5, warn: 10, end: 10 }, { below: 5, recall: 10, warn: 20 }])
      await expect(DeviceOffer.start(leases, 'gpus', host.options({ idle: wrong }))).rejects.toMatchObject({ code: 'INVALID' })
  })
})

describe('a drain', () => {
  /** Writes the entry as an operator does. */
  async function drain(leases: Leases, target: DrainTarget, from: number) {
    await leases.setPolicy('drain', { freeEntries: 10 })
    const value = formatDrain({ target, from, by: 'ops' })
    await propose(leases.lessor, { kind: 'transaction', success: [{ key: drainKey('gpus', target), value }] })
  }

  test('withdraws a device when its time has come, and keeps reporting it for its holder; without the drain it is offered again', async () => {
    const { leases, clock } = silentLessor({ holder: 'a' })
    await using _ = leases
    const host = new FakeHost('g0', 'g1')
    await using _offer = await DeviceOffer.start(leases, 'gpus', host.options())
    await using lease = await leases.acquire('gpus/g0', { labels: holderLabels({ user: 'ann', host: 'a', pid: 1, started: 1 }) })
    await drain(leases, { member: 'g0' }, clock.wall() + 60_000)
    await clock.advance(20_000)
    expect(await members(leases)).toEqual(['g0', 'g1'])
    await clock.advance(60_000)
    expect(await members(leases)).toEqual(['g1'])
    expect(lease.held).toBe(true)
    host.set('g0', { utilisation: 3 })
    await clock.advance(10_000)
    expect(await report(leases, 'g0')).toMatchObject({ utilisation: 3 })
    await propose(leases.lessor, { kind: 'transaction', success: [{ key: drainKey('gpus', { member: 'g0' }), delete: true }] })
    await clock.advance(10_000)
    expect(await members(leases)).toEqual(['g0', 'g1'])
  })

  test('of a host that dies holds when the host comes back', async () => {
    const { leases, clock, log } = silentLessor({ holder: 'operator' })
    await using _ = leases
    const first = silentLessor({ holder: 'a', clock, log })
    const host = new FakeHost('g0', 'g1')
    await DeviceOffer.start(first.leases, 'gpus', host.options())
    await drain(leases, { host: 'a' }, clock.wall())
    await clock.advance(10_000)
    expect(await members(leases)).toEqual([])
    first.lessor.stopAnswering()
    await clock.advance(120_000)
    const again = silentLessor({ holder: 'a', clock, log })
    await using _again = again.leases
    await using offer = await DeviceOffer.start(again.leases, 'gpus', host.options())
    await clock.advance(30_000)
    expect(offer.members).toEqual([])
    expect(await members(leases)).toEqual([])
    expect(await report(leases, 'g1')).toMatchObject({ host: 'a' })
  })
})
