/** A setup file: writes what each test file took of the processors, with the processes that it waited for, for the end of `npm test` (scripts/test.mjs). */
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { afterAll, expect } from 'vitest'

const into = process.env.LEASEHOLD_CPU_TIMES
/** The unit of CPU times in /proc, per second. */
const TICKS = 100

/** Seconds of CPU of this process and of its children that have ended. */
function used(): number {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const times = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return times.slice(11, 15).reduce((sum, time) => sum + Number(time), 0) / TICKS
}

if (into !== undefined && existsSync('/proc/self/stat')) {
  // Several files run in one process, one after the other.
  const before = used()
  afterAll(() => appendFileSync(into, `${(used() - before).toFixed(1)} ${expect.getState().testPath}\n`))
}
