/** Finds the server that all agents of this machine share, or starts it. */
import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { pause, systemClock } from '../../clock.ts'
import { CommandFailure, EXIT } from '../exit.ts'

const ANSWER_TIMEOUT = 2_000
const START_TIMEOUT = 20_000
const ASK_AGAIN = 100

export type LocalServer = { readonly kind: 'found' } | { readonly kind: 'started'; readonly pid: number; readonly log: string }

/** Throws if another program has the port, or the server does not come up. */
export async function findOrStartServer(port: number, store: string): Promise<LocalServer> {
  if (await answers(port)) return { kind: 'found' }
  const { XDG_STATE_HOME } = process.env
  const log = join(XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'leasehold', 'serve.log')
  mkdirSync(dirname(log), { recursive: true, mode: 0o700 })
  const out = openSync(log, 'a', 0o600)
  const args = [resolve(process.argv[1]!), 'serve', '--store', store, '--listen', `127.0.0.1:${port}`]
  const server = spawn(process.execPath, args, { detached: true, stdio: ['ignore', out, out], cwd: homedir() })
  closeSync(out)
  let ended = false
  server.once('exit', () => (ended = true))
  server.once('error', () => (ended = true))
  server.unref()
  const until = systemClock.now() + START_TIMEOUT
  while (!ended && systemClock.now() < until) {
    if (await answers(port)) return { kind: 'started', pid: server.pid!, log }
    await pause(systemClock, ASK_AGAIN, undefined, { ref: true })
  }
  throw new CommandFailure({
    ...{ exit: EXIT.unavailable, code: 'UNAVAILABLE', message: `no server could be started on 127.0.0.1:${port}: see ${log}` },
    ...{
      means: 'The files are written. Without a server, edits are allowed with a warning.',
      next: 'Choose another port with --port, or name a server with --store.',
    },
  })
}

/** Returns whether a server of ours answers there. */
async function answers(port: number): Promise<boolean> {
  const tooLate = new AbortController()
  const cancel = systemClock.after(ANSWER_TIMEOUT, () => tooLate.abort())
  try {
    const response = await fetch(`http://127.0.0.1:${port}/healthz`, { signal: tooLate.signal })
    return ((await response.json()) as { readonly ok?: unknown }).ok === true
  } catch {
    return false
  } finally {
    cancel()
  }
}
