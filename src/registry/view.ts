/** The instances that match a filter, updated with each change of the directory. */
import type { KnownInstance } from './known-instance.ts'
import { candidates, type Instance, type InstanceMatcher, matches, nearestFirst } from './match.ts'
import { Picker, type PickOptions } from './pick.ts'

export class FilteredView {
  readonly matcher: InstanceMatcher
  readonly #random: () => number
  readonly #members: Set<KnownInstance>
  #picker: Picker | undefined
  #turn = 0

  constructor(matcher: InstanceMatcher, random: () => number, search: (matcher: InstanceMatcher) => Iterable<KnownInstance>) {
    this.matcher = matcher
    this.#random = random
    this.#members = new Set(search(matcher))
    // Clients should not all start with the same instance.
    this.#turn = Math.floor(random() * 0x10000)
  }

  get size(): number {
    return this.#members.size
  }

  get members(): ReadonlySet<KnownInstance> {
    return this.#members
  }

  /** The directory calls this for each change. Returns true, so that the directory can tell a live view from a collected one. */
  changed(known: KnownInstance, before: Instance | undefined, after: Instance | undefined): true {
    const was = this.#members.has(known)
    const is = after !== undefined && matches(this.matcher, after)
    if (is && !was) this.#members.add(known)
    else if (was && !is) this.#members.delete(known)
    // A new load alone does not invalidate the picker, which reads loads when it picks.
    if (was !== is || (is && (before!.status !== after.status || before!.zone !== after.zone || before!.weight !== after.weight)))
      this.#picker = undefined
    return true
  }

  /** Nearest first, then by name. */
  list(): Instance[] {
    return nearestFirst(
      this.matcher.zone,
      Array.from(this.#members, known => known.instance),
    )
  }

  pick({ key = '', strategy = key === '' ? 'round-robin' : 'hash' }: PickOptions = {}): Instance | undefined {
    this.#picker ??= new Picker(candidates(this.matcher.zone, this.#members), this.#random)
    return this.#picker.pick(strategy, this.#turn++, key)
  }
}
