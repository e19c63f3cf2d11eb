/** Transfers on real engines while answers are lost: a lease has one holder, and both sides learn which. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { Cable, through } from '../../src/testing/cuttable-connection.ts'
import { describeEngine, engine } from '../support/engine.ts'

for (const kind of ['postgres', 'redis', 'etcd'] as const)
  describeEngine(kind, 'a transfer whose answer is lost', () => {
    test('happens once: the recipient holds the lease, and the giver does not', async () => {
      await using server = await engine(kind)
      await using cable = await Cable.to(server.port)
      await using giver = await connect(through(server.url, [server.port], [cable]), { holder: 'giver' })
      await using recipient = await connect(server.url, { holder: 'recipient' })
      for (const name of ['first', 'second', 'third']) {
        const lease = await giver.acquire(name, { ttl: '10m' })
        cable.cutAnswers(2)
        // If the connection was cut before the transfer was sent, nothing was done: the giver still holds the lease, and asks again.
        const number = await lease.transfer('recipient').catch(error => {
          expect(error).toMatchObject({ code: 'UNAVAILABLE' })
          expect(lease.held).toBe(true)
          cable.heal()
          return lease.transfer('recipient')
        })
        cable.heal()
        expect(lease.held).toBe(false)
        await using adopted = await recipient.adopt(number)
        expect(adopted.token).toBeGreaterThan(lease.token)
        expect(await giver.tryAcquire(name)).toBeUndefined()
        expect(adopted.held).toBe(true)
      }
      expect(cable.cut).toBeGreaterThan(0)
    })
  })
