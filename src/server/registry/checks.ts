/**
 * Health checks that this server makes, for instances that ask for them: each by one server of all that stand on the store.
 *
 * What a check finds is an entry on the instance's own lease, written when it changes and not before. It takes several in a row to change one's mind,
 * in either direction. What stays critical for as long as its registration says is ended.
 */
import { execFile } from 'node:child_process'
import { setMaxListeners } from 'node:events'
import type { Clock } from '../../clock.ts'
import type { Lessor } from '../../lessor.ts'
import { type Check, type CheckResult, keyOf } from '../../recipe/registry/entry.ts'
import type { Instance } from '../../recipe/registry/match.ts'
import type { Log } from '../door.ts'
import type { Catalog } from './catalog.ts'
import { probe } from './probe.ts'
import type { ProbeRules } from './probe-rule.ts'
import { Shares } from './shares.ts'

export interface ChecksOptions {
  readonly lessor: Lessor
  readonly catalog: Catalog
  readonly clock: Clock
  readonly log: Log
  readonly rules: ProbeRules
  readonly own: (address: string, port: number) => boolean
  /** Programs for services, from the server's own configuration alone: a path and its arguments. */
  readonly commands?: Readonly<Record<string, readonly string[]>>
  readonly look?: typeof probe
}

const INTERVAL = 10_000
const TIMEOUT = 5_000
const FALL = 3
const RISE = 2
/** Probes under way at once: a thousand dead targets must not hold up the living. */
const AT_ONCE = 64
const COMMAND_OUTPUT = 4_096

class Subject {
  instance: Instance
  readonly check: Check | undefined
  /** What is written. */
  status: CheckResult['status'] | undefined
  reason = ''
  /** In a row, of the kind that `leaning` says. */
  row = 0
  leaning: CheckResult['status'] | undefined
  criticalSince: number | undefined
  cancel: (() => void) | undefined

  constructor(instance: Instance) {
    this.instance = instance
    this.check = instance.check
    // Another server may have found it ill before us: that is not forgotten for one good look.
    if (instance.reason !== '') this.status = instance.status === 'warning' ? 'warning' : 'critical'
    this.reason = instance.reason
  }
}

export class Checks implements AsyncDisposable {
  readonly #options: ChecksOptions
  readonly #shares: Shares
  readonly #subjects = new Map<string, Subject>()
  readonly #unlisten: () => void
  readonly #waiting: (() => void)[] = []
  readonly #closing = new AbortController()
  #underWay = 0
  /** For metrics and tests. */
  readonly seen = { probes: 0, written: 0, ended: 0 }

  private constructor(options: ChecksOptions) {
    const { lessor, catalog, clock } = options
    this.#options = options
    // One for each probe under way; Node warns of more than ten.
    setMaxListeners(AT_ONCE, this.#closing.signal)
    this.#shares = new Shares({ lessor, clock, name: 'checks', id: `checks:${clock.bits().toString(36)}` })
    this.#unlisten = catalog.directory.listen((_, before, after) => this.#heard(before, after))
    for (const instance of catalog.directory.list()) this.#heard(undefined, instance)
  }

  static async open(options: ChecksOptions): Promise<Checks> {
    await options.catalog.ready()
    return new Checks(options)
  }

  /** How many instances there are to check, by whomever. */
  get size(): number {
    return this.#subjects.size
  }

  /** Slots in use: probes and commands that have not settled. */
  get underWay(): number {
    return this.#underWay
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted
  }

  #heard(before: Instance | undefined, after: Instance | undefined): void {
    const { service, instance } = (after ?? before)!
    const key = `${service}/${instance}`
    const known = this.#subjects.get(key)
    const wanted = after !== undefined && (after.check !== undefined || this.#commandOf(after) !== undefined)
    if (known !== undefined && wanted && known.instance.lease === after.lease && known.check === after.check) {
      known.instance = after
      return
    }
    known?.cancel?.()
    this.#subjects.delete(key)
    if (!wanted || this.#closed) return
    const subject = new Subject(after)
    this.#subjects.set(key, subject)
    // Spread over the interval: those who register together are not probed together for ever.
    this.#plan(key, subject, this.#options.clock.random())
  }

  #commandOf({ service }: Instance): readonly string[] | undefined {
    const { commands = {} } = this.#options
    return Object.hasOwn(commands, service) ? commands[service] : undefined
  }

  #plan(key: string, subject: Subject, share = 0.9 + this.#options.clock.random() / 5): void {
    if (this.#closed || this.#subjects.get(key) !== subject) return
    const { interval = INTERVAL } = subject.check ?? {}
    subject.cancel = this.#options.clock.after(interval * share, () => void this.#run(key, subject))
  }

  async #run(key: string, subject: Subject): Promise<void> {
    const ours = () => this.#shares.has(partOf(key, this.#shares.parts))
    try {
      if (!ours()) return
      // Asked again within: it may have become another server's while this one waited for its turn.
      const result = await this.#inTurn(async () => (ours() && !this.#closed ? this.#look(subject) : undefined))
      // Without a slot: while the store does not answer, other targets are still looked at.
      if (result !== undefined && !this.#closed) await this.#weigh(subject, result)
    } catch (error) {
      this.#options.log.debug({ error: String(error) }, 'a check could not be written down')
    } finally {
      this.#plan(key, subject)
    }
  }

  /** With one of the slots. A free slot goes to the first in line, before anyone who comes later. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#underWay < AT_ONCE) this.#underWay++
    else await new Promise<void>(resolve => this.#waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#underWay--
      else next()
    }
  }

  #look({ instance, check }: Subject): Promise<CheckResult> {
    const { rules, own, clock, look = probe } = this.#options
    this.seen.probes++
    const command = this.#commandOf(instance)
    const { signal } = this.#closing
    if (command !== undefined) return runCommand(command, signal)
    return look(check!.url, { rules, own, clock, signal, timeout: Math.min(check!.timeout ?? TIMEOUT, TIMEOUT) })
  }

  /** Changes its mind only when so many in a row say the same. */
  async #weigh(subject: Subject, { status, reason = '' }: CheckResult): Promise<void> {
    const { clock } = this.#options
    const { fall = FALL, rise = RISE } = subject.check ?? {}
    subject.row = subject.leaning === status ? subject.row + 1 : 1
    subject.leaning = status
    const needed = status === 'passing' ? rise : fall
    // The first look decides at once for the better: nobody waits twice an interval to be used.
    const settled = subject.row >= needed || (subject.status === undefined && status === 'passing')
    if (settled && (status !== subject.status || (status !== 'passing' && reason !== subject.reason)))
      await this.#write(subject, status, reason)
    if (subject.status !== 'critical') subject.criticalSince = undefined
    else subject.criticalSince ??= clock.now()
    const { endAfter } = subject.check ?? {}
    if (endAfter !== undefined && subject.criticalSince !== undefined && clock.now() - subject.criticalSince >= endAfter)
      await this.#end(subject)
  }

  async #write(subject: Subject, status: CheckResult['status'], reason: string): Promise<void> {
    const { instance } = subject
    const { generation, lease } = instance
    const value = JSON.stringify({ status, ...(reason !== '' && { reason }) })
    const outcome = await this.#options.lessor.propose({
      kind: 'put',
      lease,
      key: keyOf(instance, 'check'),
      value,
      ...(generation > 0 && { generation }),
    })
    if (outcome.kind !== 'done') return // it has left, or was replaced
    this.seen.written++
    subject.status = status
    subject.reason = reason
  }

  async #end({ instance }: Subject): Promise<void> {
    this.seen.ended++
    await this.#options.lessor.propose({ kind: 'revoke', target: { lease: instance.lease }, by: 'a failed health check' })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    this.#unlisten()
    for (const { cancel } of this.#subjects.values()) cancel?.()
    this.#subjects.clear()
    await this.#shares[Symbol.asyncDispose]()
  }
}

/** Which part of the work it belongs to: the same on every server. */
function partOf(key: string, parts: number): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193)
  return (hash >>> 0) % parts
}

/** No shell, nothing of our environment, bounded in time and output; its words are shown to nobody. */
function runCommand([file = '', ...args]: readonly string[], signal: AbortSignal): Promise<CheckResult> {
  return new Promise(resolve => {
    const stop = () => {
      child.kill('SIGKILL')
      // What the command started may hold its output open: it is not waited for.
      child.stdout?.destroy()
      child.stderr?.destroy()
    }
    const child = execFile(
      file,
      args,
      { env: {}, shell: false, timeout: TIMEOUT, killSignal: 'SIGKILL', maxBuffer: COMMAND_OUTPUT, windowsHide: true },
      error => {
        signal.removeEventListener('abort', stop)
        if (error === null) return resolve({ status: 'passing' })
        const { code, killed } = error as { code?: number | string; killed?: boolean }
        if (killed === true) return resolve({ status: 'critical', reason: `the command took longer than ${TIMEOUT} ms, or said too much` })
        resolve({ status: code === 1 ? 'warning' : 'critical', reason: `the command ended with ${String(code)}` })
      },
    )
    child.stdin?.end()
    signal.addEventListener('abort', stop, { once: true })
  })
}
