// Starts engines for benchmarks: on loopback, in the folder of this run, with the settings that their documentation recommends for durability. They end with the run.
import { spawn, spawnSync } from 'node:child_process'
import { chownSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { scratch } from './measure.mjs'

/** Thrown when an engine is not installed. Its part is left out, with a message. */
export class Missing extends Error {}

/** The full path of a program. Debian keeps those of Postgres out of the PATH. */
export function find(program) {
  const versions = '/usr/lib/postgresql'
  const postgres = existsSync(versions) ? readdirSync(versions).sort((a, b) => Number(b) - Number(a)) : []
  const places = [...postgres.map(version => join(versions, version, 'bin')), ...(process.env.PATH ?? '').split(':'), '/usr/sbin']
  const path = places.map(place => join(place, program)).find(existsSync)
  if (path === undefined) throw new Missing(`${program} is not installed`)
  return path
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

/** Some engines refuse to run as root. */
function unprivileged() {
  if (process.getuid?.() !== 0) return {}
  const [, , uid, gid] = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .find(([name]) => name === 'postgres' || name === 'nobody')
  return { uid: Number(uid), gid: Number(gid) }
}

/** Creates a folder below the folder of this run. */
export function folder(name, { uid, gid } = {}) {
  const path = join(scratch, name)
  mkdirSync(path, { recursive: true })
  if (uid !== undefined) {
    chownSync(scratch, uid, gid)
    chownSync(path, uid, gid)
  }
  return path
}

/** Starts a program and waits until `answers` succeeds. */
export async function start(program, args, { cwd, answers, signal = 'SIGTERM', ...user }) {
  const log = openSync(join(cwd, 'log'), 'a')
  const child = spawn(find(program), args, { cwd, stdio: ['ignore', log, log], ...user })
  const ended = new Promise(resolve => child.once('exit', resolve))
  const swiftly = () => child.kill('SIGKILL')
  process.once('exit', swiftly)
  for (let attempt = 0; ; attempt++) {
    if (await answers().catch(() => false)) break
    if (attempt === 400 || child.exitCode !== null)
      throw new Error(`${program} did not come up: ${readFileSync(join(cwd, 'log'), 'utf8').slice(-800)}`)
    await new Promise(resolve => setTimeout(resolve, 25))
  }
  return {
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      process.removeListener('exit', swiftly)
      child.kill(signal)
      await ended
    },
  }
}

export async function postgres() {
  const { default: pg } = await import('pg')
  const user = unprivileged()
  const cwd = folder('postgres', user)
  const data = join(cwd, 'data')
  const made = spawnSync(find('initdb'), ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'], { cwd, ...user })
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr}`)
  const port = await freePort()
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  const answers = async () => {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    await client.end()
    return true
  }
  const args = ['-D', data, '-p', String(port), '-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=']
  const running = await start('postgres', args, { cwd, answers, signal: 'SIGQUIT', ...user })
  return { ...running, url, pg }
}
