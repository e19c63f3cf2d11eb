/** Finds a command by its name, with its counter. Most connections send the same command again and again, so the last one is remembered. */
import type { CommandParser } from '../../wire/resp/command-parser.ts'
import { RequestCounter, type RequestCounters } from '../request-counters.ts'

/** Counts what belongs to no command. It is part of no metric. */
export const UNCOUNTED = new RequestCounter('resp', '')

export class CommandLookup<C extends { readonly name: string }> {
  readonly #commands: ReadonlyMap<string, C>
  readonly #counters: RequestCounters
  #last: C | undefined
  /** The counter of the command that was last looked up. */
  counter = UNCOUNTED

  constructor(commands: ReadonlyMap<string, C>, counters: RequestCounters) {
    this.#commands = commands
    this.#counters = counters
  }

  /** The command that the arguments start with, or undefined if it is unknown. */
  find(args: CommandParser): C | undefined {
    if (this.#last !== undefined && args.is(0, this.#last.name)) return this.#last
    this.#last = this.#commands.get(args.word(0))
    this.counter = this.#counters.counter('resp', this.#last?.name ?? 'unknown')
    return this.#last
  }
}
