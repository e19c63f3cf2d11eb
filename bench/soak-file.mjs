// `npm run soak -- file [--cycles 1000] [--seed 1]`: whether a log in a file keeps every acknowledged record while its processes are killed.
//
// In each cycle an owner, or two processes that share the log, append and save snapshots, and each is killed with kill -9 before, during or after a random
// call to the disk. Then the log is opened and compared with what they were told. It fails at the first difference. Every 100 cycles a new log is begun, so
// that the creation of logs is killed as often.
import { parseArgs } from 'node:util'
import { KilledLog, MOMENTS } from '../test/support/store/killed-log.mjs'

/** Calls to the disk after which a process is killed at the latest. Half of the processes are killed in the first tenth. */
const MAX_CALLS = 400
const CYCLES_OF_A_LOG = 100

const { values } = parseArgs({
  allowPositionals: true,
  options: { cycles: { type: 'string', default: '1000' }, seed: { type: 'string', default: '1' } },
})
const cycles = Number(values.cycles)
let state = Number(values.seed)

/** A number in [0, 1) that depends on the seed only (mulberry32). */
function random() {
  state = (state + 0x6d2b79f5) | 0
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

function plan(own) {
  const calls = random() < 0.5 ? MAX_CALLS / 10 : MAX_CALLS
  return { own, step: 'any', when: MOMENTS[Math.floor(random() * MOMENTS.length)], count: 1 + Math.floor(random() * calls) }
}

const began = performance.now()
let log
let [killed, ended, records, skipped] = [0, 0, 0, 0]
for (let cycle = 1; cycle <= cycles; cycle++) {
  log ??= new KilledLog()
  const plans = random() < 0.5 ? [plan(true)] : [plan(false), plan(false)]
  try {
    const deaths = await log.run(...plans)
    await log.check()
    killed += deaths
    ended += plans.length - deaths
  } catch (error) {
    console.log(`cycle ${cycle} with seed ${values.seed}: ${JSON.stringify(plans)}`)
    throw error
  }
  if (cycle % CYCLES_OF_A_LOG > 0 && cycle < cycles) continue
  records += log.records
  skipped += log.skipped
  log[Symbol.dispose]()
  log = undefined
  const seconds = Math.round((performance.now() - began) / 1_000)
  console.log(`${cycle} cycles in ${seconds} s: ${killed} processes killed, ${ended} ended first, ${records} records, none lost`)
}
console.log(`${skipped} times records without an acknowledgement were trimmed before they were read here.`)
