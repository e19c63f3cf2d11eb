/** Turns the path that an event names into the resource that is claimed for it. */
import { posix } from 'node:path'
import { realPath, repositoryOf } from '../agent/repository.ts'
import type { GuardedPath } from './guard.ts'

/** By the file system of this machine. */
export function locateHere(path: string, cwd: string): GuardedPath | undefined {
  const real = realPath(path, cwd)
  const repository = repositoryOf(posix.dirname(real))
  return repository && inside(real, repository.root, repository.prefix)
}

/** By the root and the prefix of one repository, for events of another machine. */
export function locateBy(root: string, prefix: string): (path: string, cwd: string) => GuardedPath | undefined {
  return (path, cwd) => inside(posix.resolve(cwd.startsWith('/') ? cwd : root, path), root.replace(/\/+$/, ''), prefix.replace(/\/+$/, ''))
}

function inside(path: string, root: string, prefix: string): GuardedPath | undefined {
  if (path !== root && !path.startsWith(root === '/' ? root : `${root}/`)) return undefined
  const rest = path.slice(root === '/' ? 1 : root.length + 1).normalize('NFC')
  // What git itself writes there is its own business.
  if (rest === '' || rest === '.git' || rest.startsWith('.git/')) return undefined
  return { resource: `${prefix}/${rest}`, prefix }
}
