/** What an operator sees of a store that fails and recovers: the metric, and one log line each. */
import { expect, test, vi } from 'vitest'
import { openReplica } from '../../src/connect/connect.ts'
import { RelocatingLessor } from '../../src/connect/relocating-lessor.ts'
import { storeOf } from '../../src/connect/store-of.ts'
import { LeaseError } from '../../src/errors.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { serve } from '../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { describeEngine, engine } from '../support/engine.ts'

function logged() {
  const lines: { readonly level: string; readonly facts: Record<string, unknown>; readonly message: string }[] = []
  const at =
    (level: string) =>
    (facts: object, message = '') => {
      if ('store' in facts) lines.push({ level, facts: facts as Record<string, unknown>, message })
    }
  return { lines, log: { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') } }
}

const up = async (address: string) => {
  const text = await (await fetch(`http://${address}/metrics`)).text()
  return Number(/^leasehold_store_up (\d)$/m.exec(text)?.[1])
}

describeEngine('postgres', 'a server whose store goes away', () => {
  test('shows it in its metrics and once in its log, and shows the recovery', async () => {
    await using postgres = await engine('postgres')
    const store = await storeOf(postgres.url)
    const replica = await openReplica(store, postgres.url, { owned: false })
    await using lessor = new RelocatingLessor(replica, { open: () => Promise.reject(new Error('nothing moves')) })
    const { lines, log } = logged()
    await using server = await serve({ lessor, log, listen: '127.0.0.1:0', http: httpListener(), failedAppend: () => replica.storeError })
    const [address] = server.addresses as [string]
    expect(await up(address)).toBe(1)
    await postgres.stop()
    await expect.poll(() => up(address)).toBe(0)
    await fetch(`http://${address}/v1/leases`, { method: 'POST', body: '{"resources":["a"],"holder":"h"}' })
    for (let i = 0; i < 3; i++) expect(await up(address)).toBe(0)
    expect(lines).toMatchObject([{ level: 'error', message: 'the store is not available', facts: { store: 'down' } }])
    expect(lines[0]!.facts.reason).toMatch(/ECONNREFUSED|terminat|not answered/)
    await postgres.restart()
    await expect.poll(() => up(address)).toBe(1)
    expect(lines.map(({ message }) => message)).toEqual(['the store is not available', 'the store answers again'])
  })
})

test('a store that answers reads and fails to sync writes is down until an append succeeds, and is logged without a request', async () => {
  const clock = new ManualClock()
  const store = new MemoryStore({ log: new MemoryLog({ clock }), clock, own: { name: 'server' } })
  await using replica = await Replica.open(store, { clock, owned: true })
  const { lines, log } = logged()
  await using server = await serve({
    lessor: replica,
    log,
    clock,
    listen: '127.0.0.1:0',
    http: httpListener(),
    failedAppend: () => replica.storeError,
  })
  const [address] = server.addresses as [string]
  const failing = vi.spyOn(store, 'append').mockRejectedValue(new LeaseError('UNKNOWN', 'the disk failed (EIO)', { reason: 'io' }))
  const acquiring = propose(replica, { kind: 'acquire', holder: 'h', ttl: 60_000, wants: [{ resource: 'a' }] }).catch(
    (error: unknown) => error,
  )
  await clock.advance(8_000)
  expect(await acquiring).toMatchObject({ code: 'UNKNOWN', reason: 'io', message: expect.stringContaining('the disk failed (EIO)') })
  expect(lines).toMatchObject([{ level: 'error', facts: { store: 'down', reason: 'the disk failed (EIO)' } }])
  expect(await up(address)).toBe(0)
  await clock.advance(8_000)
  expect(failing.mock.calls.length).toBeGreaterThan(4)
  failing.mockRestore()
  await clock.advance(8_000)
  expect(await up(address)).toBe(1)
  expect(lines.map(({ level }) => level)).toEqual(['error', 'info'])
})

test('a flapping store is logged once in ten seconds, with the number of outages', async () => {
  const clock = new ManualClock()
  await using replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const { lines, log } = logged()
  await using server = await serve({ lessor: replica, log, clock, listen: '127.0.0.1:0', http: httpListener() })
  const [address] = server.addresses as [string]
  let gone = false
  const read = replica.read.bind(replica)
  vi.spyOn(replica, 'read').mockImplementation(((query, options) => {
    if (gone && options?.consistent === true) return Promise.reject(new LeaseError('UNAVAILABLE', 'connection refused'))
    return read(query, options)
  }) as typeof replica.read)
  for (let i = 0; i < 20; i++) {
    gone = i % 2 === 0
    expect(await up(address)).toBe(gone ? 0 : 1)
  }
  expect(lines.map(({ level }) => level)).toEqual(['error', 'info'])
  gone = true
  expect(await up(address)).toBe(0)
  await clock.advance(10_000)
  expect(lines).toMatchObject([{}, {}, { level: 'error', facts: { outages: 11 } }])
})
