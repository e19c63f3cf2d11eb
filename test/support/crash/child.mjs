// A process for crash tests: a replica on a file, with the built library. It runs calls received over IPC and reports what was acknowledged.

import { systemClock } from '../../../dist/clock.js'
import { propose } from '../../../dist/lessor/propose.js'
import { Replica } from '../../../dist/replica/replica.js'
import { FileStore } from '../../../dist/store/file/file.js'

let replica

const calls = {
  async open({ path, owned = false, snapshotRecords = 10_000 }) {
    const store = new FileStore({ path, ...(owned && { own: { name: `process ${process.pid}` } }) })
    replica = await Replica.open(store, { owned, snapshotRecords })
  },

  async propose(command) {
    const sent = systemClock.now()
    const outcome = await propose(replica, command)
    return { outcome, sent, answered: systemClock.now() }
  },

  /** As the library asks for a lease without waiting: leases whose term is over are ended first. */
  async tryAcquire(command) {
    await replica.confirm(command, { signal: new AbortController().signal })
    return calls.propose(command)
  },

  async holders() {
    const { value } = await replica.read({ kind: 'leases' }, { consistent: true })
    return { holders: value.map(({ holder }) => holder), now: systemClock.now() }
  },

  /**
   * Runs several loops at once until the process is killed. Each acquires leases on two resources with an entry, renews them, and releases
   * every other one. The parent may be delayed and kill late, so the number of reports is limited: else records that the parent has not read
   * would be trimmed.
   */
  async pour({ life, lines, most }) {
    let reports = 0
    const report = (...what) => {
      reports++
      process.send(['told', ...what])
    }
    const pourOne = async line => {
      for (let n = 0; reports < most; n++) {
        const name = `${life}/${line}/${n}`
        const outcome = await propose(replica, {
          kind: 'acquire',
          holder: name,
          ttl: 3_600_000,
          wants: [{ resource: `a/${name}` }, { resource: `b/${name}` }],
          entries: [{ key: `e/${name}`, value: name }],
        })
        report('granted', name, outcome.lease, outcome.tokens)
        const { ttls } = await propose(replica, { kind: 'renew', leases: [outcome.lease] })
        if (ttls[0] === 3_600_000) report('renewed', name, outcome.lease)
        if (n % 2 === 0) continue
        report('releasing', name, outcome.lease)
        const released = await propose(replica, { kind: 'release', lease: outcome.lease })
        if (released.kind === 'done') report('released', name, outcome.lease)
      }
    }
    await Promise.all(Array.from({ length: lines }, (_, line) => pourOne(line)))
  },

  async close() {
    await replica[Symbol.asyncDispose]()
  },
}

process.on('message', ([id, call, ...args]) => {
  calls[call](...args).then(
    value => process.connected && process.send([id, true, value]),
    error => process.connected && process.send([id, false, { code: error.code, message: error.message }]),
  )
})
process.on('disconnect', () => process.exit())
