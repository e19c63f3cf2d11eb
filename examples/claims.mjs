// Three scripted agents edit the same files of one repository, through the official MCP client, and with the guard before every edit. One is
// killed while it holds a claim, and one forgets everything in the middle of an edit. No edit is lost.
//
//   node examples/claims.mjs
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

const LEASEHOLD = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))
const FILES = ['src/a.txt', 'src/b.txt', 'src/c.txt']
const EDITS = 4
const LIMIT = 150_000
const [role, url, folder] = process.argv.slice(2)

/** What the host of an agent runs before each edit. Returns why the edit is denied, or undefined. */
async function guard(file) {
  const hook = spawn(process.execPath, [LEASEHOLD, 'guard', '--host', 'claude', '--store', url, '--agent', role], {
    cwd: folder,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const event = {
    hook_event_name: 'PreToolUse',
    session_id: role,
    cwd: folder,
    tool_name: 'Edit',
    tool_input: { file_path: join(folder, file) },
  }
  hook.stdin.end(JSON.stringify(event))
  let answer = ''
  hook.stdout.on('data', text => (answer += text))
  await once(hook, 'close')
  return answer === '' ? undefined : JSON.parse(answer).hookSpecificOutput?.permissionDecisionReason
}

/** An edit as a model makes it: read, think, write what was read with a change. Two at once would lose one. */
async function edit(file) {
  const denied = await guard(file)
  if (denied !== undefined) throw new Error(`${role} may not edit ${file} although it has claimed it: ${denied}`)
  const path = join(folder, file)
  const before = Number(readFileSync(path, 'utf8'))
  await sleep(30)
  writeFileSync(path, String(before + 1))
  process.send({ edited: file })
}

async function work() {
  const client = new Client({ name: role, version: '1.0.0' })
  const args = [LEASEHOLD, 'mcp', '--store', url, '--agent', role, '--bind-pid', String(process.pid)]
  await client.connect(new StdioClientTransport({ command: process.execPath, args, cwd: folder, stderr: 'ignore' }))
  const call = async (name, given = {}) => (await client.callTool({ name, arguments: given })).structuredContent
  await call('whoami')
  process.send({ ready: true })
  await once(process, 'message')

  for (let i = 0; i < EDITS; i++) {
    const names = [FILES[i % FILES.length], FILES[(i + 1) % FILES.length]]
    // The same call again is the same place in the queue.
    while ((await call('claim', { names, purpose: `edit ${i} of ${role}`, wait_seconds: 20 })).status !== 'held');
    if (role === 'bob' && i === 1) {
      process.send({ holding: names })
      await sleep(LIMIT) // it is killed here
    }
    if (role === 'cid' && i === 1) {
      names.length = 0 // its context is compacted: it knows neither its claim nor its task
      const { held } = await call('mine')
      names.push(...held[0].names)
      process.send({ recalled: names, purpose: held[0].purpose })
    }
    for (const file of names) await edit(file)
    await call('release')
  }
  await client.close()
  process.disconnect()
}

async function show() {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-claims-'))
  const repository = join(place, 'app')
  mkdirSync(join(repository, 'src'), { recursive: true })
  for (const file of FILES) writeFileSync(join(repository, file), '0')
  await once(spawn('git', ['init', '-q'], { cwd: repository }), 'close')
  const server = spawn(process.execPath, [LEASEHOLD, 'serve', '--store', `file:${join(place, 'leases.db')}`, '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const agents = new Map()
  const tooLate = setTimeout(() => {
    console.log('NOT DONE IN TIME')
    process.exitCode = 1
    server.kill()
    for (const agent of agents.values()) agent.kill('SIGKILL')
  }, LIMIT)
  try {
    let printed = ''
    while (!/127\.0\.0\.1:(\d+)/.test(printed)) printed += (await once(server.stdout, 'data'))[0]
    const address = `leasehold://127.0.0.1:${/127\.0\.0\.1:(\d+)/.exec(printed)[1]}`
    const edits = new Map(FILES.map(file => [file, 0]))
    const messages = new Map()
    let failed
    const failure = new Promise((_, reject) => (failed = reject))
    const told = (name, what) => new Promise(resolve => messages.set(`${name} ${what}`, resolve))
    const start = name => {
      const agent = fork(fileURLToPath(import.meta.url), [name, address, repository])
      agents.set(name, agent)
      agent.on('exit', code => code !== 0 && name !== 'bob' && failed(new Error(`${name} ended with ${code}`)))
      agent.on('message', message => {
        if (message.edited !== undefined) edits.set(message.edited, edits.get(message.edited) + 1)
        if (message.recalled !== undefined)
          console.log(`cid forgot everything, and mine told it: ${message.recalled.join(', ')} (${message.purpose})`)
        for (const what of Object.keys(message)) messages.get(`${name} ${what}`)?.(message[what])
      })
      return agent
    }
    const names = ['ann', 'bob', 'cid']
    const ready = names.map(name => told(name, 'ready'))
    for (const name of names) start(name)
    await Promise.race([Promise.all(ready), failure])
    const holding = told('bob', 'holding')
    for (const agent of agents.values()) agent.send('begin')
    const files = await Promise.race([holding, failure])
    console.log(`bob holds ${files.join(' and ')}, and is killed`)
    agents.get('bob').kill('SIGKILL')
    const died = performance.now()
    await Promise.race([Promise.all(['ann', 'cid'].map(name => once(agents.get(name), 'exit'))), failure])
    console.log(`ann and cid went on, and were done ${((performance.now() - died) / 1000).toFixed(1)} s later`)
    const written = FILES.map(file => Number(readFileSync(join(repository, file), 'utf8')))
    const made = FILES.map(file => edits.get(file))
    const lost = made.some((count, i) => count !== written[i])
    console.log(
      `${made.reduce((a, b) => a + b)} edits were made: ${lost ? `SOME WERE LOST (${made} made, ${written} in the files)` : 'none was lost'}`,
    )
    if (lost) process.exitCode = 1
  } finally {
    clearTimeout(tooLate)
    for (const agent of agents.values()) if (agent.exitCode === null && agent.signalCode === null) agent.kill('SIGKILL')
    server.kill()
    await once(server, 'exit')
    rmSync(place, { recursive: true, force: true })
  }
}

if (role === undefined) await show()
else await work()
