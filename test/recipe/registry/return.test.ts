import { describe, expect, test } from 'vitest'
import { RegistryWorld, type TownOptions } from '../../../sim/registry-world.ts'

const MINUTE = 60_000

async function town(options: Omit<TownOptions, 'seed'> & { readonly seed?: number }): Promise<RegistryWorld> {
  const here = new RegistryWorld({ seed: 1, ...options })
  await here.open()
  await here.run(20_000)
  expect(here.listed).toEqual(here.living)
  expect(here.lapses).toEqual([])
  return here
}

describe('20,000 instances after an outage of 90 s', () => {
  const many = { processes: 200, each: 100, services: ['plan', 'work', 'review'], owned: true }

  test('are all kept by self-preservation, recover within 30 s, and do not lapse afterwards', { timeout: 15 * MINUTE }, async () => {
    const here = await town(many)
    for (const agent of here.agents) here.cut.add(agent)
    await here.run(90_000)
    expect(here.listed).toEqual([])
    expect(here.directory.list({ status: 'suspect' })).toHaveLength(20_000)
    expect([...here.directory.preserved.keys()].sort()).toEqual(['plan', 'review', 'work'])
    here.cut.clear()
    await here.run(30_000)
    expect(here.listed).toHaveLength(20_000)
    await here.run(MINUTE)
    expect(here.listed).toEqual(here.living)
    expect(here.lapses).toEqual([])
    expect(here.directory.preserved.size).toBe(0)
    expect(new Set(await here.hashes()).size).toBe(1)
  })

  test('without self-preservation lapse, register again within 30 s, and do not lapse a second time', {
    timeout: 15 * MINUTE,
  }, async () => {
    const here = await town({ ...many, rules: { preserveShare: 0, sweepShare: 100 } })
    for (const agent of here.agents) here.cut.add(agent)
    await here.run(90_000)
    expect(here.lapses).toHaveLength(20_000)
    here.cut.clear()
    await here.run(30_000)
    expect(here.listed).toHaveLength(20_000)
    await here.run(MINUTE)
    expect(here.listed).toEqual(here.living)
    expect(here.lapses).toHaveLength(20_000)
  })
})
