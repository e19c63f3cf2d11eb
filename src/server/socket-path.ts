/** Prepares the path of a unix socket. A socket file outlives the process that listened on it: one that no process answers on is removed, a live one is never taken over. */
import { lstat, rm, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { dirname } from 'node:path'
import { LeaseError } from '../errors.ts'

/** The maximum length of a socket address. A longer path would be truncated silently, and the server would listen on another path. */
const MAX_BYTES = process.platform === 'linux' ? 107 : 103

export async function takeSocketPath(path: string): Promise<void> {
  if (Buffer.byteLength(path) > MAX_BYTES)
    throw new LeaseError('INVALID', `${path} is too long for a socket, whose path has at most ${MAX_BYTES} bytes`, { facts: { path } })
  // Checked here because `listen` reports a missing folder as a permission error.
  const folder = dirname(path)
  if (!(await stat(folder).catch(() => undefined))?.isDirectory())
    throw new LeaseError('INVALID', `${folder} is not a folder: create it, or use another path`, { facts: { path } })
  const existing = await lstat(path).catch(() => undefined)
  if (existing === undefined) return
  if (!existing.isSocket()) throw new LeaseError('INVALID', `${path} exists and is not a socket: use another path`, { facts: { path } })
  if (await answers(path))
    throw new LeaseError('UNAVAILABLE', `another process listens on ${path}: stop it, or use another path`, { facts: { inUse: path } })
  await rm(path, { force: true })
}

function answers(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
