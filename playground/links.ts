/** The network of a world: one link from each process to the stores. Messages take a while, and are lost where a link is cut. */
import type { Machine, World } from '../sim/world.ts'
import type { History, Side } from './history.ts'

/** The lanes that are no processes. */
export const LOG = 'log'
export const LOCK = 'lock'
export const RESOURCE = 'resource'

/** Who sends or receives: a process, or a service that never stands still. */
export type End = Machine | typeof LOG | typeof LOCK | typeof RESOURCE

export interface Parcel {
  readonly from: End
  readonly to: End
  readonly side: Side
  /** Shown beside the line. Left out: the message is not shown, because it carries no news. */
  readonly text?: string | undefined
}

export class Links {
  readonly #world: World
  readonly #history: History
  /** One way, ms. */
  delay: number
  /** The share of messages to and from the stores that is lost. */
  loss = 0
  /** Processes that no message to or from a store reaches. They still reach the resource. */
  readonly cut = new Set<string>()
  /** Services that do not answer. */
  readonly stopped = new Set<string>()

  constructor(world: World, history: History, delay: number) {
    this.#world = world
    this.#history = history
    this.delay = delay
  }

  /** Delivers to the present process of a machine, if it still runs by then. `life`: the process that is meant. */
  send({ from, to, side, text }: Parcel, deliver: () => void, life?: number): void {
    const world = this.#world
    const isLost = this.#loses(nameOf(from), nameOf(to))
    const arrivesAt = world.now + this.delay
    if (text !== undefined)
      this.#history.messages.push({ from: nameOf(from), to: nameOf(to), side, text, sentAt: world.now, arrivesAt, isLost })
    if (isLost) return
    if (typeof to === 'string') world.later(this.delay, deliver)
    else world.later(this.delay, deliver, to, false, life ?? to.life)
  }

  #loses(from: string, to: string): boolean {
    if (from === RESOURCE || to === RESOURCE) return false
    if (this.stopped.has(from) || this.stopped.has(to) || this.cut.has(from) || this.cut.has(to)) return true
    return this.loss > 0 && this.#world.dice.chance(this.loss)
  }
}

function nameOf(end: End): string {
  return typeof end === 'string' ? end : end.name
}
