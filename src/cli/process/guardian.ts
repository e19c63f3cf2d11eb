/**
 * Ends the child when we were killed and could not do it ourselves: otherwise it would go on when its lease has lapsed and another has it.
 *
 * A shell of a few hundred kilobytes in a session of its own, which reads from a pipe that only we can write to. The pipe closes when we are
 * gone, however that came. Told that all is well, it goes in silence.
 *
 * Not promised: anything when it was killed, too, or when this process is merely stopped; on a terminal, that more than the command itself ends;
 * where there is no /proc, anything when we were killed in the moment of the start.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { say } from '../output.ts'

/**
 * The first line names what is to be ended, the second says that all is well. Without the first we were killed in the moment of the start: then
 * it is found by its mark, and it is there, since the pipe closes only when what was started has begun and has no copy of it any more.
 * Whoever has ended is not signalled again: its number may be another's by then.
 *
 * Signals by name and target as separate words: dash, bash and busybox agree on this form.
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

  /** Started before there is anything to guard: a command must not have a moment without it. `mark` is in the environment of that alone. */
  constructor({ kill, grace, mark }: { readonly kill: boolean; readonly grace: number; readonly mark: string }) {
    const words = ['-c', SCRIPT, 'leasehold-guardian', kill ? String(Math.ceil(grace / 1_000)) : 'never', mark]
    this.#shell = spawn('/bin/sh', words, { stdio: ['pipe', 'ignore', 'ignore'], detached: true, cwd: '/' })
    this.#shell.on('error', () => say('leasehold: without /bin/sh, a command outlives leasehold when that is killed (SIGKILL)'))
    this.#shell.stdin!.on('error', () => {}) // it was ended by someone: nothing is left to be told
    this.#shell.unref()
    ;(this.#shell.stdin as unknown as { unref(): void }).unref()
  }

  /** A process, or a group as its negative. */
  guard(target: number): void {
    this.#shell.stdin!.write(`${target}\n`)
  }

  dismiss(): void {
    this.#shell.stdin!.end('\ndone\n')
  }
}
