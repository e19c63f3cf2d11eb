/** From a URL to leases: the one place that knows which stores and wires there are. */
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Clock, systemClock } from './clock.ts'
import { LeaseError } from './errors.ts'
import { Leases, type LeasesOptions } from './leases.ts'
import type { Lessor } from './lessor.ts'
import { startPacemaker } from './pacemaker-thread.ts'
import { Replica } from './replica/replica.ts'
import { EtcdStore } from './store/etcd.ts'
import { etcdOptions } from './store/etcd-url.ts'
import { FileStore, type FileStoreOptions } from './store/file.ts'
import { MemoryLog, MemoryStore } from './store/memory.ts'
import { PostgresStore } from './store/postgres.ts'
import { RedisStore } from './store/redis.ts'
import type { Store } from './store.ts'
import { RemoteLessor } from './wire/resp-client.ts'
import { placeOf } from './wire/resp-dial.ts'

/** Opens the place that `url` names, or the user's own file, and stays connected until disposed of. */
export async function connect(url: string = defaultUrl(), options: LeasesOptions & OpenOptions = {}): Promise<Leases> {
  const pacemaker = options.heartbeat === 'worker' ? await startPacemaker(url, options) : undefined
  try {
    return new Leases(await open(url, options), options, pacemaker)
  } catch (error) {
    await pacemaker?.[Symbol.asyncDispose]()
    throw error
  }
}

export interface OpenOptions {
  readonly clock?: Clock
  /** The key to show to a server. A store asks for none. */
  readonly apiKey?: string
}

export async function open(url: string = defaultUrl(), options: OpenOptions = {}): Promise<Lessor> {
  const { clock = systemClock } = options
  const wire = wires[schemeOf(url) ?? '']
  if (wire !== undefined) return wire(url, options)
  try {
    return await Replica.open(storeOf(url, { clock }), { clock })
  } catch (error) {
    const server = ownerOf(error)
    if (server === undefined || wires[schemeOf(server.address) ?? ''] === undefined) throw error
    // Who may open the file may do everything, also while a server owns it.
    const secret = operatorSecret(server.path)
    return open(server.address, secret === undefined ? options : { ...options, apiKey: secret })
  }
}

/** Servers, and how each is spoken to. */
const wires: Readonly<Record<string, (url: string, options: OpenOptions) => Promise<Lessor>>> = {
  leasehold: overResp,
  leaseholds: overResp,
  http: overHttp,
  https: overHttp,
}

function overResp(url: string, { clock = systemClock, apiKey = process.env.LEASEHOLD_API_KEY }: OpenOptions): Promise<Lessor> {
  return RemoteLessor.open({ key: apiKey, ...placeOf(url), clock })
}

async function overHttp(url: string, { clock = systemClock, apiKey = process.env.LEASEHOLD_API_KEY }: OpenOptions): Promise<Lessor> {
  const { HttpLessor } = await import('./wire/http-client.ts')
  return HttpLessor.open(url, { clock, ...(apiKey !== undefined && { key: apiKey }) })
}

function schemeOf(url: string): string | undefined {
  return /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase()
}

/** The live server that owns a file which could not be opened for that reason. */
function ownerOf(error: unknown): { readonly path: string; readonly address: string } | undefined {
  if (!(error instanceof LeaseError) || error.facts.reason !== 'owned') return undefined
  const { path, address } = error.facts
  return typeof path === 'string' && typeof address === 'string' ? { path, address } : undefined
}

/** Beside a data file that a server owns: what speaks for the store itself, readable by the server's user alone. */
export function operatorFile(path: string): string {
  return `${path}-operator`
}

function operatorSecret(path: string): string | undefined {
  try {
    return readFileSync(operatorFile(path), 'utf8')
  } catch {
    return undefined // of another user, or a server that keeps none
  }
}

export interface StoreOptions {
  readonly clock?: Clock
  /** To be the only one, under this name, where the store can be owned; its profile says whether it is. */
  readonly own?: Owning
}

type Owning = NonNullable<FileStoreOptions['own']>

/** The store that `url` names, not opened yet. */
export function storeOf(url: string, { clock = systemClock, own }: StoreOptions = {}): Store {
  const scheme = schemeOf(url)
  const store = stores[scheme ?? '']
  if (!store) throw unknown(url, scheme)
  return store(url, clock, own)
}

const stores: Readonly<Record<string, (url: string, clock: Clock, own: Owning | undefined) => Store>> = {
  memory: (url, clock) => memory(url.slice('memory:'.length), clock),
  file: (url, _, own) => file(url, own),
  postgres: (url, clock) => new PostgresStore({ url, clock }),
  postgresql: (url, clock) => new PostgresStore({ url, clock }),
  redis: (url, clock) => new RedisStore({ url, clock }),
  rediss: (url, clock) => new RedisStore({ url, clock }),
  etcd: (url, clock) => new EtcdStore({ ...etcdOptions(url), clock }),
  etcds: (url, clock) => new EtcdStore({ ...etcdOptions(url), clock }),
}

/** So that two programs of one user meet without any setting. */
export function defaultUrl(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const { XDG_STATE_HOME: state } = env
  // The specification of these folders says that a relative path is to be ignored.
  return `file:${join(state !== undefined && isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'leasehold', 'leasehold.db')}`
}

function unknown(url: string, scheme: string | undefined): LeaseError {
  const hint = scheme === undefined && url !== '' ? `; did you mean file:${url}?` : ''
  return new LeaseError(
    'INVALID',
    `${url === '' ? 'an empty text' : url} names no place for leases: use memory: or file:PATH or postgres://HOST or redis://HOST or etcd://HOST or leasehold://HOST${hint}`,
    {
      facts: { url },
    },
  )
}

function file(url: string, own: Owning | undefined): Store {
  const path = url.startsWith('file://') ? fileURLToPath(url) : url.slice('file:'.length)
  if (path === '') throw new LeaseError('INVALID', 'file: needs a path, as in file:leases.db', { facts: { url } })
  return new FileStore({ path, ...(own !== undefined && { own }) })
}

/** One log for each name and clock, for as long as anyone in this process has it open: the same URL is the same place. */
const logs = new WeakMap<Clock, Map<string, { readonly log: MemoryLog; users: number }>>()

function memory(name: string, clock: Clock): Store {
  const named = logs.get(clock) ?? new Map<string, { readonly log: MemoryLog; users: number }>()
  logs.set(clock, named)
  const shared = named.get(name) ?? { log: new MemoryLog({ clock }), users: 0 }
  named.set(name, shared)
  shared.users++
  return new SharedMemory(shared.log, clock, () => {
    if (--shared.users === 0) named.delete(name)
  })
}

class SharedMemory extends MemoryStore {
  #left: (() => void) | undefined

  constructor(log: MemoryLog, clock: Clock, left: () => void) {
    super({ log, clock })
    this.#left = left
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]()
    this.#left?.()
    this.#left = undefined
  }
}
