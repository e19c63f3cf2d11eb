// Agents: what a claim through MCP adds to the time of its lease, and what 500 quiet agents with five claims each cost one server.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Agent } from '../dist/agent/index.js'
import { connect } from '../dist/index.js'

const LEASEHOLD = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))
const ROUNDS = 200
const AGENTS = 500
const CLAIMS = 5
const QUIET = 30_000

const median = times => times.sort((a, b) => a - b)[Math.floor(times.length / 2)]

async function timed(work) {
  const times = []
  for (let i = 0; i < ROUNDS; i++) {
    const began = performance.now()
    await work(i)
    times.push(performance.now() - began)
  }
  return median(times)
}

/** CPU time of a process, in ms, by /proc. */
function cpuOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const [, , , , , , , , , , , user, system] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(user) + Number(system)) * 10
}

export async function agents(report) {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))
  const server = spawn(process.execPath, [LEASEHOLD, 'serve', '--store', `file:${join(place, 'leases.db')}`, '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  try {
    let printed = ''
    while (!/127\.0\.0\.1:(\d+)/.test(printed)) printed += (await once(server.stdout, 'data'))[0]
    const url = `leasehold://127.0.0.1:${/127\.0\.0\.1:(\d+)/.exec(printed)[1]}`
    const leases = await connect(url)
    const acquire = await timed(async i => void (await leases.acquire(`bench/lease-${i}`)))
    const client = new Client({ name: 'bench', version: '1.0.0' })
    const args = [LEASEHOLD, 'mcp', '--store', url, '--agent', 'bench', '--no-workspace']
    await client.connect(new StdioClientTransport({ command: process.execPath, args, stderr: 'ignore' }))
    const call = (name, given) => client.callTool({ name, arguments: given })
    await call('whoami', {})
    const empty = await timed(() => call('whoami', {}))
    const claim = await timed(async () => {
      await call('claim', { names: ['bench/claim'], purpose: 'measure' })
    })
    const fresh = []
    for (let i = 0; i < ROUNDS; i++) {
      const began = performance.now()
      await call('claim', { names: [`bench/fresh-${i}`], purpose: 'measure' })
      fresh.push(performance.now() - began)
      await call('release', {})
    }
    const added = median(fresh) - acquire
    report('a lease, acquired through the library', acquire, 'ms')
    report('an MCP call that claims nothing', empty, 'ms')
    report('the same claim again through MCP', claim, 'ms')
    report('a new claim through MCP, beyond the time of a lease', added, 'ms', { target: 'under 5 ms' })
    await client.close()

    const quiet = await Promise.all(Array.from({ length: AGENTS }, (_, i) => Agent.begin(leases, { name: `agent-${i}` })))
    for (const [i, agent] of quiet.entries()) for (let c = 0; c < CLAIMS; c++) await agent.claim([`quiet/${i}/${c}`], { purpose: 'quiet' })
    await sleep(5_000)
    const before = cpuOf(server.pid)
    await sleep(QUIET)
    const share = (100 * (cpuOf(server.pid) - before)) / QUIET
    report(`the server, with ${AGENTS} quiet agents of ${CLAIMS} claims each`, share, '% of a core', { target: 'under 5 %' })
    for (const agent of quiet) agent.detach()
    await leases.close()
  } finally {
    server.kill()
    await once(server, 'exit')
    rmSync(place, { recursive: true, force: true })
  }
}
