/**
 * The drivers, described structurally: npm `redis` (loaded when a URL is used, or handed in), its cluster, and `ioredis`.
 *
 * A client that is handed in is duplicated: the store has connections of its own. None of them queues commands while disconnected,
 * reconnects by itself or sends anything twice, because it must be certain what was sent. A blocking read delays no other command.
 */
import { LeaseError } from '../../errors.ts'
import { type DriverPackage, driverMissing } from '../driver-package.ts'

export const NODE_REDIS: DriverPackage = { package: 'redis', install: 'npm install redis@6', url: 'redis://' }

export type RedisArgument = string | Buffer

/** One connection. Replies are RESP2, with strings as bytes. */
export interface DriverConnection {
  connect(): Promise<unknown>
  readonly ready: boolean
  send(args: readonly RedisArgument[]): Promise<unknown>
  /** Sets whether the connection keeps the process alive. */
  keepAlive(alive: boolean): void
  close(): void
}

/** Makes a connection that is not connected yet. */
export type DialRedis = () => Promise<DriverConnection>

/** A client of npm `redis`, from version 5 on. */
export interface RedisClient {
  on(event: 'error', listener: (error: unknown) => void): unknown
  readonly isReady: boolean
  readonly options?: { readonly socket?: object | undefined } | undefined
  duplicate(overrides: object): RedisClient
  connect(): Promise<unknown>
  sendCommand(args: readonly (string | Buffer)[], options: object): Promise<unknown>
  ref(): void
  unref(): void
  destroy(): void
}

/** `createCluster` of npm `redis`. */
export interface RedisCluster {
  on(event: 'error', listener: (error: unknown) => void): unknown
  readonly masters: readonly unknown[]
  readonly isOpen: boolean
  duplicate(overrides: object): RedisCluster
  connect(): Promise<unknown>
  sendCommand(key: string, readonly: boolean, args: readonly (string | Buffer)[], options: object): Promise<unknown>
  destroy(): void
}

/** `new Redis()` or `new Cluster()` of npm `ioredis`. */
export interface IoRedis {
  on(event: 'error', listener: (error: unknown) => void): unknown
  readonly status: string
  readonly isCluster?: boolean
  // ioredis overloads these in ways that no narrower type would fit.
  duplicate(...overrides: never): unknown
  callBuffer(...command: never): unknown
  connect(): Promise<unknown>
  disconnect(reconnect?: boolean): void
  readonly stream?: { ref?(): void; unref?(): void }
}

/** A client that a `RedisStore` can use. */
export type AnyRedis = RedisClient | RedisCluster | IoRedis

export function isCluster(client: AnyRedis): boolean {
  return 'masters' in client || ('callBuffer' in client && client.isCluster === true)
}

/** Strings as bytes: `$` is the RESP type of a bulk string. No timer per command: the connection has one for all requests. */
const AS_BYTES = { typeMapping: { 36: Buffer }, timeout: undefined }

/** Never connected. The driver makes a class with hundreds of commands for each new set of options, which takes 20 ms; a copy shares the class. */
let template: RedisClient | undefined

export function dialUrl(url: string, timeout: number): DialRedis {
  return async () => {
    const { createClient } = await driver()
    template ??= createClient(ownRedis(timeout)) as unknown as RedisClient
    return ofRedis(template.duplicate({ url, ...ownRedis(timeout) }))
  }
}

/** `key`: the hash tag of the log, which determines its node in a cluster. */
export function dialCopyOf(client: AnyRedis, key: string, timeout: number): DialRedis {
  // A cluster client finds the nodes by itself. Its options for them, passwords included, stay as they are.
  if ('masters' in client) return async () => ofRedisCluster(client.duplicate({ RESP: 2 }), key)
  if ('callBuffer' in client) {
    const copy = (client.duplicate as (...overrides: unknown[]) => IoRedis).bind(client)
    if (client.isCluster !== true) return async () => ofIoRedis(copy(ownIoRedis(timeout)))
    const own = {
      lazyConnect: true,
      clusterRetryStrategy: () => null,
      // Its own limit is a second, which a busy machine exceeds.
      slotsRefreshTimeout: timeout,
      retryDelayOnFailover: 0,
      keyPrefix: '',
      redisOptions: { protocol: 2, keyPrefix: '' },
    }
    return async () => ofIoRedis(copy([], own))
  }
  // A client of createSentinel has no `unref`. It sends commands again by itself.
  if ('sendCommand' in client && 'isReady' in client && 'unref' in client)
    return async () => ofRedis(client.duplicate(ownRedis(timeout, client.options?.socket)))
  throw new LeaseError(
    'INVALID',
    'the client must be one of npm redis (createClient, createCluster) or ioredis (Redis, also with sentinels, or Cluster)',
  )
}

function ownRedis(connectTimeout: number, socket: object = {}): object {
  return {
    RESP: 2,
    disableOfflineQueue: true,
    maintNotifications: 'disabled',
    clientSideCache: undefined,
    socket: { ...socket, reconnectStrategy: false, connectTimeout, socketTimeout: undefined },
  }
}

function ownIoRedis(connectTimeout: number): object {
  return {
    lazyConnect: true,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    enableAutoPipelining: false,
    autoResendUnfulfilledCommands: false,
    retryStrategy: () => null,
    reconnectOnError: null,
    maxRetriesPerRequest: null,
    commandTimeout: undefined,
    blockingTimeout: undefined,
    keyPrefix: '',
    protocol: 2,
    connectTimeout,
  }
}

async function driver(): Promise<typeof import('redis')> {
  try {
    return await import('redis')
  } catch (cause) {
    throw driverMissing(NODE_REDIS, cause)
  }
}

function ofRedis(client: RedisClient): DriverConnection {
  client.on('error', ignored)
  return {
    connect: () => client.connect(),
    get ready() {
      return client.isReady
    },
    send: args => client.sendCommand(args, AS_BYTES),
    keepAlive: alive => (alive ? client.ref() : client.unref()),
    close: () => client.destroy(),
  }
}

function ofRedisCluster(cluster: RedisCluster, key: string): DriverConnection {
  cluster.on('error', ignored)
  return {
    connect: () => cluster.connect(),
    get ready() {
      return cluster.isOpen
    },
    send: args => cluster.sendCommand(key, false, args, AS_BYTES),
    keepAlive: () => {},
    close: () => cluster.destroy(),
  }
}

function ofIoRedis(client: IoRedis): DriverConnection {
  client.on('error', ignored)
  const call = (client.callBuffer as (command: RedisArgument, args: readonly RedisArgument[]) => Promise<unknown>).bind(client)
  return {
    connect: () => client.connect(),
    get ready() {
      return client.status === 'ready'
    },
    send: ([command, ...args]) => call(command!, args),
    keepAlive: alive => (alive ? client.stream?.ref?.() : client.stream?.unref?.()),
    close: () => client.disconnect(),
  }
}

/** A pending command is rejected with the error. An error event without a listener would end the process. */
function ignored(): void {}
