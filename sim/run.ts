/** Runs one seed: a world lives through its faults, heals, and must come to rest. */
import { nextBuild } from './builds.ts'
import { MIX } from './profiles.ts'
import { Scene } from './scene.ts'
import type { SeedOptions, SeedResult } from './seed.ts'
import { Violation, World } from './world.ts'

export async function runSeed(
  seed: number,
  { profile, trace, commands = 2_000, faults = 20, within = 600, pairs }: SeedOptions = {},
): Promise<SeedResult> {
  const world = new World(seed, trace)
  const chosen = profile ?? MIX[seed % MIX.length]!
  // Loaded only here, since it loads servers.
  if (chosen === 'rollback') return (await import('./rollback.ts')).runRollback(world, seed, { commands, faults, within })
  if (chosen === 'directed') return (await import('./directed.ts')).runDirected(world, seed, { within, pairs })
  if (chosen === 'cases') return (await import('./directed.ts')).runCases(world, seed, { within })
  const scene = new Scene(world, chosen, chosen === 'rolling' ? await nextBuild() : undefined)
  const enough = () => scene.referee.commands >= commands && world.faults >= faults
  let violation: SeedResult['violation']
  let short = false
  try {
    await scene.begin()
    for (let second = 1; second < within && !enough(); second++) await world.run(second * 1_000)
    short = !enough()
    await scene.heal()
  } catch (error) {
    if (!(error instanceof Violation)) throw error
    violation = { invariant: error.invariant, message: error.message }
  } finally {
    for (const machine of world.machines) machine.kill()
  }
  return {
    seed,
    profile: chosen,
    commands: scene.referee.commands,
    faults: world.faults,
    events: world.events,
    simulatedMs: Math.round(world.now),
    digest: world.digest,
    ...(violation !== undefined && { violation }),
    ...(short && { short }),
    met: Object.fromEntries(world.met),
    pairs: Object.fromEntries(scene.referee.pairs.counts),
  }
}
