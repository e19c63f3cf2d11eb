import { writeFileSync } from 'node:fs'
import fc from 'fast-check'
import { test } from 'vitest'
import { newReport, play } from '../support/kernel/program.ts'
import { NOT_REACHED, PROGRAM_FEATURES } from '../support/kernel/program-features.ts'
import { PROGRAM_EXAMPLES, programs } from '../support/kernel/program-steps.ts'

test('x', { timeout: 3_000_000 }, async () => {
  const out: Record<string, unknown> = {}
  for (const seed of [8, 10, 3, 4, 5, 6]) {
    const report = newReport()
    await fc.assert(
      fc.asyncProperty(programs(120), program => play(program, report)),
      { seed, numRuns: 451, examples: PROGRAM_EXAMPLES.map(p => [p]) },
    )
    const pairs = PROGRAM_FEATURES.flatMap(first => PROGRAM_FEATURES.map(second => `${first} ${second}`))
    out[seed] = {
      missing: pairs.filter(p => !report.pairs.counts.has(p) && !(p in NOT_REACHED)),
      wrong: Object.keys(NOT_REACHED).filter(p => report.pairs.counts.has(p)),
      answers: [...report.answers].filter(([k]) => k.startsWith('covers')),
    }
    writeFileSync('/tmp/seeds.json', JSON.stringify(out, null, 1))
  }
})
