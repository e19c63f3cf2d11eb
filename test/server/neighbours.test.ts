/** A client whose key shares nothing with a flood is served in its turn, on every wire. */
import { expect, test } from 'vitest'
import { type Clock, systemClock } from '../../src/clock.ts'
import { propose } from '../../src/lessor/propose.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { command, type Place, place, Raw } from '../support/resp-place.ts'

/** Each reading of this clock takes a tenth of a millisecond, and it is read before each request: a slice has room for fifty. */
function slowClock(): Clock {
  let read = 0
  return Object.assign(Object.create(systemClock) as Clock, { now: () => systemClock.now() + read++ / 10 })
}

async function key({ lessor }: Place, name: string): Promise<string> {
  const secret = `secret-of-${name}`
  await propose(lessor, { kind: 'key', name, hash: hashSecret(secret), allow: [{ verb: 'admin', prefix: '' }] })
  return secret
}

/** Connections of one key that each send `commands` commands at once. */
async function flood(here: Place, secret: string, connections: number, commands: number): Promise<Raw[]> {
  const raws = Array.from({ length: connections }, () => new Raw(here.port))
  await Promise.all(raws.map(raw => raw.ask('AUTH', secret)))
  const pipeline = Buffer.concat(Array.from({ length: commands }, () => command('PING')))
  for (const raw of raws) raw.send(pipeline)
  return raws
}

test('beside 20 connections of another key with 500 commands each, a renewal over RESP is answered long before they are', async () => {
  await using here = await place({ clock: slowClock() })
  const [greedy, quiet] = [await key(here, 'greedy'), await key(here, 'quiet')]
  using neighbour = new Raw(here.port)
  await neighbour.ask('AUTH', quiet)
  const raws = await flood(here, greedy, 20, 500)
  await raws[0]!.next() // the flood has begun
  await neighbour.ask('LEASE.RENEW', 1)
  expect(raws.reduce((sum, { replies }) => sum + replies.length, 0)).toBeLessThan(5_000)
  for (const raw of raws) raw.socket.destroy()
})

test('beside the same flood, a request over HTTP is answered long before it', async () => {
  await using here = await place({ clock: slowClock(), http: httpListener() })
  const [greedy, quiet] = [await key(here, 'greedy'), await key(here, 'quiet')]
  const raws = await flood(here, greedy, 20, 500)
  await raws[0]!.next()
  const answer = await fetch(`http://127.0.0.1:${here.port}/v1/leases?limit=1`, { headers: { authorization: `Bearer ${quiet}` } })
  expect(answer.status).toBe(200)
  expect(raws.reduce((sum, { replies }) => sum + replies.length, 0)).toBeLessThan(5_000)
  for (const raw of raws) raw.socket.destroy()
})
