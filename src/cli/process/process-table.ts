/** Who runs on this machine, as far as it concerns us: parents, groups and terminals. Node itself tells none of it. */
import { spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readdirSync, readFileSync } from 'node:fs'

export interface Process {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly session: number
  /** The group that its terminal listens to; -1 without a terminal. */
  readonly foreground: number
}

export function processes(): Process[] {
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

function fromProc(pid: number): Process | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name before it may contain anything, brackets too.
    const [state, parent, group, session, , foreground] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (state === 'Z' || state === 'X') return undefined // it has ended, only nobody has asked how
    return { pid, parent: Number(parent), group: Number(group), session: Number(session), foreground: Number(foreground) }
  } catch {
    return undefined // it has ended
  }
}

/** Whether a process was started with this variable, which its children inherit. False where that cannot be seen. */
export function startedWith(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
  } catch {
    return false
  }
}

/** Whether we belong to a terminal that still exists, in the foreground or not, whatever stdin is. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', constants.O_RDONLY | constants.O_NOCTTY | constants.O_NONBLOCK))
    return true
  } catch {
    return false
  }
}
