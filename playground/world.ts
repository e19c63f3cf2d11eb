/**
 * The world of the playground: the package itself (kernel, replica, memory store, holder, recipes) on the simulator's virtual clock, with a network that loses
 * messages, processes that stand still or die, a plain lock for comparison, and a resource that both protect.
 *
 * It needs no browser. The same settings and acts give the same world, event for event, so a link can hold one.
 */
import { BeliefChecker, type ObservedBelief } from '../sim/beliefs.ts'
import type { Believed } from '../sim/believed.ts'
import { World } from '../sim/world.ts'
import type { Event } from '../src/kernel/event.ts'
import { MemoryLog } from '../src/store/memory.ts'
import type { Position } from '../src/store.ts'
import { sentence } from '../src/wording.ts'
import { History, type Side } from './history.ts'
import type { SharedLog } from './linked-store.ts'
import { Links, LOCK, LOG, RESOURCE } from './links.ts'
import { LogReading } from './log-reading.ts'
import { PlainLockServer } from './plain-lock.ts'
import { plainProgram } from './plain-program.ts'
import { Process } from './process.ts'
import { PROGRAM_OF, ruledName } from './programs.ts'
import { ProtectedResource, type WriteResult } from './resource.ts'
import { type Act, actText, INITIAL, PROGRAMS, type Program, processName, type Settings } from './settings.ts'
import type { Surroundings } from './surroundings.ts'

/** A judge from outside, such as the simulator's referee. It sees what no process sees. */
export interface Observer {
  appended?(position: Position, bytes: Uint8Array, sentAt: number): void
  lost?(records: number): void
  uses?(belief: ObservedBelief): void
  watches?(belief: Believed): void
  gives?(lease: number): void
  wrote?(belief: ObservedBelief, name: string, result: WriteResult): void
}

export interface Verdict {
  readonly at: number
  readonly side: Side
  readonly invariant: string
  readonly message: string
}

/** The most verdicts that are kept. */
const VERDICTS = 100

/** The clocks of all holders are read this often, ms, so that the end of a bar is known when its lease is gone. */
const LOOK = 250

/** The simulator's world, in which a violation is recorded and the time goes on. */
class Timeline extends World {
  onViolation: (invariant: string, message: string) => void = () => {}

  override violate(invariant: string, message: string): void {
    this.onViolation(invariant, message)
  }
}

export class PlaygroundWorld implements Surroundings {
  readonly timeline: Timeline
  readonly history = new History()
  readonly links: Links
  readonly server: PlainLockServer
  readonly resource: ProtectedResource
  readonly log: MemoryLog
  readonly shared: SharedLog
  readonly processes: readonly Process[]
  readonly reading = new LogReading()
  readonly verdicts: Verdict[] = []
  #settings: Settings
  readonly #observer: Observer
  readonly #checkers: Readonly<Record<Side, BeliefChecker>>
  readonly #reported = new Set<string>()
  #plainTurns = 0
  #isQuiet = false

  constructor(
    settings: Partial<Settings> = {},
    { seed = 1, observer = {} }: { readonly seed?: number; readonly observer?: Observer } = {},
  ) {
    this.#settings = { ...INITIAL, ...settings }
    this.#observer = observer
    this.timeline = new Timeline(seed)
    this.timeline.onViolation = (invariant, message) => this.#found('lease', invariant, message)
    this.links = new Links(this.timeline, this.history, this.#settings.delay)
    this.links.loss = this.#settings.loss / 100
    this.server = new PlainLockServer(this.timeline)
    this.resource = new ProtectedResource(this.#settings.fencing === 1)
    const logMachine = this.timeline.machine(LOG, 1)
    this.log = new MemoryLog({ clock: logMachine.clock() })
    this.shared = { log: this.log, parked: new Set(), appended: (...record) => this.#appended(...record) }
    const checker = (side: Side) =>
      new BeliefChecker(
        (invariant, message) => this.#found(side, invariant, message),
        () => 'not ended',
      )
    this.#checkers = { lease: checker('lease'), plain: checker('plain') }
    const programs = { lease: PROGRAM_OF[this.program], plain: this.#settings.plain === 1 ? plainProgram : undefined }
    this.processes = Array.from({ length: this.#settings.processes }, (_, number) => {
      // Rates differ a little, within what leases allow for.
      const machine = this.timeline.machine(processName(number), 1 + this.timeline.dice.between(-0.002, 0.002))
      // Tokens begin above the wall time: at zero they are short numbers.
      machine.wallOffset = -machine.uptime()
      return new Process(this, machine, number, programs)
    })
    for (const process of this.processes) process.start()
    const look = () => {
      this.history.update(this.now)
      this.timeline.later(LOOK, look)
    }
    look()
    if (this.#settings.grace > 0 || this.#settings.lockDelay > 0) this.#setPolicy()
  }

  get now(): number {
    return this.timeline.now
  }

  get settings(): Settings {
    return this.#settings
  }

  get program(): Program {
    return PROGRAMS[this.#settings.program]!
  }

  /** The lanes of the picture, from top to bottom. */
  get lanes(): readonly string[] {
    return [...this.processes.map(({ name }) => name), LOG, ...(this.#settings.plain === 1 ? [LOCK] : []), RESOURCE]
  }

  /** Lets true time pass until `end`. */
  async run(end: number): Promise<void> {
    await this.timeline.run(end)
    this.history.update(this.now)
  }

  // Acts

  async act(act: Act): Promise<void> {
    const process = act.who === undefined ? undefined : this.processes[act.who]
    if (act.who !== undefined && process === undefined) return
    this.history.notes.push({ at: this.now, text: actText(act) })
    this.timeline.note(actText(act))
    await (process === undefined ? this.#actOnAll(act) : this.#actOn(process, act))
  }

  async #actOn(process: Process, { act, amount = 0 }: Act): Promise<void> {
    const { history, now } = this
    const { machine, name } = process
    if (act === 'acquire') process.want(true)
    else if (act === 'release') process.want(false)
    else if (act === 'transfer') process.want(false, processName(amount))
    else if (act === 'revoke') await this.#govern(leases => leases.revoke({ holder: name }, { by: 'operator' }))
    else if (act === 'pause' || act === 'suspend') {
      if (!machine.alive || machine.stalledSince !== undefined) return
      if (act === 'pause') machine.stall(amount)
      else machine.suspend(amount)
      history.begin(name, act === 'pause' ? 'paused' : 'suspended', now, now + amount)
    } else if (act === 'kill' && machine.alive) {
      process.kill()
      history.end(name, ['paused', 'suspended'], now)
      history.begin(name, 'dead', now)
    } else if (act === 'restart' && !machine.alive) {
      process.restart()
      history.end(name, ['dead'], now)
    } else if (act === 'cut' && !this.links.cut.has(name)) {
      this.links.cut.add(name)
      history.begin(name, 'cut', now)
    } else if (act === 'heal') {
      this.links.cut.delete(name)
      history.end(name, ['cut'], now)
    } else if (act === 'fast') machine.setRate(1 + amount / 100)
    else if (act === 'jump') machine.wallOffset += amount
  }

  async #actOnAll({ act, amount = 0 }: Act): Promise<void> {
    const { history, links, now } = this
    if (act === 'stopLog' && !links.stopped.has(LOG)) {
      for (const lane of [LOG, LOCK]) {
        links.stopped.add(lane)
        history.begin(lane, 'stopped', now)
      }
    } else if (act === 'startLog') {
      for (const lane of [LOG, LOCK]) history.end(lane, ['stopped'], now)
      links.stopped.clear()
    } else if (act === 'loseTail') await this.#loseTail(amount)
    else if (act === 'fencing' || act === 'delay' || act === 'loss' || act === 'ttl' || act === 'grace' || act === 'lockDelay') {
      this.#settings = { ...this.#settings, [act]: amount }
      if (act === 'fencing') this.resource.isFenced = amount === 1
      if (act === 'delay') links.delay = amount
      if (act === 'loss') links.loss = amount / 100
      if (act === 'grace' || act === 'lockDelay') this.#setPolicy()
    }
  }

  /** The engine acknowledged records that it has not kept. Readers that wait get no notice: an engine that took over does not know them. */
  async #loseTail(records: number): Promise<void> {
    const { history, now, log } = this
    const index = log.head.index - (log.snapshot?.position.index ?? 0)
    const lost = Math.min(records, index)
    log.loseTail(lost)
    this.server.failOver()
    await this.reading.rebuild(log)
    this.#observer.lost?.(lost)
    history.mark({ lane: LOG, side: 'lease', kind: 'loss', at: now, token: 0, text: `${lost} records are lost` })
    if (this.#settings.plain === 1) history.mark({ lane: LOCK, side: 'plain', kind: 'loss', at: now, token: 0, text: 'the key is lost' })
  }

  #setPolicy(): void {
    const { grace, lockDelay } = this.#settings
    void this.#govern(leases => leases.setPolicy(ruledName(this.program), { grace, lockDelay }))
  }

  /** As an operator at the first process that answers. A refusal changes nothing. */
  async #govern(what: (leases: NonNullable<Process['leases']>) => Promise<void>): Promise<void> {
    const process = this.processes.find(({ leases, machine }) => leases !== undefined && machine.stalledSince === undefined)
    if (process?.leases === undefined) {
      this.timeline.later(500, () => void this.#govern(what))
      return
    }
    void what(process.leases).catch(() => {})
  }

  // What happens

  #appended(position: Position, bytes: Uint8Array, sentAt: number): void {
    this.#observer.appended?.(position, bytes, sentAt)
    for (const event of this.reading.append(position, bytes)) this.#show(event)
    this.#showQuiet()
    for (const wake of [...this.shared.parked]) wake()
  }

  #show({ type, holder, resource, token = 0, cause = '' }: Event): void {
    if (!SHOWN.has(type)) return
    const text = [type, resource, holder, token > 0 ? `token ${token}` : '', cause].filter(Boolean).join(' · ')
    this.history.mark({ lane: LOG, side: 'lease', kind: 'event', at: this.now, token, text })
    this.timeline.note(`${this.now} ${text}`)
  }

  #showQuiet(): void {
    const isQuiet = this.reading.state.quiet !== undefined
    if (isQuiet === this.#isQuiet) return
    this.#isQuiet = isQuiet
    if (isQuiet) this.history.begin(LOG, 'quiet', this.now)
    else this.history.end(LOG, ['quiet'], this.now)
  }

  /** A process uses what it believes to hold. */
  uses(side: Side, belief: ObservedBelief): void {
    this.#checkers[side].begins(belief)
    if (side === 'lease') this.#observer.uses?.(belief)
  }

  watches(belief: Believed): void {
    this.#observer.watches?.(belief)
  }

  /** Its holder is about to give a lease up. */
  gives(lease: number): void {
    this.#observer.gives?.(lease)
  }

  /** SET NX PX. Returns the number of the turn, by which the picture tells holders apart; no program sees it. */
  takePlain(name: string): number | undefined {
    const turn = this.#plainTurns + 1
    if (!this.server.set(`${name}:${turn}`, this.#settings.plainTtl)) return undefined
    this.#plainTurns = turn
    return turn
  }

  /** A write has arrived at the resource. */
  written(side: Side, name: string, belief: ObservedBelief): void {
    const { who, grants } = belief
    const turn = grants[0]?.token ?? 0
    const kind = this.resource.write(side, name, turn)
    if (side === 'lease') this.#observer.wrote?.(belief, name, kind)
    const shown = side === 'lease' ? `token ${turn}` : 'no token'
    const text =
      kind === 'refused'
        ? sentence('older-token', { token: turn, highest: this.resource.newest(side, name), resource: name })
        : WRITTEN[kind]
    this.history.mark({ lane: RESOURCE, side, kind, at: this.now, token: turn, text: `${who}, ${shown}: ${text}` })
    this.timeline.note(`${this.now} ${who} ${side} ${kind} ${turn}`)
  }

  /** A pair of holders is reported once, however often they use what both hold. */
  #found(side: Side, invariant: string, message: string): void {
    const pair = [side, ...[...message.matchAll(/\w+ \(lease \d+/g)].map(([holder]) => holder).sort()].join(' ')
    if (this.#reported.has(pair)) return
    if (this.#reported.size >= VERDICTS) this.#reported.clear()
    this.#reported.add(pair)
    if (this.verdicts.length < VERDICTS) this.verdicts.push({ at: this.now, side, invariant, message })
    const holders = [...message.matchAll(/(\w+) \(lease/g)].map(([, holder]) => holder).join(' and ')
    const text = side === 'plain' ? `${holders} both hold the plain lock` : `${invariant}: ${message}`
    this.history.mark({ lane: RESOURCE, side, kind: 'violation', at: this.now, token: 0, text })
  }
}

/** Events of the log that the picture shows. */
const SHOWN = new Set<Event['type']>(['granted', 'released', 'lapsed', 'revoked', 'transferred', 'suspected', 'recovered', 'generation'])

const WRITTEN = {
  accepted: 'accepted',
  overwrote: 'accepted, and it overwrote the work of a later holder',
} as const
