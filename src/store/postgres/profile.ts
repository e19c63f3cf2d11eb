/** The profile of a Postgres, from its own settings. */
import type { Profile } from '../../store.ts'
import type { PostgresRow } from './driver.ts'

/** A statement that waits for its turn may take this many ms. */
const LONGEST_WAIT = 3_000
/** A replica needs so many connections at most. */
const CONNECTIONS = 5

/** One row with what `profileOf` interprets. Every role may read it. */
export const READ_SETTINGS = `select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  current_setting('full_page_writes'), (select setting from pg_settings where name = 'statement_timeout'), pg_notification_queue_usage()::text,
  (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - (select count(*) from pg_stat_activity where backend_type = 'client backend'))::text,
  pg_is_in_recovery()::text`

/** Returns what the settings decide of the profile. `standby`: the server is one. */
export function profileOf(row: PostgresRow): Pick<Profile, 'durable' | 'failover' | 'notes'> & { readonly standby: boolean } {
  const [fsync, commit, standbys, pages, timeout, queue, free, standby] = row as string[]
  const durable = fsync === 'on' && pages === 'on'
  const failover = durable && standbys !== '' && (commit === 'on' || commit === 'remote_apply')
  const notes = [
    ...(fsync === 'on' ? [] : ['fsync is off: if its machine crashes, acknowledged records may be lost or the database damaged.']),
    ...(pages === 'on' ? [] : ['full_page_writes is off: if its machine crashes, the database may be damaged.']),
    ...(commit === 'off' ? ['synchronous_commit is off; the transactions of Leasehold still wait for the disk (local).'] : []),
    ...(failover ? [] : ['No synchronous standby confirms appends: a failover may lose the end of the log, which replicas notice.']),
    ...(isShort(Number(timeout))
      ? [`statement_timeout is ${timeout} ms: an append that waits longer for its turn fails. Set it to 5 s or more for this role.`]
      : []),
    ...(Number(queue) < 0.5 ? [] : ['The NOTIFY queue is filling up: a session that listens stays in a transaction. Readers poll.']),
    ...(Number(free) < CONNECTIONS ? [`${free} connections are left: a replica needs up to ${CONNECTIONS}. Raise max_connections.`] : []),
  ]
  return { durable, failover, notes, standby: standby === 'true' }
}

function isShort(statementTimeout: number): boolean {
  return statementTimeout > 0 && statementTimeout <= LONGEST_WAIT
}
