/**
 * Consul's own tests of its Go client, as the Go proxy ships them, against this face. They start a program `consul` for each test and wait until its port answers. Here
 * that program asks this test for a server on the port, over a log of its own, and stays until it is interrupted. Nothing stands between the client and the
 * face. The lists are complete: a test that begins to pass or to fail changes them. docs/faces/consul.md says why those that are left out cannot pass.
 */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { expect } from 'vitest'
import { consulFace } from '../../../src/face/consul/face.ts'
import type { Face } from '../../../src/face/face.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { consulTests } from '../../support/client-sets.ts'
import { orSkip } from '../../support/foreign-clients.ts'
import { foreignSuite } from '../../support/foreign-suites.ts'
import { place } from '../../support/resp-place.ts'

const run = promisify(execFile)
/** Locks, semaphores, sessions and keys: what this face answers. */
const TESTS = '^TestAPI_(Lock|Semaphore|Session|Client(Put|List|Delete|CAS|Watch|Keys|Acquire))'
const PASSED = [
  'ClientCAS',
  'ClientDeleteCAS',
  'ClientKeys_DeleteRecurse',
  'ClientList_DeleteRecurse',
  'ClientPutGetDelete',
  'ClientWatchGet',
  'ClientWatchList',
  'LockConflict',
  'LockContend',
  'LockDeleteKey',
  'LockDestroy',
  'LockForceInvalidate',
  'LockLockUnlock',
  'LockMonitorRetry',
  'LockOneShot',
  'SemaphoreAcquireRelease',
  'SemaphoreBadLimit',
  'SemaphoreConflict',
  'SemaphoreContend',
  'SemaphoreDeleteKey',
  'SemaphoreDestroy',
  'SemaphoreForceInvalidate',
  'SemaphoreMonitorRetry',
  'SemaphoreOneShot',
  'SessionCreateDestroyRenewPeriodic',
  'SessionCreateRenewDestroy',
  'SessionCreateRenewDestroyRenew',
  'SessionRenewPeriodic_Cancel',
]
/** Each makes a session without a TTL, or one that checks keep. */
const FAILED = [
  'ClientAcquireRelease',
  'LockReclaimLock',
  'SessionCreateDestroy',
  'SessionInfo',
  'SessionInfo_NoChecks',
  'SessionList',
  'SessionNode',
  'SessionNodeChecks',
  'SessionServiceChecks',
]
/** Milliseconds for all of the tests. Most of them wait for terms of a real server. */
const TIME = 150_000

/** The program `consul` of the tests. */
const PROGRAM = `#!/bin/bash
if [ "$1" = version ]; then echo '{"Version":"1.20.6"}'; exit; fi
port=$(grep -o '"http":[0-9]*' "$3" | head -n 1)
exec 3<>"/dev/tcp/127.0.0.1/$SERVERS"
echo "\${port#*:}" >&3
trap 'kill $!; exit 0' INT TERM
sleep ${TIME / 1_000} >/dev/null 2>&1 3>&- & wait
`

/** The test server of some tests waits for the certificates of the service mesh before it asks anything else. */
function withRoots(face: Face): Face {
  const http = face.http!
  const roots = JSON.stringify({ ActiveRootID: 'none', TrustDomain: 'none', Roots: [{ ID: 'none', Active: true }] })
  return {
    ...face,
    http: {
      ...http,
      answer: (request, caller) =>
        request.path === '/v1/agent/connect/ca/roots' ? { status: 200, body: roots } : http.answer(request, caller),
    },
  }
}

/** Listens for programs: each names a port, and has a server there until it ends. */
async function servers(): Promise<{ readonly port: number } & AsyncDisposable> {
  const serving = async (program: Socket) => {
    program.on('error', () => {})
    const ended = once(program, 'close')
    for await (const line of createInterface({ input: program })) {
      await using _here = await place({ faces: [withRoots(consulFace())], http: httpListener(), listen: `127.0.0.1:${line}` })
      await ended
    }
  }
  const listener = createServer(program => void serving(program))
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  return {
    port: (listener.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      listener.close()
    },
  }
}

// Some measure how long a request takes, and others end before a term does: those that failed are repeated, by themselves.
const passed = new Set<string>()
const failed = new Set<string>()

foreignSuite("the tests of Consul's own Go client", 600_000 + TIME, async context => {
  const program = await orSkip("the tests of Consul's Go client", consulTests(), context)
  await using here = await servers()
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-consul-'))
  try {
    mkdirSync(join(folder, 'bin'))
    writeFileSync(join(folder, 'bin/consul'), PROGRAM)
    chmodSync(join(folder, 'bin/consul'), 0o755)
    const env = { ...process.env, SERVERS: String(here.port), PATH: `${join(folder, 'bin')}:${process.env.PATH}`, TMPDIR: folder }
    const options = { cwd: folder, timeout: TIME, maxBuffer: 64 << 20, env }
    const tests = passed.size === 0 ? TESTS : `^TestAPI_(${PASSED.filter(name => !passed.has(name)).join('|')})$`
    const args = ['-test.v', '-test.run', tests, '-test.parallel', '8', '-test.timeout', `${TIME}ms`]
    const { stdout } = await run(program, args, options).catch((error: { readonly stdout: string }) => error)
    for (const [, result, name] of stdout.matchAll(/^--- (PASS|FAIL): TestAPI_(\w+)/gm)) (result === 'PASS' ? passed : failed).add(name!)
    expect([...passed].sort(), stdout.slice(-6_000)).toEqual(PASSED)
    expect([...failed].filter(name => !passed.has(name)).sort()).toEqual(FAILED)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
