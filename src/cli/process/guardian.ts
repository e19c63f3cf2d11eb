/**
 * Ends the child when this process was killed and cannot do it. Without the guardian, the child would still run when its lease has lapsed and another
 * holder has it.
 *
 * The guardian is a shell of a few hundred kilobytes in its own session. It reads from a pipe to which only this process writes. The pipe closes when
 * this process is gone, for whatever reason. When this process has said that the child has ended, the guardian exits silently.
 *
 * Not promised: anything when the guardian was killed too, or when this process is only stopped; on a terminal, that more than the command itself ends;
 * where there is no /proc, anything when this process was killed at the moment of the start.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { writeStderrLine } from '../output.ts'

/**
 * The first line names the target, the second says that the child has ended. If the first is missing, this process was killed at the moment of the
 * start. The script then finds the child by its mark. The child exists by then: the pipe closes only when the child has begun and has dropped its copy
 * of the pipe. A process that has ended is not signalled again, because its pid may belong to another process.
 *
 * Signals by name, and the target as a separate word: dash, bash and busybox agree on this form.
 */
const SCRIPT = `
read -r target || for found in $(grep -lsF -e "$2" /proc/[0-9]*/environ); do
  found=\${found#/proc/} found=\${found%/environ}
  target="$target -$found $found"
done
read -r word && exit
signal() { there=; for one in $target; do kill -s "$1" -- "$one" && there=yes; done; [ "$there" ]; }
signal TERM; signal CONT
[ "$1" = never ] && exit
left=$1
while [ "$left" -gt 0 ] && signal 0; do sleep 1; left=$((left - 1)); done
signal KILL`

export class Guardian {
  readonly #shell: ChildProcess

  /** Created before the child, so that the child is never without it. `mark` is in the environment of the child and its descendants only. */
  constructor({ kill, grace, mark }: { readonly kill: boolean; readonly grace: number; readonly mark: string }) {
    const args = ['-c', SCRIPT, 'leasehold-guardian', kill ? String(Math.ceil(grace / 1_000)) : 'never', mark]
    this.#shell = spawn('/bin/sh', args, { stdio: ['pipe', 'ignore', 'ignore'], detached: true, cwd: '/' })
    this.#shell.on('error', () =>
      writeStderrLine('leasehold: /bin/sh cannot be started. If leasehold is killed (SIGKILL), the command keeps running without a lease.'),
    )
    this.#shell.stdin!.on('error', () => {}) // the guardian was killed
    this.#shell.unref()
    ;(this.#shell.stdin as unknown as { unref(): void }).unref()
  }

  /** `target`: a pid, or a process group as a negative number. */
  guard(target: number): void {
    this.#shell.stdin!.write(`${target}\n`)
  }

  stop(): void {
    this.#shell.stdin!.end('\ndone\n')
  }
}
