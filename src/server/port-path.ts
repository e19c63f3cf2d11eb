/** A unix socket's path outlives the process that listened there. It is taken over from the dead, never from the living. */
import { lstat, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { LeaseError } from '../errors.ts'

export async function takeSocketPath(path: string): Promise<void> {
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
