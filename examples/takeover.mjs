// A lease at work, with three processes and one file: a holder is killed, no process cleans up, and the next holder goes on.
//
// Run it with `node examples/takeover.mjs`. It takes about three seconds and leaves no files behind.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from 'leasehold'

const [role, url] = process.argv.slice(2)

async function hold() {
  const leases = await connect(url, { holder: role })
  await leases.request('jobs/nightly', { ttl: '2s' }, async lease => {
    process.send({ token: lease.token })
    // The first holder works until it is killed; the second has no work.
    if (role === 'first') await new Promise(resolve => lease.signal.addEventListener('abort', resolve))
  })
  await leases.close()
  process.disconnect()
}

async function show() {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-takeover-'))
  const place = `file:${join(folder, 'leases.db')}`
  const children = []
  const start = name => {
    const child = fork(fileURLToPath(import.meta.url), [name, place])
    children.push(child)
    return child
  }
  try {
    const first = start('first')
    const [{ token }] = await once(first, 'message')
    console.log(`process ${first.pid} holds jobs/nightly, with token ${token} and a ttl of 2 s`)

    const second = start('second')
    const granted = once(second, 'message')
    const leases = await connect(place)
    for (let waiting = 0; waiting === 0; ) {
      waiting = (await leases.lessor.read({ kind: 'resource', resource: 'jobs/nightly' }, { consistent: true })).value.queue.length
      await new Promise(setImmediate)
    }
    await leases.close()
    console.log(`process ${second.pid} waits for it`)

    first.kill('SIGKILL')
    const killed = process.hrtime.bigint()
    console.log(`process ${first.pid} is killed, without a release`)

    const [{ token: next }] = await granted
    const later = (Number(process.hrtime.bigint() - killed) / 1e9).toFixed(1)
    console.log(`process ${second.pid} has it ${later} s later, with the greater token ${next}:`)
    console.log('a resource that checks tokens refuses late writes of the first process')
    await once(second, 'exit')
  } finally {
    for (const child of children) if (child.exitCode === null) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

if (role === undefined) await show()
else await hold()
