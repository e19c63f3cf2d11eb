/**
 * The repository of a path, read from its `.git` without starting git: a hook runs on every edit. All worktrees and clones of one repository have
 * the same prefix, `repo/HOST/PATH` of its origin; a repository without an origin has `repo/local/MACHINE/FOLDER`.
 */
import { constants } from 'node:fs'
import { open, readdir, readlink, realpath, stat } from 'node:fs/promises'
import { hostname } from 'node:os'
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'

export interface Repository {
  /** The root of the worktree, without symbolic links. */
  readonly root: string
  /** Such as `repo/github.com/acme/app`. */
  readonly prefix: string
  /** The folder of this worktree's index and HEAD. */
  readonly gitDir: string
  /** On its file system, `A.ts` and `a.ts` are one file (`core.ignorecase`, which git sets when it makes or clones a repository). */
  readonly ignoresCase: boolean
}

/** A path that a write changes. */
export interface WrittenPath {
  readonly path: string
  readonly repository: Repository
}

const MAX_PATH = 4_096
const MAX_CONFIG_BYTES = 1 << 20
/** Links from one to the next, as in Linux. */
const MAX_LINKS = 40
/** Files and folders that one finder looks at. The 256 paths of a large patch are in a few dozen folders. */
const MAX_LOOKS = 4_096

/** The repository that a path, which need not exist yet, lies in. Undefined: in none. */
export function repositoryOf(path: string): Promise<Repository | undefined> {
  return new RepositoryFinder().repositoryOf(path)
}

/**
 * Finds the repositories of the paths of one event. A server does so for its callers: it reads regular files only and a bounded number of them, each in the
 * background, and nothing twice.
 */
export class RepositoryFinder {
  readonly #folders = new Map<string, Promise<string>>()
  readonly #repositories = new Map<string, Promise<Repository | undefined>>()
  readonly #entriesOf = new Map<string, Promise<readonly string[]>>()
  #looks = 0

  /** The path without symbolic links in its folders. The last segment stays: an edit replaces or follows it, and it may not exist yet. */
  async realPath(path: string, cwd: string): Promise<string> {
    if (path.length > MAX_PATH || cwd.length > MAX_PATH) throw new Error(`a path has more than ${MAX_PATH} characters`)
    const absolute = isAbsolute(path) ? path : resolve(cwd === '' ? '/' : cwd, path)
    const whole = resolve(absolute)
    return join(await this.#realFolder(dirname(whole)), basename(whole))
  }

  /** Returns what a write to this path changes in repositories. Git keeps a link as itself (`isCommit`). An edit may replace it or write what it leads to. */
  async changed(path: string, cwd: string, isCommit: boolean): Promise<readonly WrittenPath[]> {
    const found: WrittenPath[] = []
    for (const name of isCommit ? [await this.realPath(path, cwd)] : await this.#written(path, cwd)) {
      const repository = await this.#repositoryAbove(await this.#realFolder(dirname(name)))
      if (repository !== undefined)
        found.push({ path: repository.ignoresCase ? await this.#spelled(name, repository.root) : name, repository })
    }
    return found
  }

  /** The path as the file system spells it, as far as it exists: one file has one name, whatever the case in which it was written. */
  async #spelled(path: string, root: string): Promise<string> {
    if (!path.startsWith(`${root}/`)) return path
    let spelled = root
    for (const segment of path.slice(root.length + 1).split('/')) {
      const there = await this.#entries(spelled)
      const same = there.includes(segment) ? segment : there.find(entry => folded(entry) === folded(segment))
      spelled = join(spelled, same ?? segment)
    }
    return spelled
  }

  #entries(folder: string): Promise<readonly string[]> {
    return onceFor(this.#entriesOf, folder, () => {
      this.#look()
      return readdir(folder).catch(() => [])
    })
  }

  /** The names of what a write to this path changes: the path and, if that is a symbolic link, the links and the file that it leads to, which may not exist yet. */
  async #written(path: string, cwd: string): Promise<readonly string[]> {
    const names: string[] = []
    for (let name = await this.realPath(path, cwd); names.length <= MAX_LINKS; ) {
      names.push(name)
      this.#look()
      const target = await readlink(name).catch(() => undefined)
      if (target === undefined) return names
      name = await this.realPath(target, dirname(name))
    }
    throw new Error(`${path} leads through more than ${MAX_LINKS} symbolic links`)
  }

  /** The repository that a path, which need not exist yet, lies in. Undefined: in none. */
  async repositoryOf(path: string): Promise<Repository | undefined> {
    return this.#repositoryAbove(await this.#realFolder(resolve(path)))
  }

  #look(): void {
    if (++this.#looks > MAX_LOOKS) throw new Error(`its paths are in more folders than are looked at (${MAX_LOOKS}): split it`)
  }

  /** The deepest folder of a path that exists, without symbolic links, and below it what does not exist. */
  #realFolder(path: string): Promise<string> {
    return onceFor(this.#folders, path, async () => {
      this.#look()
      try {
        return await realpath(path)
      } catch {
        const above = dirname(path)
        return above === path ? path : join(await this.#realFolder(above), basename(path))
      }
    })
  }

  #repositoryAbove(folder: string): Promise<Repository | undefined> {
    return onceFor(this.#repositories, folder, async () => {
      this.#look()
      const gitDir = await gitDirOf(folder)
      if (gitDir === undefined) return dirname(folder) === folder ? undefined : this.#repositoryAbove(dirname(folder))
      const common = await commonDirOf(gitDir)
      const config = await configOf(common)
      const prefix = originPrefix(settingIn(config, '[remote "origin"]', 'url')) ?? (await this.#localPrefix(common, folder))
      return { root: folder, prefix, gitDir, ignoresCase: settingIn(config, '[core]', 'ignorecase') === 'true' }
    })
  }

  async #localPrefix(common: string, root: string): Promise<string> {
    const main = basename(common) === '.git' ? dirname(common) : root
    return ['repo', 'local', hostname(), ...(await this.#realFolder(main)).split('/').filter(isPlain)].join('/')
  }
}

function onceFor<T>(known: Map<string, Promise<T>>, key: string, find: () => Promise<T>): Promise<T> {
  const before = known.get(key)
  if (before !== undefined) return before
  const found = find()
  known.set(key, found)
  return found
}

async function gitDirOf(folder: string): Promise<string | undefined> {
  const path = join(folder, '.git')
  try {
    if ((await stat(path)).isDirectory()) return path
    // In a worktree and in a submodule it is a file that names the folder.
    const named = linesOf(await readText(path)).find(line => line.startsWith('gitdir: '))
    return named === undefined ? undefined : resolve(folder, named.slice('gitdir: '.length).trim())
  } catch {
    return undefined
  }
}

/** The folder that all worktrees of a repository share. */
async function commonDirOf(gitDir: string): Promise<string> {
  try {
    return resolve(gitDir, (await readText(join(gitDir, 'commondir'))).trim())
  } catch {
    return gitDir
  }
}

async function configOf(common: string): Promise<string> {
  try {
    return await readText(join(common, 'config'))
  } catch {
    return ''
  }
}

/** The first value of a name in a section. Line by line: the file may belong to a stranger, and an expression for all of it could take for ever. */
function settingIn(config: string, section: string, name: string): string {
  let isInside = false
  for (const line of linesOf(config)) {
    const text = line.trim()
    if (text.startsWith('[')) isInside = text.startsWith(section)
    const [key, ...value] = text.split('=')
    if (isInside && key!.trim() === name)
      return value
        .join('=')
        .trim()
        .replace(/^"(.*)"$/, '$1')
  }
  return ''
}

function folded(name: string): string {
  return name.normalize('NFC').toLowerCase()
}

function linesOf(text: string): readonly string[] {
  return text.split(/\r?\n/)
}

/** The text of a regular file. A pipe or a device is opened without waiting for it, and not read. */
async function readText(path: string): Promise<string> {
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
  try {
    const found = await file.stat()
    if (!found.isFile() || found.size > MAX_CONFIG_BYTES) throw new Error(`${path} is not a file, or too large`)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(found.size), 0, found.size, 0)
    return buffer.toString('utf8', 0, bytesRead)
  } finally {
    await file.close()
  }
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

function isPlain(segment: string): boolean {
  return segment !== '' && segment !== '.' && segment !== '..'
}
