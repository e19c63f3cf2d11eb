/**
 * Health checks that this server makes, for instances that ask for them: each by one server of all that stand on the store.
 *
 * What a check finds is an entry on the instance's own lease, written when it changes and not before. The first result counts at once: until then the
 * instance is `unknown`, and not picked. After that it takes several in a row to change it, in either direction. What stays critical for as long as its registration says is ended.
 */
import { execFile } from 'node:child_process'
import { setMaxListeners } from 'node:events'
import type { Clock } from '../../clock.ts'
import type { Lessor } from '../../lessor.ts'
import type { KnownInstance } from '../../registry/directory.ts'
import { type CheckResult, type HealthCheck, keyOf, UNCHECKED } from '../../registry/entry.ts'
import { type Instance, matcherOf } from '../../registry/match.ts'
import type { Log } from '../listener.ts'
import type { Catalog } from './catalog.ts'
import { probe } from './probe.ts'
import type { ProbeRules } from './probe-rule.ts'
import { WorkShares } from './shares.ts'

export interface HealthChecksOptions {
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
/** The first look at a newcomer comes within this time. */
const FIRST = 1_000
/** Probes under way at once: a thousand dead targets must not hold up the living. */
const AT_ONCE = 64
const COMMAND_OUTPUT = 4_096

class Subject {
  readonly slot: KnownInstance
  instance: Instance
  readonly check: HealthCheck | undefined
  /** What this server wrote last, for as long as it has not come back by the watch. */
  written: (CheckResult & { readonly revision: number }) | undefined
  /** Whether it was ever found well. Until then one good look is enough: it is starting, and not unsteady. */
  proven: boolean
  /** In a row, of the kind that `leaning` says. */
  row = 0
  leaning: CheckResult['status'] | undefined
  criticalSince: number | undefined
  cancel: (() => void) | undefined

  constructor(slot: KnownInstance) {
    this.slot = slot
    this.instance = slot.instance
    this.check = slot.instance.check
    // Another server may have judged it before us: that is not forgotten for one good look, nor for one bad one.
    this.proven = isResult(slot.result)
  }
}

export class HealthChecks implements AsyncDisposable {
  readonly #options: HealthChecksOptions
  readonly #shares: WorkShares
  readonly #subjects = new Map<string, Subject>()
  readonly #unlisten: () => void
  /** Who waits for a slot, by service. */
  readonly #waiting = new Map<string, (() => void)[]>()
  readonly #closing = new AbortController()
  #underWay = 0
  /** For metrics and tests. */
  readonly stats = { probes: 0, written: 0, ended: 0 }

  private constructor(options: HealthChecksOptions) {
    const { lessor, catalog, clock } = options
    this.#options = options
    // One for each probe under way; Node warns of more than ten.
    setMaxListeners(AT_ONCE, this.#closing.signal)
    this.#shares = new WorkShares({ lessor, clock, name: 'checks', id: `checks:${clock.bits().toString(36)}` })
    this.#unlisten = catalog.directory.listen((slot, before, after) => this.#heard(slot, before, after))
    for (const slot of catalog.directory.search(matcherOf({}))) this.#heard(slot, undefined, slot.instance)
  }

  static async open(options: HealthChecksOptions): Promise<HealthChecks> {
    await options.catalog.ready()
    return new HealthChecks(options)
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

  #heard(slot: KnownInstance, before: Instance | undefined, after: Instance | undefined): void {
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
    const subject = new Subject(slot)
    this.#subjects.set(key, subject)
    // Spread over the interval: those who register together are not probed together for ever.
    this.#plan(key, subject, { share: this.#options.clock.random(), soon: true })
  }

  /** What is written in the log about it, as far as this server knows. */
  #resultOf({ slot, written }: Subject): CheckResult | undefined {
    return written !== undefined && written.revision > this.#options.catalog.directory.revision ? written : slot.result
  }

  #commandOf({ service }: Instance): readonly string[] | undefined {
    const { commands = {} } = this.#options
    return Object.hasOwn(commands, service) ? commands[service] : undefined
  }

  /** `soon`: without a result it is not used, so it does not wait a whole interval for its first. */
  #plan(key: string, subject: Subject, { share = 0.9 + this.#options.clock.random() / 5, soon = false } = {}): void {
    if (this.#closed || this.#subjects.get(key) !== subject) return
    const { interval = INTERVAL } = subject.check ?? {}
    const wait = soon && this.#resultOf(subject) === undefined ? Math.min(interval, FIRST) : interval
    subject.cancel = this.#options.clock.after(wait * share, () => void this.#run(key, subject))
  }

  async #run(key: string, subject: Subject): Promise<void> {
    const ours = () => this.#shares.has(partOf(key, this.#shares.parts))
    let looked = false
    try {
      if (!ours()) return
      await this.#begin(subject)
      // Asked again within: it may have become another server's while this one waited for its turn.
      const result = await this.#inTurn(subject.instance.service, async () => (ours() && !this.#closed ? this.#look(subject) : undefined))
      looked = result !== undefined
      // Without a slot: while the store does not answer, other targets are still looked at.
      if (result !== undefined && !this.#closed) await this.#weigh(subject, result)
    } catch (error) {
      this.#options.log.debug({ error: String(error) }, 'a check could not be written down')
    } finally {
      // Not this server's, and without a result: its owner may be gone, and the next one is to look soon.
      this.#plan(key, subject, { soon: !looked })
    }
  }

  /** Who registers does not know of a command in this server's configuration, so nobody else can tell that it is not checked yet. */
  async #begin(subject: Subject): Promise<void> {
    if (subject.check === undefined && this.#resultOf(subject) === undefined)
      await this.#write(subject, { status: 'critical', reason: UNCHECKED })
  }

  /** With one of the slots. */
  async #inTurn<T>(service: string, work: () => Promise<T>): Promise<T> {
    if (this.#underWay < AT_ONCE) this.#underWay++
    else
      await new Promise<void>(resolve => {
        const line = this.#waiting.get(service)
        if (line === undefined) this.#waiting.set(service, [resolve])
        else line.push(resolve)
      })
    try {
      return await work()
    } finally {
      this.#passSlot()
    }
  }

  /** To the services in turn: one with a thousand dead targets does not hold up another's. Within a service, who came first. */
  #passSlot(): void {
    const [first] = this.#waiting
    if (first === undefined) {
      this.#underWay--
      return
    }
    const [service, line] = first
    const next = line.shift()!
    this.#waiting.delete(service)
    if (line.length > 0) this.#waiting.set(service, line)
    next()
  }

  #look({ instance, check }: Subject): Promise<CheckResult> {
    const { rules, own, clock, look = probe } = this.#options
    this.stats.probes++
    const command = this.#commandOf(instance)
    const { signal } = this.#closing
    if (command !== undefined) return runCommand(command, signal)
    return look(check!.url, { rules, own, clock, signal, timeout: Math.min(check!.timeout ?? TIMEOUT, TIMEOUT) })
  }

  /** The first result counts at once. After that it takes so many in a row that say the same. */
  async #weigh(subject: Subject, result: CheckResult): Promise<void> {
    const { clock } = this.#options
    const { fall = FALL, rise = RISE, endAfter } = subject.check ?? {}
    const { status, reason = '' } = result
    subject.row = subject.leaning === status ? subject.row + 1 : 1
    subject.leaning = status
    const enough = subject.row >= (status !== 'passing' ? fall : subject.proven ? rise : 1)
    const before = this.#resultOf(subject)
    if (enough || !isResult(before)) {
      if (status === 'passing') subject.proven = true
      if (before?.status !== status || (status !== 'passing' && reason !== (before?.reason ?? '')))
        if (await this.#write(subject, { status, reason })) this.stats.written++
    }
    if (this.#resultOf(subject)?.status !== 'critical') subject.criticalSince = undefined
    else if (status === 'critical' && enough) subject.criticalSince ??= clock.now()
    if (endAfter !== undefined && subject.criticalSince !== undefined && clock.now() - subject.criticalSince >= endAfter)
      await this.#end(subject)
  }

  /** False when it has left, or was replaced. */
  async #write(subject: Subject, { status, reason = '' }: CheckResult): Promise<boolean> {
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
    if (outcome.kind !== 'done') return false
    subject.written = { status, reason, revision: outcome.revision }
    return true
  }

  async #end({ instance }: Subject): Promise<void> {
    this.stats.ended++
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

/** Not what stands there only until there is one. */
function isResult(result: CheckResult | undefined): boolean {
  return result !== undefined && result.reason !== UNCHECKED
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
