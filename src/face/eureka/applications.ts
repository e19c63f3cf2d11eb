/** Lists of instances as Eureka clients fetch them: all, by application or address, and what has changed lately. */
import type { Clock } from '../../clock.ts'
import type { Instance } from '../../registry/match.ts'

/** A delta has the changes of at least this long, as Eureka keeps them. Clients fetch it every 30 s. */
const KEPT = 180_000
/** Marks are at least this far apart, so there are few. */
const MARK_EVERY = 5_000

/** The number of instances in each status, as clients compute it too: if theirs is another, they fetch everything again. */
export function appsHashCode(statuses: readonly string[]): string {
  const counts = new Map<string, number>()
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1)
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([status, count]) => `${status}_${count}_`)
    .join('')
}

/** The instances of each application. */
export function byApplication(instances: readonly Instance[]): readonly (readonly Instance[])[] {
  const apps = new Map<string, Instance[]>()
  for (const instance of instances) {
    const app = instance.service.toUpperCase()
    const group = apps.get(app)
    if (group === undefined) apps.set(app, [instance])
    else group.push(instance)
  }
  return [...apps.values()]
}

/** Which revision the registry had a while ago. Without a mark that is old enough a delta has everything. */
export class DeltaMarks {
  readonly #clock: Clock
  readonly #marks: { readonly at: number; readonly revision: number }[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The revision that the registry had before the time that a delta covers; 0: unknown. Remembers that it has `revision` now. */
  since(revision: number): number {
    const now = this.#clock.now()
    const last = this.#marks.at(-1)
    if (last === undefined || now - last.at >= MARK_EVERY) this.#marks.push({ at: now, revision })
    while (this.#marks.length > 1 && now - this.#marks[1]!.at >= KEPT) this.#marks.shift()
    const [oldest] = this.#marks
    return oldest !== undefined && now - oldest.at >= KEPT ? oldest.revision : 0
  }
}
