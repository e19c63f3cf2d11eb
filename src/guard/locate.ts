/** Turns the path that an event names into the resource that is claimed for it. */
import { posix } from 'node:path'
import { RepositoryFinder } from '../agent/repository.ts'
import type { GuardedPath, Locate } from './guard.ts'

/** By the file system of this machine, for the paths of one event. */
export function locateHere(finder = new RepositoryFinder()): Locate {
  return async (path, cwd) => {
    const real = await finder.realPath(path, cwd)
    const repository = await finder.repositoryOf(posix.dirname(real))
    return repository && inside(real, repository.root, repository.prefix)
  }
}

/** By the root and the prefix of one repository, for events of another machine. */
export function locateBy(root: string, prefix: string): Locate {
  return async (path, cwd) =>
    inside(posix.resolve(cwd.startsWith('/') ? cwd : root, path), root.replace(/\/+$/, ''), prefix.replace(/\/+$/, ''))
}

function inside(path: string, root: string, prefix: string): GuardedPath | undefined {
  if (path !== root && !path.startsWith(root === '/' ? root : `${root}/`)) return undefined
  const rest = path.slice(root === '/' ? 1 : root.length + 1).normalize('NFC')
  // What git itself writes there is its own business.
  if (rest === '' || rest === '.git' || rest.startsWith('.git/')) return undefined
  return { resource: `${prefix}/${rest}`, prefix }
}
