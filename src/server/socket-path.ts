/** A unix socket's path outlives the process that listened there. It is taken over from the dead, never from the living. */
import { lstat, rm, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { dirname } from 'node:path'
import { LeaseError } from '../errors.ts'

/** An address of a socket has no room for more. A longer path would be cut short in silence, and be listened on where nobody looks. */
const MAX_BYTES = process.platform === 'linux' ? 107 : 103

export async function takeSocketPath(path: string): Promise<void> {
  if (Buffer.byteLength(path) > MAX_BYTES)
    throw new LeaseError('INVALID', `${path} is too long for a socket, whose path has at most ${MAX_BYTES} bytes`, { facts: { path } })
  // To listen there would be refused as if it were forbidden.
  const folder = dirname(path)
  if (!(await stat(folder).catch(() => undefined))?.isDirectory())
    throw new LeaseError('INVALID', `${folder} is no folder: make it, or give another path`, { facts: { path } })
  const found = await lstat(path).catch(() => undefined)
  if (found === undefined) return
  if (!found.isSocket())
    throw new LeaseError('INVALID', `${path} is there already and is no socket: give another path`, { facts: { path } })
  if (await answers(path))
    throw new LeaseError('UNAVAILABLE', `another process listens on ${path}: stop it, or give another path`, { facts: { inUse: path } })
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
