/**
 * The process of the agent that started a hook. The hook's own process ends at once, and so does the shell around it; claims must belong to the
 * agent. So its parents are walked up until one is neither a shell nor a starter of programs.
 */
import { readFileSync } from 'node:fs'

export interface AgentProcess {
  readonly pid: number
  /** When it was started, as its system says it: a pid alone may soon belong to another process. */
  readonly started: string
}

interface AncestorProcess extends AgentProcess {
  readonly parent: number
  readonly name: string
}

/** Programs between an agent and its hooks. */
const STARTERS = /^-?(sh|bash|dash|zsh|fish|ksh|busybox|env|npx|npm exec.*|npm|pnpm|yarn|bunx|git|sudo|timeout|time|nice|setsid|xargs)$/

const MAX_PARENTS = 16

/** Undefined if no such process can be found. */
export function hostProcess(from = process.ppid): AgentProcess | undefined {
  let pid = from
  for (let i = 0; i < MAX_PARENTS && pid > 1; i++) {
    const row = rowOf(pid)
    if (row === undefined) return undefined
    if (!STARTERS.test(row.name)) return { pid: row.pid, started: row.started }
    pid = row.parent
  }
  return undefined
}

function rowOf(pid: number): AncestorProcess | undefined {
  return process.platform === 'linux' ? fromProc(pid) : fromPs(pid)
}

function fromProc(pid: number): AncestorProcess | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const end = stat.lastIndexOf(')') // the name before it may contain anything, also brackets
    const fields = stat.slice(end + 2).split(' ')
    return { pid, name: stat.slice(stat.indexOf('(') + 1, end), parent: Number(fields[1]), started: fields[19]! }
  } catch {
    return undefined
  }
}

function fromPs(pid: number): AncestorProcess | undefined {
  const { spawnSync } = process.getBuiltinModule('node:child_process') // not needed on Linux, where each ms of a hook counts
  const { status, stdout } = spawnSync('ps', ['-o', 'ppid=,lstart=,comm=', '-p', `${pid}`], { encoding: 'utf8' })
  const [, parent, started, name] = /^\s*(\d+)\s+(\S+\s+\S+\s+\d+\s+[\d:]+\s+\d+)\s+(.*?)\s*$/.exec(stdout ?? '') ?? []
  if (status !== 0 || name === undefined) return undefined
  return { pid, parent: Number(parent), started: started!, name: name.slice(name.lastIndexOf('/') + 1) }
}
