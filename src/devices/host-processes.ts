/**
 * Processes of this host: which user a process belongs to, when it started, and from which process it descends. Where there is no /proc, nothing is known.
 *
 * A pid is used again after its process has ended, so a process is identified by its pid and its start time in ticks since boot. Wall clocks play no part.
 */
import { readFileSync, statSync } from 'node:fs'

/** `/proc` counts in these, on every architecture that Linux runs on today. */
const TICKS_PER_SECOND = 100
const MAX_ANCESTORS = 256

export interface HostProcess {
  readonly pid: number
  readonly parent: number
  /** Ticks since boot: together with the pid it identifies the process. */
  readonly started: number
  readonly uid: number
}

export interface HostProcesses {
  find(pid: number): HostProcess | undefined
  /** A variable of the environment that the process was started with. Undefined where it may not be read. */
  variable(pid: number, name: string): string | undefined
  userName(uid: number): string
}

/** Returns how long a process has run, in ms. `uptime` is that of the machine. */
export function ageOf({ started }: HostProcess, uptime: number): number {
  return Math.max(0, Math.round(uptime - (started * 1_000) / TICKS_PER_SECOND))
}

/** The process and its ancestors, nearest first. */
export function ancestors(processes: HostProcesses, pid: number): HostProcess[] {
  const found: HostProcess[] = []
  for (let at = processes.find(pid); at !== undefined && found.length < MAX_ANCESTORS; at = processes.find(at.parent)) {
    found.push(at)
    if (at.parent <= 1 || at.parent === at.pid) break
  }
  return found
}

export const procProcesses: HostProcesses = {
  find(pid) {
    if (!Number.isSafeInteger(pid) || pid <= 0) return undefined
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
      // The name of the process comes before the last bracket and may contain anything.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      const [state] = fields
      if (state === 'Z' || state === 'X') return undefined // ended, but its parent has not collected the exit code
      return { pid, parent: Number(fields[1]), started: Number(fields[19]), uid: statSync(`/proc/${pid}`).uid }
    } catch {
      return undefined
    }
  },

  variable(pid, name) {
    try {
      const found = readFileSync(`/proc/${pid}/environ`, 'utf8')
        .split('\0')
        .find(pair => pair.startsWith(`${name}=`))
      return found?.slice(name.length + 1)
    } catch {
      return undefined
    }
  },

  userName(uid) {
    return usersOfPasswd().get(uid) ?? `uid ${uid}`
  },
}

/** Users of a directory service are not listed there; they are shown by number. */
function usersOfPasswd(): ReadonlyMap<number, string> {
  try {
    const lines = readFileSync('/etc/passwd', 'utf8').split('\n')
    return new Map(lines.map(line => line.split(':')).flatMap(([name, , uid]) => (name && uid ? [[Number(uid), name] as const] : [])))
  } catch {
    return new Map()
  }
}
