// etcd with one member and with three, and antietcd. A lock is a key that a transaction creates if it does not exist, on a lease; npm etcd3 also has `lock()`, which
// grants a lease for each lock.
import http from 'node:http'
import { join } from 'node:path'
import { folder, freePort, start } from '../engine.mjs'
import { debianProgram, goProgram, isBuilt, lookUp, npmPackages, printedVersion, versionOf } from './provide.mjs'

const VERSION = '3.7.3'
const DURABLE = 'its defaults: every write is synced on a majority'
/** Connections with which the JSON gateway did best. */
const CONNECTIONS = 64

export const base64 = text => Buffer.from(text).toString('base64')
const at = port => `http://127.0.0.1:${port}`

/** The current release where Go can build it, or Debian's. A quick run does not build. */
async function etcdProgram(quick) {
  try {
    if (isBuilt('etcd', VERSION) || (!quick && lookUp('go') !== undefined))
      return await goProgram('etcd', 'go.etcd.io/etcd/server/v3', VERSION)
  } catch (error) {
    console.error(error.message)
  }
  return await debianProgram('etcd', ['etcd-server'])
}

let started = 0

/** Starts a cluster. `more`: further options of etcd. */
export async function startEtcd(size, { quick = false, more = [] } = {}) {
  const program = await etcdProgram(quick)
  const version = printedVersion(program, ['--version'], /etcd Version: (\S+)/)
  const ports = []
  while (ports.length < 2 * size) ports.push(await freePort())
  const peers = ports.splice(size)
  const cluster = peers.map((peer, i) => `m${i}=${at(peer)}`).join(',')
  const healthy = async port => (await (await fetch(`${at(port)}/health`)).json()).health === 'true'
  started++
  const startMember = (i, state) => {
    const port = ports[i]
    const args = [
      ...[
        '--name',
        `m${i}`,
        '--data-dir',
        join(folders[i], 'data'),
        '--logger=zap',
        '--initial-cluster',
        cluster,
        '--initial-cluster-state',
        state,
      ],
      ...['--listen-client-urls', at(port), '--advertise-client-urls', at(port)],
      ...['--listen-peer-urls', at(peers[i]), '--initial-advertise-peer-urls', at(peers[i])],
      ...more,
    ]
    return start(program, args, { cwd: folders[i], answers: () => healthy(port), signal: 'SIGKILL' })
  }
  const folders = ports.map((_, i) => folder(`etcd-${started}-${i}`))
  const running = await Promise.all(ports.map((_, i) => startMember(i, 'new')))
  return {
    ports,
    version,
    pids: running.flatMap(({ pids }) => pids),
    kill: i => running[i][Symbol.asyncDispose](),
    /** Starts a member again that was killed. */
    async restart(i) {
      running[i] = await startMember(i, 'existing')
    },
    [Symbol.asyncDispose]: () => Promise.all(running.map(member => member[Symbol.asyncDispose]())),
  }
}

async function etcd3Client({ ports, version }) {
  const require = await npmPackages('etcd3@1.1.2')
  const { Etcd3 } = require('etcd3')
  const members = ports.length === 1 ? 'one member' : `${ports.length} members`
  return {
    client: new Etcd3({ hosts: ports.map(at) }),
    about: `etcd ${version}, ${members}, npm etcd3 ${versionOf(require, 'etcd3')}, ${DURABLE}`,
  }
}

/** The cheapest lock: two writes, on one lease for all. */
export async function etcd(engine) {
  const { client, about } = await etcd3Client(engine)
  const lease = client.lease(600)
  const id = await lease.grant()
  return {
    about: `${about}; a transaction that creates the key`,
    async acquire(name) {
      const { succeeded } = await client.if(name, 'Create', '==', 0).then(client.put(name).value('').lease(id)).commit()
      if (!succeeded) throw new Error(`${name} is held`)
    },
    release: name => client.delete().key(name).exec(),
    async [Symbol.asyncDispose]() {
      await lease.revoke().catch(() => {})
      client.close()
    },
  }
}

/** `lock()` of npm etcd3. */
export async function etcdLock(engine) {
  const { client, about } = await etcd3Client(engine)
  return {
    about: `${about}; lock()`,
    acquire: name => client.lock(name).ttl(30).acquire(),
    release: (_, lock) => lock.release(),
    async [Symbol.asyncDispose]() {
      client.close()
    },
  }
}

/** Calls of the JSON gateway on connections that stay open, and nothing around the call. */
export function gatewayCaller(agent) {
  return (port, path, body) =>
    new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json' } // antietcd insists
      const request = http.request({ host: '127.0.0.1', port, method: 'POST', path: `/v3${path}`, agent, headers }, response => {
        const pieces = []
        response.on('data', piece => pieces.push(piece))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(pieces).toString()
          if (response.statusCode === 200) resolve(JSON.parse(text))
          else reject(new Error(text))
        })
      })
      request.on('error', reject)
      request.end(JSON.stringify(body))
    })
}

/** Creates a key on a lease and deletes it, through the JSON gateway. */
export async function gatewayLock({ ports }) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  const call = gatewayCaller(agent)
  const { ID: lease } = await call(ports[0], '/lease/grant', { TTL: 600 })
  let calls = 0
  return {
    async acquire(name) {
      const key = base64(name)
      const { succeeded } = await call(ports[++calls % ports.length], '/kv/txn', {
        compare: [{ key, target: 'CREATE', create_revision: 0 }],
        success: [{ request_put: { key, value: '', lease } }],
        failure: [{ request_range: { key } }],
      })
      if (!succeeded) throw new Error(`${name} is held`)
    },
    release: name => call(ports[++calls % ports.length], '/kv/deleterange', { key: base64(name) }),
    async [Symbol.asyncDispose]() {
      agent.destroy()
    },
  }
}

const ANTIETCD = 'antietcd@1.3.1'

export async function startAntietcd() {
  const require = await npmPackages(ANTIETCD)
  const port = await freePort()
  const cwd = folder('antietcd')
  const program = require.resolve('antietcd/antietcd-app.js')
  const args = [program, '--ip', '127.0.0.1', '--port', String(port), '--data', join(cwd, 'data.gz')]
  const headers = { 'content-type': 'application/json' }
  const answers = async () => (await fetch(`${at(port)}/v3/maintenance/status`, { method: 'POST', body: '{}', headers })).ok
  const running = await start(process.execPath, args, { cwd, answers })
  return { ...running, ports: [port], version: versionOf(require, 'antietcd') }
}

export async function antietcd(engine) {
  const lock = await gatewayLock(engine)
  return { ...lock, about: `antietcd ${engine.version}, HTTP; the file is rewritten and synced at every change, without keys on leases` }
}
