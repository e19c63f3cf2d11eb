/**
 * The log learns from the end of a lease how long work of its class is held, and how often its holders die. It decides nothing here. Clients
 * that use `ttl: 'auto'` read the sketches and choose terms by them (src/learn/).
 *
 * The class of a lease is its label `learn`: a path such as `jobs/model=a100`. Each end counts for all work, and for each level of the class. The first
 * segment must be that of a resource of the lease, so a key that may acquire `jobs/` cannot change what is known of `gpu/`.
 */
import type { EventType } from '../event.ts'
import { fits } from '../name.ts'
import { addDuration, type Durations, newDurations } from '../state/durations.ts'
import { FIRST_TERM, type LeaseState, type State, SUSPECT } from '../state.ts'

export const CLASS_LABEL = 'learn'
/** The most classes that are remembered; beyond that, those in which a lease ended longest ago are forgotten. */
export const MAX_CLASSES = 1_024
const MAX_LEVELS = 4
const CLASS_BYTES = 256

/** `ran`: for how many ms it was held, as its holder says. */
export function learnFromEnd(state: State, lease: LeaseState, type: EventType, ran: number | undefined): void {
  if (lease.extras === undefined) return
  const name = classOf(lease)
  if (name === undefined) return
  const held = state.wall - lease.since
  if (type === 'released') return count(state, name, ran ?? held, false)
  if (type !== 'lapsed') return
  // It was not used after its last renewal and the half of a term that followed; when in between the holder died is not known.
  const silent = Math.floor((lastTerm(lease) * 3) / 4) + lease.extras.grace + lease.extras.slowed
  count(state, name, ran ?? Math.max(0, Math.min(held, held - silent)), true)
}

/** The term that ran out. What a suspect lease counts now is its grace. */
function lastTerm({ status, confirmed, ttl, term }: LeaseState): number {
  if (status !== SUSPECT) return term
  return confirmed ? ttl : Math.min(ttl, FIRST_TERM)
}

function classOf({ extras, grants }: LeaseState): string | undefined {
  for (const [label, name] of extras!.labels) {
    if (label !== CLASS_LABEL) continue
    const first = firstSegment(name)
    const fitting = first !== '' && fits(name, CLASS_BYTES) && grants.some(({ resource }) => firstSegment(resource.name) === first)
    return fitting ? name : undefined
  }
  return undefined
}

function firstSegment(name: string): string {
  const end = name.indexOf('/')
  return end === -1 ? name : name.slice(0, end)
}

/** The levels of a class, from all work to the class itself. A path of more levels than MAX_LEVELS ends with the class itself all the same. */
export function levelsOf(name: string): readonly string[] {
  const levels = ['']
  for (let end = name.indexOf('/'); end !== -1 && levels.length < MAX_LEVELS; end = name.indexOf('/', end + 1))
    levels.push(name.slice(0, end))
  if (name !== '') levels.push(name)
  return levels
}

function count(state: State, name: string, ms: number, died: boolean): void {
  for (const level of levelsOf(name)) {
    const durations: Durations = state.durations.get(level) ?? newDurations()
    addDuration(durations, ms, died)
    // Moves to the end: the class in which nothing ended for longest is forgotten first.
    if (level !== '') state.durations.delete(level)
    state.durations.set(level, durations)
  }
  for (const oldest of state.durations.keys()) {
    if (state.durations.size <= MAX_CLASSES) return
    if (oldest !== '') state.durations.delete(oldest)
  }
}
