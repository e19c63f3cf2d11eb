/**
 * Searches for each planted mistake: puts it into a copy of the build, runs the simulator there, and restores the copy for the next mistake.
 *
 * The budget is a number of seeds, not a time, so that a busy machine searches as much as an idle one. The search begins where the mistake was found
 * last (planted-places.ts, written by `--record`). When the code changes, worlds change, and the search continues with all other seeds.
 * With `--cheapest`, the search continues for a while after a mistake was found, and the place that took the least CPU is recorded.
 */
import { spawn } from 'node:child_process'
import { copyFileSync, cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../src/clock.ts'
import { BUGS } from './planted.ts'
import type { Planted } from './planted-mistake.ts'
import { PLACES, type Place } from './planted-places.ts'
import { PROFILES } from './profiles.ts'
import { replaceOnce } from './replace-once.ts'

export interface PlantedResult {
  readonly name: string
  readonly seconds: number
  readonly expected: readonly string[]
  readonly found: (Place & { readonly invariant: string }) | undefined
  /** Other invariants that were violated, and how often. */
  readonly instead: ReadonlyMap<string, number>
}

const BUILT = fileURLToPath(new URL('..', import.meta.url))
/** The profiles in which mistakes of the kernel, the replica and the store are searched, unless the mistake names its own. */
const EVERYWHERE = PROFILES.filter(
  profile => !['resp', 'http', 'rolling', 'rollback', 'agents', 'combined', 'directed', 'failover', 'cases', 'idle'].includes(profile),
)
/** Seeds of each profile. */
const SEEDS = 60
/** A seed takes about a second. After this many ms it counts as hung: the mistake may have caused an endless loop. */
const HUNG = 600_000
/**
 * With `--cheapest`: this many other places are tried after a mistake was found, unless it was found in this many seconds of CPU. A start takes 0.4. A place that
 * takes longer than this many ms is no alternative.
 */
const ALTERNATIVES = 20
const CHEAP = 1
const SHORT = 3_000
/** Flags of Node for a simulation: most objects are short-lived, so it gets a large young generation. */
const LONG_RUN = ['--min-semi-space-size=32', '--max-semi-space-size=64']
/** For a process that lives two seconds, the fast compilers only. Optimized code would not be used for long enough to repay its compilation. */
export const SHORT_RUN = [...LONG_RUN, '--no-opt', '--sparkplug']

export interface SearchOptions {
  /** Part of the names of the mistakes to search for. */
  readonly only: string | undefined
  /** Look for a cheaper place of each mistake, too. */
  readonly cheapest?: boolean
  readonly say: (line: string) => void
}

/** The run of one world: the violated invariant, CRASH or HUNG, and the seconds of CPU that it took where that is known. */
interface Ran {
  readonly invariant: string | undefined
  readonly cpu: number
}

/** Plants each mistake and searches for it, two at a time. */
export async function findPlanted({ only, cheapest = false, say }: SearchOptions): Promise<PlantedResult[]> {
  const results: PlantedResult[] = []
  const next = BUGS.filter(({ name }) => only === undefined || name.includes(only)).values()
  const work = async () => {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-planted-'))
    try {
      const copy = copyBuild(folder)
      for (const bug of next) {
        const result = await find(bug, copy, cheapest)
        results.push(result)
        say(describe(result))
      }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
  await Promise.all([work(), work()])
  return results
}

function describe({ name, seconds, found, expected, instead }: PlantedResult): string {
  const others = [...instead].map(([invariant, count]) => `${invariant} ${count} times`).join(', ')
  const also = others === '' ? '' : `, saw ${others} before`
  return found === undefined
    ? `MISSED ${name}: expected ${expected.join(' or ')}${also} (${seconds.toFixed(1)} s)`
    : `found  ${name}: ${found.invariant} at seed ${found.seed} of ${found.profile}${also} (${seconds.toFixed(1)} s)`
}

/** The source of planted-places.ts after this search. Mistakes that were not searched for keep their places. */
export function placesSource(results: readonly PlantedResult[]): string {
  const places = new Map(Object.entries(PLACES))
  for (const { name, found } of results) if (found !== undefined) places.set(name, found)
  const lines = BUGS.flatMap(({ name }) => {
    const place = places.get(name)
    const quoted = name.includes("'") ? JSON.stringify(name) : `'${name}'`
    return place === undefined ? [] : [`  ${quoted}: { profile: '${place.profile}', seed: ${place.seed} },`]
  })
  return `/** Where each planted mistake was found last. Written by \`npm run sim -- --planted --record FILE\`. */
import type { ProfileName } from './profiles.ts'

export interface Place {
  readonly profile: ProfileName
  readonly seed: number
}

export const PLACES: Readonly<Record<string, Place>> = {
${lines.join('\n')}
}
`
}

/** Leaves the copy without the mistake. */
async function find(bug: Planted, copy: string, cheapest: boolean): Promise<PlantedResult> {
  const began = systemClock.now()
  const instead = new Map<string, number>()
  let found: PlantedResult['found']
  let least = Number.POSITIVE_INFINITY
  let more = ALTERNATIVES
  try {
    replaceOnce(join(copy, bug.file), bug.find, bug.put)
    const main = join(copy, 'sim/main.js')
    for (const place of places(bug)) {
      if (found !== undefined && (!cheapest || least <= CHEAP || more-- === 0)) break
      const { invariant, cpu } = await run(main, place, found === undefined ? HUNG : SHORT)
      if (invariant === undefined) continue
      if (!bug.expected.includes(invariant)) {
        instead.set(invariant, (instead.get(invariant) ?? 0) + 1)
      } else if (cpu < least) {
        found = { ...place, invariant }
        least = cpu
      }
    }
  } finally {
    copyFileSync(join(BUILT, bug.file), join(copy, bug.file))
  }
  return { ...bug, seconds: (systemClock.now() - began) / 1_000, found, instead }
}

/** The place where it was found last, then all profiles in turn, since not every profile can show every mistake. */
function* places({ name, profiles = EVERYWHERE }: Planted): Generator<Place> {
  const last = PLACES[name]
  if (last !== undefined) yield last
  for (let seed = 1; seed <= SEEDS; seed++)
    for (const profile of profiles) if (profile !== last?.profile || seed !== last.seed) yield { profile, seed }
}

/** Copies the build into `folder`, with this one mistake. */
export function plant({ file, find: text, put }: Planted, folder: string, built = BUILT): void {
  replaceOnce(join(copyBuild(folder, built), file), text, put)
}

/** Returns the path of the copy. */
function copyBuild(folder: string, built = BUILT): string {
  const copy = join(folder, 'build')
  cpSync(built, copy, { recursive: true })
  // The servers in the copy need their dependencies.
  symlinkSync(join(built, '../node_modules'), join(folder, 'node_modules'))
  return copy
}

/** Runs one world in a process of its own, for `limit` ms at most. */
function run(main: string, { profile, seed }: Place, limit: number): Promise<Ran> {
  return new Promise(resolve => {
    // The directed world plays every pair, one after another.
    const flags = profile === 'directed' ? LONG_RUN : SHORT_RUN
    const args = [...flags, main, '--json', '--cpu', '--seed', String(seed), '--profile', profile]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    let hung = false
    const stop = systemClock.after(
      limit,
      () => {
        hung = true
        child.kill('SIGKILL')
      },
      { ref: true },
    )
    let last = ''
    createInterface({ input: child.stdout }).on('line', line => {
      last = line
    })
    child.on('close', () => {
      stop()
      if (hung) return resolve({ invariant: 'HUNG', cpu: HUNG / 1_000 })
      if (!last.startsWith('{')) return resolve({ invariant: 'CRASH', cpu: HUNG / 1_000 })
      const { found, cpu } = JSON.parse(last) as { readonly found: readonly { readonly invariant: string }[]; readonly cpu: number }
      resolve({ invariant: found[0]?.invariant, cpu })
    })
  })
}
