import { describe, expect, test } from 'vitest'
import { RegistryWorld, type TownOptions } from '../../../sim/registry-world.ts'
import { propose } from '../../../src/lessor/propose.ts'

const MINUTE = 60_000

async function town(options: Omit<TownOptions, 'seed'> & { readonly seed?: number }): Promise<RegistryWorld> {
  const here = new RegistryWorld({ seed: 1, ...options })
  await here.open()
  await here.run(20_000)
  expect(here.listed).toEqual(here.living)
  expect(here.lapses).toEqual([])
  return here
}

describe('no live instance is removed', () => {
  test('when the server is stalled for a minute', { timeout: 15 * MINUTE }, async () => {
    for (const seed of [1, 2, 3]) {
      const here = await town({ seed, processes: 40, owned: true })
      here.halls[0]!.stall(MINUTE)
      await here.run(5 * MINUTE)
      expect(here.lapses).toEqual([])
      expect(here.listed).toEqual(here.living)
    }
  })

  test('when the server is killed and restarted several times', { timeout: 15 * MINUTE }, async () => {
    for (const owned of [true, false]) {
      const here = await town({ seed: 4, processes: 40, owned })
      for (let i = 0; i < 4; i++) {
        here.halls[0]!.kill()
        await here.run(20_000)
        void here.halls[0]!.revive()
        await here.run(10_000)
      }
      await here.run(MINUTE)
      expect(here.lapses).toEqual([])
      expect(here.listed).toEqual(here.living)
    }
  })

  test('when half of them cannot be reached for two minutes', { timeout: 15 * MINUTE }, async () => {
    const here = await town({ seed: 5, processes: 60, services: ['a', 'b'] })
    for (const agent of here.agents.slice(0, 30)) here.cut.add(agent)
    await here.run(2 * MINUTE)
    expect(here.lapses).toEqual([])
    expect(here.listed).toHaveLength(30)
    here.cut.clear()
    await here.run(30_000)
    expect(here.listed).toEqual(here.living)
  })

  test('when one of two servers is cut off from the log', { timeout: 15 * MINUTE }, async () => {
    const here = await town({ seed: 6, processes: 40, servers: 2 })
    const { machine } = here.halls[1]!
    here.wire.mute.add(machine)
    here.wire.deaf.add(machine)
    await here.run(2 * MINUTE)
    here.wire.mute.clear()
    here.wire.deaf.clear()
    await here.run(MINUTE)
    expect(here.lapses).toEqual([])
    expect(here.listed).toEqual(here.living)
    expect(new Set(await here.hashes()).size).toBe(1)
  })
})

describe('dead instances are removed', () => {
  test('after a ttl and a grace, if they are a few', async () => {
    const here = await town({ seed: 7, processes: 40 })
    for (const agent of here.agents.slice(0, 4)) agent.kill()
    await here.run(30_000 + 15_000 + 1_000)
    expect(here.directory.size).toBe(36)
    expect(here.listed).toEqual(here.living)
  })

  test('after a ttl and a grace, if the service is small', async () => {
    const here = await town({ seed: 8, processes: 2 })
    for (const agent of here.agents) agent.kill()
    await here.run(46_000)
    expect(here.directory.size).toBe(0)
  })

  test('a few at a time and not before five minutes, if they are many, and no live one with them', {
    timeout: 15 * MINUTE,
  }, async () => {
    const here = await town({ seed: 9, processes: 200 })
    for (const agent of here.agents.slice(0, 120)) agent.kill()
    await here.run(5 * MINUTE)
    expect(here.lapses).toEqual([])
    expect(here.directory.preserved.get('s')).toMatch(/missed a renewal/)
    await here.run(2 * MINUTE)
    expect(here.directory.size).toBe(80)
    expect(here.listed).toEqual(here.living)
    expect(here.directory.preserved.size).toBe(0)
    for (const at of here.lapses) expect(here.lapses.filter(other => other >= at && other < at + 4_500).length).toBeLessThanOrEqual(60)
  })
})

describe('with random faults all live instances are listed in the end', () => {
  test.each(Array.from({ length: 8 }, (_, i) => 100 + i))('seed %i', { timeout: 15 * MINUTE }, async seed => {
    const here = new RegistryWorld({
      ...{ seed, processes: 24, each: 2, services: ['a', 'b', 'c'], servers: 1 + (seed % 2), owned: seed % 4 === 0, ttl: 10_000 },
      ...{ loss: 0.05, delay: 20, rules: { preserveMost: 40_000 } },
    })
    const { dice } = here.world
    await here.open()
    await here.run(30_000)
    for (let i = 0; i < 60; i++) {
      const agent = dice.pick(here.agents)
      const dead = here.agents.filter(({ machine }) => !machine.alive)
      const hall = dice.pick(here.halls)
      const what = dice.whole(0, 9)
      if (what < 2) agent.kill()
      else if (what < 4 && dead.length > 0) void dice.pick(dead).revive()
      else if (what < 5) here.cut.add(agent)
      else if (what < 6) here.cut.clear()
      else if (what < 7) agent.machine.stall(dice.whole(100, 20_000))
      else if (what < 8) hall.stall(dice.whole(100, 20_000))
      else if (hall.machine.alive) {
        hall.kill()
        here.world.later(dice.whole(100, 15_000), () => void hall.revive())
      }
      await here.run(dice.whole(100, 6_000))
    }
    here.cut.clear()
    here.wire.weather.loss = 0
    await here.run(40_000)
    for (const agent of here.agents) if (!agent.machine.alive) void agent.revive()
    await here.run(2 * MINUTE)
    expect(here.listed).toEqual(here.living)
    expect(new Set(await here.hashes()).size).toBe(1)
  })
})

describe('the simulator detects', () => {
  test('that a server with a clock of double speed removes a live instance', async () => {
    const here = await town({ seed: 20, processes: 40 })
    here.halls[0]!.machine.setRate(2)
    here.cut.add(here.agents[0]!)
    await expect(here.run(MINUTE)).rejects.toThrow(/^S17: services\/s\/0-0 lapsed \d+ ms after a renewal that was acknowledged/)
  })

  test('that dead instances stay listed for too long', async () => {
    const here = await town({ seed: 21, processes: 40, rules: { preserveMost: 20_000 } })
    void propose(here.halls[0]!.replica!, { kind: 'policy', prefix: 'services/s', rules: { preserveMost: 3_600_000 } })
    for (const agent of here.agents.slice(0, 20)) agent.kill()
    await expect(here.run(5 * MINUTE)).rejects.toThrow(/^S17: s\/\d+-0 is still listed/)
  })

  test('that an older generation replaces a newer one', async () => {
    const here = await town({ seed: 22, processes: 3 })
    const [agent] = here.agents
    agent!.kill()
    await here.run(MINUTE)
    // The newer one is gone, so the kernel has nothing to compare with. Only an observer can tell.
    agent!.generation = -1
    void agent!.revive()
    await expect(here.run(MINUTE)).rejects.toThrow(/^S18: services\/s\/0-0 went back/)
  })
})
