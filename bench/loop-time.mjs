// The time of a process's event loop, from the scheduler of Linux.
import { readFileSync } from 'node:fs'

function read(pid, field) {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[field]) / 1e6
  } catch {
    return undefined
  }
}

/** For how many ms the main thread of a process has run on a core. Undefined where the system does not tell. */
export function loopTime(pid) {
  return read(pid, 0)
}

/** For how many ms this thread has waited for a core, to leave out the turns of other work. 0 where the system does not tell. */
export function queuedTime() {
  return read(process.pid, 1) ?? 0
}
