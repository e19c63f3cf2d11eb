/**
 * The rules of agents (docs/agents.md), judged with what no agent sees: true time, and every record when it is appended.
 *
 * A1: an agent is told that it holds a name only if it did, at some moment of the call. A2: an idle agent's claim is ended for a waiter only if the
 * agent was idle and another holder had waited. A3: no claim is lost without a word. A4: the session of a process that died is over within its term
 * and the time that replicas need. A5: an idle agent does not keep a name from a waiter.
 */
import { activityKey } from '../src/agent/activity.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import type { State } from '../src/kernel/state.ts'
import type { World } from './world.ts'

export const CLAIMED = ['n/a', 'n/b', 'n/c'] as const
export const AGENT_TERMS = { ttl: 3_000, idle: 12_000, cap: 60_000 } as const

/** Marks of activity are written after a quarter of `idle` at the latest, and calls take some time: others see activity up to that much too early. */
const LEAST_IDLE = AGENT_TERMS.idle * 0.7
/** A queue is read before the claim is ended; between the two, the machine may have been stalled, and requests sent again. */
const WAITED_WITHIN = 15_000
/** The process that keeps an agent reads its marks of activity once in each round. If its machine stalls, a mark may stay unread for this long, in ms. */
const SEEN_WITHIN = 6_000
/** Replicas restart, are cut off and stall, each time for some seconds. */
const RECOVERY = 45_000

interface Spell {
  readonly from: number
  to: number | undefined
}

export class AgentReferee {
  readonly #world: World
  readonly #log: { readonly state: State; readonly losses: number }
  #losses = 0
  /** When each token of each name was granted, and when it ended. */
  readonly #spells = new Map<string, Spell>()
  readonly #present = new Map<string, ReadonlySet<number>>()
  readonly #waitedAt = new Map<string, number>()
  readonly #waitingSince = new Map<string, number>()
  /** When the process that keeps the agent knew that it was active. */
  readonly #lastActive = new Map<string, number>()
  /** The newest mark of each agent that was in the log, and since when. */
  readonly #marked = new Map<string, { readonly value: string; readonly at: number }>()
  /** When it last began a call, or another process began one for it. */
  readonly #lastCall = new Map<string, number>()
  readonly #died = new Map<number, number>()

  constructor(world: World, log: { readonly state: State; readonly losses: number }) {
    this.#world = world
    this.#log = log
  }

  /** After each record. */
  look(): void {
    const { now } = this.#world
    const { state, losses } = this.#log
    if (losses !== this.#losses) this.#forget()
    this.#losses = losses
    for (const name of CLAIMED) {
      const resource = state.resources.get(name)
      const tokens = new Set(resource?.grants.map(({ token }) => token))
      for (const token of tokens)
        if (!this.#spells.has(`${name} ${token}`)) this.#spells.set(`${name} ${token}`, { from: now, to: undefined })
      for (const token of this.#present.get(name) ?? []) if (!tokens.has(token)) this.#spells.get(`${name} ${token}`)!.to = now
      this.#present.set(name, tokens)
      const waits = (resource?.queue.length ?? 0) > 0
      // Also for a waiter that has just left.
      if (waits || this.#waitingSince.has(name)) this.#waitedAt.set(name, now)
      if (!waits) this.#waitingSince.delete(name)
      else if (!this.#waitingSince.has(name)) this.#waitingSince.set(name, now)
      for (const { lease, token } of resource?.grants ?? []) this.#judgeWait(name, lease.holder.name, token)
    }
    for (const agent of this.#lastCall.keys()) {
      const mark = state.entries.get(activityKey(agent))
      if (mark !== undefined && mark.value !== this.#marked.get(agent)?.value) this.#marked.set(agent, { value: mark.value, at: now })
    }
    for (const [session, at] of this.#died)
      if (findLease(state, session) === undefined) this.#died.delete(session)
      else if (now > at + AGENT_TERMS.ttl + RECOVERY)
        this.#world.violate('A4', `session ${session} lives ${Math.round(now - at)} ms after its process died`)
  }

  #judgeWait(name: string, holder: string, token: number): void {
    const { now } = this.#world
    const since = Math.max(
      this.#waitingSince.get(name) ?? now,
      this.#spells.get(`${name} ${token}`)!.from,
      this.#lastCall.get(holder) ?? now,
    )
    if (now - since > AGENT_TERMS.idle + RECOVERY)
      this.#world.violate('A5', `${holder} has been idle for ${Math.round(now - since)} ms and still keeps ${name} from a waiter`)
  }

  /** A call of an agent begins. A process that does not keep its session tells the one that does by a mark in the log, which takes time. */
  calls(agent: string): void {
    this.#lastCall.set(agent, this.#world.now)
  }

  /** An agent is active, and the process that keeps its session can know it. */
  active(agent: string): void {
    this.calls(agent)
    this.#lastActive.set(agent, this.#world.now)
  }

  died(session: number): void {
    this.#died.set(session, this.#world.now)
  }

  /** The log lost records, so what was seen need not have happened. */
  #forget(): void {
    this.#spells.clear()
    this.#present.clear()
    this.#marked.clear()
    this.#died.clear()
  }

  told(agent: string, name: string, token: number, calledAt: number): void {
    const spell = this.#spells.get(`${name} ${token}`)
    if (spell === undefined || (spell.to !== undefined && spell.to < calledAt))
      this.#world.violate('A1', `${agent} was told that it holds ${name} under token ${token}, and it does not`)
  }

  /** A claim of `agent` is about to be ended for a waiter. */
  yields(agent: string, resources: readonly string[]): void {
    const { now } = this.#world
    const marked = this.#marked.get(agent)?.at ?? Number.NEGATIVE_INFINITY
    const seen = marked + SEEN_WITHIN < now ? marked : Number.NEGATIVE_INFINITY
    const idle = now - Math.max(seen, this.#lastActive.get(agent) ?? Number.NEGATIVE_INFINITY)
    if (idle < LEAST_IDLE)
      this.#world.violate('A2', `${agent} loses ${resources.join(', ')} as idle, ${Math.round(idle)} ms after it was active`)
    if (resources.every(name => now - (this.#waitedAt.get(name) ?? Number.NEGATIVE_INFINITY) > WAITED_WITHIN))
      this.#world.violate('A2', `${agent} loses ${resources.join(', ')} as idle, and nothing waits for it`)
  }

  lostSilently(agent: string, name: string, token: number): void {
    this.#world.violate('A3', `${agent} lost ${name} (token ${token}) and was not told`)
  }
}
