// Leasehold as the benchmarks measure it: a server in its own process on an owned file, configured like `leasehold serve` and started like `npm start`, and our
// client in this process. Every acknowledgement is durable.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { propose } from '../dist/lessor/propose.js'
import { RemoteLessor } from '../dist/wire/resp/client.js'
import { serverAddressOf } from '../dist/wire/resp/dial.js'
import { endsWithRun, folder } from './engine.mjs'

const program = fileURLToPath(new URL('./server-child.mjs', import.meta.url))
export const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))

let started = 0

/** Starts a server. `flags` are those of Node. */
export async function startServer({ faces = '', flags = ['--max-semi-space-size=64'] } = {}) {
  const file = join(folder(`leasehold-${++started}`), 'leases.db')
  const child = endsWithRun(fork(program, [file, '0', faces], { execArgv: flags }))
  const [message] = await Promise.race([once(child, 'message'), once(child, 'exit').then(() => [undefined])])
  if (message === undefined) throw new Error('the server did not start')
  const { port } = message
  const url = `leasehold://127.0.0.1:${port}`
  const ask = async what => {
    child.send(what)
    const [answer] = await once(child, 'message')
    return answer
  }
  return {
    port,
    url,
    pid: child.pid,
    pids: [child.pid],
    connect: () => RemoteLessor.open(serverAddressOf(url)),
    figures: () => ask('figures'),
    inUse: () => ask('in use'),
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
    },
  }
}

export const acquireOf = (resource, ttl = 30_000) => ({ kind: 'acquire', holder: 'bench', ttl, wants: [{ resource }] })

/** A lock as the peers have it, on any lessor. */
export function lessorLock(lessor) {
  return {
    acquire: async name => (await propose(lessor, acquireOf(name))).lease,
    release: (_, lease) => propose(lessor, { kind: 'release', lease }),
  }
}

export async function leasehold(server) {
  const lessor = await server.connect()
  return {
    ...lessorLock(lessor),
    about: `Leasehold ${version}, one server on an owned file, our client: every answer is durable (synchronous FULL)`,
    [Symbol.asyncDispose]: () => lessor[Symbol.asyncDispose](),
  }
}
