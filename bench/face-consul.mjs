// Benchmark of the Consul face: a lock and unlock with Consul's own Go client, on one session, beside a real Consul with one server.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { engine } from './contenders.mjs'
import { startServer } from './leasehold.mjs'
import { using } from './measure.mjs'
import { goSource } from './peers/provide.mjs'
import { inRounds } from './rounds.mjs'
import { atLeast, oneLine } from './row.mjs'

const LANES = [1, 64]
const MODULE = 'github.com/hashicorp/consul/api@v1.32.1'
const execute = promisify(execFile)

export async function faceConsul(report, settings) {
  const program = await goSource('consul-locks.go', MODULE)
  const peer = await engine('consul', settings).then(
    ({ port, pids, version }) => ({ port, pids, about: `Consul ${version}, one server, its defaults: every write is synced` }),
    error => ({ failed: oneLine(error.message) }),
  )
  await using(startServer({ faces: 'consul' }), async ({ port, pids }) => {
    for (const inFlight of LANES) {
      const measure = async ({ port }) => {
        const { stdout } = await execute(program, [`127.0.0.1:${port}`, String(inFlight), String(settings.forSeconds)])
        return { value: Number(stdout), count: Number(stdout) * settings.forSeconds }
      }
      const peers = [{ ...peer, name: 'Consul, one server', want: atLeast(1) }]
      const figures = await inRounds({ port, pids }, peers, { rounds: settings.rounds, measure })
      report({ name: `Consul face: lock and unlock through its Go api, ${inFlight} at a time`, unit: 'pairs/s', ...figures })
    }
  })
}
