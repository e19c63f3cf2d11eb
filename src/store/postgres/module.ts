/** `postgres://…`: a log in a Postgres database. */
import type { StoreModule } from '../store-module.ts'
import { PG } from './driver.ts'

export const postgres: StoreModule = {
  name: 'postgres',
  schemes: ['postgres', 'postgresql'],
  url: 'postgres://HOST',
  purpose: 'services that have a Postgres already',
  driver: PG,
  server: { program: 'postgres', packages: ['postgresql'] },
  async fromUrl(url, { clock }) {
    const { PostgresStore } = await import('./postgres.ts')
    return new PostgresStore({ url, clock })
  },
  async announcements(url, clock) {
    return (await import('./announcements.ts')).PostgresAnnouncements.open(url, clock)
  },
  async certify(url, options) {
    return (await import('./certification.ts')).postgresUnderTest(url, options)
  },
}
