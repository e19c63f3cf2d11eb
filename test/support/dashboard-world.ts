/** A small world for the dashboard: holders, waiters, losses, an election, services, a pool, sessions and claims, each with some history. */
import { expect } from 'vitest'
import type { Acquire } from '../../src/kernel/command.ts'
import type { Granted } from '../../src/kernel/outcome.ts'
import { keepRun } from '../../src/lessor/kept-runs.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { World } from './http-world.ts'

export const acquire = (holder: string, names: readonly string[], more: Partial<Acquire> = {}): Acquire => ({
  kind: 'acquire',
  holder,
  ttl: 30_000,
  wants: names.map(resource => ({ resource })),
  ...more,
})

/** The lease of what was granted or queued. Its first renewal gives it its whole ttl. */
export async function granted(here: World, command: Acquire): Promise<number> {
  const outcome = (await propose(here.lessor, command)) as Granted
  expect(outcome.kind, JSON.stringify(outcome)).toMatch(/granted|queued/)
  await propose(here.lessor, { kind: 'renew', leases: [outcome.lease] })
  return outcome.lease
}

const STEP = 2_000
let done = 0

/** A few short jobs, more or less of them as time passes, so that the plots have something to show. */
async function workABit(here: World): Promise<void> {
  const jobs = Math.round(1.5 + 1.4 * Math.sin(done / 9))
  for (let i = 0; i < jobs; i++) {
    const outcome = await propose(here.lessor, acquire(`thumbs-${(done + i) % 5}`, [`thumbnails/${done % 7}/${i}`]))
    if (outcome.kind === 'granted') await propose(here.lessor, { kind: 'release', lease: outcome.lease })
  }
  done++
}

/** Lets time pass while every waiter keeps its place. */
async function pass(here: World, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= STEP) {
    await here.clock.advance(Math.min(left, STEP))
    await workABit(here)
    if (done % 5 !== 0) continue
    const { value } = await here.lessor.read({ kind: 'leases' })
    const leases = value.filter(({ status }) => status === 'waiting').map(({ lease }) => lease)
    await propose(here.lessor, { kind: 'renew', leases })
  }
}

const LONG = { ttl: 3_600_000 }

export interface DashboardWorld {
  /** Of `db/main`, held by `ci-7`, with waiters. */
  readonly main: number
  /** A session with children. */
  readonly session: number
}

/** Fills the world. Time passes meanwhile: about ten minutes by its clock. */
export async function fillWorld(here: World): Promise<DashboardWorld> {
  // The server observes from its first request on.
  await here.ask('GET', '/v1/overview')
  await propose(here.lessor, { kind: 'policy', prefix: 'jobs', rules: { ttlMax: 3_600_000, waiters: 100 } })
  await propose(here.lessor, { kind: 'policy', prefix: '', rules: { ttlMax: 86_400_000 } })
  await services(here)
  const gpus = await pool(here)
  // Past holders of one name, each ended in another way.
  const long = { ttl: 3_600_000 }
  for (const [i, holder] of ['ci-3', 'ci-4', 'ci-5', 'ci-6'].entries()) {
    const lease = await granted(here, acquire(holder, ['db/main'], long))
    await granted(here, acquire('etl-1', ['db/main'], { ...long, wait: true }))
    await pass(here, 20_000 + 15_000 * i)
    if (i === 1) {
      await propose(here.lessor, { kind: 'revoke', target: { lease }, by: 'ops' })
      await pass(here, 12_000) // frozen until its holder has stopped
    }
    await propose(here.lessor, { kind: 'release', lease })
    await ran(here, 'migrate', i === 2 ? 3 : 0)
    const next = await here.ask('GET', '/v1/resources/db/main')
    const [grant] = next.json.grants as { lease: number }[]
    if (grant !== undefined) {
      await propose(here.lessor, { kind: 'renew', leases: [grant.lease] })
      await pass(here, 8_000)
      await propose(here.lessor, { kind: 'release', lease: grant.lease })
      await ran(here, 'etl.py', 0)
    }
  }
  await election(here)
  const main = await granted(
    here,
    acquire('ci-7', ['db/main'], { ...LONG, labels: [['purpose', 'nightly migration of the orders table']] }),
  )
  for (const holder of ['etl-1', 'report-2', 'backfill-9']) {
    await pass(here, 9_000)
    await granted(here, acquire(holder, ['db/main'], { ...long, wait: true }))
  }
  // Two are lost: one lapses, one is broken.
  await granted(here, acquire('worker-12', ['queue/emails/shard-3'], { ttl: 5_000 }))
  const broken = acquire('worker-13', ['queue/emails/shard-4'], { ttl: 60_000 })
  await granted(here, broken)
  await propose(here.lessor, { kind: 'break', resource: 'queue/emails/shard-4', by: 'ann' })
  await pass(here, 70_000)
  for (let i = 0; i < 14; i++) {
    const labels = [['purpose', `sends batch ${1_200 + i}`]] as const
    await granted(here, acquire(`worker-${i + 1}`, [`queue/emails/shard-${i}`], { ttl: 45_000 + 4_000 * i, labels }))
    await pass(here, 2_000)
  }
  await granted(here, acquire('worker-30', ['queue/emails/shard-1'], { ...long, wait: true }))
  const session = await sessions(here)
  await claims(here)
  await pass(here, 4_000)
  await propose(here.lessor, { kind: 'renew', leases: gpus })
  return { main, session }
}

/** Notes how the command of the last holder of `db/main` ended, as `leasehold run` does. */
async function ran(here: World, command: string, exit: number): Promise<void> {
  const { value } = await here.lessor.read({ kind: 'history', resource: 'db/main', limit: 1 })
  const { token, lease, holder, since, until, cause } = value[0]!
  await keepRun(here.lessor, { 'db/main': token }, { lease, holder, since, until, cause, exit, command, ran: until - since })
}

async function election(here: World): Promise<void> {
  for (const leader of ['scheduler-a', 'scheduler-b', 'scheduler-a', 'scheduler-c']) {
    const lease = await granted(here, acquire(leader, ['election/scheduler'], LONG))
    await pass(here, 31_000)
    await propose(here.lessor, { kind: 'release', lease })
  }
  await granted(here, acquire('scheduler-b', ['election/scheduler'], LONG))
  await granted(here, acquire('scheduler-a', ['election/scheduler'], { ...LONG, wait: true }))
  await granted(here, acquire('scheduler-c', ['election/scheduler'], { ...LONG, wait: true }))
}

const CARD = {
  name: 'Critic',
  version: '2.1.0',
  description: 'Reviews changes, and says what to test.',
  skills: [
    { id: 'review', name: 'Review', description: 'Reads a change and lists what is wrong with it.' },
    { id: 'plan', name: 'Test plan', description: 'Says which tests are missing.' },
  ],
}

async function services(here: World): Promise<void> {
  const register = async (service: string, instance: string, more: object = {}) => {
    const answer = await here.ask('PUT', `/v1/services/${service}/${instance}`, { ttl: '1h', ...more })
    expect(answer.status, answer.text).toBeLessThan(300)
  }
  for (let i = 1; i <= 5; i++)
    await register('critic', `critic-${i}`, {
      address: `http://10.0.0.${i}:8080`,
      capabilities: ['review', 'test'],
      zone: 'eu/fra',
      metadata: CARD,
      load: i,
    })
  for (let i = 1; i <= 9; i++) await register('payments', `pay-${i}`, { address: `10.0.1.${i}:443`, capabilities: ['charge'] })
  await register('search', 'flaky-1', { address: '10.0.2.1:9200', ttl: '2s', grace: '1s' })
  const instances = [
    ...Array.from({ length: 5 }, (_, i) => ({ service: 'critic', instance: `critic-${i + 1}` })),
    ...Array.from({ length: 9 }, (_, i) => ({ service: 'payments', instance: `pay-${i + 1}` })),
  ]
  await here.ask('POST', '/v1/heartbeats', { instances })
  await pass(here, 60_000)
  await here.ask('POST', '/v1/services/payments/pay-3/heartbeat', { status: 'maintenance' })
  await here.ask('POST', '/v1/services/payments/pay-5/heartbeat', { status: 'critical' })
  await register('search', 'flaky-1', { address: '10.0.2.1:9200', ttl: '1h' })
  await here.ask('POST', '/v1/heartbeats', { instances: [{ service: 'search', instance: 'flaky-1' }] })
}

/** Returns the leases of the offers. */
async function pool(here: World): Promise<number[]> {
  const offers: number[] = []
  for (const host of ['gpu-host-1', 'gpu-host-2']) {
    const entries = Array.from({ length: 8 }, (_, i) => [
      { key: `pool/gpus/${host.slice(-1)}-${i}`, value: JSON.stringify({ labels: { model: 'a100', mem: '80', host }, units: 1 }) },
      {
        key: `devices/gpus/${host.slice(-1)}-${i}`,
        value: JSON.stringify({
          ...{ host, utilisation: (i * 37) % 101, memoryUsed: i * 7.5, more: 0, idle: 0, stage: 'none' },
          unleased: host.endsWith('2') && i === 6 ? 1 : 0,
          processes:
            host.endsWith('2') && i === 6 ? [{ pid: 4_711, user: 'bob', name: 'python train.py', started: 1, age: 60_000, lease: 0 }] : [],
        }),
      },
    ]).flat()
    offers.push(await granted(here, acquire(host, [], { ...LONG, entries })))
  }
  const take = (holder: string, count: number, more: Partial<Acquire> = {}) =>
    granted(
      here,
      acquire(holder, [], { ...LONG, pool: { pool: 'gpus', count, account: holder.split('-')[0]!, expect: 1_800_000 }, ...more }),
    )
  await take('ann-train', 4)
  await take('bob-sweep', 3)
  await take('cyd-eval', 6)
  await pass(here, 30_000)
  await take('bob-large', 8, { wait: true })
  await take('dee-notebook', 1, { wait: true })
  await granted(
    here,
    acquire('ann-friday', [], {
      ...LONG,
      wait: true,
      maxLife: 7_200_000,
      pool: { pool: 'gpus', count: 8, account: 'ann', from: 10_800_000 },
    }),
  )
  return offers
}

async function sessions(here: World): Promise<number> {
  const session = await granted(here, acquire('ann@laptop', [], { ...LONG, labels: [['user', 'ann']] }))
  for (const name of ['documents/42', 'documents/57/outline'])
    await granted(here, acquire('ann@laptop', [name], { ...LONG, parent: session }))
  const job = await granted(here, acquire('ann@laptop', ['export/42'], { ...LONG, parent: session }))
  await granted(here, acquire('export-worker', ['export/42/page-1'], { ...LONG, parent: job }))
  return session
}

async function claims(here: World): Promise<void> {
  const agent = async (name: string, labels: readonly (readonly [string, string])[]) => {
    const lease = await granted(here, acquire(name, [`agents/${name}`], { ttl: 60_000, labels: [['kind', 'agent'], ...labels] }))
    const value = JSON.stringify({ at: here.clock.wall(), underWay: name === 'planner' })
    await propose(here.lessor, { kind: 'put', lease, key: `agents/${name}/~activity`, value })
    return lease
  }
  const claim = (name: string, parent: number, paths: readonly string[], purpose: string, more: Partial<Acquire> = {}) =>
    granted(
      here,
      acquire(
        name,
        paths.map(path => `repo/github.com/acme/app/${path}`),
        {
          ttl: 60_000,
          maxLife: 14_400_000,
          covers: true,
          parent,
          ...more,
          labels: [
            ['kind', 'claim'],
            ['purpose', purpose],
            ['expect', '600000'],
          ],
        },
      ),
    )
  const planner = await agent('planner', [
    ['alive', 'process'],
    ['host', 'laptop'],
    ['pid', '4242'],
  ])
  const tests = await agent('tester', [['alive', 'calls']])
  await claim('planner', planner, ['src/server.ts', 'src/routes.ts'], 'split the router')
  await claim('tester', tests, ['test/router.test.ts'], 'tests for the router')
  await claim('tester', tests, ['src/routes.ts'], 'needs the new routes', { wait: true, recall: true })
  await claim('tester', tests, ['docs'], 'rename the pages')
  await claim('planner', planner, ['docs/routes.md'], 'describe the routes', { wait: true, recall: true })
  await claim('planner', planner, ['test'], 'move the tests', { wait: true, recall: true })
}
