/**
 * The process of the coding agent above this one: its host. What a host starts ends at once (hooks, shells) or is only in between (`npx`, script files), and claims must
 * belong to the host. So the parents are walked up until one is none of these. `leasehold mcp`, the hooks of the host and the hooks of git find the same process.
 *
 * A script is known by the program that runs it: the system names its process after the file (`pre-commit`).
 *
 * Light: `leasehold guard` loads this for every edit.
 */
import { readFileSync, readlinkSync } from 'node:fs'

export interface AgentProcess {
  readonly pid: number
  /** When it was started, as its system says it: a pid alone may soon belong to another process. */
  readonly started: string
}

export interface AncestorProcess extends AgentProcess {
  readonly parent: number
  /** The file that runs in it, without its folder; a shell for a script of a shell. */
  readonly program: string
  /** The command line. A program may have overwritten it with a title, as npm does. */
  readonly args: readonly string[]
}

/** Programs between a host and what it starts. */
const STARTERS =
  /^-?(sh|bash|dash|ash|zsh|fish|ksh\d*|mksh|tcsh|csh|pwsh|nu|busybox|env|sudo|doas|timeout|time|nice|ionice|setsid|stdbuf|script|xargs|npx|npm|pnpm|pnpx|yarn|yarnpkg|bunx|corepack|volta(-shim)?|mise|asdf|direnv|uv|uvx|pipx|poetry|make|gmake|just|task|git(-[a-z-]+)?|husky|lefthook|pre-commit|leasehold)$/
/** Programs that run a script file, which says what they are. */
const INTERPRETERS = /^(node|nodejs|bun|deno|python[\d.]*|ruby[\d.]*|perl[\d.]*)$/
/** Script files that are between a host and what it starts: package runners, hooks of git and their runners, and this program itself. */
const SCRIPTS =
  /^(npm(-cli)?|npx(-cli)?|pnpm|pnpx|yarn|yarnpkg|yarn-[\d.]+|corepack|husky|lefthook|lint-staged|pre[-_]commit|simple-git-hooks|overcommit|leasehold|pre-push|commit-msg|prepare-commit-msg|pre-merge-commit|post-commit|pre-rebase)(\.[cm]?js|\.py|\.rb)?$/
/** The first process of a system or container, and what starts containers: never a host. */
const INIT = /^(systemd|init|launchd|tini|dumb-init|docker-init|s6-svscan|runit)$/

const MAX_PARENTS = 32

/** Undefined if no such process can be found. */
export function hostProcess(from = process.ppid, rowOf: (pid: number) => AncestorProcess | undefined = ancestor): AgentProcess | undefined {
  let pid = from
  for (let i = 0; i < MAX_PARENTS && pid >= 1; i++) {
    const row = rowOf(pid)
    if (row === undefined || INIT.test(row.program)) return undefined
    if (!isBetween(row)) return { pid: row.pid, started: row.started }
    pid = row.parent
  }
  return undefined
}

function isBetween({ program, args }: AncestorProcess): boolean {
  if (STARTERS.test(program)) return true
  // A part of a host that has several processes, as those made with Electron: their topmost process is the host.
  if (args.some(arg => /^--type=[a-z-]+$/.test(arg))) return true
  if (!INTERPRETERS.test(program)) return false
  const [title = '', ...rest] = args
  if (/^(npm|npx|pnpm|yarn)\b/.test(title)) return true // a title instead of the command line
  const script = rest.find(arg => arg !== '' && !arg.startsWith('-'))
  return script !== undefined && SCRIPTS.test(baseName(script))
}

function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

function ancestor(pid: number): AncestorProcess | undefined {
  return process.platform === 'linux' ? fromProc(pid) : fromPs(pid)
}

function fromProc(pid: number): AncestorProcess | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const end = stat.lastIndexOf(')') // the name before it may contain anything, also brackets
    const fields = stat.slice(end + 2).split(' ')
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return {
      ...{ pid, parent: Number(fields[1]), started: fields[19]!, args },
      program: fileOf(pid) ?? stat.slice(stat.indexOf('(') + 1, end),
    }
  } catch {
    return undefined
  }
}

/** Undefined for a process of another user. */
function fileOf(pid: number): string | undefined {
  try {
    return baseName(readlinkSync(`/proc/${pid}/exe`)).replace(/ \(deleted\)$/, '')
  } catch {
    return undefined
  }
}

function fromPs(pid: number): AncestorProcess | undefined {
  const { spawnSync } = process.getBuiltinModule('node:child_process') // not needed on Linux, where each ms of a hook counts
  const ask = (fields: string) => spawnSync('ps', ['-ww', '-o', fields, '-p', `${pid}`], { encoding: 'utf8' })
  const { status, stdout } = ask('ppid=,lstart=,comm=')
  const [, parent, started, file] = /^\s*(\d+)\s+(\S+\s+\S+\s+\d+\s+[\d:]+\s+\d+)\s+(.*?)\s*$/.exec(stdout ?? '') ?? []
  if (status !== 0 || file === undefined) return undefined
  const args = (ask('args=').stdout ?? '').trim().split(/\s+/)
  return { pid, parent: Number(parent), started: started!, program: baseName(file), args }
}
