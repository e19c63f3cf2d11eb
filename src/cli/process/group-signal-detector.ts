/**
 * Tells whether a signal went to the whole process group or to this process alone. The child already has signals that are typed at a terminal or that
 * a shell sends to a job. Signals to this process alone must be forwarded to it. Node does not tell who sent a signal.
 *
 * The detector is a small shell in the same group that traps the same signals and does nothing else. A group is signalled as a whole, and a shell runs
 * its traps before it answers. So when it is asked after this process received a signal, it either has that signal too, or the signal was for this
 * process alone.
 *
 * Not promised: an answer when the shell was killed or stopped. The signal then counts as sent to this process alone, since a signal that arrives twice
 * is better than one that is lost.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { afterReading, type Clock, pause, systemClock } from '../../clock.ts'
import { FORWARDED, type Forwarded } from './signal-forwarder.ts'

// In some shells a trapped signal ends `read`, in others it does not. A trap prints its signal itself: one that ran while an answer is printed must not be
// forgotten. The question is an empty line, because half of one cannot be read.
const SCRIPT =
  'for s in "$@"; do trap "got=1; echo $s" "$s"; done; echo answer; ' +
  'while got=; if read -r _; then echo answer; else [ -n "$got" ]; fi; do :; done'
/** The kernel signals a group one process after the other. After this many ms the last one has the signal, even on a busy machine. */
const GROUP_DELIVERY = 20
/** Ms to wait for an answer. Longer than a busy machine stalls: without an answer the child gets a signal of the group twice. A shell that was killed is noticed at once. */
const TIMEOUT = 3_000
/** The shell may have a signal before this process has it. A report that is older, in ms, belongs to a signal that the kernel merged with another one. */
const STALE = 1_000

export class GroupSignalDetector {
  readonly #shell: ChildProcess
  readonly #clock: Clock
  /** When the shell has reported signals that `received` has not returned yet. The same signal may come twice before its first answer. */
  readonly #reports = new Map<string, number[]>()
  #pendingAnswers: (() => void)[] = []
  #gone = false
  #rest = ''

  private constructor(clock: Clock) {
    const names = FORWARDED.map(name => name.slice('SIG'.length))
    this.#clock = clock
    // Without our environment: this shell does not run under the lease, and must not be found and ended with what does.
    this.#shell = spawn('/bin/sh', ['-c', SCRIPT, 'leasehold-signal-detector', ...names], {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: {},
      cwd: '/',
    })
    const { stdin, stdout } = this.#shell
    const onGone = () => {
      this.#gone = true
      for (const resolve of this.#pendingAnswers.splice(0)) resolve()
    }
    this.#shell.once('error', onGone).once('exit', onGone)
    stdin!.on('error', () => {})
    stdout!.setEncoding('latin1').on('data', (text: string) => this.#read(text))
    this.#shell.unref()
    for (const stream of [stdin, stdout]) (stream as unknown as { unref(): void }).unref()
  }

  /** Resolves when the shell has set its traps. */
  static async start(clock: Clock = systemClock): Promise<GroupSignalDetector> {
    const detector = new GroupSignalDetector(clock)
    await detector.#answer()
    return detector
  }

  /** Returns whether a signal that this process has just received went to the whole group. */
  async received(name: Forwarded): Promise<boolean> {
    const since = this.#clock.now() - STALE
    await pause(this.#clock, GROUP_DELIVERY, undefined, { ref: true })
    if (!this.#gone) this.#shell.stdin!.write('\n')
    await this.#answer()
    return this.#reportsOf(name.slice('SIG'.length), since).shift() !== undefined
  }

  stop(): void {
    this.#shell.stdin?.end()
  }

  #answer(): Promise<void> {
    if (this.#gone) return Promise.resolve()
    return new Promise(resolve => {
      const cancel = afterReading(this.#clock, TIMEOUT, resolve, { ref: true })
      this.#pendingAnswers.push(() => {
        cancel()
        resolve()
      })
    })
  }

  /** The times since then at which the shell has reported the signal. */
  #reportsOf(signal: string, since: number): number[] {
    const times = (this.#reports.get(signal) ?? []).filter(at => at >= since)
    this.#reports.set(signal, times)
    return times
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop()!
    for (const line of lines)
      if (line === 'answer') this.#pendingAnswers.shift()?.()
      else this.#reportsOf(line, this.#clock.now() - STALE).push(this.#clock.now())
  }
}
