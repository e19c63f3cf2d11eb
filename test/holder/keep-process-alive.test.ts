import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { place as server } from '../support/resp-place.ts'

const index = fileURLToPath(new URL('../../dist/library/index.js', import.meta.url))

function place() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-process-'))
  return { url: `file:${join(path, 'leases.db')}`, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

/** A second process, with `leases` on the same file. Resolves with its output and exit code. */
function child(url: string, source: string) {
  const program = `import { connect } from ${JSON.stringify(index)}
const leases = await connect(${JSON.stringify(url)}, { holder: 'child' })
${source}`
  const running = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  const seen: (() => void)[] = []
  running.stdout.on('data', chunk => {
    output += chunk
    for (const wake of seen.splice(0)) wake()
  })
  return {
    async says(text: string) {
      while (!output.includes(text)) await new Promise<void>(resolve => seen.push(resolve))
    },
    ended: new Promise<{ readonly code: number | null; readonly output: string }>(resolve =>
      running.on('close', code => {
        for (const wake of seen.splice(0)) wake()
        resolve({ code, output })
      }),
    ),
  }
}

test('a process ends by itself once all leases are released, and closing resolves', async () => {
  using here = place()
  const { ended } = child(
    here.url,
    `await leases.request('k', async () => {})
     const lease = await leases.acquire('k', { ttl: '60s' })
     await lease.release()
     console.log('released')`,
  )
  expect(await ended).toEqual({ code: 0, output: 'released\n' })
})

test('a process that waits for a lease, or holds one, stays alive', async () => {
  using here = place()
  await using leases = await connect(here.url, { holder: 'parent' })
  const held = await leases.acquire('k')
  const { ended, says } = child(
    here.url,
    `console.log('asking')
     const lease = await leases.acquire('k', { ttl: '20s' })
     console.log('granted')
     await new Promise(resolve => lease.signal.addEventListener('abort', resolve))
     console.log(lease.signal.reason.facts.cause)`,
  )
  await says('asking')
  await held.release()
  await says('granted')
  const { value } = await leases.read({ kind: 'resource', resource: 'k' }, { consistent: true })
  await leases.revoke({ lease: value.grants[0]!.lease })
  expect(await ended).toEqual({ code: 0, output: 'asking\ngranted\nrevoked\n' })
})

test('process.exit in a critical section leaves no lease that outlasts its ttl', async () => {
  using here = place()
  await using leases = await connect(here.url, { holder: 'parent' })
  const { ended } = child(here.url, `await leases.request('k', { ttl: '1s' }, () => process.exit(3))`)
  expect(await ended).toMatchObject({ code: 3 })
  await using lease = await leases.acquire('k', { wait: '20s' })
  expect(lease.held).toBe(true)
})

test('a loop that was blocked for longer than the ttl learns of the loss, and never holds the lease afterwards', async () => {
  using here = place()
  const { ended } = child(
    here.url,
    `const lease = await leases.acquire('k', { ttl: '2s' })
     const { signal } = lease
     await new Promise(resolve => setTimeout(resolve, 50))
     const end = Date.now() + 2_500
     while (Date.now() < end);
     console.log(lease.held)
     await new Promise(resolve => setImmediate(() => setImmediate(resolve)))
     console.log(signal.aborted, signal.reason.facts.cause)`,
  )
  const { output } = await ended
  expect(output).toBe('false\ntrue stall\n')
})

test('a client of a server ends after its last answer, even if nothing was closed', async () => {
  await using here = await server()
  const { ended } = child(
    `leasehold://127.0.0.1:${here.port}`,
    `await leases.request('k', () => {})
     const answered = performance.now()
     process.on('exit', () => console.log(performance.now() - answered < 20_000)) // the timeout for an answer is 30 s`,
  )
  expect(await ended).toEqual({ code: 0, output: 'true\n' })
})

test('a client of a server that has read a backup ends afterwards, even if nothing was closed', async () => {
  await using here = await server()
  const { ended } = child(
    `leasehold://127.0.0.1:${here.port}`,
    `let bytes = 0
     for await (const chunk of leases.lessor.backup()) bytes += chunk.length
     console.log(bytes > 0)`,
  )
  expect(await ended).toEqual({ code: 0, output: 'true\n' })
})

describe('a process that waits for events stays alive until they come', () => {
  const watching = `
     const stop = new AbortController()
     const { signal } = stop
     setTimeout(() => leases.acquire('k'), 300).unref()
     console.log('watching')`

  test.each(['memory:', 'file:', 'leasehold:'])('on %s', async where => {
    using folder = place()
    await using far = await server()
    const url = where === 'file:' ? folder.url : where === 'memory:' ? where : `leasehold://127.0.0.1:${far.port}`
    const { ended } = child(
      url,
      `${watching}
       for await (const [event] of leases.watch('k', { signal })) {
         console.log(event.type)
         process.exit()
       }`,
    )
    expect(await ended).toEqual({ code: 0, output: 'watching\ngranted\n' })
  })

  test('the leader of an election', async () => {
    using folder = place()
    const { ended } = child(
      folder.url,
      `${watching.replace("acquire('k')", "acquire('election/k')")}
       for await (const leader of leases.election('k').observe({ signal })) {
         if (leader === undefined) continue
         console.log(leader.holder)
         process.exit()
       }`,
    )
    expect(await ended).toEqual({ code: 0, output: 'watching\nchild\n' })
  })
})
