/** The heartbeat in a worker thread, with real threads and a blocked event loop. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { BackupRenewer } from '../../src/holder/backup-renewer.ts'
import { LoopPulse, SlotPage } from '../../src/holder/worker-heartbeat.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { EVENT_TIMEOUT } from '../support/bounds.ts'

const index = fileURLToPath(new URL('../../dist/index.js', import.meta.url))

function place() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-heartbeat-'))
  return {
    url: `file:${join(path, 'leases.db')}`,
    got: join(path, 'got'),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  }
}

/** A process that prints one JSON object per line. Monotonic time is common to the processes of one machine. */
function child(url: string, options: object, source: string, env: Record<string, string> = {}) {
  const program = `import { connect } from ${JSON.stringify(index)}
const now = () => Number(process.hrtime.bigint()) / 1e6
const block = ms => { for (const end = now() + ms; now() < end; ) ; }
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const say = line => process.stdout.write(JSON.stringify(line) + '\\n')
const leases = await connect(${JSON.stringify(url)}, ${JSON.stringify(options)})
${source}`
  const running = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  })
  const lines: Record<string, unknown>[] = []
  const seen: (() => void)[] = []
  let rest = ''
  running.stdout.on('data', chunk => {
    const parts = (rest + chunk).split('\n')
    rest = parts.pop()!
    lines.push(...parts.map(line => JSON.parse(line)))
    for (const wake of seen.splice(0)) wake()
  })
  // Not with its exit: what it printed may arrive later.
  let closed = false
  const ended = new Promise<number | null>(resolve => running.on('close', resolve))
  void ended.then(() => {
    closed = true
    for (const wake of seen.splice(0)) wake()
  })
  return {
    ended,
    async line(place: number): Promise<Record<string, unknown>> {
      while (lines[place] === undefined && !closed) await new Promise<void>(resolve => seen.push(resolve))
      return lines[place]!
    },
  }
}

const RIVAL = `say({ asking: true }); const lease = await leases.acquire('k', { ttl: '20s' }); say({ got: now(), token: lease.token })
     ;(await import('node:fs')).writeFileSync(process.env.GOT, ''); await lease.release()`

test('a loop that is blocked for longer than the ttl, but not for longer than maxStall, keeps its lease', async () => {
  using here = place()
  const holder = child(
    here.url,
    { holder: 'blocked', heartbeat: 'worker', maxStall: '30s' },
    `const lease = await leases.acquire('k', { ttl: '4s' })
     say({ held: true })
     await pause(500)
     block(6_000)
     say({ held: lease.held, aborted: lease.signal.aborted, remaining: lease.remaining() > 0 })
     await pause(500)
     say({ held: lease.held, aborted: lease.signal.aborted, until: now(), token: lease.token, losses: leases.losses })
     await leases[Symbol.asyncDispose]()`,
  )
  await holder.line(0)
  const rival = child(here.url, { holder: 'rival' }, RIVAL, { GOT: here.got })
  expect(await holder.line(1)).toEqual({ held: true, aborted: false, remaining: true })
  const last = await holder.line(2)
  expect(last).toMatchObject({ held: true, aborted: false, losses: [] })
  const next = await rival.line(1)
  expect(next.got as number).toBeGreaterThan(last.until as number)
  expect(next.token as number).toBeGreaterThan(last.token as number)
  expect([await holder.ended, await rival.ended]).toEqual([0, 0])
})

test('a loop that is blocked for longer than maxStall loses its lease, another holder gets it, and the first line after the block knows', async () => {
  using here = place()
  const holder = child(
    here.url,
    { holder: 'blocked', heartbeat: 'worker', maxStall: '1500ms' },
    `const { existsSync } = await import('node:fs')
     const lease = await leases.acquire('k', { ttl: '4s' })
     say({ held: true })
     await pause(2_500)
     const from = now()
     for (const end = now() + ${EVENT_TIMEOUT}; !existsSync(process.env.GOT) && now() < end; ) ; // blocked until the rival has it
     let error
     try { lease.assertHeld() } catch (thrown) { error = thrown }
     say({ held: lease.held, aborted: lease.signal.aborted, code: error.code, cause: error.facts.cause, from, woke: now(), token: lease.token })
     await leases[Symbol.asyncDispose]()`,
    { GOT: here.got },
  )
  await holder.line(0)
  const rival = child(here.url, { holder: 'rival' }, RIVAL, { GOT: here.got })
  const woken = await holder.line(1)
  expect(woken).toMatchObject({ held: false, aborted: true, code: 'LOST', cause: 'stall' })
  const next = await rival.line(1)
  // Renewed for about maxStall, then for a ttl no more.
  expect(next.got as number).toBeGreaterThan((woken.from as number) + 1_000)
  expect(next.got as number).toBeLessThan(woken.woke as number)
  expect(next.token as number).toBeGreaterThan(woken.token as number)
  expect([await holder.ended, await rival.ended]).toEqual([0, 0])
})

test('the thread keeps no process alive once all leases are released', async () => {
  using here = place()
  const { ended } = child(here.url, { heartbeat: 'worker' }, `await leases.request('k', { ttl: '1s' }, () => {})`)
  expect(await ended).toBe(0)
})

test('a process that ends while its thread is inside SQLite is not aborted', async () => {
  using here = place()
  const sign = fileURLToPath(`${here.url}.slow`)
  const database = new URL('../../dist/store/file/database.js', import.meta.url)
  // From the sign on, each reading of the state by the thread lasts until the process is about to end, and a moment longer. The thread leaves a file.
  const preload = `import { existsSync, writeFileSync } from 'node:fs'
    import { workerData } from 'node:worker_threads'
    if (workerData?.pulse) {
      const { FileDatabase } = await import(${JSON.stringify(database)})
      const { DatabaseSync } = await import('node:sqlite').catch(() => import(${JSON.stringify(import.meta.resolve('@photostructure/sqlite'))}))
      const other = new DatabaseSync(':memory:')
      const { state } = FileDatabase.prototype
      FileDatabase.prototype.state = function () {
        if (existsSync(${JSON.stringify(sign)})) {
          writeFileSync(${JSON.stringify(`${sign}.inside`)}, '')
          for (let left = 10_000; left > 0; left -= existsSync(${JSON.stringify(`${sign}.ending`)}) ? 100 : 0)
            for (let i = 0; i < 100; i++) other.prepare('SELECT 1').get()
        }
        return state.call(this)
      }
    }`
  const { ended } = child(
    here.url,
    { heartbeat: 'worker' },
    `const { existsSync, writeFileSync } = await import('node:fs')
     await leases.request('k', () => {})
     writeFileSync(${JSON.stringify(sign)}, '')
     await leases.request('k', () => {}) // the thread reads it
     while (!existsSync(${JSON.stringify(`${sign}.inside`)})) await pause(5)
     writeFileSync(${JSON.stringify(`${sign}.ending`)}, '')`,
    { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(preload)}` },
  )
  expect(await ended).toBe(0)
})

test.each(['throw new Error("fell")', 'process.exit(3)'])(
  'a thread that fails (%s) is reported, and its process goes on without it',
  async falls => {
    using here = place()
    const sign = fileURLToPath(`${here.url}.fall`)
    const preload = `import { existsSync } from 'node:fs'
      import { isMainThread, workerData } from 'node:worker_threads'
      if (!isMainThread && workerData?.pulse) setInterval(() => { if (existsSync(${JSON.stringify(sign)})) { ${falls} } }, 20)`
    const { line, ended } = child(
      here.url,
      { heartbeat: 'worker' },
      `const { writeFileSync } = await import('node:fs')
       const failed = new Promise(resolve => process.on('warning', ({ name, message }) => name === 'LeaseholdWarning' && resolve(message)))
       const lease = await leases.acquire('k', { ttl: '20s' })
       writeFileSync(${JSON.stringify(sign)}, '')
       const message = await failed
       await pause(100)
       say({ message, held: lease.held })
       await leases[Symbol.asyncDispose]()`,
      { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(preload)}` },
    )
    expect(await line(0)).toEqual({
      message: expect.stringContaining('the thread for the heartbeat failed; only this loop renews now'),
      held: true,
    })
    expect(await ended).toBe(0)
  },
)

test('a place that cannot be opened twice is refused', async () => {
  await expect(connect('memory:', { heartbeat: 'worker' })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  const { lessor } = silentLessor()
  expect(() => new Leases(lessor, { heartbeat: 'worker' })).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }))
  await lessor[Symbol.asyncDispose]()
})

describe('the backup renewer', () => {
  async function startRenewer({ maxStall = 10_000 }: { maxStall?: number } = {}) {
    const here = silentLessor()
    const { clock, lessor } = here
    const pulse = new LoopPulse()
    const page = new SlotPage()
    const standIn = new BackupRenewer({ lessor, clock, pulse, margin: 0.01, maxStall })
    standIn.addPage(page.memory)
    standIn.mindTerm(1_000)
    const granted = await propose(lessor, { kind: 'acquire', holder: 'h', ttl: 1_000, wants: [{ resource: 'k' }] })
    if (granted.kind !== 'granted') throw new Error(granted.kind)
    page.take(3, { id: granted.lease, term: 1_000 })
    page.setSent(3, clock.now(), 1_000)
    pulse.beat(clock.now())
    const renewals = () => lessor.proposals.filter(({ kind }) => kind === 'renew').length
    return { ...here, pulse, page, lease: granted.lease, renewals, [Symbol.dispose]: () => standIn.close() }
  }

  test('does not renew a lease that is renewed in time', async () => {
    using renewer = await startRenewer()
    for (let i = 0; i < 20; i++) {
      renewer.page.setSent(3, renewer.clock.now(), 1_000)
      await renewer.clock.advance(500)
    }
    expect(renewer.renewals()).toBe(0)
    expect(renewer.page.lastRenewal(3, renewer.lease)).toBeUndefined()
  })

  test('counts from before the request was sent', async () => {
    using renewer = await startRenewer()
    await renewer.clock.advance(550)
    renewer.lessor.loseAnswers()
    await renewer.clock.advance(100)
    expect(renewer.renewals()).toBe(1)
    const latest = renewer.clock.now()
    await renewer.clock.advance(60)
    renewer.lessor.answer()
    await renewer.clock.settle()
    expect(renewer.page.lastRenewal(3, renewer.lease)).toMatchObject({ now: expect.toSatisfy(now => now <= latest), term: 1_000 })
  })

  test('stops when the main loop has not turned for maxStall, and begins again when it turns', async () => {
    using renewer = await startRenewer({ maxStall: 3_000 })
    await renewer.clock.advance(2_900)
    const before = renewer.renewals()
    expect(before).toBeGreaterThan(2)
    await renewer.clock.advance(200)
    const until = renewer.renewals()
    renewer.pulse.beat(renewer.clock.now())
    await renewer.clock.advance(600)
    expect(renewer.renewals()).toBeGreaterThan(until)
    await renewer.clock.advance(10_000)
    expect(renewer.page.lastRenewal(3, renewer.lease)!.now + 1_000).toBeLessThan(renewer.clock.now())
    expect((await renewer.lessor.read({ kind: 'lease', lease: renewer.lease })).value).toBeUndefined()
  })

  test('stops when the work of a lease makes no progress', async () => {
    using renewer = await startRenewer()
    renewer.page.setWorking(3, renewer.clock.now() + 1_500)
    await renewer.clock.advance(4_000)
    expect((await renewer.lessor.read({ kind: 'lease', lease: renewer.lease })).value).toBeUndefined()
  })

  test('never renews a lease that its own clock has ended', async () => {
    using renewer = await startRenewer()
    renewer.lessor.stopAnswering()
    await renewer.clock.advance(995)
    const before = renewer.renewals()
    await renewer.clock.advance(500)
    expect(renewer.renewals()).toBe(before)
  })

  test('a renewal for one lease does not count for the next lease in its slot', async () => {
    using renewer = await startRenewer()
    await renewer.clock.advance(700)
    expect(renewer.page.lastRenewal(3, renewer.lease)).toBeDefined()
    renewer.page.free(3)
    renewer.page.take(3, { id: renewer.lease + 1, term: 1_000 })
    expect(renewer.page.lastRenewal(3, renewer.lease + 1)).toBeUndefined()
  })
})

test('a lease whose wait took longer than its maxStall is renewed nevertheless', async () => {
  const { clock, leases } = silentLessor()
  const first = await leases.acquire('k', { ttl: 1_000 })
  const waiting = leases.acquire('k', { ttl: 1_000, advanced: { maxStall: 2_000 } })
  await clock.advance(5_000)
  await first.release()
  await clock.settle()
  const lease = await waiting
  await clock.advance(1_500)
  expect(lease.held).toBe(true)
  await clock.advance(3_000)
  expect(lease.held).toBe(false)
  await leases[Symbol.asyncDispose]()
})
