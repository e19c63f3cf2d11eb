/**
 * The drivers, described by their shape: npm `redis` (loaded when a URL is used, or handed in), its cluster, and `ioredis`.
 *
 * Whatever is handed in is only copied: the store has connections of its own. None of them queues while there is no connection, connects
 * again by itself or sends anything twice: what was sent and what was not must be certain, and a blocking read is in nobody's way.
 */
import { LeaseError } from '../../errors.ts'
import { type DriverPackage, driverMissing } from '../driver-package.ts'

export const NODE_REDIS: DriverPackage = { package: 'redis', install: 'npm install redis@6', url: 'redis://' }

export type RedisArgument = string | Buffer

/** One connection, as the store needs it. Replies are RESP2, text as bytes. */
export interface DriverConnection {
  connect(): Promise<unknown>
  readonly ready: boolean
  send(args: readonly RedisArgument[]): Promise<unknown>
  /** Whether it keeps the process alive. */
  keepAlive(alive: boolean): void
  close(): void
}

/** A new connection, not connected yet. */
export type DialRedis = () => Promise<DriverConnection>

interface Emitter {
  on(event: 'error', listener: (error: unknown) => void): unknown
}

/** A client of npm `redis`, from version 5 on. */
export interface RedisClient extends Emitter {
  readonly isReady: boolean
  readonly options?: { readonly socket?: object | undefined } | undefined
  duplicate(overrides: object): RedisClient
  connect(): Promise<unknown>
  sendCommand(args: readonly RedisArgument[], options: object): Promise<unknown>
  ref(): void
  unref(): void
  destroy(): void
}

/** `createCluster` of npm `redis`. */
export interface RedisCluster extends Emitter {
  readonly masters: readonly unknown[]
  readonly isOpen: boolean
  duplicate(overrides: object): RedisCluster
  connect(): Promise<unknown>
  sendCommand(key: string, readonly: boolean, args: readonly RedisArgument[], options: object): Promise<unknown>
  destroy(): void
}

/** `new Redis()` or `new Cluster()` of npm `ioredis`. */
export interface IoRedis extends Emitter {
  readonly status: string
  readonly isCluster?: boolean
  // Overloaded in so many ways that no narrower shape would fit.
  duplicate(...overrides: never): unknown
  callBuffer(...command: never): unknown
  connect(): Promise<unknown>
  disconnect(reconnect?: boolean): void
  readonly stream?: { ref?(): void; unref?(): void }
}

export type AnyRedis = RedisClient | RedisCluster | IoRedis

/** Bytes where text would be: `$` is how RESP marks a string of bytes. And no timer for each command: we have one that covers the answer too. */
const AS_BYTES = { typeMapping: { 36: Buffer }, timeout: undefined }

export function dialUrl(url: string, timeout: number): DialRedis {
  return async () => {
    const { createClient } = await driver()
    return ofRedis(createClient({ url, ...ownRedis(timeout) }) as unknown as RedisClient)
  }
}

/** `key`: where in a cluster everything of ours is. */
export function dialCopyOf(client: AnyRedis, key: string, timeout: number): DialRedis {
  // A cluster's client finds its way by itself. Its nodes are reached as its owner said, passwords and all, and are not told otherwise.
  if ('masters' in client) return async () => ofRedisCluster(client.duplicate({ RESP: 2 }), key)
  if ('callBuffer' in client) {
    const copy = (client.duplicate as (...overrides: unknown[]) => IoRedis).bind(client)
    if (client.isCluster !== true) return async () => ofIoRedis(copy(ownIoRedis(timeout)))
    const own = {
      lazyConnect: true,
      clusterRetryStrategy: () => null,
      retryDelayOnFailover: 0,
      keyPrefix: '',
      redisOptions: { protocol: 2, keyPrefix: '' },
    }
    return async () => ofIoRedis(copy([], own))
  }
  if ('sendCommand' in client && 'isReady' in client)
    return async () => ofRedis(client.duplicate(ownRedis(timeout, client.options?.socket)))
  throw new LeaseError('INVALID', 'this is no client of npm redis (createClient, createCluster) or ioredis (Redis, Cluster)')
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

/** Whoever waits for an answer is told by its rejection; an event nobody listens to would end the process. */
function ignored(): void {}
