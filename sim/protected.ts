/** What leases protect, outside of them all: each looks for the harm that a broken lease would do to it. */
import type { World } from './world.ts'

/** A set that is read, thought about and written back. It turns away whoever shows an older token than another has shown. */
export class GuardedSet {
  readonly #world: World
  #version = 0
  #highest = 0

  constructor(world: World) {
    this.#world = world
  }

  /** Undefined: turned away. */
  read(token: number): number | undefined {
    if (token < this.#highest) return undefined
    this.#highest = token
    return this.#version
  }

  /** What was read as version `seen` is written back with one more in it. */
  add(token: number, seen: number, who: string): boolean {
    if (token < this.#highest) return false
    this.#highest = token
    if (seen !== this.#version)
      this.#world.violate('S2', `${who} wrote back version ${seen} of a guarded set with token ${token}: an update was lost`)
    this.#version++
    return true
  }
}

/** The same without a guard: who writes at once after `held` was true has nobody beside it. */
export class BareSet {
  readonly #world: World
  #version = 0
  #last = ''

  constructor(world: World) {
    this.#world = world
  }

  read(): number {
    return this.#version
  }

  add(seen: number, who: string): void {
    if (seen !== this.#version) this.#world.violate('S1', `${who} held the lease and lost an update of ${this.#last}, who held it, too`)
    this.#version++
    this.#last = who
  }
}

/** Someone at work in office. */
export interface Officer {
  readonly who: string
  readonly token: number
  /** Given up by its own will, not lost. */
  givenUp(): boolean
}

/** The log of whoever leads. */
export class LeaderLog {
  readonly #world: World
  readonly #working = new Set<Officer>()
  #last = { token: 0, who: '' }

  constructor(world: World) {
    this.#world = world
  }

  begins(officer: Officer): void {
    for (const other of this.#working)
      if (other.givenUp())
        this.#world.violate('S16', `${officer.who} begins its term while the work of ${other.who}, who gave up the seat, goes on`)
    this.#working.add(officer)
  }

  ends(officer: Officer): void {
    this.#working.delete(officer)
  }

  /** Written at once after the leader found that it holds its seat. */
  append({ token, who }: Officer): void {
    if (token < this.#last.token)
      this.#world.violate('S16', `${who} leads with token ${token} after ${this.#last.who} has led with ${this.#last.token}`)
    this.#last = { token, who }
  }

  /** A process died with its work. */
  forget(who: string): void {
    for (const officer of [...this.#working]) if (officer.who === who) this.#working.delete(officer)
  }
}

/** A value that is read through caches. Whoever comes with an older token than another has shown is turned away. */
export class Register {
  readonly #world: World
  #version = 0
  #highest = 0
  /** The last write that was reported as done. */
  #completed = 0

  constructor(world: World) {
    this.#world = world
  }

  load(token: number): number | undefined {
    if (token < this.#highest) return undefined
    this.#highest = token
    return this.#version
  }

  save(token: number): number | undefined {
    if (token < this.#highest) return undefined
    this.#highest = token
    return ++this.#version
  }

  completed(version: number): void {
    this.#completed = Math.max(this.#completed, version)
  }

  /** S23 */
  served(version: number, who: string): void {
    if (version < this.#completed)
      this.#world.violate('S23', `${who} was served version ${version} after the write of version ${this.#completed} was completed`)
  }
}
