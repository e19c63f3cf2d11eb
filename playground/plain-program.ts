/** The program of the plain lock, in the same process as that of the lease: it wants the lock while the process wants the resource. */
import { PlainBelief } from './belief.ts'
import { LOCK } from './links.ts'
import type { Process } from './process.ts'
import { RESOURCE_NAME } from './programs.ts'

/** It asks again after this when the lock is taken, ms. */
const RETRY = 700
const TIMEOUT = 2_000

/** Runs until its process dies. */
export async function plainProgram(process: Process): Promise<void> {
  for (;;) {
    await process.until(() => process.wants)
    const waiting = process.waits('plain', 'plain lock')
    let turn: number | undefined
    while (process.wants && turn === undefined) {
      turn = await ask(
        process,
        'SET NX PX',
        ok => (ok ? 'OK' : 'nil'),
        () => process.world.takePlain(process.name),
      )
      if (turn === undefined) await process.pause(RETRY)
    }
    process.ends(waiting, 'answered')
    if (turn !== undefined) await hold(process, turn)
  }
}

async function hold(process: Process, turn: number): Promise<void> {
  const { world, machine } = process
  const belief = new PlainBelief(machine, RESOURCE_NAME, turn)
  const bar = process.holdsPlain(turn)
  const value = keyValue(process, turn)
  const { server } = world
  if (world.settings.extend === 1) void extendWhileHeld(process, belief, value)
  world.uses('plain', belief)
  while (process.wants && belief.holds()) {
    await process.pause(world.settings.work)
    world.uses('plain', belief)
    process.write('plain', RESOURCE_NAME, belief)
  }
  const wasTold = belief.isOver
  belief.isOver = true
  process.ends(bar, wasTold ? 'an answer said that the key is not ours' : 'deleted by its holder')
  if (!wasTold)
    await ask(
      process,
      'DEL',
      ok => (ok ? '1' : '0'),
      () => (server.delete(value) ? turn : undefined),
    )
}

async function extendWhileHeld(process: Process, belief: PlainBelief, value: string): Promise<void> {
  const { server, settings } = process.world
  while (belief.holds()) {
    await process.pause(settings.plainTtl / 3)
    if (!belief.holds()) return
    const answer = await ask(
      process,
      'PEXPIRE',
      ok => (ok ? '1' : '0'),
      () => (server.extend(value, settings.plainTtl) ? 1 : 0),
    )
    // No answer says nothing: the work goes on.
    if (answer === 0) belief.isOver = true
  }
}

function keyValue({ name }: Process, turn: number): string {
  return `${name}:${turn}`
}

/** A request to the server and its answer. Undefined: the answer was no, or none came. */
function ask<T>(process: Process, text: string, shown: (ok: boolean) => string, what: () => T | undefined): Promise<T | undefined> {
  const { machine, world } = process
  const { life } = machine
  return new Promise(resolve => {
    const cancel = world.timeline.later(TIMEOUT, () => resolve(undefined), machine, true, life)
    world.links.send({ from: machine, to: LOCK, side: 'plain', text }, () => {
      const answer = what()
      world.links.send(
        { from: LOCK, to: machine, side: 'plain', text: shown(answer !== undefined && answer !== 0) },
        () => {
          cancel()
          resolve(answer)
        },
        life,
      )
    })
  })
}
