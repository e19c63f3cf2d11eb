// Starts engines for benchmarks: on loopback, in the folder of this run, with the settings that their documentation recommends for durability. They end with the run.
import { spawn } from 'node:child_process'
import { chownSync, closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { basename, join } from 'node:path'
import { scratch } from './measure.mjs'

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
export function unprivileged() {
  if (process.getuid?.() !== 0) return {}
  const [, , uid, gid] = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .find(([name]) => name === 'postgres' || name === 'nobody')
  return { uid: Number(uid), gid: Number(gid) }
}

/** Creates a folder below the folder of this run. */
export function folder(name, { uid, gid } = {}) {
  const path = mkdtempSync(join(scratch(), `${name}-`))
  if (uid !== undefined) {
    chownSync(scratch(), uid, gid)
    chownSync(path, uid, gid)
  }
  return path
}

/** A busy machine may need long to start a Java program. */
const UP_WITHIN = 60_000

const running = new Set()
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

/** Ends a child process with this one, however this one ends. */
export function endsWithRun(child) {
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

/** Starts a program, given by its path, and waits until `answers` succeeds. */
export async function start(program, args, { cwd, answers, signal = 'SIGTERM', ...user }) {
  const log = openSync(join(cwd, 'log'), 'a')
  const child = endsWithRun(spawn(program, args, { cwd, stdio: ['ignore', log, log], ...user }))
  closeSync(log)
  let failed
  child.once('error', error => (failed = error))
  const ended = new Promise(resolve => child.once('exit', resolve))
  for (const late = Date.now() + UP_WITHIN; !(await answers().catch(() => false)); ) {
    if (failed !== undefined) throw failed
    if (Date.now() > late || child.exitCode !== null) {
      child.kill('SIGKILL')
      throw new Error(
        `${basename(program)} did not come up: ${readFileSync(join(cwd, 'log'), 'utf8').trim().slice(-300).replaceAll('\n', ' ')}`,
      )
    }
    await new Promise(resolve => setTimeout(resolve, 25))
  }
  return {
    pids: [child.pid],
    async [Symbol.asyncDispose]() {
      child.kill(signal)
      await ended
    },
  }
}
