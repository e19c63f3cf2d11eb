/** `certify` damages a log in Postgres in these ways. */
import { LeaseError } from '../../errors.ts'
import {
  CERTIFY_TIMEOUT,
  ENCRYPTED,
  type EngineUnderTest,
  messageOf,
  NotTried,
  numbered,
  orNotTried,
  sharedLog,
  withLocalPort,
  withName,
} from '../certification.ts'
import type { CertifyOptions } from '../store-module.ts'
import { PgDriver, pgPool } from './driver-pg.ts'
import { hostsOf } from './hosts.ts'
import { PostgresStore, SETTINGS } from './postgres.ts'

export async function postgresUnderTest(url: string, { prefix, clock }: CertifyOptions): Promise<EngineUnderTest> {
  if (hostsOf(url).length > 1) throw new LeaseError('INVALID', 'certify examines one server at a time: name one host, the primary')
  new PostgresStore({ url }) // throws for a URL that cannot be used
  const next = numbered(prefix)
  const server = new URL(url)
  const schema = server.searchParams.get('schema') ?? 'leasehold'
  for (const setting of SETTINGS) server.searchParams.delete(setting)
  const encrypted = !['disable', null].includes(server.searchParams.get('sslmode')) || server.searchParams.has('ssl')

  async function run(text: string, values: readonly (string | number)[]): Promise<void> {
    const settings = { clock, timeout: CERTIFY_TIMEOUT }
    await using driver = new PgDriver(await pgPool(server.href, settings), { ...settings, own: true })
    await driver.run(text, values)
  }

  const loseTail = (name: string, count: number): Promise<void> =>
    run(
      `with lost as (
         update ${schema}.log l set head = greatest(l.floor, l.head - $2),
           head_nonce = coalesce((select e.nonce from ${schema}.entry e where e.log = l.id and e.idx = l.head - $2), l.floor_nonce)
         where name = $1 returning id, head)
       delete from ${schema}.entry e using lost where e.log = lost.id and e.idx > lost.head`,
      [name, count],
    )

  return {
    log() {
      const name = next()
      const own = withName(url, name)
      return { url: own, store: () => new PostgresStore({ url: own }), ...sharedLog, loseTail: count => orNotTried(loseTail(name, count)) }
    },
    addresses: encrypted
      ? ENCRYPTED
      : server.hostname === ''
        ? new NotTried('the URL names no host')
        : [{ host: server.hostname, port: Number(server.port || 5432) }],
    through: withLocalPort,
    canRestart: true,
    async remove() {
      const tables = `the tables of the schema ${schema}, which all logs of this database share`
      try {
        await run(
          `with gone as (delete from ${schema}.log where starts_with(name, $1) returning id),
             kept as (delete from ${schema}.snapshot s using gone where s.log = gone.id returning s.id),
             chunks as (delete from ${schema}.chunk c using kept where c.snapshot = kept.id)
           delete from ${schema}.entry e using gone where e.log = gone.id`,
          [`${prefix}-`],
        )
        return [tables]
      } catch (error) {
        return [tables, `and there the logs whose names begin with ${prefix}- (${messageOf(error)})`]
      }
    },
  }
}
