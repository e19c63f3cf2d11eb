/** `redis://…`: a log in a Redis stream. */
import type { StoreModule } from '../store-module.ts'
import { NODE_REDIS } from './driver.ts'

export const redis: StoreModule = {
  name: 'redis',
  schemes: ['redis', 'rediss'],
  url: 'redis://HOST',
  purpose: 'services that have a Redis already and accept what its settings may lose',
  driver: NODE_REDIS,
  server: { program: 'redis-server', packages: ['redis-server'] },
  async fromUrl(url, { clock }) {
    const { RedisStore } = await import('./redis.ts')
    return new RedisStore({ url, clock })
  },
  async announcements(url, clock) {
    return new (await import('./announcements.ts')).RedisAnnouncements(url, clock)
  },
  async certify(url, options) {
    return (await import('./certification.ts')).redisUnderTest(url, options)
  },
}
