/**
 * A small lively world on one lessor, so that a newcomer sees everything move: workers on jobs, an election that fails over, agents that die and flap, GPUs with a
 * queue, coding agents that claim files, a deployment with steps. `leasehold demo` runs it. Nothing outside this process is touched.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, pause } from '../clock.ts'
import { Leases } from '../leases.ts'
import type { Lessor } from '../lessor.ts'
import { mortalLessor } from './mortal-lessor.ts'
import { codingAgents, deployments, elections, gpuLab, services, workers } from './scenes.ts'
import type { DemoWorld } from './world.ts'

/** A scene that failed is tried again after this long, in ms. */
const RETRY = 2_000

/** Runs the world until the signal fires. */
export async function runDemo(lessor: Lessor, { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal }): Promise<void> {
  setMaxListeners(0, signal, lessor.signal) // every scene and every program listens there
  const open = new Set<Leases>()
  const world: DemoWorld = {
    clock,
    signal,
    program(holder) {
      const mortal = mortalLessor(lessor)
      const leases = new Leases(mortal.lessor, { holder, clock })
      open.add(leases)
      const close = async () => {
        open.delete(leases)
        await leases.close().catch(() => {})
      }
      return {
        leases,
        crash() {
          mortal.kill()
          void close()
        },
        [Symbol.asyncDispose]: close,
      }
    },
    pause: ms => pause(clock, ms, signal),
    between: (low, high) => Math.round(low + clock.random() * (high - low)),
    chance: probability => clock.random() < probability,
    pick: list => list[Math.floor(clock.random() * list.length)]!,
  }
  const forever = async (scene: (world: DemoWorld) => Promise<void>) => {
    while (!signal.aborted)
      try {
        await scene(world)
      } catch {
        // A part that crashed on purpose ends like this, too.
        await world.pause(RETRY).catch(() => {})
      }
  }
  const scenes = [...workers(), ...elections(), ...services(), ...gpuLab(), ...codingAgents(), ...deployments()]
  await Promise.all(scenes.map(forever))
  await Promise.all([...open].map(leases => leases.close().catch(() => {})))
}
