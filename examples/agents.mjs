// Agents in separate processes that share one file: a planner finds workers and a reviewer by capability, one worker is killed, and the plan
// is carried out anyway. No process reports the death: the worker's lease runs out.
//
//   node examples/agents.mjs
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'leasehold'

const [role, url] = process.argv.slice(2)

/** The capability of each kind of agent, and the work it does for a request over HTTP. */
const skills = {
  worker: { capability: 'write', work: task => `${task}, written by ${process.pid}` },
  reviewer: { capability: 'review', work: text => `${text}: approved` },
}

/** Serves its skill, and is listed while it lives. */
async function serve() {
  const { capability, work } = skills[role]
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    response.end(work(body))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const leases = await connect(url)
  const address = `http://127.0.0.1:${server.address().port}`
  const me = await leases.registry.register({ service: role, address, capabilities: [capability], ttl: '2s' })
  process.send('ready')
  process.once('SIGTERM', async () => {
    await me.drain() // no new work from here on
    await leases.close() // removed from the list, at once and everywhere
    server.close()
    process.disconnect()
  })
}

/** Sends the text to an agent, and to another one if it does not answer. */
async function ask(agents, text) {
  for (;;) {
    const agent = await agents.pick()
    if (agent === undefined) throw new Error('no agent has the capability')
    try {
      const answer = await fetch(agent.address, { method: 'POST', body: text })
      return await answer.text()
    } catch {
      console.log(`  ${agent.instance} does not answer; trying another`)
    }
  }
}

async function plan() {
  const leases = await connect(url, { holder: 'planner' })
  const writers = leases.registry.discover({ capability: 'write' })
  const reviewers = leases.registry.discover({ capability: 'review' })
  console.log(`the planner found ${(await writers.list()).length} writers and ${(await reviewers.list()).length} reviewer`)

  const victim = await writers.pick()
  process.send({ kill: Number(victim.instance.split(':').at(-1)) })
  await once(process, 'message')
  console.log(`process ${victim.instance} is killed: it does not deregister, and no process informs the planner`)
  const began = process.hrtime.bigint()
  const gone = (async () => {
    for await (const { type, instance } of writers)
      if (instance.instance === victim.instance && (type === 'removed' || instance.status === 'suspect')) return
  })()

  const chapters = ['chapter one', 'chapter two', 'chapter three', 'chapter four']
  for (const chapter of chapters) console.log(`  ${await ask(reviewers, await ask(writers, chapter))}`)

  await gone
  const later = (Number(process.hrtime.bigint() - began) / 1e9).toFixed(1)
  const left = (await writers.list()).filter(({ status }) => status === 'passing')
  console.log(`${later} s after its death, ${victim.instance} is not picked any more; ${left.length} writers are left`)
  await leases.close()
  process.disconnect()
}

async function show() {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-agents-'))
  const place = `file:${join(folder, 'leases.db')}`
  const children = []
  const start = name => {
    const child = fork(fileURLToPath(import.meta.url), [name, place])
    children.push(child)
    return child
  }
  try {
    const agents = ['worker', 'worker', 'worker', 'reviewer'].map(start)
    await Promise.all(agents.map(agent => once(agent, 'message')))
    const planner = start('planner')
    planner.on('message', async ({ kill }) => {
      const victim = agents.find(({ pid }) => pid === kill)
      victim.kill('SIGKILL')
      await once(victim, 'exit')
      planner.send('killed')
    })
    const [code] = await once(planner, 'exit')
    process.exitCode = code
    const living = agents.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null)
    for (const agent of living) agent.kill('SIGTERM')
    await Promise.all(living.map(agent => once(agent, 'exit')))
    const leases = await connect(place)
    const left = (await leases.registry.discover({}).list()).filter(({ status }) => status !== 'suspect')
    console.log(`the other agents were stopped and have deregistered: ${left.length} are listed`)
    await leases.close()
  } finally {
    for (const child of children) if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

if (role === undefined) await show()
else if (role === 'planner') await plan()
else await serve()
