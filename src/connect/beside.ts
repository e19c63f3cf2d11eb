/** The client's side of `via: 'server'`: finds a server in the store that a URL names, and uses it instead of the store (beside-protocol.ts). */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Lessor } from '../lessor.ts'
import { newSecret } from '../server/key-secret.ts'
import type { Announcements } from '../store/announcements.ts'
import { storeModule } from '../store/modules.ts'
import type { StoreModule } from '../store/store-module.ts'
import { RemoteLessor } from '../wire/resp/client.ts'
import { type Dial, dialAnnounced, type Introduction } from '../wire/resp/dial.ts'
import {
  type AnnouncedServer,
  CHALLENGE_FOR,
  CHALLENGES,
  clientProof,
  parseAnnouncement,
  SERVERS,
  serverProof,
  thisMachine,
} from './beside-protocol.ts'
import { schemeOf } from './url.ts'

/** Look for a server for this long before the store is opened, in ms. */
const CONNECT_TIMEOUT = 3_000

/** A client of a server that has announced itself in the store at `url`. Undefined if there is none, or none that answers and proves that it uses this store. */
export async function openServerOfStore(url: string, clock: Clock): Promise<Lessor | undefined> {
  const module = storeModule(schemeOf(url))
  if (module?.announcements === undefined)
    throw new LeaseError(
      'INVALID',
      "via: 'server' is for a store that a server can share with other processes: postgres://, redis://, etcd:// or file:",
    )
  let lessor: RemoteLessor | undefined
  try {
    const servers = await withAnnouncements(module, url, clock, announcements => announcements.list(SERVERS))
    const dials = [...servers.values()].flatMap(text => dialsOf(parseAnnouncement(text), module, url, clock))
    if (dials.length === 0) return undefined
    lessor = await RemoteLessor.open({ dials, clock, connectWithin: CONNECT_TIMEOUT, connectOnce: true })
    // The end of the log, from which on this client never goes back: it may have used another server, or the store, before.
    await lessor.read({ kind: 'summary' }, { consistent: true, signal: timeoutSignal(clock) })
    return lessor
  } catch {
    // The store itself is next. If that cannot be opened, its error tells why.
    await lessor?.[Symbol.asyncDispose]()
    return undefined
  }
}

function dialsOf(server: AnnouncedServer | undefined, module: StoreModule, url: string, clock: Clock): Dial[] {
  if (server === undefined) return []
  const here = thisMachine(clock)
  const reachable = server.addresses.filter(({ on }) => on === undefined || on === here)
  // On the same machine, its addresses for other machines lead nowhere else.
  const local = reachable.filter(({ on }) => on !== undefined)
  const chosen = local.length > 0 ? local.slice(0, 1) : reachable
  return chosen.map(endpoint => dialAnnounced(endpoint, () => introduction(server.secret, module, url, clock)))
}

/** Writes a challenge into the store, for one connection. */
async function introduction(secret: string, module: StoreModule, url: string, clock: Clock): Promise<Introduction> {
  const name = `${clock.bits().toString(36)}${clock.bits().toString(36)}`
  const challenge = newSecret(clock)
  await withAnnouncements(module, url, clock, announcements => announcements.put(CHALLENGES + name, challenge, CHALLENGE_FOR))
  return { name, proof: clientProof(secret, name), answer: serverProof(secret, name, challenge) }
}

/** A connection of its own, that lasts for `work`: a client of a server holds none to the store. */
async function withAnnouncements<T>(
  module: StoreModule,
  url: string,
  clock: Clock,
  work: (announcements: Announcements) => Promise<T>,
): Promise<T> {
  await using announcements = await module.announcements!(url, clock)
  return await work(announcements)
}

function timeoutSignal(clock: Clock): AbortSignal {
  const controller = new AbortController()
  clock.after(CONNECT_TIMEOUT, () => controller.abort(new LeaseError('UNAVAILABLE', 'the server does not read its store')))
  return controller.signal
}
