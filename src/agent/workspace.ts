/**
 * The workspace of a folder: the root of its git worktree, and the prefix under which its paths are claimed. All worktrees and clones of one
 * repository have the same prefix, `repo/HOST/PATH` of its origin; a repository without an origin has `repo/local/MACHINE/FOLDER`.
 */
import { spawnSync } from 'node:child_process'
import { realpathSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname, resolve } from 'node:path'
import type { Workspace } from './names.ts'

const TIMEOUT = 5_000

/** Undefined outside of a git worktree, and without git. */
export function workspaceOf(folder: string): Workspace | undefined {
  const root = git(folder, 'rev-parse', '--show-toplevel')
  if (root === undefined || root === '') return undefined
  const origin = git(folder, 'config', '--get', 'remote.origin.url') ?? ''
  return { root: realpathSync(root), prefix: originPrefix(origin) ?? localPrefix(folder, root) }
}

/** `repo/github.com/acme/app` for each form in which git writes that origin. Undefined if it names no host. */
export function originPrefix(origin: string): string | undefined {
  const [, host, path] =
    /^[a-z][a-z0-9+.-]*:\/\/(?:[^@/]*@)?([^/:]+)(?::\d+)?\/(.+)$/i.exec(origin) ?? /^(?:[^@/]+@)?([^/:]+):(?!\/\/)(.+)$/.exec(origin) ?? []
  if (host === undefined || path === undefined || /^file:/i.test(origin)) return undefined
  const segments = path
    .replace(/\.git\/*$/, '')
    .split('/')
    .filter(isPlain)
  return segments.length === 0 ? undefined : ['repo', host.toLowerCase(), ...segments].join('/')
}

/** The folder of the main worktree: that of the repository itself, which all its worktrees share. */
function localPrefix(folder: string, root: string): string {
  const common = git(folder, 'rev-parse', '--git-common-dir')
  const main = common === undefined ? root : dirname(realpathSync(resolve(folder, common)))
  return ['repo', 'local', hostname(), ...main.split('/').filter(isPlain)].join('/')
}

function isPlain(segment: string): boolean {
  return segment !== '' && segment !== '.' && segment !== '..'
}

function git(folder: string, ...args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync('git', args, {
    cwd: folder,
    encoding: 'utf8',
    timeout: TIMEOUT,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  return status === 0 ? stdout.trim() : undefined
}
