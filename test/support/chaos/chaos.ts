/**
 * Causes real faults on a real engine under load, and judges the recorded history.
 *
 * Several replica processes (chaos/child.mjs, from dist) use one engine, each through its own proxies. Their holders acquire, renew, release
 * and abandon leases. One fault follows another. After each fault every resource must be granted again within a bound. At the end the
 * holders stop, abandoned leases must expire, and all replicas must reach the same state. Then the referee checks the history.
 *
 * ```ts
 * const report = await chaos({ engine, store: url => new MyStore({ url }), child: { module: 'store/my.js', name: 'MyStore' }, faults: FAULTS })
 * expect(report.violations).toEqual([])
 * ```
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../../src/clock.ts'
import { Replica } from '../../../src/replica/replica.ts'
import type { Store } from '../../../src/store.ts'
import { Cable, through } from '../../../src/testing/cuttable-connection.ts'
import { EVENT_TIMEOUT } from '../bounds.ts'
import type { Engine } from '../engine.ts'
import { type History, type Note, readNotes } from './history.ts'
import { Observer } from './observer.ts'
import { beliefs, judge, type Violation } from './referee.ts'

export interface Fault {
  readonly name: string
  /** Causes the fault and undoes it: when this returns, everything can work again. */
  run(chaos: Chaos): Promise<void>
}

export interface ChaosOptions {
  readonly engine: Engine
  /** A store in this process, to read the log without a proxy. */
  readonly store: (url: string) => Store
  /** The store of the replica processes: a module below dist, the class it exports, and the constructor's options (default: `{ url }`). */
  readonly child: { readonly module: string; readonly name: string; readonly options?: (url: string) => object }
  readonly faults: readonly Fault[]
  /** CHAOS_CYCLES in the environment takes precedence. */
  readonly cycles?: number
  readonly replicas?: number
  readonly holders?: number
  readonly ttl?: number
  readonly snapshotRecords?: number
  /** The ports that the replicas' proxies lead to, if not those of the engine (a pooler). */
  readonly ports?: readonly number[]
  /** CHAOS_SEED in the environment takes precedence. It selects the targets of faults; the timing of the machine cannot be repeated. */
  readonly seed?: number
}

export interface Report {
  readonly violations: readonly Violation[]
  readonly seed: number
  readonly cycles: number
  readonly faults: Readonly<Record<string, number>>
  /** Holders held this many leases, and so many of them were reported lost. */
  readonly beliefs: number
  readonly lost: number
  /** The number of probes (requests sent once, without a retry) by outcome. */
  readonly probes: Readonly<Record<string, number>>
  readonly records: number
  readonly snapshots: boolean
  /** The longest time after a fault until every resource had been granted again, in ms. */
  readonly recovery: number
  readonly seconds: number
  /** The folder with everything that was recorded, if there are violations. */
  readonly kept?: string
}

const RESOURCES = ['x/0', 'x/1', 'x/2', 'x/3']

export async function chaos(options: ChaosOptions): Promise<Report> {
  await using run = await Chaos.begin(options)
  try {
    return await run.report() // without await the run would be disposed of first
  } catch (error) {
    const kept = await run.keep({ failed: String((error as Error).stack ?? error) })
    throw new Error(`${(error as Error).message}\nThe evidence is in ${kept}`, { cause: error })
  }
}

export class Chaos implements AsyncDisposable {
  readonly engine: Engine
  readonly ttl: number
  readonly replicas: readonly ReplicaProcess[]
  readonly observer: Observer
  readonly seed: number
  readonly #options: ChaosOptions
  readonly #folder: string
  readonly #notes: Note[] = []
  readonly #began = systemClock.now()
  #dice: number

  private constructor(options: ChaosOptions, folder: string, cables: readonly (readonly Cable[])[]) {
    const { engine, store, ttl = 700, holders = 3, snapshotRecords = 400, child, ports = engine.ports } = options
    this.engine = engine
    this.ttl = ttl
    this.seed = Number(process.env.CHAOS_SEED ?? options.seed ?? Math.floor(Math.random() * 1e9))
    this.#dice = this.seed
    this.#options = options
    this.#folder = folder
    this.observer = new Observer(() => store(engine.url))
    const direct = engine.ports.reduce((url, port, i) => url.replace(`:${port}`, `:${ports[i] ?? port}`), engine.url)
    this.replicas = cables.map((own, i) => {
      const url = through(direct, ports, own)
      const settings = {
        ...{ module: child.module, name: child.name, options: child.options?.(url) ?? { url } },
        ...{ ttl, holders, resources: RESOURCES, snapshotRecords, timeout: 3_000 },
      }
      return new ReplicaProcess(`r${i}`, own, settings, folder)
    })
  }

  static async begin(options: ChaosOptions): Promise<Chaos> {
    const { engine, replicas = 3, ports = engine.ports } = options
    const folder = await mkdtemp(join(tmpdir(), 'leasehold-chaos-'))
    const cables = await Promise.all(Array.from({ length: replicas }, () => Promise.all(ports.map(port => Cable.to(port)))))
    const run = new Chaos(options, folder, cables)
    try {
      await Promise.all(run.replicas.map(replica => replica.start()))
      return run
    } catch (error) {
      await run[Symbol.asyncDispose]()
      throw error
    }
  }

  /** A pseudo-random item, such as the replica to pause. */
  any<T>(list: readonly T[]): T {
    this.#dice = (Math.imul(this.#dice, 1_103_515_245) + 12_345) >>> 0
    return list[(this.#dice >>> 8) % list.length]!
  }

  /** Waits longer than any holder may hold a lease without an answer. */
  async pastTheTtl(): Promise<void> {
    await sleep(this.ttl * 1.25)
  }

  async report(): Promise<Report> {
    const cycles = Number(process.env.CHAOS_CYCLES ?? this.#options.cycles ?? 50)
    const faults: Record<string, number> = {}
    let recovery = await this.#everythingGranted('at the beginning')
    for (let cycle = 0; cycle < cycles; cycle++) {
      const fault = this.#options.faults[cycle % this.#options.faults.length]!
      this.#harm.push({ t: systemClock.now(), fault: fault.name })
      await fault.run(this)
      this.#harm.push({ t: systemClock.now(), over: fault.name })
      faults[fault.name] = (faults[fault.name] ?? 0) + 1
      recovery = Math.max(recovery, await this.#everythingGranted(`after ${fault.name}`))
    }
    const late = await this.#rest()
    const { log, gap } = this.observer
    const history: History = { notes: [...readNotes(this.#folder), ...this.#notes], log, gap }
    const violations = [...late, ...judge(history)]
    const kept = violations.length > 0 ? await this.keep({ violations }) : undefined
    const probes: Record<string, number> = {}
    for (const note of history.notes) if (note.kind === 'answered') probes[note.outcome] = (probes[note.outcome] ?? 0) + 1
    return {
      violations,
      ...{ seed: this.seed, cycles, faults, probes, recovery: Math.round(recovery) },
      beliefs: beliefs(history.notes).length,
      lost: history.notes.filter(({ kind }) => kind === 'lost').length,
      records: log.length,
      snapshots: this.#snapshots,
      seconds: Math.round((systemClock.now() - this.#began) / 1_000),
      ...(kept !== undefined && { kept }),
    }
  }

  #snapshots = false
  #kept = false
  /** The begin and end of each fault. */
  readonly #harm: object[] = []

  /** Keeps the evidence of a failed run in its folder: the notes of all processes, the log as it was read, and the logs of the engine. */
  async keep(verdict: object): Promise<string> {
    this.#kept = true
    const write = (name: string, lines: readonly unknown[]) =>
      writeFile(join(this.#folder, name), lines.map(line => `${JSON.stringify(line)}\n`).join(''))
    const { cycles, ttl, holders, snapshotRecords } = this.#options
    await write('verdict.json', [{ seed: this.seed, engine: this.engine.kind, cycles, ttl, holders, snapshotRecords, ...verdict }])
    await write('log.json', this.observer.log)
    await write('harm.json', this.#harm)
    await Promise.all(this.engine.members.map(({ log }, i) => copyFile(log, join(this.#folder, `engine-${i}.log`)).catch(() => {})))
    console.error(`CHAOS_SEED=${this.seed}: the evidence is in ${this.#folder}`)
    return this.#folder
  }

  /** Waits until every resource has been granted again: abandoned leases expire and waiters are served. Returns how long that took, in ms. */
  async #everythingGranted(when: string): Promise<number> {
    const from = this.observer.log.length
    const began = systemClock.now()
    const missing = () => {
      const granted = this.observer.grantedSince(from)
      return RESOURCES.filter(resource => !granted.has(resource))
    }
    // A holder may keep its lease for one and a half terms; how long the rest takes depends on the machine, and `recovery` reports it.
    const all = await this.#until(() => missing().length === 0, EVENT_TIMEOUT)
    if (!all)
      throw new Error(`${missing().join(', ')} not granted again for ${Math.round(systemClock.now() - began)} ms ${when}: ${this.#why()}`)
    return systemClock.now() - began
  }

  /** Holders release their leases, abandoned leases expire, and all replicas reach the same state. */
  async #rest(): Promise<Violation[]> {
    const late: Violation[] = []
    await Promise.all(this.replicas.map(replica => replica.ask('rest')))
    if (!(await this.#until(() => this.observer.leases === 0, EVENT_TIMEOUT)))
      late.push({ invariant: 'S5', message: `${this.observer.leases} leases are left long after all holders have stopped renewing` })
    const { store, engine } = this.#options
    const newcomer = await Replica.open(store(engine.url))
    try {
      const same = await this.#until(async () => {
        const states = await Promise.all(this.replicas.map(replica => replica.ask<{ index: number; hash: string }>('state')))
        await newcomer.read({ kind: 'summary' }, { consistent: true })
        const all = [
          ...states.map((state, i) => ({ ...state, who: this.replicas[i]!.name })),
          { index: newcomer.index, hash: newcomer.hash(), who: 'a newcomer' },
          { index: this.observer.index, hash: this.observer.hash(), who: 'the observer of the whole log' },
        ]
        const t = systemClock.now()
        for (const { index, hash, who } of all) this.#notes.push({ t, who, kind: 'state', index, hash })
        return all.every(({ index }) => index === all[0]!.index)
      }, EVENT_TIMEOUT)
      if (!same) late.push({ invariant: 'S22', message: 'the replicas do not reach the same record' })
    } finally {
      await newcomer[Symbol.asyncDispose]()
    }
    await using last = store(engine.url)
    this.#snapshots = (await last.open()).snapshot !== undefined
    await Promise.all(this.replicas.map(replica => replica.end()))
    return late
  }

  async #until(done: () => boolean | Promise<boolean>, ms: number): Promise<boolean> {
    const end = systemClock.now() + ms
    while (systemClock.now() < end) {
      if (this.observer.broken !== undefined) throw this.observer.broken
      for (const { died } of this.replicas) if (died !== undefined) throw died
      if (await done()) return true
      await sleep(10)
    }
    return false
  }

  #why(): string {
    const last = readNotes(this.#folder).filter(({ kind }) => kind === 'error' || kind === 'stopped')
    return last
      .slice(-8)
      .map(note => JSON.stringify(note))
      .join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.replicas.map(replica => replica[Symbol.asyncDispose]()))
    await this.observer[Symbol.asyncDispose]()
    if (!this.#kept) await rm(this.#folder, { recursive: true, force: true })
  }
}

/** Runs one replica process after another, behind its own proxies to the engine. */
export class ReplicaProcess implements AsyncDisposable {
  readonly name: string
  readonly cables: readonly Cable[]
  readonly #settings: object
  readonly #folder: string
  readonly #asked = new Map<number, { readonly resolve: (value: never) => void; readonly reject: (error: unknown) => void }>()
  #questions = 0
  #life = 0
  #child: ChildProcess | undefined
  #killed = false
  /** Set if the process ended without being killed: no fault of an engine may end a process. */
  died: Error | undefined

  constructor(name: string, cables: readonly Cable[], settings: object, folder: string) {
    this.name = name
    this.cables = cables
    this.#settings = settings
    this.#folder = folder
  }

  /** Starts a new process. Resolves when its replica is open. */
  async start(): Promise<void> {
    const me = `${this.name}.${++this.#life}`
    this.#killed = false
    const settings = { ...this.#settings, me, history: join(this.#folder, me) }
    const child = fork(fileURLToPath(new URL('./child.mjs', import.meta.url)), [JSON.stringify(settings)], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: [],
    })
    this.#child = child
    const exited = once(child, 'exit').then(([code, signal]) => {
      if (!this.#killed) this.died = new Error(`${me} ended by itself: ${code ?? signal}`)
      for (const { reject } of this.#asked.values()) reject(new Error(`${me} is gone`))
      this.#asked.clear()
      throw new Error(`${me} ended: ${code ?? signal}`)
    })
    exited.catch(() => {})
    child.on('message', ([id, ok, value]: [number | 'begins', boolean, unknown]) => {
      if (id === 'begins') return
      const asked = this.#asked.get(id)
      this.#asked.delete(id)
      if (ok) asked?.resolve(value as never)
      else asked?.reject(Object.assign(new Error(), value))
    })
    const late = new AbortController()
    const begun = once(child, 'message', { signal: late.signal })
    const timer = setTimeout(() => late.abort(new Error(`${me} is not ready`)), EVENT_TIMEOUT)
    await Promise.race([begun, exited]).finally(() => clearTimeout(timer))
  }

  ask<T>(call: 'rest' | 'state' | 'close'): Promise<T> {
    const id = ++this.#questions
    return new Promise<T>((resolve, reject) => {
      this.#asked.set(id, { resolve, reject })
      this.#child!.send([id, call], error => error && reject(error))
    })
  }

  /** kill -9, by process id. */
  async kill9(): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    this.#killed = true
    process.kill(child.pid!, 'SIGKILL')
    await exited
  }

  pause(): void {
    process.kill(this.#child!.pid!, 'SIGSTOP')
  }

  resume(): void {
    process.kill(this.#child!.pid!, 'SIGCONT')
  }

  async end(): Promise<void> {
    const exited = once(this.#child!, 'exit')
    this.#killed = true
    this.ask('close').catch(() => {})
    await Promise.race([exited, sleep(10_000)])
    await this.kill9()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill9()
    await Promise.all(this.cables.map(cable => cable[Symbol.asyncDispose]()))
  }
}

// ---------------------------------------------------------------------------------------------------------------------------
// Faults that any engine can have.

export const engineKilled: Fault = {
  name: 'the engine is killed and starts again',
  async run({ engine }) {
    await engine.kill9()
    await engine.restart()
  },
}

export const engineRestarted: Fault = {
  name: 'the engine is restarted by an operator',
  run: ({ engine }) => engine.restart(),
}

export const enginePaused: Fault = {
  name: 'the engine is paused for longer than the ttl',
  async run(chaos) {
    chaos.engine.pause()
    try {
      await chaos.pastTheTtl()
    } finally {
      chaos.engine.resume()
    }
  },
}

export const replicaKilled: Fault = {
  name: 'a replica process is killed',
  async run(chaos) {
    const replica = chaos.any(chaos.replicas)
    await replica.kill9()
    await replica.start()
  },
}

export const replicaPaused: Fault = {
  name: 'a replica process is paused for longer than the ttl',
  async run(chaos) {
    const replica = chaos.any(chaos.replicas)
    replica.pause()
    try {
      await chaos.pastTheTtl()
    } finally {
      replica.resume()
    }
  },
}

export const replicaCutOff: Fault = {
  name: 'a replica is cut off from the store for longer than the ttl, its connections refused',
  async run(chaos) {
    const { cables } = chaos.any(chaos.replicas)
    for (const cable of cables) cable.refuse()
    await chaos.pastTheTtl()
    for (const cable of cables) cable.heal()
  },
}

export const replicaInSilence: Fault = {
  name: 'a replica is cut off from the store for longer than the ttl, its connections silent',
  async run(chaos) {
    const { cables } = chaos.any(chaos.replicas)
    for (const cable of cables) cable.silence()
    await chaos.pastTheTtl()
    for (const cable of cables) cable.heal()
  },
}

export const answersCut: Fault = {
  name: 'connections are cut between request and answer',
  async run(chaos) {
    for (const { cables } of chaos.replicas) for (const cable of cables) cable.cutAnswers(2)
    await sleep(chaos.ttl / 4)
    for (const { cables } of chaos.replicas) for (const cable of cables) cable.heal()
  },
}

export const connectionsCut: Fault = {
  name: 'all connections are cut at once',
  async run(chaos) {
    for (const { cables } of chaos.replicas) for (const cable of cables) cable.disconnect()
  },
}

/** The faults that every engine must survive. Add those of your engine. */
export const FAULTS: readonly Fault[] = [
  ...[engineKilled, replicaPaused, answersCut, enginePaused, replicaKilled],
  ...[replicaCutOff, connectionsCut, engineRestarted, replicaInSilence, answersCut],
]
