/**
 * The store that all users of a machine share, so that the jobs of root and of www-data exclude each other without a setting of their own. An
 * administrator names it in `/etc/leasehold/leasehold.json`: { "store": "leasehold:///run/leasehold/leasehold.sock" }.
 *
 * It is a server, not a file: a user who may write a file of leases may write anything into it, and replicas of other users would believe it. So a
 * file there is refused for all but its owner (src/private-file.ts), and this file itself must be root's and writable by no other user.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { LeaseError } from '../errors.ts'

const MACHINE_FILE = '/etc/leasehold/leasehold.json'
/** A larger file was not written for this. */
const MAX_BYTES = 65_536

/** Where the machine's settings are. `LEASEHOLD_MACHINE_FILE` names another file; empty: none. */
export function machineFile({ LEASEHOLD_MACHINE_FILE: other }: Readonly<NodeJS.ProcessEnv> = process.env): string | undefined {
  return other === undefined ? MACHINE_FILE : other === '' ? undefined : other
}

/** The store of the machine, if it has one. A file that cannot be trusted is an error: to ignore it would end the exclusion silently. */
export function machineStore(env: Readonly<NodeJS.ProcessEnv> = process.env): string | undefined {
  const path = machineFile(env)
  if (path === undefined) return undefined
  let file: number
  try {
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw wrong(path, `cannot be read: ${message}`, 'An administrator can make it readable: chmod 644', cause)
  }
  try {
    const found = fstatSync(file)
    if (!found.isFile() || found.size > MAX_BYTES) throw wrong(path, 'is not a small plain file', 'Remove it')
    if (found.uid !== 0 || (found.mode & 0o022) !== 0)
      throw wrong(path, 'does not belong to root, or can be written by other users', 'Run as root: chown root and chmod go-w')
    return storeIn(path, readFileSync(file, 'utf8'))
  } finally {
    closeSync(file)
  }
}

function storeIn(path: string, text: string): string | undefined {
  let found: unknown
  try {
    found = JSON.parse(text)
  } catch (cause) {
    throw wrong(path, `is not JSON: ${(cause as Error).message}`, 'Write: { "store": "URL" }', cause)
  }
  const { store } = (typeof found === 'object' && found !== null ? found : {}) as { readonly store?: unknown }
  if (store === undefined) return undefined
  if (typeof store !== 'string' || store === '') throw wrong(path, 'has a "store" that is not a URL', 'Write: { "store": "URL" }')
  // A relative path would mean another file in every folder.
  if (/^file:(?!\/)/i.test(store)) throw wrong(path, `names ${store}, which is relative`, 'Write an absolute path')
  return store
}

function wrong(path: string, what: string, next: string, cause?: unknown): LeaseError {
  return new LeaseError(
    'INVALID',
    `the settings of this machine, ${path}, cannot be used: it ${what}. ${next}, or name a store yourself.`,
    {
      cause,
      facts: { machine: path },
    },
  )
}
