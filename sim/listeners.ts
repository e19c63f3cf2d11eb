/** Which processes follow the log, in worlds where a process that only holds leases reads it now and then. */
import type { Host, Site } from './participants.ts'
import type { World } from './world.ts'

interface ListeningScene {
  readonly world: World
  readonly site: Site
  readonly hosts: readonly Host[]
  readonly isOver: boolean
}

/** None of them; or one always waits for news, or each of them does at times. */
export function chooseListeners(scene: ListeningScene): void {
  const kind = scene.world.dice.pick(['none', 'one', 'changing'])
  if (kind === 'one') scene.hosts[0]!.listen(true)
  if (kind === 'changing') for (const host of scene.hosts) change(scene, host)
}

function change(scene: ListeningScene, host: Host): void {
  const { world } = scene
  world.later(world.dice.between(100, 4_000), () => {
    if (scene.isOver) return
    host.listen(world.dice.chance(0.5))
    change(scene, host)
  })
}

/** Returns how much later a lease may end because every process reads the log now and then: two intervals between reads. */
export function idleLateness({ site: { readEvery = 0 }, hosts }: ListeningScene): number {
  return hosts.some(host => host.listens) ? 0 : 2 * readEvery
}
