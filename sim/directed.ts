/**
 * The directed world: each feature of leases acts on purpose while each other one is in force on the same lease or in the same pool, one pair after another,
 * in a random order and with random ingredients. Nothing fails here: what faults do to features is tried by the other worlds.
 */
import { playCases } from './cases.ts'
import { Crew } from './directed-crew.ts'
import { PARTS, type Part } from './directed-parts.ts'
import { POLICIES, Stage } from './directed-stage.ts'
import type { Feature } from './features.ts'
import { allPairs } from './pair-table.ts'
import type { ProfileName } from './profiles.ts'
import { Referee } from './referee.ts'
import { ReplicatedLog } from './replicated-log.ts'
import type { SeedResult } from './seed.ts'
import { WatchedLog, Wire } from './wire.ts'
import { Violation, type World } from './world.ts'

/** This world may take this many times as long as others: the stages follow each other. */
const LONGER = 10
/** After the last stage: how long leases may take to end, in ms. */
const REST = 20_000

export interface DirectedOptions {
  /** The virtual time, in seconds. */
  readonly within: number
  /** The world plays this many pairs; left out: all of them. */
  readonly pairs?: number | undefined
}

export function runDirected(world: World, seed: number, { within, pairs }: DirectedOptions): Promise<SeedResult> {
  return run(world, seed, 'directed', within, crew => play(crew, pairs))
}

/** The same world with the scenes of corrected mistakes. */
export function runCases(world: World, seed: number, { within }: { readonly within: number }): Promise<SeedResult> {
  return run(world, seed, 'cases', within, crew => playCases(crew, seed))
}

async function run(
  world: World,
  seed: number,
  profile: ProfileName,
  within: number,
  play: (crew: Crew) => Promise<void>,
): Promise<SeedResult> {
  const referee = new Referee(world)
  const engine = world.machine('engine', 1)
  const newLog = () => {
    if (profile === 'directed') return new WatchedLog({ clock: engine.clock() })
    const replicated = new ReplicatedLog(world, { clock: engine.clock() })
    replicated.onFailover = undone => referee.undo(undone)
    return replicated
  }
  const log = newLog()
  log.onAppend = (position, bytes, sentAt) => referee.observe(position, bytes, sentAt)
  const wire = new Wire(world, { delay: 0.3, loss: 0, doubled: 0 })
  const crew = new Crew({ world, referee, log, wire, ages: true, push: true, snapshotRecords: 500, incarnations: new Map() }, newLog)
  let violation: SeedResult['violation']
  let short = false
  try {
    const played = observed(play(crew))
    for (let second = 1; second < within * LONGER && !played.isOver; second++) await world.run(world.now + 1_000)
    short = !played.isOver
    if (played.error !== undefined) throw played.error
    crew.stop()
    for (const end = world.now + REST; world.now < end && !referee.isCalm; ) await world.run(world.now + 500)
    referee.checkWhole()
    referee.nothingIsLeft('after the last stage')
    for (const { machine, replica } of crew.hosts)
      if (replica !== undefined) referee.sameState(machine, replica.index, () => replica.hash())
  } catch (error) {
    if (!(error instanceof Violation)) throw error
    violation = { invariant: error.invariant, message: error.message }
  } finally {
    for (const machine of world.machines) machine.kill()
  }
  const { faults, events, digest } = world
  return {
    ...{ seed, profile, commands: referee.commands, faults, events, simulatedMs: Math.round(world.now), digest },
    ...(violation !== undefined && { violation }),
    ...(short && { short }),
    met: Object.fromEntries(world.met),
    pairs: Object.fromEntries(referee.pairs.counts),
  }
}

/** The fate of a promise, for a loop that must not await it. */
function observed(promise: Promise<void>): { readonly isOver: boolean; readonly error: unknown } {
  const fate: { isOver: boolean; error: unknown } = { isOver: false, error: undefined }
  const over = (error?: unknown) => void Object.assign(fate, { isOver: true, error })
  promise.then(() => over(), over)
  return fate
}

async function play(crew: Crew, most: number | undefined): Promise<void> {
  await crew.start()
  for (const policy of POLICIES) await crew.propose(policy)
  for (const [first, second] of shuffled(crew, allPairs()).slice(0, most)) await playPair(crew, first, second)
}

/** The second feature acts while the first is in force. */
async function playPair(crew: Crew, first: Feature, second: Feature): Promise<void> {
  crew.site.world.note(`stage: ${first} ${second}`)
  const stage = new Stage(crew)
  const [before, after]: readonly Part[] = [PARTS[first], PARTS[second]]
  await stage.open({ ...(await after!.needs?.(stage)), ...(await before!.request?.(stage)) })
  await after!.prepare?.(stage)
  await before!.begin?.(stage)
  await after!.act(stage)
  await crew.pause(crew.dice.pick([1, 10, 60]))
  await stage.clear()
}

function shuffled<T>({ dice }: Crew, items: readonly T[]): T[] {
  const left = [...items]
  const order: T[] = []
  while (left.length > 0) order.push(...left.splice(dice.whole(0, left.length - 1), 1))
  return order
}
