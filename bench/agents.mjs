// Agents: what a claim through MCP adds to the time of its lease, and what 500 quiet agents with five claims each cost one server.
import { spawn, spawnSync } from 'node:child_process'
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
import { cpuOf } from './cpu.mjs'
import { endsWithRun } from './engine.mjs'
import { atMost, median } from './row.mjs'

const LEASEHOLD = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))
const CLAIMS = 5

async function timed(rounds, work) {
  const times = []
  for (let i = 0; i < rounds; i++) {
    const began = performance.now()
    await work(i)
    times.push(performance.now() - began)
  }
  return median(times)
}

const GUARD = fileURLToPath(new URL('../dist/cli/leasehold-guard.cjs', import.meta.url))

/** Processor time of short processes in ms, each the mean of all rounds; one of each in turn, so that a busy machine slows all alike. */
function startCosts(rounds, kinds) {
  const times = kinds.map(() => 0)
  // The certificates that Node 20 reads at each start would hide the difference.
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env
  const used = () => {
    const { user, system } = childCpu()
    return user + system
  }
  for (let i = 0; i < rounds; i++)
    for (const [k, { args, input = '' }] of kinds.entries()) {
      const before = used()
      spawnSync(process.execPath, args, { input, env, stdio: ['pipe', 'ignore', 'ignore'] })
      times[k] += used() - before
    }
  return times.map(time => time / rounds)
}

/** Processor time of all ended children of this process, in ms: Linux counts it in steps of 10 ms. */
function childCpu() {
  const stat = readFileSync('/proc/self/stat', 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return { user: Number(fields[13]) * 10, system: Number(fields[14]) * 10 }
}

export async function agents(report, { quick }) {
  const [rounds, count, quietFor] = quick ? [50, 50, 2_000] : [200, 500, 30_000]
  const place = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))
  const args = [LEASEHOLD, 'serve', '--store', `file:${join(place, 'leases.db')}`, '--listen', '127.0.0.1:0']
  const server = endsWithRun(spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] }))
  try {
    let printed = ''
    while (!/127\.0\.0\.1:(\d+)/.test(printed)) printed += (await once(server.stdout, 'data'))[0]
    const url = `leasehold://127.0.0.1:${/127\.0\.0\.1:(\d+)/.exec(printed)[1]}`
    const leases = await connect(url)
    const acquire = await timed(rounds, async i => void (await leases.acquire(`bench/lease-${i}`)))
    const client = new Client({ name: 'bench', version: '1.0.0' })
    const mcp = [LEASEHOLD, 'mcp', '--store', url, '--agent', 'bench', '--no-workspace']
    await client.connect(new StdioClientTransport({ command: process.execPath, args: mcp, stderr: 'ignore' }))
    const call = (name, given) => client.callTool({ name, arguments: given })
    await call('whoami', {})
    const empty = await timed(rounds, () => call('whoami', {}))
    const claim = await timed(rounds, async () => {
      await call('claim', { names: ['bench/claim'], purpose: 'measure' })
    })
    const fresh = []
    for (let i = 0; i < rounds; i++) {
      const began = performance.now()
      await call('claim', { names: [`bench/fresh-${i}`], purpose: 'measure' })
      fresh.push(performance.now() - began)
      await call('release', {})
    }
    const added = median(fresh) - acquire
    report({ name: 'a lease, acquired through the library', unit: 'ms', value: acquire })
    report({ name: 'an MCP call that claims nothing', unit: 'ms', value: empty })
    report({ name: 'the same claim again through MCP', unit: 'ms', value: claim })
    report({ name: 'a new claim through MCP, beyond the time of a lease', unit: 'ms', value: added, want: atMost(5) })
    const { tools } = await client.listTools()
    report({ name: 'the tool list', unit: 'characters', value: JSON.stringify(tools).length, want: atMost(8_000) })
    await client.close()

    const input = JSON.stringify({
      ...{ hook_event_name: 'PreToolUse', session_id: 'bench', cwd: fileURLToPath(new URL('..', import.meta.url)) },
      ...{ tool_name: 'Edit', tool_input: { file_path: 'src/index.ts' } },
    })
    const flags = ['--store', url.replace('leasehold:', 'http:'), '--agent', 'bench-guard']
    const [bare, hook, whole] = startCosts(rounds, [
      { args: ['-e', '0'] },
      { args: [GUARD, ...flags], input },
      { args: [LEASEHOLD, 'guard', ...flags], input },
    ])
    report({ name: 'the guard of an edit: processor time, of that of bare Node', unit: '×', value: hook / bare, want: atMost(1.3) })
    report({ name: 'leasehold guard, the whole program, the same', unit: '×', value: whole / bare })

    const quiet = await Promise.all(Array.from({ length: count }, (_, i) => Agent.begin(leases, { name: `agent-${i}` })))
    for (const [i, agent] of quiet.entries()) for (let c = 0; c < CLAIMS; c++) await agent.claim([`quiet/${i}/${c}`], { purpose: 'quiet' })
    await sleep(quick ? 500 : 5_000)
    const before = cpuOf(server.pid)
    await sleep(quietFor)
    const share = (100 * (cpuOf(server.pid) - before)) / quietFor
    report({
      name: `the server, with ${count} quiet agents of ${CLAIMS} claims each: of one core`,
      unit: '%',
      value: share,
      want: atMost(5),
    })
    for (const agent of quiet) agent.detach()
    await leases.close()
  } finally {
    server.kill()
    await once(server, 'exit')
    rmSync(place, { recursive: true, force: true })
  }
}
