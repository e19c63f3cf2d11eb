/**
 * The names that agents claim: what a model writes, turned into the name of a resource, and back.
 *
 * In a workspace (a checked-out repository) a name is a path, relative to its root or absolute inside it, and becomes `PREFIX/PATH`. So two
 * worktrees of one repository that have the same prefix share their names. `name:deploy/prod` is a free name, the same in every workspace.
 * Without a workspace every name is free. A wrong name is refused with a message that says what to write instead.
 */
import { posix } from 'node:path'
import { LeaseError } from '../errors.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import { whyBadName } from '../wording.ts'

/** The most names in one claim. */
export const MAX_NAMES = MAX_RESOURCES
/** The longest name that is looked at: longer than any path that fits a resource's name, and cheap to refuse. */
const MAX_CHARACTERS = 4_096
const FREE = 'name:'
/** The names of agents are under this. */
export const AGENTS = 'agents'
const AGENT_SEGMENT = /^[\p{L}\p{N}_@+:-][\p{L}\p{N}_@+:.-]{0,63}$/u
const MAX_AGENT_SEGMENTS = 4

/** A folder whose paths are claimed under a prefix. */
export interface Workspace {
  /** An absolute path; empty if the folder is on another machine, so that only relative paths have a meaning. */
  readonly root: string
  /** Such as `repo/github.com/acme/app`. */
  readonly prefix: string
}

export class ClaimNames {
  readonly workspace: Workspace | undefined
  readonly #explicit: boolean

  /** @param explicit without a workspace, a name says whether it is a path (`repo/…`) or free (`name:…`) */
  constructor(workspace?: Workspace, explicit = false) {
    this.workspace = workspace && { root: trimSlash(workspace.root), prefix: trimSlash(workspace.prefix) }
    this.#explicit = explicit
  }

  /** Returns whether a resource is a path of a repository. */
  isPath(resource: string): boolean {
    const prefix = this.workspace?.prefix ?? 'repo'
    return resource === prefix || resource.startsWith(`${prefix}/`)
  }

  /** The folders that a path is in, up to the whole workspace. */
  pathsAbove(resource: string): readonly string[] {
    const last = this.workspace?.prefix ?? 'repo'
    const above: string[] = []
    for (let end = resource.lastIndexOf('/'); end >= last.length; end = resource.lastIndexOf('/', end - 1))
      above.push(resource.slice(0, end))
    return above
  }

  /** The resources of a claim, without doubles. Throws `LIMIT` for too many names before it looks at any, `INVALID` for a wrong one. */
  resources(names: unknown): readonly string[] {
    if (!Array.isArray(names) || names.length === 0)
      throw new LeaseError('INVALID', 'names must be a list with at least one name: ["src/server.ts"]', { facts: { option: 'names' } })
    if (names.length > MAX_NAMES)
      throw new LeaseError(
        'LIMIT',
        `${names.length} names in one claim, more than ${MAX_NAMES}: claim the folder that contains them, or only what you edit next`,
        { facts: { limit: MAX_NAMES } },
      )
    return [...new Set(names.map(name => this.resource(name)))]
  }

  /** The resource of one name. Throws `INVALID`, for the names of agents too: one that is claimed could not be used by its agent. */
  resource(name: unknown): string {
    const resource = this.#resource(name)
    if (resource === AGENTS || resource.startsWith(`${AGENTS}/`))
      throw invalid('is the name of an agent, which only its session holds: choose another name', resource)
    return resource
  }

  #resource(name: unknown): string {
    if (typeof name !== 'string') throw invalid('a name must be text', String(name))
    if (name.length > MAX_CHARACTERS) throw invalid(`is longer than ${MAX_CHARACTERS} characters`, name)
    const text = name.normalize('NFC')
    const resource = text.startsWith(FREE) ? text.slice(FREE.length) : this.#path(text)
    const bad = whyBadName(resource)
    if (bad !== undefined) throw invalid(bad, name)
    return resource
  }

  /** As `resource`, for a name or a prefix of names. The empty text is everything in the workspace. */
  prefix(text: unknown): string {
    if (text === '' || text === undefined) return this.workspace?.prefix ?? ''
    return this.#resource(typeof text === 'string' && text.length > 1 ? text.replace(/\/+$/, '') : text)
  }

  /** Returns what a model would write for a resource. */
  shown(resource: string): string {
    if (this.workspace === undefined) return this.#explicit && !resource.startsWith('repo/') ? `${FREE}${resource}` : resource
    const { prefix } = this.workspace
    if (resource === prefix) return '.'
    return resource.startsWith(`${prefix}/`) ? resource.slice(prefix.length + 1) : `${FREE}${resource}`
  }

  #path(text: string): string {
    const { workspace } = this
    if (text.startsWith('~')) throw invalid('names a home directory: write a path relative to the root of the repository', text)
    if (workspace === undefined) {
      if (isAbsolute(text)) throw invalid('is an absolute path, and no workspace is known: write it relative to the repository', text)
      if (this.#explicit && !text.startsWith('repo/'))
        throw invalid(
          `is a path of an unknown repository: add ?repository=HOST/OWNER/NAME to the address of this MCP server, or write repo/HOST/OWNER/NAME/${plain(text)}. What is no file is written ${FREE}${plain(text)}`,
          text,
        )
      if (this.#explicit) refusePattern(text)
      return plain(text)
    }
    refusePattern(text)
    const { root, prefix } = workspace
    if (text === prefix || text.startsWith(`${prefix}/`)) return this.#path(text.slice(prefix.length + 1))
    if (isAbsolute(text) && root === '') throw invalid('is an absolute path on another machine: write it relative to the repository', text)
    if (isAbsolute(text) && text !== root && !text.startsWith(`${root}/`))
      throw invalid(`is outside of the workspace ${root}: only paths inside it can be claimed. A free name is written ${FREE}…`, text)
    const path = plain(isAbsolute(text) ? text.slice(root.length + 1) : text)
    return path === '.' ? prefix : `${prefix}/${path}`
  }
}

/** Without `.`, `..`, doubled and trailing slashes. A path that leaves its root is refused. */
function plain(text: string): string {
  const path = text === '' ? '.' : posix.normalize(text).replace(/\/$/, '')
  if (path === '..' || path.startsWith('../')) throw invalid('leaves the workspace by "..": write a path inside it', text)
  return path
}

function refusePattern(text: string): void {
  if (/[*?]/.test(text))
    throw invalid('is a pattern, and a claim needs names: claim the folder, or each file that you are about to change', text)
}

function isAbsolute(text: string): boolean {
  return text.startsWith('/') || /^[A-Za-z]:[\\/]/.test(text)
}

function trimSlash(text: string): string {
  return text.length > 1 ? text.replace(/\/+$/, '') : text
}

function invalid(what: string, name: string): LeaseError {
  return new LeaseError('INVALID', `the name ${JSON.stringify(name.slice(0, 80))} ${what}`, { facts: { name: name.slice(0, 512) } })
}

/** Throws `INVALID` unless `name` can be the name of an agent: up to four segments, the last ones of sub-agents. */
export function checkAgentName(name: unknown): string {
  const segments = typeof name === 'string' && name.length <= 256 ? name.split('/') : []
  if (segments.length >= 1 && segments.length <= MAX_AGENT_SEGMENTS && segments.every(segment => AGENT_SEGMENT.test(segment)))
    return name as string
  throw new LeaseError(
    'INVALID',
    `an agent's name has letters, digits and -_.@+: (at most 64, and not a dot first), such as planner; a sub-agent is planner/tests. Not ${JSON.stringify(String(name).slice(0, 80))}`,
    { facts: { option: 'agent' } },
  )
}

/** A text of a model for other models and people: one line, without control characters, of bounded length. */
export function oneLine(text: unknown, characters: number): string {
  if (typeof text !== 'string') return ''
  // Control and format characters: the latter reverse or hide text.
  const line = text.slice(0, 4 * characters).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
  return line.toWellFormed().trim().slice(0, characters)
}
