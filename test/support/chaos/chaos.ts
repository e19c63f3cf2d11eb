/**
 * Real faults on a real engine, under load, with a referee over what was recorded.
 *
 * Several replica processes (chaos/child.mjs, from dist) with holders that acquire, renew, release and forget stand on one engine, each
 * through cables of its own. Fault after fault cuts in; after each one everything must be granted anew within a bound. At the end the
 * holders rest, what was abandoned must be gone, and all replicas must have come to the same state. Then the referee judges.
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
import type { Engine } from '../engine.ts'
import { type History, type Note, readNotes } from './history.ts'
import { Observer } from './observer.ts'
import { beliefs, judge, type Violation } from './referee.ts'

export interface Fault {
  readonly name: string
  /** Does it and undoes it: when this returns, everything could work again. */
  run(chaos: Chaos): Promise<void>
}

export interface ChaosOptions {
  readonly engine: Engine
  /** A store in this process, for looking at the log without a cable between. */
  readonly store: (url: string) => Store
  /** The same for the replica processes: a module below dist and the class it exports, made with what `options` gives (`{ url }`). */
  readonly child: { readonly module: string; readonly name: string; readonly options?: (url: string) => object }
  readonly faults: readonly Fault[]
  /** CHAOS_CYCLES in the environment goes before. */
  readonly cycles?: number
  readonly replicas?: number
  readonly holders?: number
  readonly ttl?: number
  readonly snapshotRecords?: number
  /** Where the replicas' cables lead, when that is not the engine itself (a pooler). */
  readonly ports?: readonly number[]
  /** CHAOS_SEED in the environment goes before. It chooses victims; what the machine does with it is nobody's to repeat. */
  readonly seed?: number
}

export interface Report {
  readonly violations: readonly Violation[]
  readonly seed: number
  readonly cycles: number
  readonly faults: Readonly<Record<string, number>>
  /** How often something was believed to be held, and how often a holder was told that it was lost. */
  readonly beliefs: number
  readonly lost: number
  /** What those who asked once were told, by outcome. */
  readonly told: Readonly<Record<string, number>>
  readonly entries: number
  readonly snapshots: boolean
  /** The longest it took after a fault until everything had been granted anew, in ms. */
  readonly recovery: number
  readonly seconds: number
  /** Where everything that was recorded can be read, when something was violated. */
  readonly kept?: string
}

/** Beyond the ttl: a busy machine, an engine that recovers, a process that starts. */
const LATENESS = 8_000
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

  /** A replica, or another thing to do harm to. */
  any<T>(list: readonly T[]): T {
    this.#dice = (Math.imul(this.#dice, 1_103_515_245) + 12_345) >>> 0
    return list[(this.#dice >>> 8) % list.length]!
  }

  /** Longer than any holder may believe without an answer. */
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
    const told: Record<string, number> = {}
    for (const note of history.notes) if (note.kind === 'told') told[note.outcome] = (told[note.outcome] ?? 0) + 1
    return {
      violations,
      ...{ seed: this.seed, cycles, faults, told, recovery: Math.round(recovery) },
      beliefs: beliefs(history.notes).length,
      lost: history.notes.filter(({ kind }) => kind === 'lost').length,
      entries: log.length,
      snapshots: this.#snapshots,
      seconds: Math.round((systemClock.now() - this.#began) / 1_000),
      ...(kept !== undefined && { kept }),
    }
  }

  #snapshots = false
  #kept = false
  /** Each fault, and when it was over. */
  readonly #harm: object[] = []

  /** All that is known of a run that went wrong, in a folder that outlives it: what everyone noted, the log as it was read, the engine's own words. */
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

  /** Whatever was abandoned has lapsed, whoever waits has been served. Says how long that took, in ms. */
  async #everythingGranted(when: string): Promise<number> {
    const from = this.observer.log.length
    const began = systemClock.now()
    const missing = () => {
      const granted = this.observer.grantedSince(from)
      return RESOURCES.filter(resource => !granted.has(resource))
    }
    // Whoever holds something may go on for one and a half terms.
    const all = await this.#until(() => missing().length === 0, 3 * this.ttl + LATENESS)
    if (!all)
      throw new Error(`${missing().join(', ')} not granted anew for ${Math.round(systemClock.now() - began)} ms ${when}: ${this.#why()}`)
    return systemClock.now() - began
  }

  /** Everyone gives back what they have; what nobody gave back lapses; all come to the same state. */
  async #rest(): Promise<Violation[]> {
    const late: Violation[] = []
    await Promise.all(this.replicas.map(replica => replica.ask('rest')))
    if (!(await this.#until(() => this.observer.leases === 0, this.ttl * 1.005 + LATENESS)))
      late.push({ invariant: 'S5', message: `${this.observer.leases} leases are left long after everyone has stopped renewing` })
    const { store, engine } = this.#options
    const newcomer = await Replica.open(store(engine.url))
    try {
      const same = await this.#until(async () => {
        const states = await Promise.all(this.replicas.map(replica => replica.ask<{ index: number; hash: string }>('state')))
        await newcomer.read({ kind: 'summary' }, { consistent: true })
        const all = [
          ...states.map((state, i) => ({ ...state, who: this.replicas[i]!.name })),
          { index: newcomer.index, hash: newcomer.hash(), who: 'a newcomer' },
          { index: this.observer.index, hash: this.observer.hash(), who: 'whoever read the whole log' },
        ]
        const t = systemClock.now()
        for (const { index, hash, who } of all) this.#notes.push({ t, who, kind: 'state', index, hash })
        return all.every(({ index }) => index === all[0]!.index)
      }, LATENESS)
      if (!same) late.push({ invariant: 'S22', message: 'the replicas do not come to the same entry' })
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

/** A place for one replica process after another, with its own way to the engine. */
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
  /** Nobody had killed it: nothing that befalls an engine may end a process. */
  died: Error | undefined

  constructor(name: string, cables: readonly Cable[], settings: object, folder: string) {
    this.name = name
    this.cables = cables
    this.#settings = settings
    this.#folder = folder
  }

  /** A new process; returns when it takes part. */
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
    const timer = setTimeout(() => late.abort(new Error(`${me} does not take part after 20 s`)), 20_000)
    await Promise.race([begun, exited]).finally(() => clearTimeout(timer))
  }

  ask<T>(call: 'rest' | 'state' | 'close'): Promise<T> {
    const id = ++this.#questions
    return new Promise<T>((resolve, reject) => {
      this.#asked.set(id, { resolve, reject })
      this.#child!.send([id, call], error => error && reject(error))
    })
  }

  /** kill -9, by its number. */
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
  name: 'the engine stands still past the ttl',
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
  name: 'a replica process stands still past the ttl',
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
  name: 'a replica is cut off from the store past the ttl, its connections refused',
  async run(chaos) {
    const { cables } = chaos.any(chaos.replicas)
    for (const cable of cables) cable.refuse()
    await chaos.pastTheTtl()
    for (const cable of cables) cable.heal()
  },
}

export const replicaInSilence: Fault = {
  name: 'a replica is cut off from the store past the ttl, its connections silent',
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

/** What every engine must go through; add your own. */
export const FAULTS: readonly Fault[] = [
  ...[engineKilled, replicaPaused, answersCut, enginePaused, replicaKilled],
  ...[replicaCutOff, connectionsCut, engineRestarted, replicaInSilence, answersCut],
]
