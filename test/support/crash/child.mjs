// A process to be killed: a replica on a file, on the built library. Does what it is told over IPC and tells what was acknowledged.
import { systemClock } from '../../../dist/clock.js'
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
    const outcome = await replica.propose(command)
    return { outcome, sent, answered: systemClock.now() }
  },

  async holders() {
    const { value } = await replica.read({ kind: 'leases' }, { consistent: true })
    return { holders: value.map(({ holder }) => holder), now: systemClock.now() }
  },

  /**
   * Acquires two things and an entry at once, confirms them, and lets go of every other one, in so many lines at once, until it is killed. Who
   * is to kill it may have been kept from running: not for ever, or entries are trimmed that nobody outside has read.
   */
  async pour({ life, lines, most }) {
    let told = 0
    const tell = (...what) => {
      told++
      process.send(['told', ...what])
    }
    const pourOne = async line => {
      for (let n = 0; told < most; n++) {
        const name = `${life}/${line}/${n}`
        const outcome = await replica.propose({
          kind: 'acquire',
          holder: name,
          ttl: 3_600_000,
          wants: [{ resource: `a/${name}` }, { resource: `b/${name}` }],
          entries: [{ key: `e/${name}`, value: name }],
        })
        tell('granted', name, outcome.lease, outcome.tokens)
        const { ttls } = await replica.propose({ kind: 'renew', leases: [outcome.lease] })
        if (ttls[0] === 3_600_000) tell('renewed', name, outcome.lease)
        if (n % 2 === 0) continue
        tell('releasing', name, outcome.lease)
        const released = await replica.propose({ kind: 'release', lease: outcome.lease })
        if (released.kind === 'done') tell('released', name, outcome.lease)
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
