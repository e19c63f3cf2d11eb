/** Objects that leases protect. Each detects the damage that a broken lease would do to it. */
import type { World } from './world.ts'

/** A set that programs read, change and write back. It refuses tokens that are older than the newest it has seen. */
export class GuardedSet {
  readonly #world: World
  #version = 0
  #highest = 0

  constructor(world: World) {
    this.#world = world
  }

  /** Undefined: the token was refused. */
  read(token: number): number | undefined {
    if (token < this.#highest) return undefined
    this.#highest = token
    return this.#version
  }

  /** Writes back version `seen` with one more element. */
  add(token: number, seen: number, who: string): boolean {
    if (token < this.#highest) return false
    this.#highest = token
    if (seen !== this.#version)
      this.#world.violate('S2', `${who} wrote back version ${seen} of a guarded set with token ${token}: an update was lost`)
    this.#version++
    return true
  }
}

/** The same without a token check: a program that writes immediately after `held` was true must be the only writer. */
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
    if (seen !== this.#version) this.#world.violate('S1', `${who} held the lease and lost an update of ${this.#last}, which held it, too`)
    this.#version++
    this.#last = who
  }
}

/** A leader whose work is in progress. */
export interface Officer {
  readonly who: string
  readonly token: number
  /** Returns whether the leader gave up its lease itself, rather than lost it. */
  givenUp(): boolean
}

/** A log that only the leader writes. */
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
        this.#world.violate('S16', `${officer.who} begins its term while the work of ${other.who}, which resigned, goes on`)
    this.#working.add(officer)
  }

  ends(officer: Officer): void {
    this.#working.delete(officer)
  }

  /** Called immediately after the leader checked that it holds its lease. */
  append({ token, who }: Officer): void {
    if (token < this.#last.token)
      this.#world.violate('S16', `${who} leads with token ${token} after ${this.#last.who} has led with ${this.#last.token}`)
    this.#last = { token, who }
  }

  /** A process died, and its work ended with it. */
  forget(who: string): void {
    for (const officer of [...this.#working]) if (officer.who === who) this.#working.delete(officer)
  }
}

/** A value that programs read through caches. It refuses tokens that are older than the newest it has seen. */
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

  /** S23: a cache must not serve a version older than the last completed write. */
  served(version: number, who: string): void {
    if (version < this.#completed)
      this.#world.violate('S23', `${who} was served version ${version} after the write of version ${this.#completed} was completed`)
  }
}
