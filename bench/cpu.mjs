// The processor time of servers, from Linux: of a process and of the processes it has started, with all their threads.
import { readFileSync } from 'node:fs'

/** The unit of /proc/PID/stat: a hundredth of a second everywhere that Node runs on Linux. */
const TICK_MS = 10

/** Returns for how many ms a process and its children have run on a core. Undefined where the system does not tell. */
export function cpuOf(pid) {
  try {
    const [user, system, ofEnded, systemOfEnded] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11).map(Number)
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean)
    return children.reduce((sum, child) => sum + (cpuOf(child) ?? 0), (user + system + ofEnded + systemOfEnded) * TICK_MS)
  } catch {
    return undefined
  }
}
