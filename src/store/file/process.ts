/** Other processes of this machine, as /proc lists them. Only for messages: the locks they hold decide. */
import { readFileSync, readlinkSync, statSync } from 'node:fs'

export interface ProcessId {
  readonly pid: number
  /** When the process was started, in ticks of this boot: a pid alone may have been reused. Empty if it cannot be known. */
  readonly started: string
}

export function thisProcess(): ProcessId {
  return { pid: process.pid, started: stat(process.pid)?.started ?? '' }
}

export function alive({ pid, started }: ProcessId): boolean {
  if (started) return stat(pid)?.started === started
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** The pid namespace that the machine was booted with. */
const FIRST_PID_NAMESPACE = 'pid:[4026531836]'

/** The pid namespace of this process; empty for the machine's first one, and on systems without namespaces. */
export function pidNamespace(): string {
  try {
    const name = readlinkSync('/proc/self/ns/pid')
    return name === FIRST_PID_NAMESPACE ? '' : name
  } catch {
    return ''
  }
}

export function stopped(pid: number): boolean {
  return 'Tt'.includes(stat(pid)?.state ?? '-')
}

/** `process 1234 (node server.js)` */
export function describe(pid: number): string {
  const command = read(`/proc/${pid}/cmdline`)?.split('\0').join(' ').trim().slice(0, 80)
  return command ? `process ${pid} (${command})` : `process ${pid}`
}

/** The pids of processes that hold a lock on a byte of `file` between `first` and `last`. */
export function lockers(file: string, first: number, last: number): number[] {
  const inode = statSync(file, { throwIfNoEntry: false })?.ino
  const pids = (read('/proc/locks') ?? '').split('\n').flatMap(line => {
    // 1: POSIX  ADVISORY  WRITE 12350 fe:00:10002488 120 120
    const [, kind, , , pid, place, from, to] = line.trim().split(/\s+/)
    const overlaps = Number(from) <= last && (to === 'EOF' || Number(to) >= first)
    return kind === 'POSIX' && place?.endsWith(`:${inode}`) && overlaps ? [Number(pid)] : []
  })
  return [...new Set(pids)].filter(pid => pid > 0)
}

function stat(pid: number): { readonly state: string; readonly started: string } | undefined {
  // The name in parentheses may itself contain parentheses and spaces.
  const fields = read(`/proc/${pid}/stat`)
    ?.replace(/^.*\) /s, '')
    .split(' ')
  return fields && { state: fields[0]!, started: fields[19]! }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return undefined
  }
}
