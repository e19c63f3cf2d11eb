/**
 * A coding agent on one machine: the real `Agent` on the real library, moved by a model that claims, works, releases, falls asleep, forgets
 * everything and starts sub-agents, until its machine is killed. It compares each answer with what it was told before.
 */
import { Agent } from '../src/agent/agent.ts'
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { Leases } from '../src/leases.ts'
import type { Completion, Lessor, ProposeOptions } from '../src/lessor.ts'
import { AGENT_TERMS, type AgentReferee, CLAIMED } from './agent-referee.ts'
import { ObservedLessor } from './observed.ts'
import { pauseOn, type Site } from './participants.ts'
import type { Dice, Machine } from './world.ts'

/** An agent was told that it holds these tokens, by name. */
interface Told {
  readonly agent: Agent
  /** True if this object keeps the session: it knows of its own calls at once. */
  readonly keeps: boolean
  readonly tokens: Map<string, number>
  losses: number
}

export class AgentProgram {
  readonly name: string
  readonly #site: Site
  readonly #referee: AgentReferee
  readonly #machine: Machine
  readonly #connect: () => Promise<Lessor | undefined>
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #sessions = new Set<number>()
  readonly #acting = new Set<Agent>()
  #isStopped = false

  constructor(
    site: Site,
    referee: AgentReferee,
    { name, machine, connect }: { readonly name: string; readonly machine: Machine; readonly connect: () => Promise<Lessor | undefined> },
  ) {
    this.name = name
    this.#site = site
    this.#referee = referee
    this.#machine = machine
    this.#connect = connect
    this.#clock = machine.clock()
    this.#dice = machine.dice
    this.#life = machine.life
    machine.mourners.add(() => {
      for (const session of this.#sessions) referee.died(session)
    })
  }

  stop(): void {
    this.#isStopped = true
    for (const agent of this.#acting) agent.detach()
  }

  get #isOver(): boolean {
    return this.#isStopped || this.#machine.life !== this.#life
  }

  async live(): Promise<void> {
    while (!this.#isOver) {
      await pauseOn(this.#clock, this.#dice.between(20, 400))
      const there = await this.#connect().catch(ignoreLeaseError)
      if (there === undefined || this.#isOver) continue
      const lessor = new YieldObserver(this.#site, this.#machine, there, this.#referee)
      const leases = new Leases(lessor, { holder: this.name, clock: this.#clock })
      try {
        await this.#work(leases, lessor.signal)
      } catch (error) {
        ignoreLeaseError(error)
      }
      await leases[Symbol.asyncDispose]()
      await there[Symbol.asyncDispose]()
    }
  }

  async #work(leases: Leases, gone: AbortSignal): Promise<void> {
    this.#referee.active(this.name)
    const options = { ttl: AGENT_TERMS.ttl, idle: AGENT_TERMS.idle, cap: AGENT_TERMS.cap }
    const agent = await Agent.begin(leases, { name: this.name, ...options })
    const told = this.#begin(agent, true)
    let child: Told | undefined
    try {
      while (!this.#isOver && !gone.aborted) {
        await pauseOn(this.#clock, this.#dice.chance(0.06) ? this.#dice.between(5_000, 80_000) : this.#dice.between(100, 2_500))
        if (this.#isOver || gone.aborted) break
        const acting: Told = child !== undefined && this.#dice.chance(0.4) ? child : told
        await this.#step(acting, leases).catch(ignoreLeaseError)
        if (child === undefined && this.#dice.chance(0.05))
          child = await agent.child('sub').then(one => this.#begin(one, false), ignoreLeaseError)
        else if (child !== undefined && this.#dice.chance(0.05)) {
          await child.agent.end().catch(ignoreLeaseError)
          child = undefined
        }
      }
    } finally {
      child?.agent.detach()
      agent.detach()
      // From now on, no call and no timer renews it: as if its process had ended.
      for (const session of this.#sessions) this.#referee.died(session)
      this.#sessions.clear()
      this.#acting.clear()
    }
  }

  #begin(agent: Agent, keeps: boolean): Told {
    this.#sessions.add(agent.session)
    this.#acting.add(agent)
    // A sub-agent may have joined a session that it left before, which is no activity.
    if (keeps) this.#referee.active(agent.name)
    else this.#referee.calls(agent.name)
    return { agent, keeps, tokens: new Map(), losses: this.#site.referee.losses }
  }

  async #step(told: Told, leases: Leases): Promise<void> {
    const { agent, tokens } = told
    const dice = this.#dice
    const way = dice.unit()
    const forgets = way >= 0.68 && way < 0.8
    if (told.keeps && !forgets) this.#referee.active(agent.name)
    else this.#referee.calls(agent.name)
    const names = dice.chance(0.3) ? [dice.pick(CLAIMED)] : [...new Set([dice.pick(CLAIMED), dice.pick(CLAIMED)])]
    if (way < 0.6) {
      await this.#learn(told)
      const calledAt = this.#site.world.now
      const claim = await agent.claim(names, { waitSeconds: dice.pick([0, 0, 3]) })
      this.#referee.active(agent.name)
      if (claim.status === 'held') this.#hears(told, claim.tokens, calledAt)
    } else if (way < 0.68) {
      await this.#learn(told)
      const given = dice.chance(0.5) ? undefined : names
      // Also if it fails: it may have been carried out, and then nothing is lost.
      for (const name of given ?? [...tokens.keys()]) tokens.delete(name)
      await agent.release(given)
    } else if (forgets) await this.#forget(told, leases)
    else await this.#learn(told)
    this.#sessions.add(agent.session) // it may have been opened again
  }

  /** Checks that all it hears is true, and that what it does not hear of any more was announced. */
  async #learn(told: Told): Promise<void> {
    const { agent, tokens } = told
    const calledAt = this.#site.world.now
    const { held, lost } = await agent.mine()
    const notices = await agent.notices()
    this.#referee.active(agent.name)
    const now = new Map(held.flatMap(claim => Object.entries(claim.tokens)))
    const announced = new Set([...lost.flatMap(loss => loss.names), ...notices.flatMap(notice => notice.names)])
    // What was lost with the tail of the log may never be announced.
    if (told.losses === this.#site.referee.losses)
      for (const [name, token] of tokens)
        if (now.get(name) !== token && !announced.has(name)) this.#referee.lostSilently(agent.name, name, token)
    tokens.clear()
    this.#hears(told, Object.fromEntries(now), calledAt)
  }

  #hears(told: Told, tokens: Readonly<Record<string, number>>, calledAt: number): void {
    const { losses } = this.#site.referee
    if (told.losses === losses)
      for (const [name, token] of Object.entries(tokens)) this.#referee.told(told.agent.name, name, token, calledAt)
    told.losses = losses
    for (const [name, token] of Object.entries(tokens)) told.tokens.set(name, token)
  }

  /** A model whose context was compacted, or a hook in another process, finds what the agent has by its name alone. */
  async #forget(told: Told, leases: Leases): Promise<void> {
    const blank = await Agent.join(leases, { name: told.agent.name, ttl: AGENT_TERMS.ttl, idle: AGENT_TERMS.idle, cap: AGENT_TERMS.cap })
    this.#sessions.add(blank.session)
    try {
      const calledAt = this.#site.world.now
      const { held } = await blank.mine()
      this.#referee.active(blank.name)
      for (const { tokens } of held) this.#hears({ ...told, tokens: new Map() }, tokens, calledAt)
    } finally {
      blank.detach()
    }
  }
}

/** Reports to the referee each claim that is ended because its agent is idle. */
class YieldObserver extends ObservedLessor {
  readonly #site: Site
  readonly #referee: AgentReferee

  constructor(site: Site, machine: Machine, inner: Lessor, referee: AgentReferee) {
    super(site, machine, inner)
    this.#site = site
    this.#referee = referee
  }

  override submit(command: Command, options: ProposeOptions, completion: Completion): void {
    if (command.kind === 'revoke' && 'lease' in command.target && command.by?.startsWith('idle')) {
      const lease = findLease(this.#site.referee.state, command.target.lease)
      const held = [...(lease?.grants ?? [])].map(({ resource }) => resource.name)
      if (lease !== undefined && held.length > 0) this.#referee.yields(lease.holder.name, held)
    }
    super.submit(command, options, completion)
  }
}

function ignoreLeaseError(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}
