/**
 * A command run as a child: its terminal is ours, its signals are passed on, and it can be ended with all that it started.
 *
 * Two ways, since Node can neither make a process group nor give it the terminal:
 *
 * - Without a terminal the child leads a session of its own, so its whole group is signalled at once and nobody can slip away.
 * - With one it stays in our group, which is the job that the shell made: reading from the terminal, Ctrl-C, Ctrl-Z, fg and bg then work as
 *   if we were not there. Its descendants in that group are looked up when they are to be signalled; neighbours in a pipeline are left alone.
 *   What went to the whole group, as Ctrl-C does, is not passed on a second time: a witness in the group tells it from what was sent to us alone.
 *
 * Not promised: that what moved into a session of its own (a daemon) ends; on a terminal, that an orphan is found which has also emptied its
 * environment; there, that a signal comes once which is sent in the moment of the start, or two of the same within milliseconds.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { type Clock, pause, systemClock } from '../../clock.ts'
import { CommandFailure, EXIT, exitOfSignal } from '../exit.ts'
import { GroupSignalDetector } from './group-signal-detector.ts'
import { Guardian } from './guardian.ts'
import { hasTerminal, processes, startedWith } from './process-table.ts'
import type { Forwarded } from './signal-forwarder.ts'

const LOOK = 50

export interface ChildOptions {
  readonly command: readonly string[]
  /** In addition to our own; undefined takes one away. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** How it is to be ended when we cannot do it any more, because we were killed. Left out: then it goes on. */
  readonly guard?: { readonly kill: boolean; readonly grace: number }
  readonly clock?: Clock
}

export class Child {
  /** The exit code: its own, or 128 + the signal that ended it. */
  readonly ended: Promise<number>
  readonly #process: ChildProcess
  readonly #pid: number
  readonly #onTerminal: boolean
  readonly #witness: GroupSignalDetector | undefined
  readonly #mark: string
  readonly #clock: Clock
  #guardian: Guardian | undefined
  #over = false

  private constructor(
    started: ChildProcess,
    ended: Promise<number>,
    witness: GroupSignalDetector | undefined,
    guardian: Guardian | undefined,
    mark: string,
    clock: Clock,
  ) {
    this.#process = started
    this.#pid = started.pid!
    this.#onTerminal = witness !== undefined
    this.#witness = witness
    this.#mark = mark
    this.#clock = clock
    this.#guardian = guardian
    this.ended = ended.then(code => {
      this.#over = true
      return code
    })
  }

  static async start({ command, env, guard, clock = systemClock }: ChildOptions): Promise<Child> {
    const onTerminal = hasTerminal()
    const witness = onTerminal ? await GroupSignalDetector.start(clock) : undefined
    const [file = '', ...args] = command
    // Nobody else has this one: by it, what the child has started is recognised.
    const LEASEHOLD_RUN = clock.bits().toString(36)
    const mark = `LEASEHOLD_RUN=${LEASEHOLD_RUN}`
    const guardian = guard && new Guardian({ ...guard, mark })
    const child = spawn(file, args, { stdio: 'inherit', env: { ...process.env, ...env, LEASEHOLD_RUN }, detached: !onTerminal })
    if (child.pid === undefined) guardian?.dismiss()
    else guardian?.guard(onTerminal ? child.pid : -child.pid)
    const ended = new Promise<number>(resolve =>
      child.once('exit', (code, signal) => resolve(signal === null ? code! : exitOfSignal(signal))),
    )
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve)
      child.once('error', error => {
        witness?.dismiss()
        reject(notStarted(file, error))
      })
    })
    return new Child(child, ended, witness, guardian, mark, clock)
  }

  /** Whether a signal that we have just heard was sent to the child as well. */
  async had(name: Forwarded): Promise<boolean> {
    return this.#witness !== undefined && (await this.#witness.heard(name))
  }

  /** Passes it on unless the child had it. */
  async forward(name: Forwarded): Promise<void> {
    if (!(await this.had(name))) this.pass(name)
  }

  /** What ends programs goes to all that the child started, as from a terminal. */
  pass(name: Forwarded): void {
    if (this.#over) return
    if (name === 'SIGUSR1' || name === 'SIGUSR2' || name === 'SIGWINCH') this.#process.kill(name)
    else this.#signalAll(name)
  }

  /** Ends it: TERM, and after `grace` KILL for whatever is left of its group. With `kill: false` it is asked and not forced. */
  async stop({ kill, grace }: { readonly kill: boolean; readonly grace: number }): Promise<void> {
    this.#signalAll('SIGTERM')
    // One that is stopped would not hear of it until someone resumes it.
    this.#signalAll('SIGCONT')
    if (!kill) return void (await this.ended)
    const end = this.#clock.now() + grace
    while (this.#members().length > 0 && this.#clock.now() < end)
      await pause(this.#clock, Math.min(LOOK, Math.max(0, end - this.#clock.now())), undefined, { ref: true })
    // Whoever is being started while we look is found by the next look.
    for (let looks = 0; this.#members().length > 0 && looks < 200; looks++) {
      this.#signalAll('SIGKILL')
      await pause(this.#clock, looks === 0 ? 1 : LOOK, undefined, { ref: true })
    }
    await this.ended
  }

  /** We take care of it no longer: called when it has ended, and what was to be ended with it. */
  leave(): void {
    this.#guardian?.dismiss()
    this.#guardian = undefined
    this.#witness?.dismiss()
  }

  /** What lives of the child and of what it started, as far as it is in its group. */
  #members(): number[] {
    const all = processes()
    if (!this.#onTerminal) return all.flatMap(({ pid, group }) => (group === this.#pid ? [pid] : []))
    const parents = new Map(all.map(({ pid, parent }) => [pid, parent]))
    const group = all.find(({ pid }) => pid === process.pid)?.group
    const descends = (pid: number): boolean => {
      for (let at: number | undefined = pid, steps = 0; at !== undefined && at > 1 && steps < 1_000; at = parents.get(at), steps++)
        if (at === this.#pid) return true
      return false
    }
    return all.flatMap(found =>
      found.group === group && found.pid !== process.pid && (descends(found.pid) || startedWith(found.pid, this.#mark)) ? [found.pid] : [],
    )
  }

  #signalAll(name: NodeJS.Signals): void {
    for (const target of this.#onTerminal ? this.#members() : [-this.#pid]) {
      try {
        process.kill(target, name)
      } catch {
        // It has ended meanwhile.
      }
    }
  }
}

function notStarted(file: string, error: Error): CommandFailure {
  const missing = (error as NodeJS.ErrnoException).code === 'ENOENT'
  return new CommandFailure(
    {
      exit: missing ? EXIT.notFound : EXIT.notExecutable,
      code: missing ? 'NOT_FOUND' : 'NOT_EXECUTABLE',
      happened: missing ? `there is no command ${file}` : `${file} cannot be executed: ${error.message}`,
      means: 'Nothing was run, and the lease was given back.',
      next: missing
        ? 'Check its name and PATH. There is no shell in between: use sh -c for one.'
        : 'Check that it is a program, and its rights.',
    },
    { cause: error },
  )
}
