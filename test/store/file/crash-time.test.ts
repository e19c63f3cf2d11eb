import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { pause, systemClock } from '../../../src/clock.ts'
import type { Acquire } from '../../../src/kernel/command.ts'
import type { Granted } from '../../../src/kernel/outcome.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { Child, folder, type Proposed } from '../../support/crash/child.ts'

function acquire(holder: string, resource: string, ttl: number): Acquire {
  return { kind: 'acquire', holder, ttl, wants: [{ resource }] }
}

function granted({ outcome }: Proposed): Granted {
  if (outcome.kind !== 'granted') throw new Error(`expected a grant, got ${JSON.stringify(outcome)}`)
  return outcome
}

// How late it may expire is shown in virtual time by test/replica/timekeeper.test.ts.
test('while the owner is killed every 2 s, an abandoned lease expires, not before its ttl, and a renewed one never expires', async () => {
  await using place = await folder()
  const ttl = 10_000
  let left: { lease: number; sent: number } | undefined
  let kept: number | undefined
  let gone: number | undefined
  let first = 0
  while (gone === undefined || systemClock.now() < first + 16_000) {
    await using child = new Child()
    await child.ask('open', { path: place.path, owned: true })
    const began = systemClock.now()
    if (left === undefined || kept === undefined) {
      first = began
      const abandoned = await child.propose(acquire('left', 'a', ttl))
      kept = granted(await child.propose(acquire('kept', 'b', ttl))).lease
      // Renew once more: the lease has its whole ttl from here, and the owner can renew it in memory.
      left = { lease: granted(abandoned).lease, sent: (await child.propose({ kind: 'renew', leases: [granted(abandoned).lease] })).sent }
    }
    while (systemClock.now() < began + 2_000) {
      expect((await child.propose({ kind: 'renew', leases: [kept] })).outcome).toMatchObject({ ttls: [ttl] })
      const { holders, now } = await child.ask<{ holders: string[]; now: number }>('holders')
      expect(holders).toContain('kept')
      if (!holders.includes('left')) gone ??= now - left.sent
      expect(gone ?? now - left.sent).toBeLessThan(EVENT_TIMEOUT)
      await pause(systemClock, 100, undefined, { ref: true })
    }
    await child.kill()
  }
  expect(gone).toBeGreaterThanOrEqual(ttl)
})

test('short-lived processes that each try once acquire the lease of a killed process soon after its ttl, not before', async () => {
  await using place = await folder()
  const ttl = 1_500
  for (let round = 0; round < 3; round++) {
    const name = `job/${round}`
    await using holder = new Child()
    await holder.ask('open', { path: place.path })
    const held = await holder.propose(acquire('killed', name, ttl))
    const token = granted(held).tokens[0]!
    await holder.kill()
    let won: Proposed | undefined
    while (won === undefined) {
      await using child = new Child()
      const began = systemClock.now()
      await child.ask('open', { path: place.path })
      const tried = await child.ask<Proposed>('tryAcquire', acquire('next', name, ttl))
      await child.ask('close')
      if (tried.outcome.kind === 'granted') won = tried
      else {
        expect(tried.outcome).toMatchObject({ code: 'HELD' })
        expect(began - held.answered, 'one that came after the ttl was refused').toBeLessThan(ttl + 50)
      }
    }
    expect(won.answered - held.sent).toBeGreaterThanOrEqual(ttl)
    expect(granted(won).tokens[0]).toBeGreaterThan(token)
  }
})

test('a process exits by itself, whether or not it has closed its replicas', async () => {
  await using place = await folder()
  const script = `
    import { propose } from './dist/lessor/propose.js'
    import { Replica } from './dist/replica/replica.js'
    import { FileStore } from './dist/store/file/file.js'
    import { MemoryStore } from './dist/store/memory.js'
    const acquire = { kind: 'acquire', holder: 'ann', ttl: 1000, wants: [{ resource: 'a' }] }
    for (const owned of [false, true]) {
      const own = owned ? { own: { name: 'test' } } : {}
      for (const store of [new MemoryStore(own), new FileStore({ path: process.argv[1], ...own })]) {
        const replica = await Replica.open(store, { owned })
        await propose(replica, acquire)
        await replica[Symbol.asyncDispose]()
      }
    }
    for (const store of [new MemoryStore(), new FileStore({ path: process.argv[1] })]) await propose(await Replica.open(store), acquire)
    console.log('the end')
  `
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script, place.path], {
    cwd: fileURLToPath(new URL('../../..', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  child.stdout.on('data', bytes => {
    said += bytes
  })
  const late = setTimeout(() => child.kill('SIGKILL'), EVENT_TIMEOUT)
  const [code] = await once(child, 'exit')
  clearTimeout(late)
  expect(said).toBe('the end\n')
  expect(code).toBe(0)
})
