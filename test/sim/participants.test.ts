/** Which renewals a simulated client reports to its server during a stall. */
import { expect, test } from 'vitest'
import { Client, type Host, type Site } from '../../sim/participants.ts'
import { World } from '../../sim/world.ts'
import { LeaseError } from '../../src/errors.ts'

/** Sends one renewal that reaches the server during a stall. */
async function renewDuringStall(replica: object | undefined): Promise<ReadonlyMap<number, number>> {
  const world = new World(1)
  const [server, holder] = [world.machine('server', 1), world.machine('holder', 1)]
  const arrivedWhileStalled = new Map<number, number>()
  const host = {
    machine: server,
    replica,
    arrivedWhileStalled,
    propose: () => Promise.reject(new LeaseError('UNAVAILABLE', 'not ready')),
  }
  const site = { world, wire: { out: () => 10, back: () => 10 } }
  const client = new Client(site as unknown as Site, holder, [host as unknown as Host])
  server.stall(100)
  void client.propose({ kind: 'renew', leases: [7] }).catch(() => {})
  await world.run(200)
  return arrivedWhileStalled
}

test('a renewal that reaches a stalled server counts for S19', async () => {
  expect([...(await renewDuringStall({}))]).toEqual([[7, 10]])
})

test('a renewal that reaches a server before its log is open does not count for S19', async () => {
  expect([...(await renewDuringStall(undefined))]).toEqual([])
})
