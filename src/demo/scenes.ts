/** The scenes of the demonstration. Each is one life of one program: it is run again when it ends, whether it ended well or crashed. */
import { Agent } from '../agent/agent.ts'
import { type Device, DeviceOffer, type HostProcesses } from '../devices/index.ts'
import { keepRun } from '../lessor/kept-runs.ts'
import type { DemoWorld } from './world.ts'

export type Scene = (world: DemoWorld) => Promise<void>

const JOBS = [
  ['jobs/nightly-report', 'write the report of the day', 'report'],
  ['jobs/send-mail', 'send what is queued', 'sendmail'],
  ['jobs/thumbnails', 'resize new pictures', 'convert'],
  ['jobs/reindex', 'rebuild the search index', 'reindex'],
] as const

/** Five workers, four jobs: there is always one that waits. One in twelve dies at work, one in eight fails. How each ended is kept, as by `leasehold run`. */
export function workers(): Scene[] {
  return ['ada', 'bob', 'cyd', 'dee', 'eli'].map(name => async world => {
    const holder = `worker-${name}`
    await using program = world.program(holder)
    for (;;) {
      const [job, purpose, command] = world.pick(JOBS)
      const lease = await program.leases.acquire(job, { ttl: '8s', labels: { purpose }, signal: world.signal })
      const since = Math.round(world.clock.wall())
      await world.pause(world.between(1_500, 6_000))
      if (world.chance(1 / 12)) {
        program.crash()
        return await world.pause(12_000)
      }
      await lease.release()
      const until = Math.round(world.clock.wall())
      const ended = { since, until, cause: 'released', exit: world.chance(1 / 8) ? 1 : 0, ran: until - since, command }
      await keepRun(program.leases.lessor, lease.tokens, { lease: lease.id, holder, ...ended })
      await world.pause(world.between(200, 2_500))
    }
  })
}

/** Three candidates. The leader crashes about every half minute. */
export function elections(): Scene[] {
  return ['north', 'south', 'west'].map(name => async world => {
    await using program = world.program(`scheduler-${name}`)
    const election = program.leases.election('scheduler', { ttl: '6s' })
    for await (const _ of election.terms({ signal: world.signal })) {
      await world.pause(world.between(22_000, 34_000))
      program.crash()
      return await world.pause(9_000)
    }
  })
}

const SERVICES = [
  ['planner', 'plan', 2],
  ['critic', 'review', 3],
  ['search', 'retrieve', 2],
] as const

/** Agents in the registry. They report load, drain now and then, die and come back; the last critic flaps. */
export function services(): Scene[] {
  return SERVICES.flatMap(([service, capability, count]) =>
    Array.from({ length: count }, (_, i): Scene => {
      const flaps = service === 'critic' && i === count - 1
      return async world => {
        await using program = world.program(`${service}-${i + 1}`)
        const me = await program.leases.registry.register({
          service,
          instance: `${service}-${i + 1}`,
          address: `http://10.0.${i}.7:8080`,
          capabilities: [capability, 'mcp'],
          tags: ['demo'],
          zone: i === 0 ? 'eu/fra' : 'eu/ams',
          metadata: { model: world.pick(['small', 'large']) },
          ...{ ttl: '6s', grace: '4s', drain: '4s', wait: '30s', signal: world.signal },
        })
        const until = world.clock.now() + (flaps ? 8_000 : world.between(30_000, 120_000))
        while (world.clock.now() < until) {
          await world.pause(world.between(2_000, 5_000))
          await me.update({ load: world.between(0, 100) / 100, status: world.chance(0.1) ? 'warning' : 'passing' })
        }
        if (world.chance(0.5) && !flaps) await me.deregister()
        else program.crash()
        await world.pause(flaps ? 11_000 : 14_000)
      }
    }),
  )
}

/** The process that uses a GPU without a lease, for 40 s of every 90. No host has it: the demonstration starts no other programs. */
const STRAY = { pid: 4_242, memory: 11, name: 'python' }
const strayProcesses: HostProcesses = {
  find: pid => (pid === STRAY.pid ? { pid, parent: 1, started: 0, uid: 1_000 } : undefined),
  variable: () => undefined,
  userName: () => 'dan',
}

/** Two hosts with four GPUs each, and three users who want more than there are. One GPU is used without a lease now and then. */
export function gpuLab(): Scene[] {
  const hosts = ['lab-1', 'lab-2'].map(
    (host, h): Scene =>
      async world => {
        await using program = world.program(host)
        const began = world.clock.now()
        const devices = (): Device[] =>
          Array.from({ length: 4 }, (_, i) => ({
            id: `${host}-gpu-${i}`,
            labels: { model: h === 0 ? 'a100' : 'h100', mem: h === 0 ? '40' : '80', host, index: String(i) },
            utilisation: world.between(0, 100),
            memoryUsed: world.between(2, 38),
            ...(h === 1 && i === 3 && { processes: (world.clock.now() - began) % 90_000 < 40_000 ? [STRAY] : [] }),
          }))
        const discover = async () => ({ devices: devices(), problems: [] })
        await using offer = await DeviceOffer.start(program.leases, 'gpus', {
          discover,
          host,
          processes: strayProcesses,
          interval: '5s',
          ttl: '15s',
          signal: world.signal,
        })
        await offer.ended
      },
  )
  const users = ['ann', 'ben', 'cat'].flatMap(user =>
    [0, 1].map(
      (): Scene => async world => {
        await using program = world.program(user)
        const gpus = program.leases.pool('gpus')
        for (;;) {
          const count = world.pick([1, 1, 2, 3, 4])
          const expect = world.between(6_000, 24_000)
          const lease = await gpus.take(count, {
            ...{ ttl: '12s', account: user, expect, patient: true, signal: world.signal },
            ...(count > 1 && { near: 'host' }),
            labels: { purpose: world.pick(['train', 'evaluate', 'fine-tune', 'profile']) },
          })
          await world.pause(Math.round(expect * (0.6 + world.clock.random() * 0.8)))
          await lease.release()
          await world.pause(world.between(500, 4_000))
        }
      },
    ),
  )
  const reservation: Scene = async world => {
    await using program = world.program('ann')
    await world.pause(4_000)
    const reserved = await program.leases
      .pool('gpus')
      .reserve(2, { from: '3m', for: '1h', account: 'ann', labels: { purpose: 'demo at three' } })
    await world.pause(240_000)
    await program.leases.revoke({ lease: reserved.lease })
  }
  return [...hosts, ...users, reservation]
}

const FILES = ['src/checkout.ts', 'src/cart.ts', 'src/search.ts', 'test/checkout.test.ts', 'docs/api.md']
const PURPOSES = ['add a coupon field', 'fix rounding of totals', 'rename the cart', 'speed up search', 'describe the API']

/** Coding agents that claim the files they edit, and sometimes stop without a word. */
export function codingAgents(): Scene[] {
  return ['claude-1', 'codex-2', 'cursor-3'].map(name => async world => {
    await using program = world.program(name)
    await using agent = await Agent.begin(program.leases, {
      name,
      ttl: '15s',
      idle: '20s',
      workspace: { root: '/home/demo/shop', prefix: 'repo/shop' },
    })
    for (;;) {
      const names = world.chance(0.4) ? [world.pick(FILES), world.pick(FILES)] : [world.pick(FILES)]
      const claim = await agent.claim([...new Set(names)], {
        purpose: world.pick(PURPOSES),
        expectMinutes: 1,
        waitSeconds: 20,
        signal: world.signal,
      })
      await world.pause(world.between(3_000, 10_000))
      if (world.chance(0.06)) {
        program.crash()
        return await world.pause(20_000)
      }
      await agent.release(claim.names)
      await world.pause(world.between(500, 3_000))
    }
  })
}

/** A deployment: a session whose steps end with it. */
export function deployments(): Scene[] {
  return [
    async world => {
      await using program = world.program('deploy-bot')
      const session = await program.leases.session({ ttl: '1m' })
      const step = async (name: string) =>
        session.acquire(`deploy/prod/${name}`, { ttl: '20s', labels: { purpose: `${name} of release ${world.between(100, 999)}` } })
      const steps = []
      for (const name of ['build', 'migrate', 'roll-out', 'verify']) {
        steps.push(await step(name))
        session.touch()
        await world.pause(world.between(3_000, 6_000))
      }
      for (const lease of steps) await lease.release()
      await session.end()
      await world.pause(world.between(5_000, 12_000))
    },
  ]
}
