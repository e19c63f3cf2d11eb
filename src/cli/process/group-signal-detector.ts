/**
 * Tells whether a signal that we heard went to our whole process group or to us alone: what is typed at a terminal, and what a shell sends to a
 * job, the child has had already; what is sent to us alone it must get from us. Node does not say who sent a signal.
 *
 * A small shell in our group that hears the same signals and does nothing else. Asked after we heard one, it has heard it, too, or it was for us
 * alone: a group is signalled as a whole, and a shell runs what it trapped before it goes on to answer.
 *
 * Not promised: an answer when it was ended or stopped by itself; then it says no, since a signal twice is better than none.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { type Clock, pause, systemClock } from '../../clock.ts'
import { FORWARDED, type Forwarded } from './signal-forwarder.ts'

// Where a trapped signal ends `read` and where it does not, what was heard comes with the answer or before it. The question is a line without a
// word: half of one cannot be read.
const SCRIPT =
  'got=; for s in "$@"; do trap "got=\\"\\$got $s\\"" "$s"; done; echo told; ' +
  'while if read -r _; then ask=told; else ask=; fi; [ -n "$got$ask" ]; do echo "$got $ask"; got=; done'
/** A group is signalled one process after the other: by then the last has it, too, also where the machine is busy. */
const ALL = 20
/** Long for a shell to answer, and short for one who pressed a key. */
const TIMEOUT = 500

export class GroupSignalDetector {
  readonly #shell: ChildProcess
  readonly #clock: Clock
  /** What it has heard since it was last asked. */
  readonly #heard = new Set<string>()
  #asked: (() => void)[] = []
  #gone = false
  #rest = ''

  private constructor(clock: Clock) {
    const names = FORWARDED.map(name => name.slice('SIG'.length))
    this.#clock = clock
    // Without our environment: it is not part of what runs under the lease.
    this.#shell = spawn('/bin/sh', ['-c', SCRIPT, 'leasehold-witness', ...names], { stdio: ['pipe', 'pipe', 'ignore'], env: {}, cwd: '/' })
    const { stdin, stdout } = this.#shell
    const leave = () => {
      this.#gone = true
      for (const answer of this.#asked.splice(0)) answer()
    }
    this.#shell.once('error', leave).once('exit', leave)
    stdin!.on('error', () => {})
    stdout!.setEncoding('latin1').on('data', (text: string) => this.#read(text))
    this.#shell.unref()
    for (const end of [stdin, stdout]) (end as unknown as { unref(): void }).unref()
  }

  /** Resolves when it listens. */
  static async start(clock: Clock = systemClock): Promise<GroupSignalDetector> {
    const witness = new GroupSignalDetector(clock)
    await witness.#answer()
    return witness
  }

  /** Whether it heard the signal, too, that we have just heard. */
  async heard(name: Forwarded): Promise<boolean> {
    await pause(this.#clock, ALL, undefined, { ref: true })
    if (!this.#gone) this.#shell.stdin!.write('\n')
    await this.#answer()
    return this.#heard.delete(name.slice('SIG'.length))
  }

  dismiss(): void {
    this.#shell.stdin?.end()
  }

  #answer(): Promise<void> {
    if (this.#gone) return Promise.resolve()
    return new Promise(resolve => {
      const cancel = this.#clock.after(TIMEOUT, resolve, { ref: true })
      this.#asked.push(() => {
        cancel()
        resolve()
      })
    })
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop()!
    for (const line of lines)
      for (const word of line.split(' ')) {
        if (word === 'told') this.#asked.shift()?.()
        else if (word !== '') this.#heard.add(word)
      }
  }
}
