// Benchmark of the command line: how long `leasehold run NAME -- true` takes in all, beside flock, and beside a start of Node that does nothing.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { scratch, seconds } from './measure.mjs'
import { inRounds } from './rounds.mjs'
import { atMost, median } from './row.mjs'

const program = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))

export async function shell(report, { quick, rounds }) {
  const starts = quick ? 3 : 5
  const folder = scratch()
  const run = ['run', '--store', `file:${join(folder, 'shell.db')}`, 'jobs/nightly', '--', 'true']
  const ours = { name: 'Leasehold', command: [process.execPath, program, ...run] }
  const peers = [
    { name: 'flock', about: 'util-linux: not durable, no ttl, no token, one machine', command: ['flock', join(folder, 'lock'), 'true'] },
    { name: 'node', about: 'a start of Node that does nothing', command: [process.execPath, '-e', '0'] },
  ]
  const measured = await inRounds(ours, peers, { rounds, measure: each => measure(each, starts) })
  report({ name: 'run of true under a lease in a file, in all', unit: 'ms', want: atMost(250), ...measured })
}

async function measure({ command: [file, ...args] }, starts) {
  const took = []
  for (let i = 0; i < starts; i++) {
    const began = seconds()
    const child = spawn(file, args, { stdio: 'ignore' })
    const [code] = await once(child, 'exit')
    if (code !== 0) throw new Error(`${file} ended with ${code}`)
    took.push((seconds() - began) * 1_000)
  }
  return median(took)
}
