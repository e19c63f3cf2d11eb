/**
 * Logs of our own on somebody's engine: each under a name of its own, open to the accidents that the store suite asks for, and taken away again.
 *
 * Nothing but these logs is touched. What cannot be taken away is said in words.
 */
import { cp, readFile, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Clock, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { StoreFixture } from '../../testing/store-suite.ts'

/** What could not be tried, and why: neither kept nor broken. */
export class NotTried extends Error {
  override readonly name = 'NotTried'
}

export interface ScratchLog extends Omit<StoreFixture, typeof Symbol.asyncDispose> {
  readonly url: string
}

export interface EngineUnderTest {
  /** One more fresh, empty log. */
  log(): ScratchLog
  /** Where connections go that can be led through a cable; else why not. */
  readonly addresses: readonly EngineAddress[] | NotTried
  /** A log's URL, with each address replaced by a port of this machine. */
  through(url: string, ports: readonly number[]): string
  /** Takes away every log that was made here. Returns what is left behind, in words. */
  remove(): Promise<readonly string[]>
  readonly canRestart: boolean
}

export interface EngineAddress {
  readonly host: string
  readonly port: number
}

/** How long an answer to what only certify asks may take, in ms. */
const TIMEOUT = 10_000

export async function engineUnderTest(url: string, clock: Clock = systemClock): Promise<EngineUnderTest> {
  const scheme = /^([a-z]+):/i.exec(url)?.[1]?.toLowerCase()
  const make = scheme === undefined ? undefined : places[scheme]
  if (make === undefined)
    throw new LeaseError(
      'INVALID',
      'only a store can be certified that is more than this process: file:PATH, postgres://HOST, redis://HOST or etcd://HOST',
      { facts: { scheme: scheme ?? '' } },
    )
  return make(url, `certify-${clock.bits().toString(36).padStart(8, '0').slice(-8)}`, clock)
}

const places: Readonly<Record<string, (url: string, prefix: string, clock: Clock) => Promise<EngineUnderTest>>> = {
  file,
  postgres,
  postgresql: postgres,
  redis,
  rediss: redis,
  etcd,
  etcds: etcd,
}

/** `name=` in the place of any that was there. */
function named(url: string, name: string): string {
  const [place, query] = url.split('?', 2)
  const settings = new URLSearchParams(query)
  settings.set('name', name)
  return `${place}?${settings}`
}

function numbered(prefix: string): () => string {
  let logs = 0
  return () => `${prefix}-${++logs}`
}

function withHost(url: string, [port]: readonly number[]): string {
  const changed = new URL(url)
  changed.hostname = '127.0.0.1'
  changed.port = String(port)
  return changed.href
}

/** Without it the suite would be content with a store that does not claim to be owned, and say that it passed. */
const owner = (): never => {
  throw new NotTried('this store is shared by all who open it, and owned by nobody')
}

/** Answers are cut off by a test of its own (fault.ts); rights of an engine that is somebody's are not taken away. */
const linked = async (): Promise<never> => {
  throw new NotTried('this needs a user whose rights are taken away meanwhile, which is not done to your engine')
}

const ENCRYPTED = new NotTried('the connection is encrypted: a cable in between cannot tell an answer, nor show the right certificate')

// file: a folder beside the given path.

async function file(url: string, prefix: string): Promise<EngineUnderTest> {
  const [{ FileStore }, { loadEngine }, { decodeState, encodeState }] = await Promise.all([
    import('../../store/file/file.ts'),
    import('../../store/file/engine.ts'),
    import('../../store/file/record.ts'),
  ])
  const given = url.startsWith('file://') ? fileURLToPath(url) : url.slice('file:'.length)
  if (given === '') throw new LeaseError('INVALID', 'file: needs a path, as in file:leases.db', { facts: { url } })
  const folder = join(dirname(given), `${basename(given)}-${prefix}`)
  const next = numbered('log')

  /** As if the file system had gone back to an earlier moment: everything fits together, only less of it. */
  async function loseTail(path: string, count: number): Promise<void> {
    const { DatabaseSync } = await loadEngine()
    const db = new DatabaseSync(path, { timeout: TIMEOUT })
    try {
      const state = decodeState((db.prepare('select bytes from state').get() as { bytes: Uint8Array }).bytes)!
      const index = Math.max(0, state.head.index - count)
      const select = db.prepare('select nonce from entry where idx = ?')
      select.setReadBigInts(true)
      const last = select.get(index) as { nonce: bigint } | undefined
      db.exec('begin immediate')
      db.prepare('delete from entry where idx > ?').run(index)
      const head = { index, nonce: BigInt.asUintN(64, last?.nonce ?? 0n) }
      db.prepare('update state set bytes = ?').run(encodeState({ ...state, head }))
      db.exec('commit')
    } finally {
      db.close()
    }
  }

  /** The whole directory, as a snapshot of the file system or a backup has it. */
  async function copy(directory: string): Promise<() => Promise<void>> {
    const aside = `${directory}-copy`
    await cp(directory, aside, { recursive: true })
    return async () => {
      await rm(directory, { recursive: true })
      await rename(aside, directory)
    }
  }

  return {
    log() {
      const path = join(folder, next(), 'leases.db')
      return {
        url: `file:${path}`,
        store: () => new FileStore({ path }),
        owner: name => new FileStore({ path, own: { name } }),
        forgetOwner: () => rm(`${path}-owner`),
        loseTail: count => loseTail(path, count),
        copy: () => copy(dirname(path)),
      }
    },
    addresses: new NotTried('there is no connection to a file'),
    through: same => same,
    canRestart: false,
    async remove() {
      await rm(folder, { recursive: true, force: true, maxRetries: 3 })
      return []
    },
  }
}

// redis://

async function redis(url: string, prefix: string): Promise<EngineUnderTest> {
  const [{ RedisStore }, { dialUrl }, { parseUrl }] = await Promise.all([
    import('../../store/redis/redis.ts'),
    import('../../store/redis/driver.ts'),
    import('../../store/redis/log.ts'),
  ])
  const next = numbered(prefix)
  const { url: bare } = parseUrl(url, prefix)
  const { hostname, port, protocol } = new URL(bare)

  async function asking<T>(work: (tell: (...command: string[]) => Promise<unknown>) => Promise<T>): Promise<T> {
    const connection = await dialUrl(bare, TIMEOUT)()
    try {
      await connection.connect()
      return await work((...command) => connection.send(command))
    } finally {
      connection.close()
    }
  }

  const loseTail = (name: string, count: number): Promise<void> =>
    asking(async tell => {
      // Written anew without it: XDEL and XSETID would leave behind that there was more, and newer ones refuse it.
      const script = `local rows = redis.call('XRANGE', KEYS[1], '-', '+')
        redis.call('UNLINK', KEYS[1])
        for i = 1, #rows - ARGV[1] do redis.call('XADD', KEYS[1], rows[i][1], unpack(rows[i][2])) end`
      await tell('EVAL', script, '1', `{${name}}:log`, String(count))
    })

  return {
    log() {
      const name = next()
      const own = named(url, name)
      return { url: own, store: () => new RedisStore({ url: own }), owner, linked, loseTail: count => orNotTried(loseTail(name, count)) }
    },
    addresses: protocol === 'rediss:' ? ENCRYPTED : [{ host: hostname, port: Number(port || 6379) }],
    through: withHost,
    canRestart: true,
    async remove() {
      try {
        await asking(async tell => {
          let cursor = '0'
          do {
            const [at, keys] = (await tell('SCAN', cursor, 'MATCH', `{${prefix}-*`, 'COUNT', '1000')) as [Buffer, Buffer[]]
            if (keys.length > 0) await tell('UNLINK', ...keys.map(String))
            cursor = at.toString()
          } while (cursor !== '0')
        })
        return []
      } catch (error) {
        return [`keys that begin with {${prefix}- (${messageOf(error)})`]
      }
    },
  }
}

// postgres://

async function postgres(url: string, prefix: string, clock: Clock): Promise<EngineUnderTest> {
  const [{ PostgresStore }, { PgDriver, pgPool }, { hostsOf }] = await Promise.all([
    import('../../store/postgres/postgres.ts'),
    import('../../store/postgres/driver-pg.ts'),
    import('../../store/postgres/hosts.ts'),
  ])
  if (hostsOf(url).length > 1) throw new LeaseError('INVALID', 'one server is certified at a time: name one host, the primary')
  const next = numbered(prefix)
  new PostgresStore({ url }) // a URL that cannot be used is told here
  const bare = new URL(url)
  const schema = bare.searchParams.get('schema') ?? 'leasehold'
  for (const ours of ['name', 'schema']) bare.searchParams.delete(ours)
  const encrypted = !['disable', null].includes(bare.searchParams.get('sslmode')) || bare.searchParams.has('ssl')

  async function run(text: string, values: readonly (string | number)[]): Promise<void> {
    const settings = { clock, timeout: TIMEOUT }
    await using driver = new PgDriver(await pgPool(bare.href, settings), { ...settings, own: true })
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
      const own = named(url, name)
      return { url: own, store: () => new PostgresStore({ url: own }), owner, linked, loseTail: count => orNotTried(loseTail(name, count)) }
    },
    addresses: encrypted
      ? ENCRYPTED
      : bare.hostname === ''
        ? new NotTried('the URL names no host')
        : [{ host: bare.hostname, port: Number(bare.port || 5432) }],
    through: withHost,
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

// etcd://

async function etcd(url: string, prefix: string, clock: Clock): Promise<EngineUnderTest> {
  const [{ EtcdStore }, { etcdOptions }, { Gateway }, { base64, EtcdKeys }] = await Promise.all([
    import('../../store/etcd/etcd.ts'),
    import('../../store/etcd/url.ts'),
    import('../../store/etcd/gateway.ts'),
    import('../../store/etcd/keys.ts'),
  ])
  const next = numbered(prefix)
  const { endpoints, tls, user } = etcdOptions(url)

  async function asking<T>(work: (gateway: InstanceType<typeof Gateway>) => Promise<T>): Promise<T> {
    const files = tls && Object.entries(tls).map(async ([what, path]) => [what, await readFile(path)] as const)
    const gateway = new Gateway({ endpoints, clock, timeout: TIMEOUT, user, tls: files && Object.fromEntries(await Promise.all(files)) })
    try {
      return await work(gateway)
    } finally {
      gateway.close()
    }
  }

  const loseTail = (name: string, count: number): Promise<void> =>
    asking(async gateway => {
      const { log } = new EtcdKeys(name)
      const { kvs = [] } = await gateway.call<{ kvs?: { key: string }[] }>('/kv/range', { ...log, keys_only: true })
      const entries = kvs.filter(({ key }) => !Buffer.from(key, 'base64').toString().includes('/0000000000000000.')) // the start is none
      for (const { key } of entries.slice(-count)) await gateway.call('/kv/deleterange', { key })
    })

  return {
    log() {
      const name = next()
      const own = named(url, name)
      return {
        url: own,
        store: () => new EtcdStore({ ...etcdOptions(own), clock }),
        owner,
        linked,
        loseTail: count => orNotTried(loseTail(name, count)),
      }
    },
    addresses: tls
      ? ENCRYPTED
      : endpoints.map(endpoint => {
          const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(endpoint) as unknown as [string, string, string]
          return { host, port: Number(port) }
        }),
    through: (own, ports) => own.replace(/(:\/\/(?:[^@/?]*@)?)[^@/?]+/, `$1${ports.map(port => `127.0.0.1:${port}`).join(',')}`),
    canRestart: true,
    async remove() {
      try {
        // From - to the sign that follows it: every log of ours, and nothing else.
        await asking(gateway => gateway.call('/kv/deleterange', { key: base64(`${prefix}-`), range_end: base64(`${prefix}.`) }))
        return ['the history of what was deleted, until etcd is compacted']
      } catch (error) {
        return [`keys that begin with ${prefix}- (${messageOf(error)})`]
      }
    },
  }
}

/** Cutting off a log's end needs rights that Leasehold itself does not. */
async function orNotTried(done: Promise<void>): Promise<void> {
  try {
    await done
  } catch (error) {
    throw new NotTried(`we may not cut off the end of a log here: ${messageOf(error)}`, { cause: error })
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
