/**
 * Ends the child when we were killed and could not do it ourselves: otherwise it would go on when its lease has lapsed and another has it.
 *
 * A shell of a few hundred kilobytes in a session of its own, which reads from a pipe that only we can write to. The pipe closes when we are
 * gone, however that came. Told that all is well, it goes in silence.
 *
 * Not promised: anything when it was killed, too, or when this process is merely stopped; on a terminal, that more than the command itself ends.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { say } from './output.ts'

// Signals by name and target as separate words: dash, bash and busybox agree on this form.
const END = 'kill -s TERM -- "$target"; kill -s CONT -- "$target"; [ "$1" = never ] || { sleep "$1"; kill -s KILL -- "$target"; }'
const SCRIPT = `read -r target && { read -r word || { ${END}; }; }`

export class Guardian {
  readonly #shell: ChildProcess

  /** Started before there is anything to guard: a command must not have a moment without it. */
  constructor({ kill, grace }: { readonly kill: boolean; readonly grace: number }) {
    const words = ['-c', SCRIPT, 'leasehold-guardian', kill ? String(Math.ceil(grace / 1_000)) : 'never']
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
    this.#shell.stdin!.end('done\n')
  }
}
