/**
 * Lists the processes that use a store directly, for operators: a process that has used one for some minutes announces itself there with its version, once in ten
 * minutes, and a server at once. What a process costs the others grows with their number, so it warns when there are more than the store carries well
 * (docs/operate/processes.md). Before the rules of a log are raised, it shows who does not know the new ones.
 */
import { hostname } from 'node:os'
import type { Clock } from '../clock.ts'
import { storeModule } from '../store/modules.ts'
import { redactedUrl, schemeOf } from './url.ts'

const PROCESSES = 'process/'
/** Commands that end before this, in ms, are not counted. */
const FIRST = 60_000
/** Processes that start together announce themselves at different times within this, in ms. */
const SPREAD = 300_000
const AGAIN = 600_000
/** Every build knows these. */
const OLDEST_RULES = 1
/** One announcement may fail. */
const COUNTED_FOR = 2 * AGAIN + FIRST

/** The number of processes that each store carries directly, by the name of the store. Beyond it, servers in front cost less. */
export const CAPACITY: Readonly<Record<string, number>> = { file: 16, postgres: 24, redis: 50, etcd: 30 }

/** A process on a store, as it announced itself. Builds before the first release say nothing of themselves. */
export interface AttachedProcess {
  readonly kind: 'server' | 'program' | 'unknown'
  /** Its host and process id. */
  readonly name: string
  readonly version: string
  /** The newest rules that it knows. Undefined: not known. */
  readonly rules?: number
}

export interface StoreUsers {
  /** Servers included. A process that was killed stays for some minutes. */
  readonly processes: readonly AttachedProcess[]
  readonly count: number
  readonly capacity: number
}

/** The processes that use the store at `url` directly. Undefined: they are not known. */
export async function usersOf(url: string, clock: Clock): Promise<StoreUsers | undefined> {
  const module = storeModule(schemeOf(url))
  const capacity = CAPACITY[module?.name ?? '']
  if (module?.announcements === undefined || capacity === undefined) return undefined
  await using announcements = await module.announcements(url, clock)
  const processes = [...(await announcements.list(PROCESSES)).values()].map(attached)
  return { processes, count: processes.length, capacity }
}

/** The newest rules that every process on the store knows, this one included, which knows those up to `known`. */
export async function commonRules(url: string, { clock, known }: { readonly clock: Clock; readonly known: number }): Promise<number> {
  if (known === OLDEST_RULES) return known
  const { processes } = (await usersOf(url, clock)) ?? { processes: [] }
  return Math.min(known, ...processes.map(({ rules }) => rules ?? OLDEST_RULES))
}

/** Any process that may write to the store can announce anything. */
function attached(text: string): AttachedProcess {
  try {
    const { kind, name, version, rules } = JSON.parse(text) as Partial<AttachedProcess>
    if ((kind === 'server' || kind === 'program') && typeof name === 'string' && typeof version === 'string' && Number.isSafeInteger(rules))
      return { kind, name, version, rules: rules! }
  } catch {
    // It said nothing of itself, or something that is not known here.
  }
  return { kind: 'unknown', name: '', version: '' }
}

/** Counts this process as a user of the store until `signal` fires. `crowded` is called each time there are too many. */
export function countUser(
  url: string,
  {
    clock,
    signal,
    rules,
    crowded = warn,
    server = false,
  }: {
    readonly clock: Clock
    readonly signal: AbortSignal
    /** The newest rules that this process knows. */
    readonly rules: number
    readonly crowded?: (message: string) => void
    /** A server announces itself at once: an operator who upgrades looks for it. */
    readonly server?: boolean
  },
): void {
  const module = storeModule(schemeOf(url))
  const capacity = CAPACITY[module?.name ?? '']
  if (module?.announcements === undefined || capacity === undefined) return
  const name = `${PROCESSES}${clock.bits().toString(36)}`
  let announced = false
  const withdraw = async () => {
    await using announcements = await module.announcements!(url, clock)
    await announcements.take(name)
  }
  const announce = async () => {
    await using announcements = await module.announcements!(url, clock)
    const { VERSION: version } = await import('../server/version.ts') // read from a file: only a process that announces itself needs it
    const about: AttachedProcess = { kind: server ? 'server' : 'program', name: `${hostname()}:${process.pid}`, version, rules }
    await announcements.put(name, JSON.stringify(about), COUNTED_FOR)
    announced = true
    const { size } = await announcements.list(PROCESSES)
    if (size > capacity && !signal.aborted) crowded(crowdedMessage(redactedUrl(url), size, capacity))
  }
  let cancel = () => {}
  const schedule = (ms: number) => {
    // No number is worth an error: a role without the right to announce is not counted.
    cancel = clock.after(
      ms,
      () =>
        void announce()
          .catch(() => {})
          .finally(() => !signal.aborted && schedule(AGAIN * (0.75 + clock.random() / 4))),
    )
  }
  schedule(server ? 0 : FIRST + clock.random() * SPREAD)
  signal.addEventListener(
    'abort',
    () => {
      cancel()
      if (announced) void withdraw().catch(() => {})
    },
    { once: true },
  )
}

export function crowdedMessage(where: string, count: number, capacity: number): string {
  return `${count} processes use ${where} directly, and it carries about ${capacity} well: run leasehold serve beside it, and connect with via: 'server' or ?via=server (docs/operate/processes.md)`
}

function warn(message: string): void {
  process.emitWarning(message, 'LeaseholdWarning')
}
