/** `npm run sim -- --seeds N [--seed S] [--planted [--record FILE]] [--json]` */
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { findPlanted, placesSource } from './planted-search.ts'
import { PROFILES, type ProfileName } from './profiles.ts'
import { runSeed } from './run.ts'
import type { SeedResult } from './seed.ts'

const values = parseOptions()

// Simulated failures create many errors, so stack traces are kept short. (They also create many short-lived objects: `npm run sim` starts Node with
// a larger young generation, which saves a sixth of the time. That can only be set when Node starts.)
Error.stackTraceLimit = 2
process.removeAllListeners('warning') // programs that were killed leave leases behind, and the library warns when those are collected

function parseOptions() {
  const options = {
    seeds: { type: 'string', default: '100' },
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    profile: { type: 'string' },
    planted: { type: 'boolean', default: false },
    only: { type: 'string' },
    record: { type: 'string' },
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

async function simulate(): Promise<number> {
  const only = values.seed === undefined ? undefined : whole('seed')
  const first = only ?? whole('from')
  const count = only === undefined ? whole('seeds') : 1
  const profile = chosenProfile()
  const sum = { commands: 0, faults: 0, simulatedMs: 0, violations: 0, short: 0 }
  const step = count < 100 ? 5 : 50
  const found: { seed: number; digest: number; invariant: string; message: string }[] = []
  let held = 0
  for (let seed = first; seed < first + count; seed++) {
    const result = await runSeed(seed, { profile, ...(values.trace && { trace: line => process.stderr.write(`${line}\n`) }) })
    sum.commands += result.commands
    sum.faults += result.faults
    sum.simulatedMs += result.simulatedMs
    const { violation, digest } = result
    if (violation !== undefined) {
      sum.violations++
      found.push({ seed, digest, ...violation })
    } else if (result.short) sum.short++
    else held++
    if (violation !== undefined || result.short || only !== undefined) say(describe(result))
    if (violation !== undefined && values.first) break
    if ((seed - first + 1) % step === 0) say(`${seed - first + 1} of ${count} seeds`)
  }
  const { commands, faults, violations, short } = sum
  const seeds = held + violations + short
  const simulatedHours = Number((sum.simulatedMs / 3_600_000).toFixed(3))
  say(`${seeds} seeds, ${commands} commands, ${faults} faults, ${simulatedHours} simulated hours, ${violations} violations`)
  say(`${held} passed, ${violations + short} failed`)
  if (values.json) report({ seeds, commands, faults, simulatedHours, violations, ...(short > 0 && { short }), found })
  return violations + short === 0 ? 0 : 1
}

async function planted(): Promise<number> {
  const results = await findPlanted({ only: values.only, say })
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

process.exitCode = values.planted ? await planted() : await simulate()
