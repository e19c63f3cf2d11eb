/** The process that an agent is bound to, by its pid and the time it was started: a pid alone may soon belong to another process. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { BoundProcess } from './session.ts'

type LocalProcess = Omit<BoundProcess, 'host'>

/** Undefined if there is no such process. */
export function processOf(pid: number): LocalProcess | undefined {
  const started = startOf(pid)
  return started === undefined ? undefined : { pid, started }
}

export function isAlive({ pid, started }: LocalProcess): boolean {
  return startOf(pid) === started
}

/** When a process was started, as its system says it. Undefined: there is none, or it has ended and only its parent does not know yet. */
function startOf(pid: number): string | undefined {
  if (process.platform === 'linux') return fromProc(pid)
  const { status, stdout } = spawnSync('ps', ['-o', 'state=,lstart=', '-p', `${pid}`], { encoding: 'utf8' })
  const text = stdout?.trim() ?? ''
  return status !== 0 || text === '' || text.startsWith('Z') ? undefined : text.replace(/^\S+\s+/, '')
}

function fromProc(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The process name before it may contain anything, also brackets. Of the rest, the first field is the state, the twentieth the start.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}
