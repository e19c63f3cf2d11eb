/** Plays a world: lets time pass and carries out acts when they are due. What it has played, a link can hold. */
import type { Act, Settings } from './settings.ts'
import { type Observer, PlaygroundWorld } from './world.ts'

/** The most acts of one run. A person who does more begins a new one. */
export const MAX_ACTS = 200

export class Player {
  readonly world: PlaygroundWorld
  /** Settings at the beginning. */
  readonly settings: Partial<Settings>
  /** All acts, those that were carried out first, by time. */
  readonly acts: Act[]
  #next = 0
  #running: Promise<void> = Promise.resolve()

  constructor(settings: Partial<Settings>, acts: readonly Act[], observer?: Observer) {
    this.settings = settings
    this.acts = [...acts].sort((a, b) => a.at - b.at)
    this.world = new PlaygroundWorld(settings, observer === undefined ? {} : { observer })
  }

  /** Lets true time pass until `end`. Calls follow one another. */
  run(end: number): Promise<void> {
    this.#running = this.#running.then(() => this.#run(end))
    return this.#running
  }

  async #run(end: number): Promise<void> {
    for (;;) {
      const act = this.acts[this.#next]
      if (act === undefined || act.at > end) break
      await this.world.run(act.at)
      this.#next++
      await this.world.act(act)
    }
    await this.world.run(end)
  }

  /** An act of a person, now. Returns false if there were too many. */
  do(act: Omit<Act, 'at'>): boolean {
    if (this.acts.length >= MAX_ACTS) return false
    this.acts.splice(this.#next, 0, { ...act, at: Math.ceil(this.world.now) })
    return true
  }
}
