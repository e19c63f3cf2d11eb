/**
 * A command that runs as a child. It shares our terminal, receives the signals that are forwarded to it, and can be ended together with its descendants.
 *
 * Node can neither create a process group nor give it the terminal, so there are two cases:
 *
 * - Without a terminal, the child leads its own session. Its whole group is signalled at once, and no descendant can escape.
 * - With a terminal, the child stays in our group, which is the job that the shell created. Reading from the terminal, Ctrl-C, Ctrl-Z, fg and bg work
 *   as if leasehold were not there. To signal its descendants in that group, they are looked up; other members of a pipeline are left alone. Signals
 *   to the whole group, as by Ctrl-C, are not forwarded a second time: `GroupSignalDetector` recognises them.
 *
 * Not promised: that a descendant in its own session (a daemon) ends; on a terminal, that an orphan with an emptied environment is found, and that a
 * signal arrives exactly once if it is sent at the moment of the start or twice within milliseconds.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { type Clock, pause, systemClock } from '../../clock.ts'
import { CommandFailure, EXIT, exitCodeOfSignal } from '../exit.ts'
import { GroupSignalDetector } from './group-signal-detector.ts'
import { Guardian } from './guardian.ts'
import { hasInEnvironment, hasTerminal, listProcesses } from './process-table.ts'
import type { Forwarded } from './signal-forwarder.ts'

/** Ms between two looks at which processes of the group are left. */
const POLL_INTERVAL = 50

export interface ChildOptions {
  readonly command: readonly string[]
  /** Added to the environment of this process; undefined removes a variable. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** The guardian ends the child in this way if this process is killed. Left out: the child keeps running. */
  readonly guard?: { readonly kill: boolean; readonly grace: number }
  readonly clock?: Clock
}

export class Child {
  /** Resolves with the exit code: the child's own, or 128 + the signal that ended it. */
  readonly ended: Promise<number>
  readonly #process: ChildProcess
  readonly #pid: number
  readonly #onTerminal: boolean
  readonly #detector: GroupSignalDetector | undefined
  readonly #mark: string
  readonly #clock: Clock
  #guardian: Guardian | undefined
  #hasEnded = false

  private constructor(
    started: ChildProcess,
    ended: Promise<number>,
    detector: GroupSignalDetector | undefined,
    guardian: Guardian | undefined,
    mark: string,
    clock: Clock,
  ) {
    this.#process = started
    this.#pid = started.pid!
    this.#onTerminal = detector !== undefined
    this.#detector = detector
    this.#mark = mark
    this.#clock = clock
    this.#guardian = guardian
    this.ended = ended.then(code => {
      this.#hasEnded = true
      return code
    })
  }

  static async start({ command, env, guard, clock = systemClock }: ChildOptions): Promise<Child> {
    const onTerminal = hasTerminal()
    const detector = onTerminal ? await GroupSignalDetector.start(clock) : undefined
    const [file = '', ...args] = command
    // Unique to this start: descendants of the child are recognised by it.
    const LEASEHOLD_RUN = clock.bits().toString(36)
    const mark = `LEASEHOLD_RUN=${LEASEHOLD_RUN}`
    const guardian = guard && new Guardian({ ...guard, mark })
    const child = spawn(file, args, { stdio: 'inherit', env: { ...process.env, ...env, LEASEHOLD_RUN }, detached: !onTerminal })
    if (child.pid === undefined) guardian?.stop()
    else guardian?.guard(onTerminal ? child.pid : -child.pid)
    const ended = new Promise<number>(resolve =>
      child.once('exit', (code, signal) => resolve(signal === null ? code! : exitCodeOfSignal(signal))),
    )
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve)
      child.once('error', error => {
        detector?.stop()
        reject(notStarted(file, error))
      })
    })
    return new Child(child, ended, detector, guardian, mark, clock)
  }

  /** Returns whether a signal that this process has just received also went to the child. */
  async alreadyReceived(name: Forwarded): Promise<boolean> {
    return this.#detector !== undefined && (await this.#detector.received(name))
  }

  /** Sends the signal unless the child already has it. */
  async forward(name: Forwarded): Promise<void> {
    if (!(await this.alreadyReceived(name))) this.send(name)
  }

  /** Sends a signal. Those that end programs go to the descendants too, as from a terminal. */
  send(name: Forwarded): void {
    if (this.#hasEnded) return
    if (name === 'SIGUSR1' || name === 'SIGUSR2' || name === 'SIGWINCH') this.#process.kill(name)
    else this.#signalAll(name)
  }

  /** Ends the child: TERM, and after `grace` KILL for what is left of its group. With `kill: false`, TERM only. Resolves when the child has ended. */
  async stop({ kill, grace }: { readonly kill: boolean; readonly grace: number }): Promise<void> {
    this.#signalAll('SIGTERM')
    // A stopped process would not handle TERM until it is resumed.
    this.#signalAll('SIGCONT')
    if (!kill) return void (await this.ended)
    const end = this.#clock.now() + grace
    while (this.#members().length > 0 && this.#clock.now() < end)
      await pause(this.#clock, Math.min(POLL_INTERVAL, Math.max(0, end - this.#clock.now())), undefined, { ref: true })
    // A process that is being started during one look is found by the next.
    for (let looks = 0; this.#members().length > 0 && looks < 200; looks++) {
      this.#signalAll('SIGKILL')
      await pause(this.#clock, looks === 0 ? 1 : POLL_INTERVAL, undefined, { ref: true })
    }
    await this.ended
  }

  /** Stops the guardian and the detector. Call it when the child has ended, with all that was to be ended with it. */
  detach(): void {
    this.#guardian?.stop()
    this.#guardian = undefined
    this.#detector?.stop()
  }

  /** The pids of the child and its descendants that are alive and in its group. */
  #members(): number[] {
    const all = listProcesses()
    if (!this.#onTerminal) return all.flatMap(({ pid, group }) => (group === this.#pid ? [pid] : []))
    const parents = new Map(all.map(({ pid, parent }) => [pid, parent]))
    const group = all.find(({ pid }) => pid === process.pid)?.group
    const descends = (pid: number): boolean => {
      for (let at: number | undefined = pid, steps = 0; at !== undefined && at > 1 && steps < 1_000; at = parents.get(at), steps++)
        if (at === this.#pid) return true
      return false
    }
    return all.flatMap(row =>
      row.group === group && row.pid !== process.pid && (descends(row.pid) || hasInEnvironment(row.pid, this.#mark)) ? [row.pid] : [],
    )
  }

  #signalAll(name: NodeJS.Signals): void {
    for (const target of this.#onTerminal ? this.#members() : [-this.#pid]) {
      try {
        process.kill(target, name)
      } catch {
        // It has ended in the meantime.
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
      message: missing ? `${file}: command not found` : `${file} cannot be executed: ${error.message}`,
      means: 'Nothing was run, and the lease was released.',
      next: missing
        ? 'Check its name and PATH. To use shell syntax, run it with: sh -c'
        : 'Check that it is a program and that you may execute it.',
    },
    { cause: error },
  )
}
