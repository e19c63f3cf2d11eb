/** Clients of a server process that is killed or stopped. Needs the build. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { Operations } from '../../../src/holder/operations.ts'
import type { Granted } from '../../../src/kernel/outcome.ts'
import { Leases } from '../../../src/leases.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../../src/wire/resp/dial.ts'
import { sentenceOf } from '../../../src/wording.ts'
import { command, Raw } from '../../support/resp-place.ts'
import { ServerProcess } from '../../support/server-process.ts'

test('when a server is killed under load and restarted, each acknowledged request was executed once, and renewed leases do not lapse', async () => {
  await using server = await ServerProcess.start()
  await using lessor = await RemoteLessor.open(serverAddressOf(server.url))
  await using leases = new Leases(lessor, { holder: 'keeper' })
  const kept = await Promise.all(Array.from({ length: 20 }, (_, i) => leases.acquire(`kept/${i}`, { ttl: 300_000 })))
  const tokens = kept.map(({ token }) => token)
  let running = true
  let seq = 0
  const operations = new Operations(lessor, systemClock)
  const acknowledged = new Map<string, Granted>()
  const events: number[] = []
  const stop = new AbortController()
  const { revision } = await lessor.read({ kind: 'summary' })
  const watching = (async () => {
    for await (const [event] of lessor.watch('load', { after: revision, signal: stop.signal })) {
      expect(event!.type).toBe('granted')
      events.push(event!.revision)
    }
  })()
  const lanes = Array.from({ length: 50 }, async () => {
    while (running) {
      const resource = `load/${++seq}`
      const outcome = await operations.decide(
        { kind: 'acquire', holder: 'load', ttl: 3_600_000, wants: [{ resource }] },
        { retryOutage: () => true },
      )
      // HELD would mean that an earlier copy of this request was granted: executed twice.
      expect(outcome.kind === 'refused' ? `${outcome.code} ${sentenceOf(outcome)}` : outcome.kind).toBe('granted')
      acknowledged.set(resource, outcome as Granted)
    }
  })
  for (let round = 0; round < 3; round++) {
    const before = acknowledged.size
    await expect.poll(() => acknowledged.size).toBeGreaterThan(before + 100)
    await server.kill()
    await sleep(200 * round)
    await server.start()
    await Promise.all(kept.map(lease => lease.renew()))
  }
  const before = acknowledged.size
  await expect.poll(() => acknowledged.size).toBeGreaterThan(before + 100)
  running = false
  await Promise.all(lanes)
  for (const [i, lease] of kept.entries()) {
    lease.assertHeld()
    expect(lease.token).toBe(tokens[i])
  }
  const { value } = await lessor.read({ kind: 'resources', prefix: 'load' }, { consistent: true })
  expect(value).toHaveLength(acknowledged.size)
  for (const { resource, grants } of value) expect(grants.map(({ token }) => token)).toEqual(acknowledged.get(resource)!.tokens)
  const wanted = [...acknowledged.values()].map(granted => granted.revision).sort((a, b) => a - b)
  await expect.poll(() => events.length).toBe(wanted.length)
  expect(events).toEqual(wanted)
  stop.abort()
  await watching
})

test('after a stop that is longer than the ttl, none of 5,000 renewed leases lapses, and leases without renewals lapse', async () => {
  const TTL = 10_000
  await using server = await ServerProcess.start()
  await using lessor = await RemoteLessor.open(serverAddressOf(server.url))
  await using leases = new Leases(lessor, { holder: 'library' })
  const raws = Array.from({ length: 5 }, () => new Raw(server.port))
  const acquired = async (raw: Raw, names: readonly string[]) => {
    raw.send(Buffer.concat(names.map(name => command('LEASE.ACQUIRE', name, 'TTL', TTL))))
    const ids: number[] = []
    for (const _ of names) ids.push(((await raw.next()) as number[])[1]!)
    return ids
  }
  const ids = await Promise.all(
    raws.map((raw, r) =>
      acquired(
        raw,
        Array.from({ length: 1_000 }, (_, i) => `kept/${r}/${i}`),
      ),
    ),
  )
  let gone = 0
  let rounds = 0
  let renewing = true
  const renewals = raws.map((raw, r) => {
    const renew = command('LEASE.RENEW', ...ids[r]!)
    const receive = (async () => {
      for (let answer = await raw.next(); answer !== 'closed'; answer = await raw.next()) {
        for (const ttl of answer as number[]) if (ttl === -1) gone++
        rounds++
      }
    })()
    const send = (async () => {
      while (renewing) {
        raw.send(renew)
        await sleep(400)
      }
    })()
    return { receive, send }
  })
  using other = new Raw(server.port)
  const left = await acquired(
    other,
    Array.from({ length: 500 }, (_, i) => `left/${i}`),
  )
  const held = await leases.acquire('held', { ttl: TTL })
  await expect.poll(() => rounds).toBeGreaterThan(10)
  server.signal('SIGSTOP')
  await expect.poll(() => held.signal.aborted).toBe(true) // by its own clock: the server is stopped
  const before = rounds
  server.signal('SIGCONT')
  await expect.poll(() => rounds).toBeGreaterThan(before + 25)
  expect(gone).toBe(0)
  await expect
    .poll(async () => (await lessor.read({ kind: 'leases', prefix: 'left' }, { consistent: true })).value.length, { interval: 200 })
    .toBe(0)
  expect(await other.ask('LEASE.RENEW', ...left)).toEqual(left.map(() => -1))
  expect(gone).toBe(0)
  expect((await lessor.read({ kind: 'summary' }, { consistent: true })).value.leases).toBe(5_000)
  renewing = false
  await Promise.all(renewals.map(({ send }) => send))
  for (const raw of raws) raw[Symbol.dispose]()
  await Promise.all(renewals.map(({ receive }) => receive))
})
