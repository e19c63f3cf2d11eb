/** `npm run sim -- --seeds N [--seed S] [--pairs] [--planted [--record FILE [--cheapest]]] [--json]` */
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { impossiblePairs } from './impossible-pairs.ts'
import { addCounts, pairTable, reportPairs } from './pair-table.ts'
import { findPlanted, placesSource } from './planted-search.ts'
import { PROFILES, type ProfileName } from './profiles.ts'
import { runSeed } from './run.ts'
import type { SeedResult } from './seed.ts'
import { SUITE } from './suite.ts'

const values = parseOptions()

// Simulated failures create many errors, so stack traces are kept short. (They also create many short-lived objects: `npm run sim` starts Node with
// a larger young generation, which saves a sixth of the time. That can only be set when Node starts.)
Error.stackTraceLimit = 2
process.removeAllListeners('warning') // many simulated clients listen to one signal, of which Node warns

function parseOptions() {
  const options = {
    seeds: { type: 'string', default: '100' },
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    profile: { type: 'string' },
    planted: { type: 'boolean', default: false },
    pairs: { type: 'boolean', default: false },
    only: { type: 'string' },
    record: { type: 'string' },
    cheapest: { type: 'boolean', default: false },
    cpu: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    first: { type: 'boolean', default: false },
  } as const
  try {
    return parseArgs({ options }).values
  } catch (error) {
    const known = Object.entries(options).map(([name, { type }]) => `--${name}${type === 'string' ? ' …' : ''}`)
    return refuse(`${(error as Error).message.split('.')[0]}. Options: ${known.join(', ')}; profiles: ${PROFILES.join(', ')}`)
  }
}

/** A mistyped option must not look like a run without violations. */
function refuse(why: string): never {
  process.stderr.write(`${why}\n`)
  process.exit(2)
}

function whole(name: 'seeds' | 'seed' | 'from'): number {
  const value = Number(values[name])
  return Number.isSafeInteger(value) && value >= 1 ? value : refuse(`--${name} must be a whole number above 0, not ${values[name]}`)
}

function chosenProfile(): ProfileName | undefined {
  const { profile } = values
  if (profile === undefined || PROFILES.includes(profile as ProfileName)) return profile as ProfileName | undefined
  return refuse(`--profile must be one of ${PROFILES.join(', ')}, not ${profile}`)
}

function say(line: string): void {
  if (!values.json) process.stdout.write(`${line}\n`)
}

function report(object: object): void {
  process.stdout.write(`${JSON.stringify(object)}\n`)
}

function describe({ seed, profile, commands, faults, digest, violation, short }: SeedResult): string {
  const again = `\n  again: npm run sim -- --seed ${seed}${values.profile ? ` --profile ${values.profile}` : ''}`
  const how =
    violation !== undefined
      ? `VIOLATED ${violation.message}${again}`
      : short
        ? `TOO LITTLE was done within the time limit. No invariant was violated, but the seed proves nothing${again}`
        : 'held'
  return `seed ${seed} (${profile}, ${commands} commands, ${faults} faults, digest ${digest.toString(16)}): ${how}`
}

/** The results of some seeds, added up. */
class Sums {
  held = 0
  violations = 0
  short = 0
  commands = 0
  faults = 0
  simulatedMs = 0
  readonly found: { seed: number; digest: number; invariant: string; message: string }[] = []
  /** This many seeds met each known finding. */
  readonly met = new Map<string, number>()
  readonly pairs = new Map<string, number>()

  add({ seed, digest, commands, faults, simulatedMs, violation, short, met, pairs }: SeedResult): void {
    this.commands += commands
    this.faults += faults
    this.simulatedMs += simulatedMs
    if (violation !== undefined) {
      this.violations++
      this.found.push({ seed, digest, ...violation })
    } else if (short) this.short++
    else this.held++
    for (const finding of Object.keys(met)) this.met.set(finding, (this.met.get(finding) ?? 0) + 1)
    addCounts(this.pairs, pairs)
  }

  get report() {
    const { held, violations, short, commands, faults, found } = this
    const simulatedHours = Number((this.simulatedMs / 3_600_000).toFixed(3))
    return { seeds: held + violations + short, commands, faults, simulatedHours, violations, ...(short > 0 && { short }), found }
  }
}

interface SeedRange {
  readonly first: number
  readonly count: number
  readonly profile: ProfileName | undefined
}

async function run(sums: Sums, { first, count, profile }: SeedRange): Promise<void> {
  const step = count < 100 ? 5 : 50
  for (let seed = first; seed < first + count; seed++) {
    const result = await runSeed(seed, { profile, ...(values.trace && { trace: line => process.stderr.write(`${line}\n`) }) })
    sums.add(result)
    const failed = result.violation !== undefined || result.short
    for (const [finding, how] of Object.entries(result.met)) say(`seed ${seed} (${result.profile}): known finding ${finding} (${how})`)
    if (failed || values.seed !== undefined) say(describe(result))
    if (result.violation !== undefined && values.first) return
    if ((seed - first + 1) % step === 0) say(`${seed - first + 1} of ${count} seeds`)
  }
}

function sayKnown({ met }: Sums): void {
  for (const [finding, count] of [...met].sort()) say(`known finding ${finding}: met by ${count} seeds`)
}

/** Of this process so far. */
function secondsOfCpu(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

async function simulate(): Promise<number> {
  const only = values.seed === undefined ? undefined : whole('seed')
  const sums = new Sums()
  await run(sums, { first: only ?? whole('from'), count: only === undefined ? whole('seeds') : 1, profile: chosenProfile() })
  const { seeds, commands, faults, simulatedHours, violations } = sums.report
  sayKnown(sums)
  say(`${seeds} seeds, ${commands} commands, ${faults} faults, ${simulatedHours} simulated hours, ${violations} violations`)
  say(`${sums.held} passed, ${violations + sums.short} failed`)
  if (values.json) {
    const known = sums.met.size > 0 && { known: Object.fromEntries(sums.met) }
    report({ ...sums.report, ...known, ...(values.cpu && { cpu: secondsOfCpu() }) })
  }
  return violations + sums.short === 0 ? 0 : 1
}

/** The seeds of `npm test`, and the pairs of features that met in them. */
async function pairs(): Promise<number> {
  const sums = new Sums()
  for (const { profile, seeds } of SUITE) await run(sums, { first: 1, count: seeds, profile })
  const { met, missing, wrong } = reportPairs(sums.pairs)
  const { seeds, commands, faults, simulatedHours, violations, found } = sums.report
  for (const line of pairTable(sums.pairs)) say(line)
  for (const name of missing) say(`never met: ${name.replace(' ', ' × ')}`)
  for (const name of wrong) say(`met, and listed as impossible: ${name.replace(' ', ' × ')}`)
  sayKnown(sums)
  say(`${seeds} seeds, ${commands} commands, ${faults} faults, ${simulatedHours} simulated hours, ${violations} violations`)
  say(`${met} pairs met, ${missing.length} missing, ${impossiblePairs().length} impossible`)
  const failed = violations + sums.short + missing.length + wrong.length
  say(`${sums.held + met} passed, ${failed} failed`)
  const counts = Object.fromEntries([...sums.pairs].sort(([a], [b]) => (a < b ? -1 : 1)))
  if (values.json) report({ seeds, violations, found, known: Object.fromEntries(sums.met), met, missing, wrong, pairs: counts })
  return failed === 0 ? 0 : 1
}

async function planted(): Promise<number> {
  if (values.cheapest && values.record === undefined) return refuse('--cheapest chooses the places that --record FILE writes')
  const results = await findPlanted({ only: values.only, cheapest: values.cheapest, say })
  const found = results.filter(result => result.found !== undefined)
  if (values.record !== undefined) writeFileSync(values.record, placesSource(results))
  say(`${found.length} passed, ${results.length - found.length} failed`)
  if (values.json)
    report({
      planted: results.length,
      found: found.length,
      missed: results.filter(result => result.found === undefined).map(({ name }) => name),
    })
  return found.length === results.length ? 0 : 1
}

process.exitCode = values.planted ? await planted() : values.pairs ? await pairs() : await simulate()
