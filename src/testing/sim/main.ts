/** `npm run sim -- --seeds N [--seed S] [--planted] [--json]` */
import { parseArgs } from 'node:util'
import { findPlanted } from './planted.ts'
import { PROFILES, type ProfileName, runSeed, type SeedResult } from './run.ts'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '100' },
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    profile: { type: 'string' },
    planted: { type: 'boolean', default: false },
    only: { type: 'string' },
    json: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    first: { type: 'boolean', default: false },
  },
})

// Worlds are full of failures that are meant: no long traces. (And of things that live shortly: `npm run sim` leaves more room before anything
// is swept up, a sixth of the time. It can only be said when Node starts.)
Error.stackTraceLimit = 2
process.removeAllListeners('warning') // whoever was killed had leases in hand, and is collected like anything forgotten

/** A mistyped option must not look like a world without violations. */
function refuse(why: string): never {
  process.stderr.write(`${why}\n`)
  process.exit(2)
}

function whole(name: 'seeds' | 'seed' | 'from'): number {
  const value = Number(values[name])
  return Number.isSafeInteger(value) && value >= 1 ? value : refuse(`--${name} must be a whole number above 0, not ${values[name]}`)
}

function profileAsked(): ProfileName | undefined {
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

function describe({ seed, profile, commands, faults, digest, violation }: SeedResult): string {
  const how =
    violation === undefined
      ? 'held'
      : `VIOLATED ${violation.message}\n  again: npm run sim -- --seed ${seed}${values.profile ? ` --profile ${values.profile}` : ''}`
  return `seed ${seed} (${profile}, ${commands} commands, ${faults} faults, digest ${digest.toString(16)}): ${how}`
}

async function simulate(): Promise<number> {
  const only = values.seed === undefined ? undefined : whole('seed')
  const first = only ?? whole('from')
  const count = only === undefined ? whole('seeds') : 1
  const profile = profileAsked()
  const sum = { commands: 0, faults: 0, simulatedMs: 0, violations: 0 }
  const found: { seed: number; digest: number; invariant: string; message: string }[] = []
  let held = 0
  for (let seed = first; seed < first + count; seed++) {
    const result = await runSeed(seed, { profile, ...(values.trace && { trace: line => process.stderr.write(`${line}\n`) }) })
    sum.commands += result.commands
    sum.faults += result.faults
    sum.simulatedMs += result.simulatedMs
    if (result.violation === undefined) held++
    else {
      sum.violations++
      found.push({ seed, digest: result.digest, ...result.violation })
      say(describe(result))
      if (values.first) break
    }
    if (only !== undefined && result.violation === undefined) say(describe(result))
    if ((seed - first + 1) % 50 === 0) say(`${seed - first + 1} of ${count} seeds`)
  }
  const { commands, faults, violations } = sum
  const simulatedHours = Number((sum.simulatedMs / 3_600_000).toFixed(3))
  say(`${held + violations} seeds, ${commands} commands, ${faults} faults, ${simulatedHours} simulated hours, ${violations} violations`)
  say(`${held} passed, ${violations} failed`)
  if (values.json) report({ seeds: held + violations, commands, faults, simulatedHours, violations, found })
  return violations === 0 ? 0 : 1
}

async function planted(): Promise<number> {
  const results = await findPlanted({ only: values.only, say })
  const found = results.filter(result => result.found !== undefined)
  for (const { name, seconds, found: how, expected } of results)
    say(
      how === undefined
        ? `MISSED ${name}: expected ${expected.join(' or ')}`
        : `found ${name}: ${how.invariant} at seed ${how.seed} (${seconds.toFixed(1)} s)`,
    )
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
