/** A program with redlock, one with redis-py and one with our library contend for one name, and a watcher of the log sees that no two hold it together. */
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { redisFace } from '../../../src/face/redis/commands.ts'
import { redisNode, redisPython } from '../../support/client-sets.ts'
import { orSkip, python } from '../../support/foreign-clients.ts'
import { place } from '../../support/resp-place.ts'

const ROUNDS = 8

const PYTHON = `
import sys, redis
client = redis.Redis(port=int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    with client.lock('shared', timeout=30, sleep=0.01, blocking_timeout=60):
        pass
print('done')
`

test('redlock, redis-py and the library never hold one name together', async context => {
  const [require, interpreter] = await orSkip('redlock and redis-py beside the library', Promise.all([redisNode(), redisPython()]), context)
  await using here = await place({ faces: [redisFace()] })
  const stop = new AbortController()
  const holding = new Set<number>()
  const seen: string[] = []
  const watching = (async () => {
    for await (const events of here.lessor.watch('redis/shared', { signal: stop.signal }))
      for (const { type, lease, holder } of events) {
        if (type === 'granted') {
          expect([...holding], `lease ${lease} of ${holder} was granted while another held it`).toEqual([])
          holding.add(lease)
          seen.push(holder ?? '')
        }
        if (type === 'released' || type === 'lapsed' || type === 'revoked') holding.delete(lease)
      }
  })()

  const Redis = require('ioredis')
  const { default: Redlock } = require('redlock5')
  const client = new Redis({ port: here.port, connectionName: 'redlock' })
  try {
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`)
    let inside = 0
    const work = async () => {
      expect(++inside).toBe(1)
      await new Promise(resolve => setImmediate(resolve))
      inside--
    }
    const redlock = new Redlock([client], { retryCount: 2_000, retryDelay: 10, retryJitter: 5 })
    const withRedlock = async () => {
      for (let i = 0; i < ROUNDS; i++) {
        const lock = await redlock.acquire(['shared'], 30_000)
        await work()
        await lock.release()
      }
    }
    const withLibrary = async () => {
      for (let i = 0; i < ROUNDS; i++) {
        await using _lease = await leases.acquire('redis/shared')
        await work()
      }
    }
    await Promise.all([withRedlock(), withLibrary(), python(interpreter, PYTHON, String(here.port), String(ROUNDS))])
  } finally {
    client.disconnect()
    stop.abort()
  }
  await watching
  expect(seen.length).toBe(3 * ROUNDS)
  expect(seen.filter(holder => holder === 'redlock')).toHaveLength(ROUNDS)
})
