/** `connect`: opens a URL, a store or a lessor, and returns its leases. */
import { type Clock, systemClock, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { LEASES_OPTIONS, type LeasesOptions } from '../holder/lease-client.ts'
import { Leases } from '../leases.ts'
import type { Lessor } from '../lessor.ts'
import { checkOptionNames } from '../options.ts'
import type { Replica, Survivor } from '../replica/replica.ts'
import type { Store } from '../store.ts'
import { startWorkerHeartbeat } from './heartbeat-thread.ts'
import { type FileOwner, operatorSecret } from './operator-secret.ts'
import { RelocatingLessor } from './relocating-lessor.ts'
import { type ConnectRetryOptions, openWithRetry } from './retry.ts'
import { storeOf } from './store-of.ts'
import { commonRules, countUser } from './store-users.ts'
import { defaultUrl, schemeOf, viaOf } from './url.ts'

/** A process that only holds leases reads its log with its renewals, and after this many ms at the latest. */
const READ_EVERY = 60_000

export interface OpenOptions {
  readonly clock?: Clock | undefined
  /** The API key for a server. Stores have no keys. Default: the environment variable `LEASEHOLD_API_KEY`. */
  readonly apiKey?: string | undefined
  /**
   * `'server'`: uses a server that has announced itself in the store, and the store itself while there is none. For many processes on one store. In a URL: `?via=server`.
   * @default the store itself
   */
  readonly via?: 'server' | undefined
}

/**
 * Opens a store or connects to a server, and returns the leases of this process. Closing them closes the store or connection as well.
 *
 * - A URL names a store (`file:`, `memory:`, `postgres://`, `redis://`, `etcd://`) or a server (`leasehold://`, `http://`).
 *   Default: `LEASEHOLD_URL`, which `leasehold run` sets for its child, else a file in the user's state folder.
 * - A `Store` is one that you made, with a pool or a client of your own, or of a kind that Leasehold does not know. `connect` opens it, and
 *   closes it with the leases; a pool or client that you passed to the store stays open. A store that is not shared is owned by this process.
 * - A `Lessor` is used as it is, and is closed with the leases.
 *
 * `retry` waits for a place that is down, the same for every store and server. Without it, a place that is down is `UNAVAILABLE` at once or after a few seconds.
 *
 * @example
 * const leases = await connect('postgres://db.example/app', { holder: 'billing-7', retry: '30s', logger: console })
 * const leases = await connect(new PostgresStore({ pool }))
 */
export async function connect(
  where: string | URL | Store | Lessor = process.env.LEASEHOLD_URL || defaultUrl(),
  options: LeasesOptions & OpenOptions & ConnectRetryOptions = {},
): Promise<Leases> {
  if (typeof options !== 'object' || options === null)
    throw new LeaseError('INVALID', `the options of connect are an object, not ${String(options)}`)
  checkOptionNames('connect', options, [...LEASES_OPTIONS, ...RETRY_OPTIONS]) // before anything is opened
  const { retry, onEvent, logger, ...rest } = options
  if (retry !== undefined && urlOf(where) === undefined)
    throw new LeaseError('INVALID', 'retry opens the place again, and a Store or Lessor is opened once: use connect(url, …)')
  return openWithRetry(() => connectOnce(where, rest), rest.clock ?? systemClock, { retry, onEvent, logger })
}

const RETRY_OPTIONS = ['retry', 'onEvent', 'logger', 'via'] as const

async function connectOnce(where: string | URL | Store | Lessor, given: LeasesOptions & OpenOptions): Promise<Leases> {
  const url = urlOf(where)
  if (url === undefined) return connectTo(where as Store | Lessor, given)
  const { via, ...options } = given
  viaOf(url, via) // refused before a thread is started
  const workerHeartbeat = options.heartbeat === 'worker' ? await startWorkerHeartbeat(url, given) : undefined
  try {
    return new Leases(await open(url, given), options, workerHeartbeat)
  } catch (error) {
    await workerHeartbeat?.[Symbol.asyncDispose]()
    throw error
  }
}

function urlOf(where: unknown): string | undefined {
  if (typeof where === 'string') return where
  if (typeof where === 'object' && where !== null) {
    if ('href' in where && typeof where.href === 'string') return where.href
    if (isStore(where) || isLessor(where)) return undefined
  }
  throw new LeaseError('INVALID', `connect takes a URL, a Store or a Lessor, not ${String(where)}`)
}

async function connectTo(where: Store | Lessor, options: LeasesOptions & OpenOptions): Promise<Leases> {
  if (options.heartbeat === 'worker')
    throw new LeaseError(
      'INVALID',
      "heartbeat: 'worker' opens the store or server a second time, on another thread, and needs its URL: use connect(url, …)",
    )
  if (options.via !== undefined)
    throw new LeaseError('INVALID', "via: 'server' looks for the server in the store, and needs its URL: use connect(url, …)")
  return new Leases(isStore(where) ? await openStore(where, options) : where, options)
}

function isStore(value: object): value is Store {
  return 'append' in value && typeof value.append === 'function' && 'open' in value && typeof value.open === 'function'
}

function isLessor(value: object): value is Lessor {
  return 'submit' in value && typeof value.submit === 'function'
}

/** A lessor on the store, which is owned if it is not shared. It follows the leases if they move to another store. */
async function openStore(store: Store, options: OpenOptions): Promise<Lessor> {
  const { clock = systemClock } = options
  const { Replica } = await replicaCode()
  const replica = await Replica.open(store, { clock, owned: !store.profile.shared, readEvery: READ_EVERY })
  return new RelocatingLessor(replica, { clock, open: there => openAt(there, options, READ_EVERY) })
}

/** The lessor at `url`. It follows the leases if they move to another store. */
export async function open(given: string = defaultUrl(), options: OpenOptions = {}): Promise<Lessor> {
  const { url, via } = viaOf(given, options.via)
  const openServer = servers[schemeOf(url) ?? '']
  if (openServer !== undefined) {
    if (via !== undefined) throw new LeaseError('INVALID', "via: 'server' is for the URL of a store, and this one names a server")
    return openServer(url, options) // the server follows the leases
  }
  const there = { ...options, via }
  const { lessor, served } = await openStoreOrItsServer(url, there, READ_EVERY)
  return new RelocatingLessor(lessor, {
    ...options,
    open: place => openAt(place, there, READ_EVERY),
    ...((served || via !== undefined) && { home: () => openAt(url, there, READ_EVERY) }),
    ...(via !== undefined && { server: () => serverOf(url, options) }),
  })
}

/** The lessor at `url`, without following the leases if they move to another store. A replica follows its log at all times. */
export function openInPlace(url: string, options: OpenOptions = {}): Promise<Lessor> {
  return openAt(url, options)
}

async function openAt(given: string, options: OpenOptions, readEvery?: number): Promise<Lessor> {
  const { url, via } = viaOf(given, options.via)
  const openServer = servers[schemeOf(url) ?? '']
  return openServer !== undefined ? openServer(url, options) : (await openStoreOrItsServer(url, { ...options, via }, readEvery)).lessor
}

/** A client of a server that has announced itself in the store. */
async function serverOf(url: string, { clock = systemClock }: OpenOptions): Promise<Lessor | undefined> {
  const { openServerOfStore } = await import('./beside.ts')
  return openServerOfStore(url, clock)
}

/** A replica on the store at `url`, or a client of the server that owns it, or with `via` of one beside it. */
async function openStoreOrItsServer(
  url: string,
  options: OpenOptions,
  readEvery?: number,
): Promise<{ readonly lessor: Lessor; readonly served: boolean }> {
  const beside = options.via === undefined ? undefined : await serverOf(url, options)
  if (beside !== undefined) return { lessor: beside, served: true }
  try {
    const { clock = systemClock } = options
    return { lessor: await openReplica(await storeOf(url, { clock }), url, { clock, owned: false, readEvery }), served: false }
  } catch (error) {
    const owner = ownerOf(error)
    if (owner === undefined || servers[schemeOf(owner.address) ?? ''] === undefined) throw error
    // A user who may open the file may do everything, even while a server owns it.
    const secret = operatorSecret(owner)
    try {
      return { lessor: await openInPlace(owner.address, secret === undefined ? options : { ...options, apiKey: secret }), served: true }
    } catch (cause) {
      throw untrustedCertificate(owner, cause) ?? cause
    }
  }
}

/** A user who named a file does not expect a certificate. The error names the server whose certificate it is, and what to do. */
function untrustedCertificate({ path, address }: FileOwner, cause: unknown): LeaseError | undefined {
  const certificate = cause instanceof LeaseError ? cause.facts.certificate : undefined
  if (typeof certificate !== 'string') return undefined
  return new LeaseError(
    'UNAVAILABLE',
    `${path} is served at ${address}, whose certificate is not trusted here (${certificate}): set NODE_EXTRA_CA_CERTS=FILE to its authority's, or start the server with --socket PATH as well, so that processes of this machine connect through the socket`,
    { cause, reason: 'certificate', facts: { path, address, certificate } },
  )
}

/** A variable that is set to nothing, as in `LEASEHOLD_API_KEY= leasehold ls`, names no key. */
function keyOfEnvironment(): string | undefined {
  return process.env.LEASEHOLD_API_KEY || undefined
}

/** Each scheme of a URL has its way to connect to a server. */
const servers: Readonly<Record<string, (url: string, options: OpenOptions) => Promise<Lessor>>> = {
  leasehold: overResp,
  leaseholds: overResp,
  http: overHttp,
  https: overHttp,
}

async function overResp(url: string, { clock = systemClock, apiKey = keyOfEnvironment() }: OpenOptions): Promise<Lessor> {
  const [{ RemoteLessor }, { serverAddressOf }] = await Promise.all([import('../wire/resp/client.ts'), import('../wire/resp/dial.ts')])
  return RemoteLessor.open({ key: apiKey, ...serverAddressOf(url), clock })
}

async function overHttp(url: string, { clock = systemClock, apiKey = keyOfEnvironment() }: OpenOptions): Promise<Lessor> {
  const { HttpLessor } = await import('../wire/http/client.ts')
  return HttpLessor.open(url, { clock, ...(apiKey !== undefined && { key: apiKey }) })
}

/** The live server that owns a file, if that is why the file could not be opened. */
function ownerOf(error: unknown): FileOwner | undefined {
  if (!(error instanceof LeaseError) || error.reason !== 'owned') return undefined
  const { path, address } = error.facts
  return typeof path === 'string' && typeof address === 'string' ? { path, address } : undefined
}

/** The highest ids and tokens that replicas of this process saw on logs that later lost records. The next replica on such a log starts above them. */
const survivors = new Map<string, Survivor>()

/** A replica on the store, which `url` names. */
export async function openReplica(
  store: Store,
  url: string,
  {
    clock = systemClock,
    owned,
    readEvery,
    crowded,
    server = false,
    holdRules = false,
    raised,
  }: {
    readonly clock?: Clock
    readonly owned: boolean
    /** This process is a server, and not a program that uses the store itself. */
    readonly server?: boolean
    readonly holdRules?: boolean
    /** The rules of an owned log were raised. */
    readonly raised?: (from: number, to: number) => void
    readonly readEvery?: number | undefined
    readonly crowded?: (message: string) => void
  },
): Promise<Replica> {
  const { Replica } = await replicaCode()
  const survivor = survivors.get(url)
  const replica = await Replica.open(store, {
    ...{ clock, owned, holdRules },
    ...(survivor && { survivor }),
    ...(raised && { raised }),
    ...(readEvery !== undefined && { readEvery }),
  })
  survivors.delete(url)
  const { RULES } = await import('../kernel/state.ts') // loaded with the replica
  // An older process that waits for the first record of this log would have to stop at rules that it does not know. If they cannot be listed, it stops.
  if (!owned && replica.index === 0) replica.beginWith(await commonRules(url, { clock, known: RULES }).catch(() => RULES))
  // A clock of a test passes ten minutes in no time.
  if (!owned && clock === systemClock) countUser(url, { clock, signal: replica.signal, rules: RULES, server, ...(crowded && { crowded }) })
  whenAborted(replica.signal, () => {
    const { reason } = replica.signal
    if (reason instanceof LeaseError && reason.code === 'DIVERGED') survivors.set(url, highest(replica.survivor, survivors.get(url)))
  })
  return replica
}

/** Loaded on first use: it is half of the package, and clients of a server do not need it. */
function replicaCode(): Promise<typeof import('../replica/replica.ts')> {
  return import('../replica/replica.ts')
}

function highest(a: Survivor, b: Survivor = a): Survivor {
  const [lease, token] = [Math.max(a.lease, b.lease), Math.max(a.token, b.token)]
  return {
    lease,
    token,
    revision: Math.max(a.revision, b.revision),
    quiet: Math.max(a.quiet, b.quiet),
    key: Math.max(a.key ?? 1, b.key ?? 1),
  }
}
