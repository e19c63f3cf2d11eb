/**
 * The clients' own suites, as the registries ship them, against this face. Each list is complete: a test that begins to pass or to fail changes it. docs/faces/redis.md
 * says why those that are left out cannot pass.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { expect } from 'vitest'
import { redisFace } from '../../../src/face/redis/commands.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { redislockTests, redlockTests } from '../../support/client-sets.ts'
import { orSkip } from '../../support/foreign-clients.ts'
import { foreignSuite } from '../../support/foreign-suites.ts'
import { place } from '../../support/resp-place.ts'

const run = promisify(execFile)
const TIMEOUT = 600_000

/** What a program printed, whether it failed or not. */
async function printed(command: string, args: readonly string[], cwd: string, env: Readonly<Record<string, string>>): Promise<string> {
  const options = { cwd, timeout: 900_000, maxBuffer: 16 << 20, env: { ...process.env, ...env } }
  return (await run(command, [...args], options).catch((error: { readonly stdout: string; readonly stderr: string }) => error)).stdout
}

foreignSuite("bsm/redislock's tests", TIMEOUT, async context => {
  const program = await orSkip("bsm/redislock's tests", redislockTests(), context)
  await using here = await place({ faces: [redisFace()] })
  // They take locks for 5 ms.
  await propose(here.lessor, { kind: 'policy', prefix: 'redis', rules: { ttlMin: 1 } })
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-redislock-'))
  try {
    const text = await printed(program, ['-test.v', '-test.run', '^Test'], folder, { ADDRESS: `127.0.0.1:${here.port}` })
    const results = (word: string) => [...text.matchAll(new RegExp(`^--- ${word}: (\\w+)`, 'gm'))].map(([, name]) => name!).sort()
    // They wait 5 ms longer than a term of 5 ms: a lease never ends early, and may end a little later.
    const timed = ['TestLock_Refresh_expired', 'TestLock_Release_expired']
    expect(
      results('PASS').filter(name => !timed.includes(name)),
      text.slice(-4_000),
    ).toEqual([
      'TestClient',
      'TestExponentialBackoff',
      'TestLimitRetry',
      'TestLinearBackoff',
      'TestLock_Release_not_held',
      'TestNoRetry',
      'TestObtain',
      'TestObtain_concurrent',
      'TestObtain_metadata',
      'TestObtain_retry_failure',
      'TestObtain_retry_success',
    ])
    expect(results('FAIL').filter(name => !timed.includes(name))).toEqual([
      'TestLock_Refresh',
      'TestLock_Release_not_own',
      'TestObtain_custom_token',
    ])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

/** Sends the clients of redlock's tests to our port, and answers the one command by which they make a key that is no lock. */
const PRELOAD = `
const net = require('node:net')
const connect = net.Socket.prototype.connect
net.Socket.prototype.connect = function (...args) {
  const [options] = Array.isArray(args[0]) ? args[0] : args
  if (options && options.port === 6379) options.port = Number(process.env.PORT)
  return connect.apply(this, args)
}
for (const client of [require('redis').RedisClient, require('ioredis')]) client.prototype.sadd = (key, value, done) => done(null, 1)
`

/** They want a lock in the first attempt after its term, by the clock of the test; what follows them in the same group waits for that lock. */
const TIMED = /immediately after a resource is expired|lockWithOptions/

foreignSuite("redlock's tests", TIMEOUT, async context => {
  const require = await orSkip("redlock's tests", redlockTests(), context)
  await using here = await place({ faces: [redisFace()] })
  const suite = join(dirname(require.resolve('redlock')), 'test.js')
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-redlock-'))
  try {
    mkdirSync(folder, { recursive: true })
    const root = dirname(require.resolve('mocha/package.json'))
    const preload = join(dirname(dirname(root)), `preload-${process.pid}.cjs`)
    writeFileSync(preload, PRELOAD)
    const args = [join(root, 'bin/_mocha'), '--require', preload, '--reporter', 'json', '--exit', '--grep', 'single-server', suite]
    const text = await printed(process.execPath, args, folder, { PORT: String(here.port) })
    rmSync(preload)
    const report = JSON.parse(text.slice(text.indexOf('{\n'))) as {
      readonly passes: readonly { readonly fullTitle: string }[]
      readonly failures: readonly { readonly fullTitle: string; readonly err: { readonly message: string } }[]
    }
    const told = report.failures.map(({ fullTitle, err }) => `${fullTitle}: ${err.message}`).join('\n')
    const failed = report.failures.map(({ fullTitle }) => fullTitle.replace(/^Redlock: single-server: \S+ (\(.*?\) )?/, ''))
    expect(
      failed.filter(title => !TIMED.test(title)),
      told,
    ).toEqual(Array(3).fill('emits a clientError event when a client error occurs'))
    expect(report.passes.length).toBeGreaterThan(100)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
