// Benchmark of pools: what one decision and one explanation cost, by the length of the queue. 1,000 members, all taken; every waiter has its own account.
import { apply } from '../dist/kernel/apply.js'
import { createState } from '../dist/kernel/state.js'
import { explainWaiter } from '../dist/pool/explain.js'
import { poolView } from '../dist/replica/pool-view.js'
import { percentile, seconds } from './measure.mjs'

const POOL = 'gpus'
const MEMBERS = 1_000
const QUEUES = [10, 100, 1_000, 10_000]
const NO_EFFECTS = { events: [], timer() {} }

class Kernel {
  state = createState()
  #holders = []

  constructor(queue, waiters) {
    this.state.index = 1
    this.do({ kind: 'policy', prefix: POOL, rules: { queue } })
    const offer = this.do({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [] })
    for (let i = 0; i < MEMBERS; i++) {
      const labels = { host: `h${i >> 3}`, model: i % 2 === 0 ? 'a100' : 'h100', mem: '80' }
      this.do({ kind: 'put', lease: offer.lease, key: `pool/${POOL}/m${i}`, value: JSON.stringify({ labels, units: 1 }) })
    }
    for (let i = 0; i < MEMBERS; i++) this.#holders.push(this.take(`holder-${i}`).lease)
    for (let i = 0; i < waiters; i++) this.take(`user-${i}`)
  }

  do(command) {
    NO_EFFECTS.events.length = 0
    return apply(this.state, { command }, NO_EFFECTS)
  }

  take(holder) {
    return this.do({ kind: 'acquire', holder, ttl: 60_000, wants: [], wait: true, pool: { pool: POOL, expect: 3_600_000 } })
  }

  /** A holder gives its member back, and the waiter that gets it is replaced by another. */
  release(i) {
    const lease = this.#holders[i % MEMBERS]
    const began = seconds()
    this.do({ kind: 'release', lease })
    const took = seconds() - began
    const granted = NO_EFFECTS.events.find(({ type }) => type === 'granted')
    this.#holders[i % MEMBERS] = granted.lease
    return took
  }
}

function milliseconds(times) {
  return (
    percentile(
      times.sort((a, b) => a - b),
      0.5,
    ) * 1_000
  )
}

function timed(work) {
  const began = seconds()
  work()
  return seconds() - began
}

export function pools(report) {
  for (const queue of ['fifo', 'fit', 'backfill', 'fair'])
    for (const waiters of QUEUES) {
      const kernel = new Kernel(queue, waiters)
      const releases = []
      const turns = queue === 'fifo' || queue === 'fit' ? 400 : 40
      for (let i = 0; i < turns; i++) {
        releases.push(kernel.release(i))
        kernel.take(`later-${i}`)
      }
      const of = `${queue}, ${waiters.toLocaleString('en')} waiting`
      report(`${of}: a release and the grant that follows`, milliseconds(releases), 'ms', { target: 'under 1 ms' })
      const { state } = kernel
      const last = [...state.pools.get(POOL).queue].at(-1).id
      const views = Array.from({ length: 15 }, () => timed(() => poolView(state, POOL, { limit: 100 })))
      report(`${of}: the first 100 of the queue`, milliseconds(views), 'ms')
      const lasts = Array.from({ length: 15 }, () => timed(() => explainWaiter(poolView(state, POOL, { lease: last }), last)))
      report(`${of}: explain the last waiter`, milliseconds(lasts), 'ms', { target: 'under 5 ms' })
    }
}
