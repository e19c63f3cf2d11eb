/** The processes of this machine with their parents, groups and terminals, which Node does not offer. */
import { spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readdirSync, readFileSync } from 'node:fs'

export interface ProcessRow {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly session: number
  /** The foreground group of its terminal; -1 without a terminal. */
  readonly foreground: number
}

export function listProcesses(): ProcessRow[] {
  const pids = procPids()
  if (pids !== undefined) return pids.flatMap(pid => fromProc(pid) ?? [])
  const { stdout } = spawnSync('ps', ['-A', '-o', 'pid=,ppid=,pgid=,sess=,tpgid='], { encoding: 'utf8' })
  return (stdout ?? '').split('\n').flatMap(line => {
    const [pid, parent, group, session, foreground] = line.trim().split(/\s+/).map(Number)
    return pid ? [{ pid, parent: parent!, group: group!, session: session!, foreground: foreground || -1 }] : []
  })
}

function procPids(): number[] | undefined {
  if (process.platform !== 'linux') return undefined
  try {
    return readdirSync('/proc').flatMap(name => (/^\d+$/.test(name) ? [Number(name)] : []))
  } catch {
    return undefined
  }
}

function fromProc(pid: number): ProcessRow | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The process name before it may contain anything, also brackets.
    const [state, parent, group, session, , foreground] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (state === 'Z' || state === 'X') return undefined // ended, but its parent has not collected the exit code
    return { pid, parent: Number(parent), group: Number(group), session: Number(session), foreground: Number(foreground) }
  } catch {
    return undefined // it has ended
  }
}

/** Returns whether a process was started with this variable, which its children inherit. False where the environment cannot be read. */
export function hasInEnvironment(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
  } catch {
    return false
  }
}

/** Returns whether this process has a controlling terminal that still exists, in the foreground or not, whatever stdin is. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', constants.O_RDONLY | constants.O_NOCTTY | constants.O_NONBLOCK))
    return true
  } catch {
    return false
  }
}
