/** The simulator itself: a seed gives the same world every time, and the output is reliable. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BUGS } from '../../sim/planted.ts'
import { PLACES } from '../../sim/planted-places.ts'
import { plant, SHORT_RUN } from '../../sim/planted-search.ts'
import { MIX, PROFILES } from '../../sim/profiles.ts'
import { runSeed } from '../../sim/run.ts'

Error.stackTraceLimit = 2 // as in sim/main.ts

const built = fileURLToPath(new URL('../../.sim', import.meta.url))

function simulate(build: string, ...args: string[]): { readonly status: number | null; readonly lines: string[]; readonly stderr: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...SHORT_RUN, join(build, 'sim/main.js'), ...args], { encoding: 'utf8' })
  return { status, lines: stdout.trimEnd().split('\n'), stderr }
}

// The rolling profile needs the build: it makes another version of the rules from it.
const here = PROFILES.filter(profile => !['rolling', 'agents', 'directed', 'cases'].includes(profile))

// A fourteenth of what a seed usually runs. The seeds of `npm test` (sim/suite.ts) fail if one of them runs less than the whole.
const COMMANDS = 150

test.each(here)('a seed runs enough commands and faults, and gives the same world twice: %s', async profile => {
  const first = await runSeed(7, { profile, commands: COMMANDS })
  expect(first.violation).toBeUndefined()
  expect(first.commands).toBeGreaterThanOrEqual(COMMANDS)
  expect(first.faults).toBeGreaterThanOrEqual(5)
  expect(await runSeed(7, { profile, commands: COMMANDS })).toEqual(first)
})

test('the directed world plays pairs of features, and a seed gives the same world twice', async () => {
  const first = await runSeed(7, { profile: 'directed', pairs: 60 })
  expect(first.violation).toBeUndefined()
  expect(first.short).toBeUndefined()
  expect(Object.keys(first.pairs).length).toBeGreaterThanOrEqual(60)
  expect(await runSeed(7, { profile: 'directed', pairs: 60 })).toEqual(first)
})

test('the world of cases plays them without a violation, and gives the same world twice', async () => {
  const first = await runSeed(7, { profile: 'cases' })
  expect(first.violation).toBeUndefined()
  expect(first.short).toBeUndefined()
  expect(await runSeed(7, { profile: 'cases' })).toEqual(first)
})

test('two builds share a log until the rules are raised, and a seed gives the same world twice', () => {
  const [first, second] = [1, 2].map(() => simulate(built, '--seed', '7', '--profile', 'rolling', '--trace'))
  expect(first!.lines.at(-1)).toBe('1 passed, 0 failed')
  const [, commands, faults] = /rolling, (\d+) commands, (\d+) faults/.exec(first!.lines[0]!)!
  expect(Number(commands)).toBeGreaterThanOrEqual(2_000)
  expect(Number(faults)).toBeGreaterThanOrEqual(20)
  expect(first!.stderr).toContain('the rules are raised')
  expect(second).toEqual(first)
})

test('another seed gives another world', async () => {
  const [a, b] = [await runSeed(1, { commands: 200 }), await runSeed(1 + MIX.length, { commands: 200 })]
  expect(a.profile).toBe(b.profile)
  expect(a.digest).not.toBe(b.digest)
})

test('a seed gives the same world in another process', async () => {
  const { commands, faults, digest } = await runSeed(8, { profile: 'embedded' })
  const { status, lines } = simulate(built, '--seed', '8', '--profile', 'embedded')
  expect(lines[0]).toBe(`seed 8 (embedded, ${commands} commands, ${faults} faults, digest ${digest.toString(16)}): held`)
  expect(lines.at(-1)).toBe('1 passed, 0 failed')
  expect(status).toBe(0)
})

test('the last line of --json is one object with the sums', () => {
  const { status, lines } = simulate(built, '--json', '--seeds', '2', '--from', '5')
  const sums = JSON.parse(lines.at(-1)!)
  expect(Object.keys(sums).filter(name => name !== 'found' && name !== 'known')).toEqual([
    'seeds',
    'commands',
    'faults',
    'simulatedHours',
    'violations',
  ])
  expect(sums).toMatchObject({ seeds: 2, violations: 0, found: [] })
  expect(sums.commands).toBeGreaterThanOrEqual(4_000)
  expect(sums.faults).toBeGreaterThanOrEqual(40)
  expect(sums.simulatedHours).toBeGreaterThan(0)
  expect(status).toBe(0)
})

test.each([
  ['--seeds', 'many'],
  ['--seeds', '0'],
  ['--seed', '1.5'],
  ['--profile', 'sunny'],
  ['--cheapest', '--planted'],
])('a mistyped option exits with 2: %s %s', (option, value) => {
  const { status, stderr } = simulate(built, option, value)
  expect(status).toBe(2)
  expect(stderr).toContain(option)
})

describe('with a mistake planted', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-sim-'))
  const broken = join(folder, 'build')
  beforeAll(() =>
    plant(BUGS.find(({ name }) => name === 'a revoked lease is granted to others before its holder has stopped')!, folder, built),
  )
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('a seed that fails is named, and fails again with the same output', () => {
    const { status, lines } = simulate(broken, '--json', '--first', '--seeds', '12')
    expect(status).toBe(1)
    const { found, violations } = JSON.parse(lines.at(-1)!)
    expect(violations).toBe(1)
    expect(found[0].invariant).toBe('S1')
    const again = [1, 2].map(() => simulate(broken, '--seed', String(found[0].seed), '--json'))
    expect(again[0]).toEqual(again[1])
    expect(JSON.parse(again[0]!.lines.at(-1)!).found).toEqual(found)
    const text = simulate(broken, '--seed', String(found[0].seed))
    expect(text.status).toBe(1)
    expect(text.lines.join('\n')).toContain(`again: npm run sim -- --seed ${found[0].seed}`)
    expect(text.lines.at(-1)).toBe('0 passed, 1 failed')
  })
})

test('a seed that does too little within its time counts as failed', async () => {
  const { violation, short } = await runSeed(8, { profile: 'embedded', within: 3 })
  expect([violation, short]).toEqual([undefined, true])
  expect((await runSeed(8, { profile: 'embedded', commands: 20, faults: 1 })).short).toBe(undefined)
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-sim-'))
  try {
    plant({ name: '', file: 'sim/run.js', find: 'within = 600', put: 'within = 3', expected: [] }, folder, built)
    const { status, lines } = simulate(join(folder, 'build'), '--seeds', '5', '--profile', 'embedded')
    expect(lines.filter(line => line.includes('TOO LITTLE'))).toHaveLength(5)
    expect(lines).toContain('5 of 5 seeds')
    expect(lines.at(-1)).toBe('0 passed, 5 failed')
    expect(status).toBe(1)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('planting a mistake whose text no longer occurs throws', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-sim-'))
  try {
    const gone = { name: '', file: 'src/kernel/rule/end.js', find: 'no such text', put: '', expected: [] }
    expect(() => plant(gone, folder, built)).toThrow('0 times')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('every planted mistake has its own name', () => {
  expect(new Set(BUGS.map(({ name }) => name)).size).toBe(BUGS.length)
  expect(BUGS.length).toBeGreaterThanOrEqual(25)
})

test('every recorded place belongs to a planted mistake', () => {
  const names = new Set(BUGS.map(({ name }) => name))
  expect(Object.keys(PLACES).filter(name => !names.has(name))).toEqual([])
})
