/** `leasehold/store/redis`: a log in a Redis stream. The other types are the parts of `redis` and `ioredis` that the store uses. */
export type { AnyRedis, IoRedis, RedisClient, RedisCluster } from './driver.ts'
export { RedisStore, type RedisStoreOptions } from './redis.ts'
