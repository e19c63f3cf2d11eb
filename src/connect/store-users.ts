/**
 * Counts the processes that use a store directly, for operators: a process that has used one for some minutes announces itself there, once in ten minutes. What a process
 * costs the others grows with their number, so it warns when there are more than the store carries well (docs/operate/processes.md).
 */
import type { Clock } from '../clock.ts'
import { storeModule } from '../store/modules.ts'
import { redactedUrl, schemeOf } from './url.ts'

const PROCESSES = 'process/'
/** Commands that end before this, in ms, are not counted. */
const FIRST = 60_000
/** Processes that start together announce themselves at different times within this, in ms. */
const SPREAD = 300_000
const AGAIN = 600_000
/** One announcement may fail. */
const COUNTED_FOR = 2 * AGAIN + FIRST

/** The number of processes that each store carries directly, by the name of the store. Beyond it, servers in front cost less. */
export const CAPACITY: Readonly<Record<string, number>> = { file: 16, postgres: 24, redis: 50, etcd: 30 }

/** The number of processes that use the store at `url` directly, servers included. Undefined: it is not known. */
export async function usersOf(url: string, clock: Clock): Promise<{ readonly count: number; readonly capacity: number } | undefined> {
  const module = storeModule(schemeOf(url))
  const capacity = CAPACITY[module?.name ?? '']
  if (module?.announcements === undefined || capacity === undefined) return undefined
  await using announcements = await module.announcements(url, clock)
  return { count: (await announcements.list(PROCESSES)).size, capacity }
}

/** Counts this process as a user of the store until `signal` fires. `crowded` is called each time there are too many. */
export function countUser(
  url: string,
  { clock, signal, crowded = warn }: { readonly clock: Clock; readonly signal: AbortSignal; readonly crowded?: (message: string) => void },
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
    await announcements.put(name, '', COUNTED_FOR)
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
  schedule(FIRST + clock.random() * SPREAD)
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
