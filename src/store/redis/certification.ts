/** `certify` damages a log in Redis in these ways. */
import {
  CERTIFY_TIMEOUT,
  ENCRYPTED,
  type EngineUnderTest,
  messageOf,
  numbered,
  orNotTried,
  sharedLog,
  withLocalPort,
  withName,
} from '../certification.ts'
import type { CertifyOptions } from '../store-module.ts'
import { dialUrl } from './driver.ts'
import { parseUrl } from './log.ts'
import { RedisStore } from './redis.ts'

export async function redisUnderTest(url: string, { prefix }: CertifyOptions): Promise<EngineUnderTest> {
  const next = numbered(prefix)
  const { url: server } = parseUrl(url, prefix)
  const { hostname, port, protocol } = new URL(server)

  async function connected<T>(work: (send: (...command: string[]) => Promise<unknown>) => Promise<T>): Promise<T> {
    const connection = await dialUrl(server, CERTIFY_TIMEOUT)()
    try {
      await connection.connect()
      return await work((...command) => connection.send(command))
    } finally {
      connection.close()
    }
  }

  const loseTail = (name: string, count: number): Promise<void> =>
    connected(async send => {
      // Rewrite the stream without its end. XDEL leaves a trace of the deleted records, and newer versions of Redis refuse XSETID.
      const script = `local rows = redis.call('XRANGE', KEYS[1], '-', '+')
        redis.call('UNLINK', KEYS[1])
        for i = 1, #rows - ARGV[1] do redis.call('XADD', KEYS[1], rows[i][1], unpack(rows[i][2])) end`
      await send('EVAL', script, '1', `{${name}}:log`, String(count))
    })

  return {
    log() {
      const name = next()
      const own = withName(url, name)
      return { url: own, store: () => new RedisStore({ url: own }), ...sharedLog, loseTail: count => orNotTried(loseTail(name, count)) }
    },
    addresses: protocol === 'rediss:' ? ENCRYPTED : [{ host: hostname, port: Number(port || 6379) }],
    through: withLocalPort,
    canRestart: true,
    async remove() {
      try {
        await connected(async send => {
          let cursor = '0'
          do {
            const [at, keys] = (await send('SCAN', cursor, 'MATCH', `{${prefix}-*`, 'COUNT', '1000')) as [Buffer, Buffer[]]
            if (keys.length > 0) await send('UNLINK', ...keys.map(String))
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
