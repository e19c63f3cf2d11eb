/**
 * The repository of a path, read from its `.git` without starting git: a hook runs on every edit. All worktrees and clones of one repository have
 * the same prefix, `repo/HOST/PATH` of its origin; a repository without an origin has `repo/local/MACHINE/FOLDER`.
 */
import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'

export interface Repository {
  /** The root of the worktree, without symbolic links. */
  readonly root: string
  /** Such as `repo/github.com/acme/app`. */
  readonly prefix: string
  /** The folder of this worktree's index and HEAD. */
  readonly gitDir: string
}

const MAX_CONFIG_BYTES = 1 << 20

/** The repository that a path, which need not exist yet, lies in. Undefined: in none. */
export function repositoryOf(path: string): Repository | undefined {
  for (let folder = realFolder(path); ; folder = dirname(folder)) {
    const gitDir = gitDirOf(folder)
    if (gitDir !== undefined) {
      const common = commonDirOf(gitDir)
      return { root: folder, prefix: originPrefix(originOf(common)) ?? localPrefix(common, folder), gitDir }
    }
    if (folder === dirname(folder)) return undefined
  }
}

/** The path without symbolic links in its folders. The last segment stays: an edit replaces or follows it, and it may not exist yet. */
export function realPath(path: string, cwd: string): string {
  const absolute = isAbsolute(path) ? path : resolve(cwd === '' ? '/' : cwd, path)
  const whole = resolve(absolute)
  return join(realFolder(dirname(whole)), basename(whole))
}

/** The deepest folder of a path that exists, without symbolic links, and below it what does not exist. */
function realFolder(path: string): string {
  const missing: string[] = []
  for (let folder = resolve(path); ; folder = dirname(folder)) {
    try {
      return join(realpathSync(folder), ...missing)
    } catch {
      if (folder === dirname(folder)) return resolve(path)
      missing.unshift(basename(folder))
    }
  }
}

function gitDirOf(folder: string): string | undefined {
  const path = join(folder, '.git')
  try {
    const found = lstatSync(path)
    if (found.isDirectory()) return path
    // In a worktree and in a submodule it is a file that names the folder.
    const [, named] = /^gitdir: (.+?)\s*$/m.exec(readText(path)) ?? []
    return named === undefined ? undefined : resolve(folder, named)
  } catch {
    return undefined
  }
}

/** The folder that all worktrees of a repository share. */
function commonDirOf(gitDir: string): string {
  try {
    return resolve(gitDir, readText(join(gitDir, 'commondir')).trim())
  } catch {
    return gitDir
  }
}

function originOf(common: string): string {
  try {
    const [, section = ''] = /^\s*\[remote "origin"\]([^[]*)/m.exec(readText(join(common, 'config'))) ?? []
    return /^\s*url\s*=\s*(.+?)\s*$/m.exec(section)?.[1]?.replace(/^"(.*)"$/, '$1') ?? ''
  } catch {
    return ''
  }
}

function readText(path: string): string {
  if (lstatSync(path).size > MAX_CONFIG_BYTES) throw new Error(`${path} is too large`)
  return readFileSync(path, 'utf8')
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

function localPrefix(common: string, root: string): string {
  const main = basename(common) === '.git' ? dirname(common) : root
  return ['repo', 'local', hostname(), ...realFolder(main).split('/').filter(isPlain)].join('/')
}

function isPlain(segment: string): boolean {
  return segment !== '' && segment !== '.' && segment !== '..'
}
