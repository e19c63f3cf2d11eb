/** Random programs of many processes with leases of their own, in virtual time. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/kernel/command.ts'
import { failureOf, libraryPrograms, newLibraryReport, playLibrary } from '../support/holder/library-program.ts'

/** More are run with LEASEHOLD_PROGRAMS. */
const PROGRAMS = Number(process.env.LEASEHOLD_PROGRAMS ?? 200)
/** With another seed the programs are others, and may miss something. */
const isFixedSeed = process.env.LEASEHOLD_PROPERTY_SEED === undefined

describe('random programs of many processes', { timeout: 900_000 }, () => {
  const report = newLibraryReport()

  test('processes exclude each other, get what they asked for, and leave nothing behind', async () => {
    await fc.assert(
      fc.asyncProperty(libraryPrograms(60), program => playLibrary(program, report)),
      { numRuns: PROGRAMS },
    )
  })

  test.runIf(isFixedSeed)('in these programs calls are granted, refused, given up and overtaken by an end of their process', () => {
    const ends = ['acquire granted', 'acquire given up', 'acquire TIMEOUT', 'acquire GONE', 'acquire UNAVAILABLE']
    const others = ['try granted', 'try held by another', 'adopt granted', 'adopt GONE', 'adopt HELD']
    expect([...ends, ...others].filter(end => !report.ends.has(end))).toEqual([])
  })

  test.each<[string, (command: Command) => Command | undefined]>([
    [
      'every request takes what others hold',
      command => (command.kind === 'acquire' && command.wants.length > 0 ? { ...command, wait: true, steal: 'force' } : command),
    ],
    [
      'a request for several names gets the first',
      command =>
        command.kind === 'acquire' && command.wants.length > 1 && command.any === undefined
          ? { ...command, wants: command.wants.slice(0, 1) }
          : command,
    ],
    ['no release arrives', command => (command.kind === 'release' ? undefined : command)],
    ['parents are forgotten', command => (command.kind === 'acquire' ? withoutParent(command) : command)],
  ])('the oracle notices it if %s', async (_, tamper) => {
    const found: unknown[] = []
    for (const program of fc.sample(libraryPrograms(60), { numRuns: 40, seed: 1 })) {
      const failure = await failureOf(program, newLibraryReport(), tamper)
      if (failure !== undefined) found.push(failure)
      if (found.length > 0) break
    }
    expect(found).not.toEqual([])
  })
})

function withoutParent({ parent: _, ...command }: Extract<Command, { kind: 'acquire' }>): Command {
  return command
}
