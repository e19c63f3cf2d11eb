/** Those that match a filter, kept up to date change by change. */
import type { KnownInstance } from './directory.ts'
import { candidates, type Instance, type InstanceMatcher, inOrder, matches } from './match.ts'
import { Picker, type PickOptions } from './pick.ts'

export class FilteredView {
  readonly wanted: InstanceMatcher
  readonly #random: () => number
  readonly #members: Set<KnownInstance>
  #picker: Picker | undefined
  #turn = 0

  constructor(wanted: InstanceMatcher, random: () => number, search: (wanted: InstanceMatcher) => Iterable<KnownInstance>) {
    this.wanted = wanted
    this.#random = random
    this.#members = new Set(search(wanted))
    // Not everyone begins with the same one.
    this.#turn = Math.floor(random() * 0x10000)
  }

  get size(): number {
    return this.#members.size
  }

  get members(): ReadonlySet<KnownInstance> {
    return this.#members
  }

  /** The directory tells every change of anything. Returns true, always: it is still there. */
  heard(known: KnownInstance, before: Instance | undefined, after: Instance | undefined): true {
    const was = this.#members.has(known)
    const is = after !== undefined && matches(this.wanted, after)
    if (is && !was) this.#members.add(known)
    else if (was && !is) this.#members.delete(known)
    // A load alone moves nobody: pickers read it when they pick.
    if (was !== is || (is && (before!.status !== after.status || before!.zone !== after.zone || before!.weight !== after.weight)))
      this.#picker = undefined
    return true
  }

  /** Nearest first, then by name. */
  list(): Instance[] {
    return inOrder(
      this.wanted.zone,
      Array.from(this.#members, known => known.instance),
    )
  }

  pick({ key = '', strategy = key === '' ? 'round-robin' : 'hash' }: PickOptions = {}): Instance | undefined {
    this.#picker ??= new Picker(candidates(this.wanted.zone, this.#members), this.#random)
    return this.#picker.pick(strategy, this.#turn++, key)
  }
}
