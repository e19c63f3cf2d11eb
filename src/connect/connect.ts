/** From a URL to leases: the one place that knows which stores and wires there are. */
import { lstatSync } from 'node:fs'
import { homedir, networkInterfaces } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Clock, systemClock, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { LEASES_OPTIONS, Leases, type LeasesOptions } from '../leases.ts'
import type { Lessor } from '../lessor.ts'
import { checkOptionNames } from '../options.ts'
import { readPrivately } from '../private-file.ts'
import { Replica, type Survivor } from '../replica/replica.ts'
import { FileStore, type FileStoreOptions } from '../store/file/file.ts'
import { MemoryLog, MemoryStore } from '../store/memory.ts'
import type { Store } from '../store.ts'
import { startWorkerHeartbeat } from './heartbeat-thread.ts'
import { RelocatingLessor } from './relocating-lessor.ts'

/**
 * Opens the place that `url` names and stays connected until disposed of. Left out: the one that `LEASEHOLD_URL` names, which is where a program
 * that `leasehold run` started finds the lease it runs under; else the user's own file.
 */
export async function connect(where: string | URL = ownUrl(), options: LeasesOptions & OpenOptions = {}): Promise<Leases> {
  const url = typeof where === 'object' && where !== null && 'href' in where ? where.href : where
  if (typeof url !== 'string') throw new LeaseError('INVALID', `a place for leases is named by a URL, not by ${String(url)}`)
  if (typeof options !== 'object' || options === null)
    throw new LeaseError('INVALID', `the options of connect are an object, not ${String(options)}`)
  checkOptionNames('connect', options, LEASES_OPTIONS) // before anything is opened
  const pacemaker = options.heartbeat === 'worker' ? await startWorkerHeartbeat(url, options) : undefined
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
  const wire = wires[schemeOf(url) ?? '']
  if (wire !== undefined) return wire(url, options) // the server goes along when the leases move
  const here = await openHere(url, options)
  const led = !(here instanceof Replica)
  return new RelocatingLessor(here, {
    ...options,
    open: there => openHere(there, options),
    ...(led && { home: () => openHere(url, options) }),
  })
}

/** As `open`, for one who stays when the leases of a log move to another. */
export async function openHere(url: string, options: OpenOptions = {}): Promise<Lessor> {
  const wire = wires[schemeOf(url) ?? '']
  if (wire !== undefined) return wire(url, options)
  try {
    return await replicaOf(url, options)
  } catch (error) {
    const server = ownerOf(error)
    if (server === undefined || wires[schemeOf(server.address) ?? ''] === undefined) throw error
    // Who may open the file may do everything, also while a server owns it.
    const secret = operatorSecret(server)
    try {
      return await openHere(server.address, secret === undefined ? options : { ...options, apiKey: secret })
    } catch (cause) {
      throw distrusted(server, cause) ?? cause
    }
  }
}

/** Who named a file knows of no certificate: it is told whose it is, and the way around. */
function distrusted({ path, address }: { readonly path: string; readonly address: string }, cause: unknown): LeaseError | undefined {
  const certificate = cause instanceof LeaseError ? cause.facts.certificate : undefined
  if (typeof certificate !== 'string') return undefined
  return new LeaseError(
    'UNAVAILABLE',
    `${path} is served at ${address}, whose certificate is not trusted here (${certificate}): set NODE_EXTRA_CA_CERTS=FILE to its authority's, or start the server with --socket PATH as well, and processes of this machine come in by that`,
    { cause, facts: { path, address, certificate } },
  )
}

/** Servers, and how each is spoken to. */
const wires: Readonly<Record<string, (url: string, options: OpenOptions) => Promise<Lessor>>> = {
  leasehold: overResp,
  leaseholds: overResp,
  http: overHttp,
  https: overHttp,
}

async function overResp(url: string, { clock = systemClock, apiKey = process.env.LEASEHOLD_API_KEY }: OpenOptions): Promise<Lessor> {
  const [{ RemoteLessor }, { serverAddressOf }] = await Promise.all([import('../wire/resp/client.ts'), import('../wire/resp/dial.ts')])
  return RemoteLessor.open({ key: apiKey, ...serverAddressOf(url), clock })
}

async function overHttp(url: string, { clock = systemClock, apiKey = process.env.LEASEHOLD_API_KEY }: OpenOptions): Promise<Lessor> {
  const { HttpLessor } = await import('../wire/http/client.ts')
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

/** What every such secret looks like: nothing else is ever sent. */
export const OPERATOR = /^lh_[\w-]{43}$/

/**
 * The secret for the server at `address`, which owns the file. Undefined when there is none, or when the address is not of this machine: a server
 * that owns a file is. Throws when the secret could be another's.
 */
export function operatorSecret({ path, address }: { readonly path: string; readonly address: string }): string | undefined {
  if (!isOfThisMachine(address)) return undefined
  let secret: string
  try {
    secret = readPrivately(operatorFile(path))
  } catch (error) {
    if (error instanceof LeaseError) throw error
    return undefined // a server that keeps none
  }
  return OPERATOR.test(secret) ? secret : undefined
}

function isOfThisMachine(address: string): boolean {
  const [, host = '', rest = ''] = /^[a-z]+:\/\/(\[[\da-f:.]+\]|[^/:]*)(.*)$/i.exec(address) ?? []
  if (host === '') return isOurSocket(rest)
  if (!/^(:\d+)?\/?$/.test(rest)) return false
  const ip = host.replace(/^\[|\]$/g, '')
  if (/^127(\.\d{1,3}){3}$|^::1$|^localhost$/i.test(ip)) return true
  return Object.values(networkInterfaces()).some(found => found?.some(own => own.address === ip))
}

function isOurSocket(path: string): boolean {
  try {
    const found = lstatSync(decodeURIComponent(path))
    return found.isSocket() && (process.getuid === undefined || found.uid === process.getuid())
  } catch {
    return false
  }
}

/** What replicas of this process had seen of logs that lost entries: whoever opens such a log again begins above that. */
const survivors = new Map<string, Survivor>()

/** A replica on the store that `url` names; owned where that is asked for and the store can be. */
async function replicaOf(url: string, { clock = systemClock, own }: StoreOptions = {}): Promise<Replica> {
  const store = await storeOf(url, { clock, ...(own !== undefined && { own }) })
  return replicaOn(store, url, { clock, owned: own !== undefined && !store.profile.shared })
}

export async function replicaOn(
  store: Store,
  url: string,
  { clock = systemClock, owned }: { readonly clock?: Clock; readonly owned: boolean },
): Promise<Replica> {
  const survivor = survivors.get(url)
  const replica = await Replica.open(store, { clock, owned, ...(survivor && { survivor }) })
  survivors.delete(url)
  whenAborted(replica.signal, () => {
    const { reason } = replica.signal
    if (reason instanceof LeaseError && reason.code === 'DIVERGED') survivors.set(url, above(replica.survivor, survivors.get(url)))
  })
  return replica
}

function above(a: Survivor, b: Survivor = a): Survivor {
  const [lease, token] = [Math.max(a.lease, b.lease), Math.max(a.token, b.token)]
  return {
    lease,
    token,
    revision: Math.max(a.revision, b.revision),
    quiet: Math.max(a.quiet, b.quiet),
    key: Math.max(a.key ?? 1, b.key ?? 1),
  }
}

export interface StoreOptions {
  readonly clock?: Clock
  /** To be the only one, under this name, where the store can be owned; its profile says whether it is. */
  readonly own?: Owning
}

type Owning = NonNullable<FileStoreOptions['own']>

/** The store that `url` names, not opened yet. */
export async function storeOf(url: string, { clock = systemClock, own }: StoreOptions = {}): Promise<Store> {
  const scheme = schemeOf(url)
  const store = stores[scheme ?? '']
  if (!store) throw unknown(url, scheme)
  return store(url, clock, own)
}

type OpenStore = (url: string, clock: Clock, own: Owning | undefined) => Store | Promise<Store>

// Loaded when they are used: a command that looks into a file is over before three engines' worth of code would be read.
const postgres: OpenStore = async (url, clock) => new (await import('../store/postgres/postgres.ts')).PostgresStore({ url, clock })
const redis: OpenStore = async (url, clock) => new (await import('../store/redis/redis.ts')).RedisStore({ url, clock })
const etcd: OpenStore = async (url, clock) => {
  const [{ EtcdStore }, { etcdOptions }] = await Promise.all([import('../store/etcd/etcd.ts'), import('../store/etcd/url.ts')])
  return new EtcdStore({ ...etcdOptions(url), clock })
}

const stores: Readonly<Record<string, OpenStore>> = {
  memory: (url, clock) => memory(url.slice('memory:'.length), clock),
  file: (url, _, own) => file(url, own),
  postgres,
  postgresql: postgres,
  redis,
  rediss: redis,
  etcd,
  etcds: etcd,
}

function ownUrl(): string {
  return process.env.LEASEHOLD_URL || defaultUrl()
}

/** So that two programs of one user meet without any setting. */
export function defaultUrl(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const { XDG_STATE_HOME: state } = env
  // The specification of these folders says that a relative path is to be ignored.
  return `file:${join(state !== undefined && isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'leasehold', 'leasehold.db')}`
}

/** For words and logs: without the user and the password that may stand in it. */
export function shown(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:\/\/).*@/is, '$1').replace(/([?&](?:password|passwd|pwd)=)[^&]*/gi, '$1…')
}

function unknown(url: string, scheme: string | undefined): LeaseError {
  const meant = /^(\[[\da-f:.]+\]|[\w.-]+):\d{1,5}\/?$/i.test(url)
    ? `leasehold://${url}`
    : scheme === undefined && url !== ''
      ? `file:${url}`
      : ''
  const hint = meant === '' ? '' : `; did you mean ${meant}?`
  return new LeaseError(
    'INVALID',
    `${url === '' ? 'an empty text' : shown(url)} names no place for leases: use memory: or file:PATH or postgres://HOST or redis://HOST or etcd://HOST or leasehold://HOST${hint}`,
    {
      facts: { url: shown(url) },
    },
  )
}

/** The path behind a `file:` URL; undefined for another. */
export function pathOf(url: string): string | undefined {
  if (!/^file:/i.test(url)) return undefined
  if (!/^file:\/\//i.test(url)) return url.slice('file:'.length)
  try {
    return fileURLToPath(url)
  } catch (cause) {
    throw new LeaseError('INVALID', `${url} names no file of this machine: write file:PATH, or file:///PATH with % as %25`, {
      cause,
      facts: { url },
    })
  }
}

function file(url: string, own: Owning | undefined): Store {
  const path = pathOf(url)!
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
