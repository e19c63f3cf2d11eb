/** Turns the path that an event names into the resources that are claimed for it. */
import { posix } from 'node:path'
import { RepositoryFinder } from '../agent/repository.ts'
import type { GuardedPath, Locate } from './guard.ts'

/** By the file system of this machine, for the paths of one event. */
export function locateHere(finder = new RepositoryFinder()): Locate {
  return async (path, { cwd, kind }) => {
    const found: GuardedPath[] = []
    for (const { path: name, repository } of await finder.changed(path, cwd, kind === 'commit')) {
      const guarded = inside(name, repository.root, repository.prefix)
      if (guarded !== undefined) found.push({ ...guarded, gitDir: repository.gitDir })
    }
    return found
  }
}

/** By the root and the prefix of one repository, for events of another machine. Symbolic links there are not seen here. */
export function locateBy(root: string, prefix: string): Locate {
  return async (path, { cwd }) => {
    const whole = posix.resolve(cwd.startsWith('/') ? cwd : root, path)
    const found = inside(whole, trimmed(root), trimmed(prefix))
    return found === undefined ? [] : [found]
  }
}

/** Without slashes at the end. A loop, because an expression would look at each slash of a long text again. */
function trimmed(text: string): string {
  let end = text.length
  while (end > 0 && text[end - 1] === '/') end--
  return text.slice(0, end)
}

function inside(path: string, root: string, prefix: string): GuardedPath | undefined {
  if (path !== root && !path.startsWith(root === '/' ? root : `${root}/`)) return undefined
  const rest = path.slice(root === '/' ? 1 : root.length + 1).normalize('NFC')
  // Git writes its own files there, which the guard leaves alone.
  if (rest === '' || rest === '.git' || rest.startsWith('.git/')) return undefined
  return { resource: `${prefix}/${rest}`, prefix }
}
