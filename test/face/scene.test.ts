/**
 * One name, four worlds: a program with redlock, an elector of client-go, a lock of Consul's Go client and our library contend for it, each under the name that
 * its protocol gives it; and `consul lock` in a shell, where the program is there. A referee watches the log: no two hold it together.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { consulFace } from '../../src/face/consul/face.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { ResourceNames } from '../../src/face/resource-names.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { consulProgram, installedConsul, kubernetesProgram, redisNode } from '../support/client-sets.ts'
import { orSkip, output } from '../support/foreign-clients.ts'
import { place } from '../support/resp-place.ts'

const ROUNDS = 4
/** An elector is a process of its own, and tries again every 200 ms. */
const ELECTIONS = 2
const NAME = 'jobs/nightly'
const NAMES = new ResourceNames({
  'redis/locks': 'jobs',
  'kubernetes/team/nightly': NAME,
  'consul/service/nightly/leader': NAME,
  // The key that `consul lock shell/nightly` takes.
  'consul/shell/nightly/.lock': NAME,
})

test('redlock, client-go, Consul and the library never hold one name together', { timeout: 1_500_000 }, async context => {
  const [require, elector, consul] = await orSkip(
    'redlock, client-go, Consul and the library for one name',
    Promise.all([redisNode(), kubernetesProgram(), consulProgram()]),
    context,
  )
  const faces = [redisFace(), kubernetesFace(), consulFace()]
  await using here = await place({ faces, faceNames: NAMES, http: httpListener() })
  const stop = new AbortController()
  const holding = new Set<number>()
  const holders: string[] = []
  const together: string[] = []
  const watching = (async () => {
    for await (const events of here.lessor.watch(NAME, { signal: stop.signal }))
      for (const { type, lease, holder = '' } of events) {
        if (type === 'granted') {
          if (holding.size > 0) together.push(`${holder} beside ${[...holding].join()}`)
          holding.add(lease)
          holders.push(holder)
        }
        if (type === 'released' || type === 'lapsed' || type === 'revoked') holding.delete(lease)
      }
  })()

  let inside = 0
  const work = async () => {
    expect(++inside).toBe(1)
    await new Promise(resolve => setTimeout(resolve, 5))
    inside--
  }
  const Redis = require('ioredis')
  const { default: Redlock } = require('redlock5')
  const client = new Redis({ port: here.port, connectionName: 'redlock' })
  const withRedlock = async () => {
    const redlock = new Redlock([client], { retryCount: 5_000, retryDelay: 10, retryJitter: 5 })
    for (let i = 0; i < ROUNDS; i++) {
      const lock = await redlock.acquire(['locks/nightly'], 30_000)
      await work()
      await lock.release()
    }
  }
  const withLibrary = async () => {
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { holder: 'library' })
    for (let i = 0; i < ROUNDS; i++) {
      await using _lease = await leases.acquire(NAME)
      await work()
    }
  }
  const withElector = async () => {
    for (let i = 0; i < ELECTIONS; i++) {
      const identity = `elector-${i}`
      const child = spawn(elector, ['elect', `http://127.0.0.1:${here.port}`, 'nightly', identity, 'json'], {
        stdio: ['pipe', 'pipe', 'inherit'],
      })
      for await (const line of createInterface({ input: child.stdout })) {
        if (line !== `leads ${identity}`) continue
        // The others find the name held by an elector, and the next elector finds it held by them.
        if (i === 0) others.push(withRedlock(), withLibrary(), withConsul())
        await work()
        child.stdin.write('stop\n')
      }
    }
  }
  const withConsul = () => output(consul, 'contend', `127.0.0.1:${here.port}`, 'service/nightly/leader', String(ROUNDS))
  const shell = installedConsul()
  const withShell = async () => {
    for (let i = 0; shell !== undefined && i < ROUNDS; i++)
      await output(shell, 'lock', `-http-addr=127.0.0.1:${here.port}`, 'shell/nightly', 'sleep 0.01')
  }
  const others: Promise<unknown>[] = []
  try {
    await Promise.all([withRedlock(), withElector(), withConsul(), withShell(), withLibrary()])
    await Promise.all(others)
  } finally {
    client.disconnect()
    stop.abort()
    await watching
  }
  expect(together).toEqual([])
  const times = (pattern: RegExp) => holders.filter(holder => pattern.test(holder)).length
  expect(times(/^Consul lock/)).toBe(shell === undefined ? 0 : ROUNDS)
  expect({ redlock: times(/^redlock$/), library: times(/^library/), consul: times(/^go/), electors: times(/^elector-/) }).toEqual({
    redlock: 2 * ROUNDS,
    library: 2 * ROUNDS,
    consul: 2 * ROUNDS,
    electors: ELECTIONS,
  })
})
