// Consul, one server. A lock is a key that a session acquires. There is no package of it in Debian: it is built from its Go module, which takes minutes, once.
import http from 'node:http'
import { join } from 'node:path'
import { folder, freePort, start } from '../engine.mjs'
import { goRepository, isBuilt, lookUp, Missing, printedVersion } from './provide.mjs'

const CONNECTIONS = 64
const VERSION = '1.20.6'

/** The installed program, or one that is built. A quick run does not build. */
export async function consulProgram(quick) {
  const installed = lookUp('consul')
  if (installed !== undefined) return installed
  if (quick && !isBuilt('consul', VERSION)) throw new Missing('consul is not installed, and a quick run does not build it')
  return await goRepository('consul', 'github.com/hashicorp/consul', VERSION)
}

export async function startConsul({ quick = false } = {}) {
  const program = await consulProgram(quick)
  const cwd = folder('consul')
  const [port, rpc, serf] = [await freePort(), await freePort(), await freePort()]
  const ports = `ports { http = ${port} server = ${rpc} serf_lan = ${serf} serf_wan = -1 dns = -1 grpc = -1 grpc_tls = -1 }`
  const args = ['agent', '-server', '-bootstrap-expect=1', '-bind=127.0.0.1', '-data-dir', join(cwd, 'data'), '-hcl', ports]
  const answers = async () => /:\d/.test(await (await fetch(`http://127.0.0.1:${port}/v1/status/leader`)).text())
  const running = await start(program, args, { cwd, answers, signal: 'SIGKILL' })
  return { ...running, port, version: printedVersion(program, ['version'], /Consul v(\S+)/) }
}

export async function consul({ port, version }) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  const put = (path, body = '') =>
    new Promise((resolve, reject) => {
      const request = http.request({ host: '127.0.0.1', port, method: 'PUT', path: `/v1/${path}`, agent }, response => {
        let text = ''
        response.setEncoding('utf8')
        response.on('data', piece => (text += piece))
        response.on('error', reject)
        response.on('end', () => (response.statusCode === 200 ? resolve(JSON.parse(text)) : reject(new Error(text))))
      })
      request.on('error', reject)
      request.end(body)
    })
  const { ID: session } = await put('session/create', '{"TTL":"600s","LockDelay":"0s"}')
  return {
    about: `Consul ${version}, one server, HTTP, its defaults: every write is synced`,
    async acquire(name) {
      if ((await put(`kv/${name}?acquire=${session}`)) !== true) throw new Error(`${name} is held`)
    },
    async release(name) {
      if ((await put(`kv/${name}?release=${session}`)) !== true) throw new Error(`${name} was lost`)
    },
    async [Symbol.asyncDispose]() {
      await put(`session/destroy/${session}`).catch(() => {})
      agent.destroy()
    },
  }
}
