/** `leasehold/store/postgres`: a log in a Postgres database. The other types are the parts of `pg` and `postgres` that the store uses. */
export type { PostgresJs, PostgresJsQuery } from './driver-postgres-js.ts'
export type { PgConnection, PgPool, PgQuery, PgResult } from './pg-client.ts'
export { PostgresStore, type PostgresStoreOptions } from './postgres.ts'
